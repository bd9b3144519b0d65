"""`each y = f(t, b)`: all values of one form over what is fixed outside of it, the names bound inside being lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Each, OperandInfo
from fxrewrite.dsl.dims import Star
from fxrewrite.patterns.further import Finder, names
from fxrewrite.patterns.state import UNSET, Slots, State, Step
from fxrewrite.patterns.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable


@define(eq=False)
class Members:
    """The compiled `each` of a pattern. `step` matches one member; `inner` are the slots that differ between them."""

    each: Each
    step: Step
    finder: Finder
    inner: list[int]
    lists: dict[str, int]  # name -> slot

    @classmethod
    def make(
        cls, each: Each, slots: Slots, term: Callable[[Any, Any], Step], construct: Any,
        operands: tuple[OperandInfo, ...],
    ) -> Members:  # fmt: skip
        """Compile, after the pattern that `slots` is of."""
        step = term(each, lambda s: True)
        own = frozenset(each.lists)
        finder = Finder(each.body, names(each.body) - own, construct)
        elements = _dims([o for o in operands if o.name in own]) - _dims([o for o in operands if o.name not in own])
        inner = [
            at for key, at in slots.index.items()
            if (key in own or key in elements if isinstance(key, str) else bool(names(key[1]) & own))
        ]  # fmt: skip
        return cls(each, step, finder, inner, {n: slots(n) for n in each.lists})

    def find(self, s: State, fits: Callable[[State], bool]) -> tuple[list[Value], dict[str, tuple[Any, ...]]] | None:
        """The members in graph order and the lists that they bind; None where there are fewer than two, or where the
        match does not stand at the first of them. `fits(state)`: are the bound elements of their declared types?
        """
        saved = [s.v[i] for i in self.inner]
        found: list[tuple[Value, tuple[Any, ...]]] = []
        for v in self.finder.candidates(s):
            if not (v.nodes or v.source is not None):
                continue
            for i in self.inner:
                s.v[i] = UNSET
            mark = len(s.trail)
            if self.step(v, s) and fits(s):
                found.append((v, tuple(s.v[i] for i in self.lists.values())))
            s.undo(mark)
        for i, x in zip(self.inner, saved, strict=True):
            s.v[i] = x
        if len(found) < 2 or found[0][0] is not s.anchor:
            return None
        return [v for v, _ in found], {n: tuple(e[k] for _, e in found) for k, n in enumerate(self.lists)}


def _dims(operands: list[OperandInfo]) -> set[str]:
    """The slots of the sizes that types name."""
    shapes = [d for o in operands for d in o.type.shape or ()]
    return {f"star:{d.name}" for d in shapes if isinstance(d, Star)} | {
        f"dim:{n}" for d in shapes if not isinstance(d, Star) for n in dims.names(d)
    }
