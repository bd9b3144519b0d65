"""Terms and scalars rebuilt: after an item is checked with what was solved, at a call with what the call gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from attrs import define, evolve, field

from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.scope import Item
from fxrewrite.dsl.check.solver import Instance
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Call,
    Choose,
    DtypeVar,
    Each,
    Either,
    Extern,
    Fresh,
    Number,
    OneOf,
    Operand,
    Prim,
    Ref,
    Result,
    Scalar,
    Size,
    Taken,
    TensorType,
    Term,
    TorchCall,
)
from fxrewrite.dsl.dims import Dim, Star

INTERNED = (Prim, Result, Choose, Either, Each, Operand, Call, TorchCall, Extern)


@define(eq=False, repr=False)
class Rebuild:
    """Rebuilds terms and scalars; equal terms stay one object. Subclasses say what becomes of names."""

    item: Item
    done: dict[int, Any] = field(factory=dict[int, Any])
    keep: list[Any] = field(factory=list[Any])  # what `done` has ids of must stay alive

    def intern(self, term: Any) -> Any:
        """The one object for equal terms."""
        return self.item.intern(term)

    def __call__(self, x: Any) -> Any:
        """`x` rebuilt."""
        if x is None or isinstance(x, str | int | float):
            return x
        found = self.done.get(id(x))
        if found is None:
            found = self.rebuild(x)
            self.keep.append(x)
            if isinstance(found, INTERNED):
                found = self.intern(found)
            self.done[id(x)] = found
        return found

    def rebuild(self, x: Any) -> Any:
        """`x` with its parts rebuilt."""
        make = _REBUILD.get(x.__class__)
        return make(self, x) if make is not None else x

    def type(self, type_: TensorType) -> TensorType:
        """A type."""
        raise NotImplementedError

    def axis(self, dim: Dim | Star) -> Any:
        """An item of a shape: one, or a tuple of them."""
        raise NotImplementedError

    def size(self, dim: Dim) -> Dim:
        """A dim in a scalar."""
        raise NotImplementedError

    def operand(self, x: Operand) -> Any:
        """An operand."""
        raise NotImplementedError

    def ref(self, x: Ref) -> Any:
        """An attribute."""
        return x

    def dtype(self, x: DtypeVar) -> Any:
        """The dtype of a class."""
        raise NotImplementedError


def _apply(r: Rebuild, x: Apply) -> Any:
    if x.op == "shape_list":
        return Apply("shape_list", _axes(r, x.args))
    if x.op == "list":
        return Apply("list", tuple(a for i in x.args for a in (_axes(r, (i,)) if isinstance(i, Star) else (r(i),))))
    return conditions.fold(x.op, tuple(r(a) for a in x.args))


def _axes(r: Rebuild, axes: tuple[Any, ...]) -> tuple[Any, ...]:
    out: list[Any] = []
    for axis in axes:
        made = r.axis(axis)
        out += cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)
    return tuple(out)


def _choose(r: Rebuild, x: Choose) -> Any:
    """A choice without the cases that cannot be; one that is certain is no choice."""
    cases: list[tuple[tuple[Scalar, ...], Term]] = []
    for conds, term in x.cases:
        made = tuple(conditions.conjuncts(tuple(r(c) for c in conds)))
        if conditions.FALSE in made:
            continue
        if not made and not cases:
            return r(term)
        cases.append((made, r(term)))
        if not made:
            break
    return evolve(x, cases=tuple(cases), type=r(x.type))


def _either(r: Rebuild, x: Either) -> Any:
    return evolve(x, choices=r(x.choices), type=r(x.type))


_Part = Callable[[Rebuild, Any], Any]
_REBUILD: dict[type, _Part] = {
    tuple: lambda r, x: tuple(map(r, x)),
    TensorType: lambda r, x: r.type(x),
    Dim: lambda r, x: r.size(x),
    Size: lambda r, x: Size(r.size(x.dim)),
    Apply: _apply,
    Operand: lambda r, x: r.operand(x),
    Ref: lambda r, x: r.ref(x),
    DtypeVar: lambda r, x: r.dtype(x),
    Prim: lambda r, x: Prim(x.op, r(x.args), r(x.params), x.result, r(x.type), x.span),
    Result: lambda r, x: Result(r(x.call), x.index, r(x.type)),
    Call: lambda r, x: Call(x.op, r(x.args), r(x.attrs), x.span),
    Extern: lambda r, x: evolve(
        x, call=r(x.call), type=r(r.item.known.get(x, x.type) if x.type == UNKNOWN else x.type)
    ),
    TorchCall: lambda r, x: evolve(x, args=r(x.args), kwargs=r(x.kwargs)),
    Choose: _choose,
    Either: _either,
    OneOf: lambda r, x: evolve(x, choices=r(x.choices)),
    Each: lambda r, x: evolve(x, body=r(x.body), type=r(x.type)),
    Fresh: lambda r, x: evolve(x, type=r(x.type)),
    Taken: lambda r, x: evolve(x, value=r(x.value)),
    Number: lambda r, x: Number(r(x.value)),
}


@define(eq=False, repr=False)
class Zonk(Rebuild):
    """With what the solver found. Numbers that were bound as operands of unknown kind become references."""

    terms: dict[Any, Any] = field(factory=dict[Any, Any])

    def intern(self, term: Any) -> Any:
        """Apart from the terms of the item, whose types are older."""
        return self.terms.setdefault(term, term)

    def type(self, type_: TensorType) -> TensorType:
        """The type as far as it is solved."""
        return self.item.solver.type(type_)

    def axis(self, dim: Dim | Star) -> Any:
        """The axis as far as it is solved: leading axes may be several."""
        return self.item.solver.shape((dim,))

    def size(self, dim: Dim) -> Dim:
        """The dim as far as it is solved."""
        return self.item.solver.dim(dim)

    def dtype(self, x: DtypeVar) -> Any:
        """The dtype as far as it is solved."""
        return self.item.solver.dtype(x)

    def operand(self, x: Operand) -> Any:
        """The operand with its solved type; one whose every use may be `none` may be `none`."""
        bound = self.item.bound.get(x.name)
        if isinstance(bound, Ref):
            return bound
        uses = self.item.uses.get(x.name, [])
        written = x.name not in self.item.types
        optional = x.optional if written else bool(uses) and all(u.optional for u in uses)
        return evolve(x, type=self.item.type_of(x), optional=optional)


@define(eq=False, repr=False)
class Instantiate(Rebuild):
    """A checked definition or condition at a call: operands and attributes as the call gives them, dims renamed."""

    operands: dict[str, Any] = field(kw_only=True)
    instance: Instance = field(kw_only=True)

    def type(self, type_: TensorType) -> TensorType:
        """The type in the names of the item."""
        return self.instance.type(type_)

    def axis(self, dim: Dim | Star) -> Any:
        """The axis in the names of the item."""
        return self.instance.axis(dim)

    def size(self, dim: Dim) -> Dim:
        """The dim in the names of the item."""
        return self.instance.dim(dim)

    def dtype(self, x: DtypeVar) -> Any:
        """The dtype in the names of the item."""
        return self.instance.dtype(x)

    def operand(self, x: Operand) -> Any:
        """What the call gives."""
        if x.name not in self.operands:  # `_`: a value of its own at each call
            self.operands[x.name] = Operand(self.item.solver.fresh(x.name), self.type(x.type), x.optional)
        given = self.operands[x.name]
        if isinstance(given, Operand) and given.optional and not x.optional:
            return evolve(given, optional=False)
        return given

    def ref(self, x: Ref) -> Any:
        """What the call gives."""
        if x.name not in self.instance.attributes:
            self.instance.attributes[x.name] = Ref(self.item.solver.fresh(x.name))
        return self.instance.attributes[x.name]
