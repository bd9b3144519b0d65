"""Outputs of a rule that name what the first output does not: looked for above the values that are bound already.

`a, b` of `silu(x) * u, silu(x) * w`: once the first has bound `x`, values that read `silu(x)` are tried as the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Choose, Dtype, Each, Either, Extern, OneOf, Operand, Prim, Ref, Result, Taken
from fxrewrite.patterns.state import Next, Slots, State, Step, miss
from fxrewrite.patterns.values import Value


def names(term: Any) -> frozenset[str]:
    """The operands and attributes that a term names."""
    return frozenset(x.name for x in walk(term) if isinstance(x, Operand | Ref) and not isinstance(x, Dtype))


def to_find(outputs: tuple[Any, ...]) -> list[int]:
    """Which outputs must be looked for, in an order in which each has something that those before it bind."""
    bound, found = names(outputs[0]), []
    open_ = [i for i in range(1, len(outputs)) if not isinstance(outputs[i], Each)]
    while open_:
        i = next((i for i in open_ if names(outputs[i]) <= bound), None)
        if i is None:
            i = next((i for i in open_ if _way_down(outputs[i], bound) is not None), open_[0])
            found.append(i)
        open_.remove(i)
        bound |= names(outputs[i])
    return found


class Finder:
    """Looks for the values that one term may be, given what is bound when it is asked.

    `bound`: the names that are. `construct(term, state)`: the value of a term whose names are bound, or None.
    """

    def __init__(self, term: Any, bound: frozenset[str], construct: Any):
        self.term, self.bound, self.construct = term, bound, construct

    def candidates(self, s: State) -> list[Value]:
        """Every value that has the right op above something that is bound; the matcher has the last word."""
        return sorted(set(self._above(self.term, s)), key=lambda v: v.n)

    def _above(self, t: Any, s: State) -> Iterable[Value]:
        if isinstance(t, Operand | Prim | Result | Extern) and names(t) <= self.bound:
            known = self.construct(t, s)
            if type(known) is Value:
                return [known]
        if isinstance(t, Choose):
            return [v for _, case in t.cases for v in self._above(case, s)]
        if isinstance(t, Either):
            return [v for case in t.choices for v in self._above(case, s)]
        below = min(_parts(t), key=lambda p: _way_down(p, self.bound) or 10**9, default=None)
        if below is None:
            return []
        return [v for x in dict.fromkeys(self._above(below, s)) for v in _readers(x, t, s)]


def _parts(t: Any) -> list[Any]:
    """The tensors that a term is made of."""
    call = t.call if isinstance(t, Result | Extern) else t
    if not hasattr(call, "args"):
        return []
    found: list[Any] = []
    todo = [*call.args, *(v for _, v in getattr(call, "kwargs", ()))]
    while todo:
        a = todo.pop(0)
        if isinstance(a, tuple):
            todo += a
        elif isinstance(a, OneOf):
            todo += a.choices
        elif isinstance(a, Taken):
            todo.append(a.value)
        elif isinstance(a, Operand | Prim | Result | Extern | Choose | Either):
            found.append(a)
        elif getattr(a, "op", None) == "list":
            todo += a.args
    return found


def _way_down(t: Any, bound: frozenset[str]) -> int | None:
    """How many steps below a term something bound lies."""
    if isinstance(t, Operand):
        return 1 if t.name in bound else None
    if isinstance(t, Choose | Either):
        parts = [v for _, v in t.cases] if isinstance(t, Choose) else list(t.choices)
    else:
        parts = _parts(t)
    ways = [w for w in (_way_down(p, bound) for p in parts) if w is not None]
    return min(ways) + 1 if ways else None


def _readers(x: Value, t: Any, s: State) -> list[Value]:
    """Values that may be `t`, one of whose parts is `x`."""
    sweep = s.sweep
    if isinstance(t, Result):
        shapes = [x, *(v for v in sweep.users(x) if v.op == "reshape"), *([x.source] if x.source is not None else [])]
        views = [w for v in shapes for w in sweep.by_arg.get((t.call.op, v), ())]
        return [w.results[t.index] for w in views]
    if isinstance(t, Prim) and t.op in ("to", "reshape"):
        return [x, *(v for v in sweep.users(x) if v.op == t.op)]
    users = [v for v in sweep.users(x) if isinstance(t, Extern) or v.op == t.op]
    if isinstance(t, Extern) and t.returned is not None:
        users += [w for v in users for w in sweep.users(v) if w.op == "getitem" and w.args[1] == t.returned]
    return users


def find_further(
    outputs: tuple[Any, ...], slots: Slots, term: Callable[[Any, Next], Step], construct: Any, then: Next
) -> Next:
    """What follows the match of the first of `outputs`: the others that must be looked for, one by one, then `then`.

    `term` compiles a matcher. No value is two outputs.
    """
    order = to_find(outputs)
    for k in reversed(range(len(order))):
        i, before = order[k], order[:k]
        bound = frozenset().union(names(outputs[0]), *(names(outputs[j]) for j in before))
        then = _choice(
            Finder(outputs[i], bound, construct),
            term(outputs[i], then),
            slots(("output", i)),
            [slots(("output", j)) for j in before],
        )
    return then


def _choice(finder: Finder, step: Step, at: int, before: list[int]) -> Next:
    """The choice point of one output. `at`: its slot; `before`: those of the outputs that are found by then."""

    def choose(s: State) -> bool:
        taken = {id(s.anchor), *(id(s.v[j]) for j in before)}
        candidates = [v for v in finder.candidates(s) if id(v) not in taken]
        if not candidates:
            return miss(s, finder.term, "no value above what is bound", "other op")
        for v in candidates:
            mark = len(s.trail)
            s.v[at] = v
            s.trail.append(at)
            if step(v, s):
                return True
            s.undo(mark)
        return False

    return choose
