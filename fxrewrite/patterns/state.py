"""What one attempt to match has bound, in slots with a trail, and how far attempts came that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.guards import same
from fxrewrite.patterns.values import Value

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "unset"})()
Step = Callable[[Any, "State"], bool]  # (value, state) -> stop?
Next = Callable[["State"], bool]
POP = -1  # a trail entry: a deferred equation to take back


class State:
    """What one attempt has bound. `trail`: slots in the order of binding. `deferred`: equations whose names were not
    bound yet.
    """

    __slots__ = ("anchor", "deferred", "emit", "reached", "sweep", "trail", "v")

    def __init__(self, size: int, sweep: Any, anchor: Value, trace: Trace | None = None, emit: Any = None):
        self.anchor = anchor
        self.v: list[Any] = [UNSET] * size
        self.trail: list[int] = []
        self.deferred: list[tuple[Any, Any]] = []
        self.sweep = sweep
        self.reached = trace
        self.emit = emit

    def undo(self, mark: int) -> None:
        """Forget what was bound since `mark`."""
        trail, v = self.trail, self.v
        while len(trail) > mark:
            slot = trail.pop()
            if slot == POP:
                self.deferred.pop()
            else:
                v[slot] = UNSET


class Trace:
    """The deepest point that failed attempts reached: the term, what stood there, and why it did not do."""

    def __init__(self) -> None:
        self.depth, self.term, self.found, self.reason = -1, None, None, ""

    def miss(self, s: State, term: Any, found: Any, reason: str) -> bool:
        """Note a failure; always False."""
        depth = len(s.trail)
        if depth > self.depth:
            self.depth, self.term, self.found, self.reason = depth, term, found, reason
        return False


class Slots:
    """Names of a pattern -> positions in a state."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        """The position of `key`, a new one where it has none."""
        return self.index.setdefault(key, len(self.index))

    def of_term(self, t: Any) -> int:
        """The slot of a shared term."""
        return self(("term", t))


def lookup(slots: Slots, s: State) -> Callable[[str], Any]:
    """Names as scalars ask for them."""

    def find(name: str) -> Any:
        at = slots.index.get(name)
        value = UNSET if at is None or at >= len(s.v) else s.v[at]
        return UNKNOWN if value is UNSET else value

    return find


def bind(s: State, at: int, value: Any) -> bool:
    """Bind a slot, or compare with what it is bound to."""
    have = s.v[at]
    if have is UNSET:
        s.v[at] = value
        s.trail.append(at)
        return True
    if have is value:
        return True
    return type(have) is not Value and type(value) is not Value and same(have, value)


def miss(s: State, term: Any, found: Any, reason: str) -> bool:
    """Note a failure where somebody traces; always False."""
    if s.reached is not None:
        s.reached.miss(s, term, found, reason)
    return False
