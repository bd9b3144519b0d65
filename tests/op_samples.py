"""Operands and attribute values for declared ops, made from their signatures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fxrewrite.dsl import registered, scalars
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Attribute,
    Dtype,
    DtypeVar,
    OpDef,
    OperandInfo,
    Program,
    Ref,
)
from fxrewrite.dsl.dims import Star, names
from fxrewrite.dsl.scalars import Env
from fxrewrite.lowering.eager import DTYPES

ROWS, WIDTH, GROUP = 5, 128, 64

VALUES: dict[str, tuple[Any, ...]] = {  # attributes by name: values that matter, the first one plain
    "eps": (1e-6, 1e-5),
    "eq": (1e-6,),
    "ek": (1e-5,),
    "G": (GROUP,),
    "vs": (None, 64),
    "smin": (4.359654017857143e-6, 0.0, 0.01),
    "qeps": (1e-10, 0.0, 0.5),
    "L": ("row", "col", "tma", "swizzled"),
    "Dh": (64,),
    "N": (WIDTH,),
    "n": (8,),
    "a": (1.702, 0.5),
    "lim": (7.0, 0.5),
    "approximate": ("none", "tanh"),
    "g": ("",),
    "sec": ((16, 8, 8),),
}
VALUES_OF = {"quant_fp8_group_packed": {"G": (32,)}}  # four groups in a row
STARS = {"M": (6, WIDTH), "S": (1,), "R": (1,)}  # leading axes that are not `ROWS`: of a mask, of scales of a tensor
SIZES = {"B": 2, "H": 4, "Hk": 2, "S": 6, "P": 16, "R": 64, "Dv": 32}  # dims that are not `WIDTH`


def has_meaning(program: Program, op: OpDef) -> bool:
    """Can it be evaluated? Not where an op has only a `ref` that nobody registered: a cache that an engine holds."""
    called = {c.op for e in op.equations for c in calls_of(e.outputs)}
    own = bool(op.equations) or (op.ref is not None and registered.function(registered.REFS, op.ref) is not None)
    return own and all(has_meaning(program, program.ops[n]) for n in called)


def attribute_values(op: OpDef, a: Attribute) -> tuple[Any, ...]:
    """Values of one attribute, its default first."""
    known = VALUES | VALUES_OF.get(op.name, {})
    if a.name in known:
        found = tuple(v for v in known[a.name] if a.type != "layout" or v in layouts_of(op, a))
    elif a.domain is not None:
        found = a.domain
    else:
        found = (False, True) if a.type == "bool" else ()
    default = () if a.default is NO_DEFAULT else (a.default,)
    return tuple(dict.fromkeys((*default, *found)))


def layouts_of(op: OpDef, a: Attribute) -> tuple[str, ...]:
    """The layouts that an attribute may be: of its domain, else those that are strides."""
    return a.domain or ("row", "col", "tma")


def attribute_sets(op: OpDef, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of attribute values that has the fixed ones."""
    choices = [(fixed[a.name],) if a.name in fixed else attribute_values(op, a) for a in op.attributes]
    for values in product(*choices):
        yield dict(zip((a.name for a in op.attributes), values))


def plain_attributes(op: OpDef) -> dict[str, Any]:
    """One value for each attribute that has no default."""
    return {a.name: attribute_values(op, a)[0] for a in op.attributes if a.default is NO_DEFAULT}


def dtypes_of(op: OpDef) -> list[str]:
    """The dtypes that the first operand may have."""
    first = op.operands[0].type.dtype
    return list(first.members) if isinstance(first, DtypeVar) else [str(first)]


def operands(op: OpDef, dtype: str, optional: bool = True, seed: int = 0, rows: int = ROWS) -> list[Any]:
    """Normal random operands: classes are `dtype` where they may be, optional ones None unless `optional`."""
    generator = torch.Generator().manual_seed(seed)
    return [None if o.optional and not optional else operand(op, o, dtype, generator, rows) for o in op.operands]


def operand(op: OpDef, o: OperandInfo, dtype: str, generator: torch.Generator, rows: int = ROWS) -> Any:
    if o.kind == "str":
        return "layer"
    if o.star:
        return [_tensor(o, dtype, generator, rows) for _ in range(3)]
    return _tensor(o, dtype, generator, rows)


def _tensor(o: OperandInfo, dtype: str, generator: torch.Generator, rows: int) -> Tensor:
    shape = o.type.shape or ()
    dims = {n: SIZES.get(n, WIDTH) for d in shape if not isinstance(d, Star) for n in names(d)}
    dims |= {"T": rows, "G": GROUP}
    sizes = scalars.sizes(
        shape, Env(dims=dims, stars={d.name: STARS.get(d.name, (rows,)) for d in shape if isinstance(d, Star)})
    )
    wanted = torch_dtype(o, dtype)
    if not wanted.is_floating_point:
        return torch.randint(0, SIZES["P"], sizes, generator=generator, dtype=wanted)
    made = torch.randn(sizes, generator=generator)
    if sizes == (1,):
        made = made.abs() * 0.03 + 0.01  # a scale, or a bound of one
    return made.to(wanted)


def torch_dtype(o: OperandInfo, dtype: str) -> torch.dtype:
    """The dtype of an operand where its class is `dtype` if it may be."""
    declared = o.type.dtype
    if isinstance(declared, DtypeVar):
        return DTYPES[dtype if dtype in declared.members else declared.members[0]]
    assert isinstance(declared, Dtype), f"{o.name} has the dtype {declared}" + (
        " of an attribute" if isinstance(declared, Ref) else ""
    )
    return DTYPES[declared.name]
