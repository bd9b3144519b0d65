"""What a name means where an expression stands, and what an item has collected so far."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field, frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.solver import Solver
from fxrewrite.dsl.check.torch_calls import Returns
from fxrewrite.dsl.core import UNKNOWN, Attribute, DtypeVar, Number, Operand, OperandInfo, Prim, TensorType, Term
from fxrewrite.dsl.diagnostics import Related
from fxrewrite.dsl.dims import Dim, Star
from fxrewrite.dsl.syntax import Span

Value = Any  # Term | Scalar | OneOf | Star | Many | Listed
MAX_TERMS = 2_000  # of one item, `def`s expanded: some seventy times the largest of the library


@frozen
class Many:
    """Several results, or a tuple."""

    values: tuple[Value, ...]


@frozen
class Listed:
    """A list in brackets, `*name` spread."""

    values: tuple[Value, ...]


@define(eq=False, repr=False)
class PartCell:
    """The values of one binding, shared by the names that it binds. `busy` finds a part that is made of itself."""

    values: tuple[Value, ...] | None = None
    busy: bool = False


@frozen
class Part:
    """A name under `where`: its binding and, once asked for, its value."""

    bind: syntax.Bind
    index: int
    cell: PartCell = field(eq=False)


@define(eq=False, repr=False)
class Item:
    """One item being checked.

    `own`: attributes that it declares; `captured`: those that calls on the matched side leave out or name, with their
    place. `types`: what is known of operands without a written type. `bound`: names that the left side of a rule binds;
    `lists`: those that an `each` binds; `numbers` and `tensors`: how each was used. `uses`: how calls use operands.
    `mentioned`: dims that the text names and nothing declares; `callee_dims`: what such a name is to the called ops.
    `texts`: operands of type str. `there`: names that `requires` says are not `none`. `nesting`: how deep the fusions
    that it expands lie in each other.
    """

    name: str
    places: Places
    span: Span
    solver: Solver = field(factory=Solver)
    own: dict[str, Attribute] = field(factory=dict[str, Attribute])
    captured: dict[str, Attribute] = field(factory=dict[str, Attribute])
    captured_at: dict[str, Span] = field(factory=dict[str, Span])
    types: dict[str, TensorType] = field(factory=dict[str, TensorType])
    known: dict[Term, TensorType] = field(factory=dict[Term, TensorType])
    terms: dict[Any, Any] = field(factory=dict[Any, Any])
    named: list[tuple[str, Term]] = field(factory=list[tuple[str, Term]])
    kept: list[str] = field(factory=list[str])
    bound: dict[str, Value] = field(factory=dict[str, Value])
    lists: set[str] = field(factory=set[str])
    tensors: dict[str, Span] = field(factory=dict[str, Span])
    depth: list[str] = field(factory=list[str])
    uses: dict[str, list[OperandInfo]] = field(factory=dict[str, list[OperandInfo]])
    mentioned: dict[str, Span] = field(factory=dict[str, Span])
    callee_dims: dict[str, list[tuple[str, Dim]]] = field(factory=dict[str, list[tuple[str, Dim]]])
    texts: set[str] = field(factory=set[str])
    there: frozenset[str] = frozenset()
    nesting: int = 0
    returns: Returns = field(factory=Returns)

    def intern(self, term: Any) -> Any:
        """The one object for equal terms. RW130 where a definition expands beyond reason."""
        if len(self.terms) > MAX_TERMS:
            message = f"{self.name} expands to more than {MAX_TERMS} primitives"
            raise Problem("RW130", message, self.places.head(self.span), "make parts of it ops")
        return self.terms.setdefault(term, term)

    def type_of(self, term: Term) -> TensorType:
        """The type of a term as far as it is known."""
        if isinstance(term, Operand):
            return self.solver.type(self.types.get(term.name, term.type))
        if isinstance(term, Number):
            return UNKNOWN
        return self.solver.type(self.known.get(term, term.type) if term.type == UNKNOWN else term.type)

    def use(self, term: Term, info: OperandInfo) -> None:
        """Note that an operand stands where `info` is declared."""
        if isinstance(term, Operand):
            self.uses.setdefault(term.name, []).append(info)

    def needs(self, term: Term) -> None:
        """Note that an operand stands where `none` may not."""
        self.use(term, OperandInfo("", UNKNOWN))

    def fit(self, want: TensorType, term: Term, span: Span, what: str) -> None:
        """Unify the type of an argument; an operand without a type takes the declared one."""
        if isinstance(term, Operand) and self.types.get(term.name, term.type) == UNKNOWN:
            self.types[term.name] = want
            return
        self.solver.unify(want, self.type_of(term), span, what)

    def capture(self, attribute: Attribute, name: str, span: Span, op: str) -> None:
        """Note that `attribute` of `op` is captured under `name`.

        RW213 where another attribute has the name already.
        """
        own = self.own.get(name)
        if own is not None:
            if own.type != attribute.type:
                self._clash(attribute, name, span, op, own)
            return
        have = self.captured.get(name)
        if have is None:
            self.captured[name] = attribute
            self.captured_at[name] = span
        elif (have.type, have.optional, have.default) != (attribute.type, attribute.optional, attribute.default):
            self._clash(attribute, name, span, op, have)
        elif have.domain is None:
            self.captured[name] = evolve(have, domain=attribute.domain)

    def _clash(self, attribute: Attribute, name: str, span: Span, op: str, have: Attribute) -> None:
        place = self.captured_at.get(name) or have.span or span
        raise Problem(
            "RW213", f"`{attribute.name}` of {op} and the `{name}` captured before are different attributes", span,
            f"write `{attribute.name}={name}2` on one", [Related(place, f"`{name}` is captured here")],
        )  # fmt: skip


@define(eq=False, repr=False)
class Scope:
    """Names in sight.

    `matched`: the text stands for what is found (left sides, definitions of fusions): attributes left out are captured.
    `binds`: a name that nothing declares is bound here (left side of a rule). `wild`: `_` may stand for anything.
    `expand`: fusions are replaced by their definitions. `caller`: where the `def` of this scope was called. `present`:
    optional operands known to be there. `element`: inside an `each`. `spread`: where a list may stand. `profit`: under
    `prefer`. `prefix`: of the names that parts get.
    """

    item: Item
    file: str
    names: dict[str, Value] = field(factory=dict[str, Value])
    parts: dict[str, Part] = field(factory=dict[str, Part])
    dims: dict[str, Dim | Star] = field(factory=dict[str, Dim | Star])
    classes: dict[str, DtypeVar] = field(factory=dict[str, DtypeVar])
    matched: bool = False
    binds: bool = False
    wild: bool = False
    expand: bool = True
    caller: Scope | None = None
    present: frozenset[str] = frozenset()
    element: bool = False
    spread: bool = False
    profit: bool = False
    prefix: str = ""

    def child(self, **changes: Any) -> Scope:
        """A copy with some fields replaced; parts and names are shared unless replaced."""
        return evolve(self, **changes)

    def add_parts(self, where: tuple[syntax.Bind, ...], results: frozenset[str] = frozenset()) -> None:
        """Declare the names of a `where` clause; RW208 where a name has a meaning already."""
        for bind in where:
            cell = PartCell()
            for index, target in enumerate(bind.targets):
                if target in self.parts or (target in self.names and target not in results):
                    place = self.item.places.word(bind.span, target)
                    raise Problem("RW208", f"`{target}` is a name already", place, "choose another name")
                if target != "_":
                    self.parts[target] = Part(bind, index, cell)


def elementwise(term: Term) -> bool:
    """Is it a primitive that works element by element?"""
    return isinstance(term, Prim) and term.op in _ELEMENTWISE


_ELEMENTWISE = frozenset(
    "add sub mul div fdiv maximum minimum to clamp abs neg exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh"
    " erf ceil floor round round_e2m1 clone".split()
)
