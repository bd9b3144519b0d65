"""What sizes, dtypes and attributes must satisfy for a definition to have a value: decided on types, without tensors.

    env = Types(attributes=..., dims=...)            # what is chosen so far
    Relations(program).of_op(op, env)                # the first condition that cannot hold any more, or None

The conditions are `requires` and guards of the item itself and of every op that it calls, in the sizes that they have
there; that an equation holds, and a case of each choice. What is not yet chosen breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from attrs import define, field, frozen

from fxrewrite.dsl.binding import EvaluationError, bind_operands
from fxrewrite.dsl.check.terms import children, is_list, names_of, operands_of, walk
from fxrewrite.dsl.core import UNKNOWN as NO_TYPE
from fxrewrite.dsl.core import Call, Choose, DtypeVar, OpDef, Operand, Program, TensorType
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


@frozen
class Choice:
    """What a choice between terms asks: conditions, and what is inside the case that they choose."""

    cases: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    span: Span | None


@define(eq=False)
class Relations:
    """The relations of the ops of a program. `inside`: what terms ask, by the identity of their tuple."""

    program: Program
    inside: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = field(factory=dict[int, Any])
    spoken: dict[str, set[str]] = field(factory=dict[str, set[str]])

    def broken(self, item: Item, terms: tuple[Any, ...], env: Types) -> Relation | None:
        """The first condition of an item, or of what is inside `terms`, that does not hold."""
        for condition in item.conditions:
            if value(condition, env) is False:
                return Relation(said(condition), item.name, item.span)
        return self.all_of(self.asked(terms), item, env)

    def asked(self, terms: tuple[Any, ...]) -> tuple[Any, ...]:
        """The calls inside terms, and the choices; those inside a case of a choice are its own."""
        found = self.inside.get(id(terms))
        if found is None:
            found = self.inside[id(terms)] = (terms, _asked(terms))  # with the terms, so that the identity stays theirs
        return found[1]

    def names(self, conditions: Iterable[Any], terms: tuple[Any, ...]) -> set[str]:
        """The attributes, operands and dtype classes that conditions, and those inside `terms`, speak of."""
        found = _spoken_of(conditions)
        for part in self.asked(terms):
            calls = [part] if isinstance(part, Call) else list(_calls(part))
            for call in calls:
                op = self.program.ops[call.op]
                theirs = self.of_names(op)
                found |= _spoken_of(a for n, a in call.attrs if n in theirs)
                found |= _spoken_of(a for o, a in zip(op.operands, call.args) if theirs & {o.name, *_classes(o.type)})
        return found

    def of_names(self, op: OpDef) -> set[str]:
        """The attributes and operands that the conditions of an op speak of."""
        found = self.spoken.get(op.name)
        if found is None:
            found = self.spoken[op.name] = self.names(op.requires, ())
            for case in op.equations:
                found |= {n for n, _ in case.pins} | self.names(case.guards, case.outputs)
        return found

    def all_of(self, parts: Iterable[Any], item: Item, env: Types) -> Relation | None:
        """The first relation that calls and choices break."""
        for part in parts:
            found = self.call(part, env) if isinstance(part, Call) else self.choice(part, item, env)
            if found is not None:
                return found
        return None

    def choice(self, part: Choice, item: Item, env: Types) -> Relation | None:
        """The case that is chosen; a choice that is still open breaks nothing."""
        for conditions, inside in part.cases:
            found = holds(conditions, env)
            if found is not False:
                return self.all_of(inside, item, env) if found else None
        tried = " or ".join(said(c) for conditions, _ in part.cases for c in conditions)
        return Relation(tried, item.name, part.span or item.span)

    def call(self, call: Call, env: Types) -> Relation | None:
        """What the called op wants of its operands and attributes."""
        op = self.program.ops[call.op]
        inner = Types(attributes={n: value(a, env) for n, a in call.attrs}, facts=env.facts)
        inner.attributes = {n: a for n, a in inner.attributes.items() if a is not UNKNOWN}
        try:
            bind_operands(op, [argument(a, env) for a in call.args], inner)
        except EvaluationError as error:
            return Relation(str(error), op.name, op.span)
        return self.of_op(op, inner)

    def of_op(self, op: OpDef, env: Types) -> Relation | None:
        """What an op requires, and that an equation holds; one that may hold is not looked into."""
        item = Item(op.name, op.requires, op.span)
        found = self.broken(item, (), env)
        if found is not None:
            return found
        for case in op.equations:
            stands = case_holds(case, env)
            if stands is not False:
                return self.all_of(self.asked(case.outputs), item, env) if stands else None
        if op.ref is not None or not op.equations:
            return None
        tried = " or ".join(said(g) for case in op.equations for g in case.guards)
        return Relation(tried or "an equation", op.name, op.span)


@frozen
class Item:
    """An item whose conditions are asked: its name and place."""

    name: str
    conditions: tuple[Any, ...]
    span: Span | None = None


def _asked(terms: Iterable[Any]) -> tuple[Any, ...]:
    found: dict[int, Any] = {}
    seen: set[int] = set()
    todo = list(terms)
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Choose):
            found[id(x)] = Choice(tuple((c, _asked((t,))) for c, t in x.cases), x.span)
            continue
        if isinstance(x, Call):
            found[id(x)] = x
        todo.extend(children(x))
    return tuple(found.values())


def _calls(choice: Choice) -> Iterable[Call]:
    for part in (p for _, inside in choice.cases for p in inside):
        yield from [part] if isinstance(part, Call) else _calls(part)


def _spoken_of(conditions: Iterable[Any]) -> set[str]:
    listed = tuple(conditions)
    classes = {x.key for x in walk(listed) if isinstance(x, DtypeVar)}
    operands = operands_of(listed)
    return names_of(listed) | classes | {n for o in operands for n in (o.name, *_classes(o.type))}


def _classes(type_: TensorType) -> set[str]:
    return {type_.dtype.key} if isinstance(type_.dtype, DtypeVar) else set()


def argument(given: Any, env: Types) -> Any:
    """What an argument of a call is: types, a list of them for a list."""
    if isinstance(given, tuple):
        return [env.term(a) for a in cast("tuple[Any, ...]", given)]
    return value(given, env)
