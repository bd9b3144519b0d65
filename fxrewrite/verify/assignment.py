"""A choice of everything that a claim leaves open, and what it makes of operands."""

from __future__ import annotations

from typing import Any

import torch
from attrs import field, frozen

from fxrewrite.dsl.core import Dtype, OpDef, OperandInfo
from fxrewrite.dsl.dims import Dim, names
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.relations import Typed, Types


@frozen
class Assignment:
    """A choice. `dtypes`: of classes by key, of operands of any dtype by name. `length`: of list operands. `types`: of
    operands whose declared type does not say it.
    """

    attributes: dict[str, Any]
    dims: dict[str, int]
    stars: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    present: dict[str, bool]
    length: int
    types: dict[str, Typed] = field(factory=dict[str, Typed])

    @property
    def absent(self) -> frozenset[str]:
        """The operands that are `none`."""
        return frozenset(n for n, there in self.present.items() if not there)

    def env(self, op: OpDef) -> Types:
        """What conditions are asked in."""
        env = Types(attributes=dict(self.attributes), dims=dict(self.dims), stars=dict(self.stars))
        env.dtypes = {k: Dtype(n) for k, n in self.dtypes.items()}
        env.operands = {**dict.fromkeys(self.absent), **self.types}
        for o in op.operands:
            if self.present.get(o.name):
                env.operands[o.name] = env.typed(o.type)
        for o in op.operands:
            if o.star and self.length:
                env.operands[o.name] = [element(o, i, env) for i in range(self.length)]
        return env


EMPTY = Assignment({}, {}, {}, {}, {}, 0)


def element(info: OperandInfo, index: int, env: Types) -> Typed:
    """The type of one of a list: a size of its own is that of its place."""
    inner = Types(attributes=env.attributes, dims=dict(env.dims), stars=dict(env.stars), dtypes=env.dtypes)
    for d in info.type.shape or ():
        for n in names(d) if isinstance(d, Dim) else ():
            if n not in env.dims and n in env.stars:
                inner.dims[n] = env.stars[n][index]
    return inner.typed(info.type)


def zeros(op: OpDef, chosen: Assignment) -> list[Any]:
    """Operands of a choice that hold nothing but zeros."""
    env = chosen.env(op)
    return [_zeros(o, env) if o.name not in chosen.absent else None for o in op.operands]


def _zeros(info: OperandInfo, env: Types) -> Any:
    if info.kind == "str":
        return ""
    types = env.operands[info.name] if info.star else [env.operands.get(info.name) or env.typed(info.type)]
    made = [torch.zeros(t.shape, dtype=DTYPES[t.dtype.name]) for t in types]
    return made if info.star else made[0]
