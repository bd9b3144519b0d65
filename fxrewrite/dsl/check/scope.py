"""What a name means where an expression stands, and what an item has collected so far."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.solver import Solver
from fxrewrite.dsl.core import (
    UNKNOWN,
    Attribute,
    DtypeVar,
    Number,
    Operand,
    OperandInfo,
    Result,
    Scalar,
    Term,
    TensorType,
)
from fxrewrite.dsl.dims import Dim, Star
from fxrewrite.dsl.syntax import Span

Value = Any  # Term | Scalar | tuple of values (several results) | list of values


@define
class Part:
    """A name under `where`: its binding and, once asked for, its value."""

    bind: syntax.Bind
    index: int
    cell: PartCell


@define
class PartCell:
    """The values of one binding, shared by the names that it binds. `busy` finds a part that is made of itself."""

    value: Value = None
    busy: bool = False


@define
class Item:
    """One item being checked.

    `matched`: its text stands for what is found (left sides, definitions of fusions). `captured`: attributes that calls on the matched
    side left out or named. `types`: what is known of operands without a written type.
    """

    name: str
    solver: Solver = field(factory=Solver)
    captured: dict[str, Attribute] = field(factory=dict)
    own: dict[str, Attribute] = field(factory=dict)
    types: dict[str, TensorType] = field(factory=dict)
    terms: dict[Any, Any] = field(factory=dict)
    named: list[tuple[str, Term]] = field(factory=list)
    kept: list[str] = field(factory=list)
    bound: dict[str, Value] = field(factory=dict)
    depth: list[str] = field(factory=list)
    uses: dict[str, list[OperandInfo]] = field(factory=dict)

    def intern(self, term: Any) -> Any:
        """The one object for equal terms."""
        return self.terms.setdefault(term, term)

    def type_of(self, term: Term) -> TensorType:
        """The type of a term as far as it is known."""
        if isinstance(term, Operand):
            return self.solver.type(self.types.get(term.name, term.type))
        if isinstance(term, Number):
            return UNKNOWN
        return self.solver.type(term.type)

    def capture(self, attribute: Attribute, name: str, span: Span, op: str) -> None:
        """Note that `attribute` of `op` is captured under `name`; RW213 where another attribute has the name already."""
        have = self.own.get(name) or self.captured.get(name)
        if have is None:
            self.captured[name] = attribute
            return
        if (have.type, have.optional, have.default) != (attribute.type, attribute.optional, attribute.default):
            raise Problem(
                "RW213",
                f"`{attribute.name}` of {op} and `{name}` captured before are different attributes",
                span,
                f"write `{attribute.name}={name}2` on one",
            )


@define
class Scope:
    """Names in sight. `binds`: a name that nothing declares is bound here (left side of a rule, arguments of a form)."""

    item: Item
    names: dict[str, Value] = field(factory=dict)
    parts: dict[str, Part] = field(factory=dict)
    dims: dict[str, Dim | Star] = field(factory=dict)
    classes: dict[str, DtypeVar] = field(factory=dict)
    matched: bool = False
    binds: bool = False
    given: dict[str, Scalar] = field(factory=dict)
    caller: Scope | None = None
    present: frozenset[str] = frozenset()  # optional operands known to be there
    element: bool = False

    def child(self, **changes: Any) -> Scope:
        """A copy with some fields replaced; parts and names are shared unless replaced."""
        out = Scope(
            self.item, self.names, self.parts, self.dims, self.classes, self.matched, self.binds, self.given,
            self.caller, self.present, self.element,
        )  # fmt: skip
        for key, value in changes.items():
            setattr(out, key, value)
        return out

    def add_parts(self, where: tuple[syntax.Bind, ...]) -> None:
        """Declare the names of a `where` clause."""
        for bind in where:
            cell = PartCell()
            for index, target in enumerate(bind.targets):
                if target in self.parts and target != "_":
                    raise Problem("RW208", f"`{target}` is named twice", bind.span)
                self.parts[target] = Part(bind, index, cell)


__all__ = ["Item", "Part", "Result", "Scope", "Value"]
