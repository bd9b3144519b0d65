"""Which operands the rows of a fusion follow: row i of each result depends on row i of these alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from fxrewrite.dsl.check.scope import elementwise
from fxrewrite.dsl.check.terms import operands_of
from fxrewrite.dsl.core import Nothing, Number, Operand, OperandInfo, Prim, Result, Term
from fxrewrite.dsl.dims import Shape, Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker


def rowwise(checker: Checker, terms: tuple[Term, ...], operands: tuple[OperandInfo, ...]) -> tuple[str, ...]:
    """The operands, in order; none where a step of the definition is not row-wise, or reads rows as a whole."""
    rows = _Rows(checker)
    if not all(rows.follows(t) for t in terms) or rows.along & rows.whole:
        return ()
    return tuple(o.name for o in operands if o.name in rows.along)


@define(eq=False, repr=False)
class _Rows:
    """`along`: operands read row by row; `whole`: operands that all rows share."""

    checker: Checker
    along: set[str] = field(factory=set[str])
    whole: set[str] = field(factory=set[str])
    seen: set[int] = field(factory=set[int])

    def follows(self, t: Any) -> bool:
        """Do the rows of `t` follow rows of operands?"""
        if id(t) in self.seen or isinstance(t, Number | Nothing):
            return True
        self.seen.add(id(t))
        if isinstance(t, Operand):
            self.along.add(t.name)
            return not t.star
        if isinstance(t, Prim):
            return elementwise(t) and all(self._argument(a, t.type.shape) for a in t.args)
        return self._result(t) if isinstance(t, Result) else False

    def _argument(self, a: Any, shape: Shape | None) -> bool:
        """An operand of an elementwise step: of its shape, or one that all rows share."""
        if isinstance(a, Number | Nothing):
            return True
        mine = a.type.shape
        if shape is None or mine is None:
            return False
        if mine == shape:
            return self.follows(a)
        self.whole |= {o.name for o in operands_of(a)}
        return len(mine) <= 1 and not any(isinstance(d, Star) for d in mine)

    def _result(self, t: Result) -> bool:
        sig = self.checker.signature(t.call.op)
        if not sig.rowwise:
            return False
        for info, arg in zip(sig.operands, t.call.args):
            if info.name not in sig.rowwise:
                self.whole |= {o.name for o in operands_of(arg)}
            elif not self.follows(arg):
                return False
        return True
