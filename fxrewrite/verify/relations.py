"""What sizes, dtypes and attributes must satisfy for a definition to have a value: decided on types, without tensors.

    env = Types(attributes=..., dims=...)            # what is chosen so far
    broken(program, op, terms, env)                  # the first condition that cannot hold any more, or None

The conditions are `requires` and guards of the item itself and of every op that it calls, in the sizes that they have
there; that an equation holds, and a case of each choice. What is not yet chosen breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from attrs import define, field, frozen

from fxrewrite.dsl.binding import EvaluationError, bind_operands
from fxrewrite.dsl.check.terms import children, is_list
from fxrewrite.dsl.core import UNKNOWN as NO_TYPE
from fxrewrite.dsl.core import Call, Case, Choose, Operand, Program, TensorType
from fxrewrite.dsl.evaluate import case_holds
from fxrewrite.dsl.scalars import UNKNOWN, Env, holds, sizes, value
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said


@frozen
class Typed:
    """A tensor of which dtype (a `Dtype`) and sizes are known, or UNKNOWN."""

    dtype: Any
    shape: Any


@frozen
class Relation:
    """A condition of an op, as text, and the place of the op."""

    condition: str
    op: str
    span: Span | None = field(default=None, eq=False)


@define(eq=False)
class Types(Env):
    """An environment in which values are types. An operand that is not bound has its declared type."""

    def term(self, term: Any) -> Any:
        """The type of a term, as far as sizes are known."""
        if isinstance(term, Operand) and term.name in self.operands:
            return self.operands[term.name]
        found = self.typed(getattr(term, "type", NO_TYPE))
        return [found] if is_list(term) else found

    def typed(self, type_: TensorType) -> Typed:
        """A declared type with the sizes and dtypes that are chosen."""
        dtype = UNKNOWN if type_.dtype is None else value(type_.dtype, self)
        return Typed(dtype, UNKNOWN if type_.shape is None else sizes(type_.shape, self))

    def dtype_of(self, value: Any) -> Any:
        """The dtype of a type."""
        return value.dtype if isinstance(value, Typed) else UNKNOWN

    def shape_of(self, value: Any) -> Any:
        """The sizes of a type."""
        return value.shape if isinstance(value, Typed) else UNKNOWN


def broken(
    program: Program, name: str, conditions: Iterable[Any], terms: Sequence[Any], env: Types, span: Span | None = None
) -> Relation | None:
    """The first of `conditions`, or of those inside `terms`, that does not hold. `name`: the item that they are of."""
    for condition in conditions:
        if value(condition, env) is False:
            return Relation(said(condition), name, span)
    return _Walk(program, name, span).terms(terms, env)


@define(eq=False)
class _Walk:
    program: Program
    name: str
    span: Span | None
    seen: set[int] = field(factory=set[int])

    def terms(self, terms: Iterable[Any], env: Types) -> Relation | None:
        return next((found for t in terms if (found := self.one(t, env)) is not None), None)

    def one(self, term: Any, env: Types) -> Relation | None:
        if id(term) in self.seen:
            return None
        self.seen.add(id(term))
        if isinstance(term, Choose):
            return self.choice(term, env)
        inside = self.terms(children(term), env)
        return inside or (self.call(term, env) if isinstance(term, Call) else None)

    def choice(self, term: Choose, env: Types) -> Relation | None:
        """The case that is chosen; a choice that is still open breaks nothing."""
        for conditions, case in term.cases:
            found = holds(conditions, env)
            if found is not False:
                return self.one(case, env) if found else None
        tried = " or ".join(said(c) for conditions, _ in term.cases for c in conditions)
        return Relation(tried, self.name, term.span or self.span)

    def call(self, call: Call, env: Types) -> Relation | None:
        """What the called op wants of its operands and attributes."""
        op = self.program.ops[call.op]
        inner = Types(attributes={n: value(a, env) for n, a in call.attrs}, facts=env.facts)
        inner.attributes = {n: a for n, a in inner.attributes.items() if a is not UNKNOWN}
        try:
            bind_operands(op, [argument(a, env) for a in call.args], inner)
        except EvaluationError as error:
            return Relation(str(error), op.name, op.span)
        walk = _Walk(self.program, op.name, op.span)
        unmet = next((c for c in op.requires if value(c, inner) is False), None)
        if unmet is not None:
            return Relation(said(unmet), op.name, op.span)
        return walk.equations(op.equations, op.ref is not None, inner)

    def equations(self, cases: Sequence[Case], has_ref: bool, env: Types) -> Relation | None:
        """The equation that holds; one that may is not looked into."""
        for case in cases:
            found = case_holds(case, env)
            if found is not False:
                return self.terms(case.outputs, env) if found else None
        if has_ref or not cases:
            return None
        tried = " or ".join(said(g) for case in cases for g in case.guards) or "an equation"
        return Relation(tried, self.name, self.span)


def argument(given: Any, env: Types) -> Any:
    """What an argument of a call is: types, a list of them for a list."""
    if isinstance(given, tuple):
        return [env.term(a) for a in cast("tuple[Any, ...]", given)]
    return value(given, env)
