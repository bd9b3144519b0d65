"""After an item is checked: every type and size in its terms with what was solved."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field

from fxrewrite.dsl.check.scope import Item
from fxrewrite.dsl.core import (
    Apply, Call, Choose, Each, Either, Extern, Fresh, Nothing, Number, OneOf, Operand, Prim, Ref, Result, Size, Taken,
    TensorType, TorchCall,
)  # fmt: skip
from fxrewrite.dsl.dims import Dim, Star


@define
class Zonk:
    """Rebuilds terms and scalars with solved names; equal terms stay one object."""

    item: Item
    done: dict[int, Any] = field(factory=dict)
    terms: dict[Any, Any] = field(factory=dict)
    keep: list[Any] = field(factory=list)  # what `done` has ids of must stay alive

    def __call__(self, x: Any) -> Any:
        if x is None or isinstance(x, str | int | float):
            return x
        found = self.done.get(id(x))
        if found is None:
            found = self._rebuild(x)
            self.keep.append(x)
            if isinstance(found, Prim | Result | Choose | Either | Each | Operand | Call | TorchCall | Extern):
                found = self.terms.setdefault(found, found)
            self.done[id(x)] = found
        return found

    def _rebuild(self, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(self(i) for i in x)
        if isinstance(x, TensorType):
            return self.item.solver.type(x)
        if isinstance(x, Dim):
            return self.item.solver.dim(x)
        if isinstance(x, Size):
            return Size(self.item.solver.dim(x.dim))
        if isinstance(x, Apply):
            if x.op == "shape_list":
                return Apply("shape_list", self.item.solver.shape(x.args) or ())
            return Apply(x.op, self(x.args))
        if isinstance(x, Operand):
            return self.operand(x)
        if isinstance(x, Prim):
            return evolve(x, args=self(x.args), params=self(x.params), type=self(x.type))
        if isinstance(x, Result):
            return evolve(x, call=self(x.call), type=self(x.type))
        if isinstance(x, Call):
            return evolve(x, args=self(x.args), attrs=self(x.attrs))
        if isinstance(x, Extern):
            return evolve(x, call=self(x.call), type=self(x.type))
        if isinstance(x, TorchCall):
            return evolve(x, args=self(x.args), kwargs=self(x.kwargs))
        if isinstance(x, Choose):
            return evolve(x, cases=self(x.cases), type=self(x.type))
        if isinstance(x, Either | OneOf):
            return evolve(x, choices=self(x.choices))
        if isinstance(x, Each):
            return evolve(x, body=self(x.body), type=self(x.type))
        if isinstance(x, Fresh):
            return evolve(x, type=self(x.type))
        if isinstance(x, Taken):
            return evolve(x, value=self(x.value))
        if isinstance(x, Number):
            return Number(self(x.value))
        if isinstance(x, Nothing | Ref | Star):
            return x
        return self.item.solver.dtype(x) if hasattr(x, "members") else x

    def operand(self, x: Operand) -> Operand:
        """The operand with its solved type; one whose every use may be `none` may be `none`."""
        uses = self.item.uses.get(x.name, [])
        written = x.name not in self.item.types
        optional = x.optional if written else bool(uses) and all(u.optional for u in uses)
        return evolve(x, type=self.item.type_of(x), optional=optional)
