"""Properties that a definition plainly contradicts (RW226). What is not plain is believed: only a proof can tell.

A reduction over rows is no `rowwise` step; a difference changes when its operands are swapped, which a few numbers
show; a definition that is a formula writes and reads nothing beside its operands.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import elementwise
from fxrewrite.dsl.check.terms import operands_of, walk
from fxrewrite.dsl.check.values import items
from fxrewrite.dsl.core import Call, Extern, Lit, Number, OpDef, Operand, OperandInfo, Prim, Ref, Result, Term
from fxrewrite.dsl.dims import Shape, Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

REDUCTIONS = ("amax", "mean", "sum", "var")
Fault = tuple[str, str]  # why, and a hint
REMOVE = "remove the property, or mend the definition"
OF_RANKS = ("psum", "pshard", "pconcat")


def check_claims(checker: Checker, found: tuple[syntax.Property, ...], op: OpDef) -> None:
    """Raise Problem for the first property that an equation contradicts."""
    for prop in found:
        for why, hint in _contradictions(checker, prop, op):
            place = checker.places.word(prop.span, prop.name)
            shown = f"{prop.name}({', '.join(prop.names)})"
            raise Problem(
                "RW226",
                f"the definition of {op.name} contradicts {shown}: {why}",
                place,
                hint,
            )


def _contradictions(checker: Checker, prop: syntax.Property, op: OpDef) -> Iterator[Fault]:
    """Why the definition is not what a property says."""
    terms = [t for e in op.equations for t in e.outputs]
    if prop.name == "commutative":
        yield from _not_commutative(checker, op, *prop.names)
    elif prop.name in ("rowwise", "elementwise"):
        yield from _Rows.of(checker, prop, op).faults(terms)
    elif terms and not any(_has_effect(checker, prop.name, t) for t in walk(tuple(terms))):
        yield ("it is a formula of its operands" if prop.name != "collective" else "no rank meets another"), REMOVE


def _has_effect(checker: Checker, kind: str, t: Any) -> bool:
    """May this step of a definition have such an effect?"""
    if isinstance(t, Call):
        return any(k == kind for k, _ in checker.signature(t.op).effects)
    return isinstance(t, Extern) or (kind == "collective" and isinstance(t, Prim) and t.op in OF_RANKS)


# ---- rows


@define(eq=False, repr=False)
class _Rows:
    """What is known of rows. `lead`: the axes that number them; `listed`: the operands that have them."""

    checker: Checker
    op: OpDef
    elementwise: bool
    listed: frozenset[str]
    lead: Shape

    @classmethod
    def of(cls, checker: Checker, prop: syntax.Property, op: OpDef) -> _Rows:
        """The rows of the operands that a property names."""
        listed = frozenset(prop.names)
        shapes = [o.type.shape or () for o in op.operands if o.name in listed]
        lead = max((s[:-1] for s in shapes), key=len, default=())
        return cls(checker, op, prop.name == "elementwise", listed, lead)

    def faults(self, terms: list[Term]) -> Iterator[Fault]:
        """Why results do not follow rows."""
        for r in self.op.results:
            shape = r.type.shape
            if shape is None or not self.lead:
                continue
            if self.elementwise and shape not in [o.type.shape for o in self.op.operands if o.name in self.listed]:
                yield f"`{r.name}` is {r.type}, another shape", REMOVE
            if shape[: len(self.lead)] != self.lead:
                yield f"`{r.name}` is {r.type}, without the rows of its operands", REMOVE
        for t in walk(tuple(terms), conditions=False):
            if isinstance(t, Prim):
                yield from self.step(t)
            if isinstance(t, Call):
                yield from self.call(t)

    def step(self, t: Prim) -> Iterator[Fault]:
        """What a primitive does to rows."""
        if t.op in REDUCTIONS and self.follows(t.args[0]):
            if self.elementwise:
                yield f"`{t.op}` makes one value of many", REMOVE
            elif self.over_rows(t):
                yield f"`{t.op}` is over the rows", REMOVE
        elif t.op == "matmul" and (self.follows(t.args[1]) or (self.elementwise and self.follows(t.args[0]))):
            why = "`@` makes each value of many" if self.elementwise else "the right side of `@` is all rows at once"
            yield why, REMOVE
        elif elementwise(t) and self.lead and any(map(self.follows, t.args)):
            for other in (a for a in t.args if not isinstance(a, Number) and not self.follows(a)):
                shape = self.shape(other)
                names = [o.name for o in operands_of(other)]
                if names and shape is not None and len(shape) > len(self.lead) and shape[: len(self.lead)] == self.lead:
                    yield f"row by row it reads `{names[0]}` too", self.with_operand(names[0])

    def call(self, t: Call) -> Iterator[Fault]:
        """What an op does to rows, as far as it says so."""
        callee = self.checker.signature(t.op)
        if not callee.rowwise:
            return
        for info, arg in zip(callee.operands, t.args):
            names = [o.name for o in operands_of(arg)]
            if info.name not in callee.rowwise and self.follows(arg):
                yield f"for each row {t.op} reads all of `{info.name}`", REMOVE
            if info.name in callee.rowwise and names and not self.follows(arg):
                yield f"row by row {t.op} reads `{names[0]}` too", self.with_operand(names[0])

    def with_operand(self, name: str) -> str:
        """The hint where an operand has rows and is not listed."""
        listed = ", ".join(o.name for o in self.op.operands if o.name in {*self.listed, name})
        return f"write `rowwise({listed})`"

    def follows(self, t: Any) -> bool:
        """Is it made of the operands that have rows?"""
        return any(o.name in self.listed for o in operands_of(t))

    def shape(self, t: Any) -> Shape | None:
        """The shape of a term."""
        return None if isinstance(t, Number) else t.type.shape

    def over_rows(self, t: Prim) -> bool:
        """Is a reduction over an axis of rows? With any number of leading axes, one counted from the front may be."""
        shape, axes = self.shape(t.args[0]), items(t.params[0])
        if shape is None or axes is None or not self.lead or shape[: len(self.lead)] != self.lead:
            return False
        behind = len(shape) - len(self.lead)
        return axes == () or any(a < -behind or (a >= 0 and isinstance(shape[0], Star)) for a in axes)


# ---- swapped operands

_POINTS = ((0.5, 2.0), (1.25, -0.75), (3.0, 0.25))
_TOLERANCE = 0.05  # far above what rounding to 8 bits makes of these numbers


def _quotient(a: float, b: float) -> float:
    return a / b


def _negative(a: float) -> float:
    return -a


def _reciprocal(a: float) -> float:
    return 1 / a


def _rsqrt(a: float) -> float:
    return 1 / math.sqrt(a)


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


_STEPS: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _quotient,
    "fdiv": _quotient,
    "maximum": max,
    "minimum": min,
    "neg": _negative,
    "abs": math.fabs,
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "sigmoid": _sigmoid,
    "to": float,
    "clone": float,
}


def _not_commutative(checker: Checker, op: OpDef, x: str, y: str) -> Iterator[Fault]:
    infos: dict[str, OperandInfo] = {o.name: o for o in op.operands}
    if (infos[x].type, infos[x].optional) != (infos[y].type, infos[y].optional):
        yield f"`{x}` and `{y}` have two types", REMOVE
    for term in (t for e in op.equations for t in e.outputs):
        for a, b in _POINTS:
            others = {o.name: 0.75 + i for i, o in enumerate(op.operands)}
            try:
                one = _number(checker, term, {**others, x: a, y: b})
                two = _number(checker, term, {**others, x: b, y: a})
            except (ArithmeticError, ValueError):
                continue
            if one is not None and two is not None and abs(one - two) > _TOLERANCE * max(1, abs(one), abs(two)):
                yield f"{x} = {a:g}, {y} = {b:g} gives {one:.4g}, and swapped {two:.4g}", REMOVE


def _number(checker: Checker, t: Any, values: Mapping[str, Any]) -> float | None:
    """A definition that works element by element, for one element; None where it does not, or where that is open."""
    if isinstance(t, Operand):
        return values.get(t.name)
    if isinstance(t, Number | Lit | Ref):
        inner = t.value if isinstance(t, Number) else t
        plain = inner.value if isinstance(inner, Lit) else values.get(inner.name) if isinstance(inner, Ref) else None
        return plain if isinstance(plain, int | float) else None
    if isinstance(t, Result):
        return _called(checker, t, values)
    if not isinstance(t, Prim) or t.op not in _STEPS:
        return None
    args = [_number(checker, a, values) for a in t.args]
    return None if None in args else _STEPS[t.op](*args)


def _called(checker: Checker, t: Result, values: Mapping[str, Any]) -> float | None:
    """A result of an op that has one equation for all of its attributes."""
    callee = checker.signature(t.call.op)
    if len(callee.equations) != 1 or callee.equations[0].pins or callee.equations[0].guards:
        return None
    given = {o.name: _number(checker, a, values) for o, a in zip(callee.operands, t.call.args)}
    given |= {name: _number(checker, v, values) for name, v in t.call.attrs}
    return _number(checker, callee.equations[0].outputs[t.index], given)
