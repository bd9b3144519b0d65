"""Primitives that move values and change none, and how an output that was moved is put back.

Codes that share bytes (`pack2`, `pack4`) are no intervals: a packed byte that is not one value is any byte, so an
output is judged before it was packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from fxrewrite.lowering import eager, packing
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.floats import INTEGERS
from fxrewrite.verify.sets import INTEGER, Set, collapse, number

MOVES = ("reshape", "permute", "expand", "slice", "clone")
UNDONE = ("reshape", "permute", "clone", "swizzle", "pack2", "pack4", "to")  # what can be put back


def moved(x: Set, f: Callable[[Tensor], Tensor]) -> Set:
    """`f`, which moves elements, of every part of a set."""
    lo = f(x.lo)
    hi = lo if x.hi is x.lo else f(x.hi.expand(x.shape))
    nan, ends = (None if m is None else f(m.expand(x.shape)) for m in (x.nan, x.ends))
    return evolve(x, lo=lo, hi=hi, nan=nan, ends=ends, source=None if x.source is None else f(x.source))


def joined(xs: Sequence[Set], f: Callable[[list[Tensor]], Tensor], dtype: str) -> Set:
    """`f`, which joins tensors, of every part of some sets."""
    lo = f([x.lo for x in xs])
    hi = lo if all(x.lo is x.hi for x in xs) else f([x.hi.expand(x.shape) for x in xs])
    nan, ends = None, None
    if any(x.nan is not None for x in xs):
        nan = f([_mask(x, x.nan) for x in xs])
    if any(x.ends is not None for x in xs):
        ends = f([_mask(x, x.ends) for x in xs]) | (lo == hi)
    grids = {x.grid for x in xs}
    return Set(lo, hi, dtype, nan, grids.pop() if len(grids) == 1 else None, ends)


def _mask(x: Set, mask: Tensor | None) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.bool) if mask is None else mask.expand(x.shape)


def move(op: str, x: Set, params: Sequence[Any]) -> Set:
    """A primitive that moves the elements of one tensor."""
    return moved(x, lambda v: eager.PRIMITIVES[op](v, *params))


def swizzle(x: Set) -> Set:
    """Block scales in tiles; the padding is zero bytes."""
    index = swizzled_index(x.shape)
    zero = torch.zeros(1, dtype=torch.uint8).view(DTYPES[x.dtype])
    padding = number(float(zero.to(torch.float32)), x.dtype)

    def f(parts: list[Tensor]) -> Tensor:
        return torch.cat([p.reshape(-1) for p in parts])[index]

    return joined([padding, x], f, x.dtype)


def swizzled_index(shape: Sequence[int]) -> Tensor:
    """Where each byte of the tiles comes from: 1 + its place in the row-major scales, 0 for padding."""
    count = 1
    for n in shape:
        count *= n
    places = torch.arange(1, count + 1).reshape(tuple(shape))
    return sum(packing.swizzle((places >> s & 255).to(torch.uint8)).long() << s for s in (0, 8, 16, 24))  # type: ignore[return-value]


# ---- packed codes


def pack(x: Set, op: str, dtype: str) -> Set:
    """`pack2` or `pack4`: any value where a part of it is not one."""
    certain = x.lo if x.is_integer else x.lo.to(torch.float32).to(DTYPES[x.dtype])
    packed = eager.PRIMITIVES[op](certain).to(torch.float64)
    if x.is_point:
        return Set(packed, packed, dtype, grid=INTEGER)
    size = x.shape[-1] // packed.shape[-1] if packed.shape[-1] else 1
    several = (x.lo != x.hi) | (x.lo.signbit() != x.hi.signbit())
    several = several if x.nan is None else several | x.nan
    unsure = several.unflatten(-1, (-1, size)).sum(-1) > 0
    least, most = INTEGERS[dtype]
    lo, hi = torch.where(unsure, float(least), packed), torch.where(unsure, float(most), packed)
    return collapse(Set(lo, hi, dtype, grid=INTEGER))


def unpack2(codes: Tensor) -> Tensor:
    """The values of E2M1 in bytes: u8[.., N] to f32[.., 2*N]."""
    pairs = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    return E2M1[pairs.long()]


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def unpack4(packed: Tensor) -> Tensor:
    """The exponents in i32s: i32[.., N] to e8m0fnu[.., 4*N]."""
    parts = torch.stack([packed >> s & 255 for s in (0, 8, 16, 24)], -1).flatten(-2)
    return parts.to(torch.uint8).view(torch.float8_e8m0fnu)


# ---- outputs put back


def undo(op: str, params: Sequence[Any], written: Tensor, shape: Sequence[int], dtype: str) -> Tensor:
    """What a step of `UNDONE` was given, of this shape and dtype, where it gave `written`."""
    if op == "to":
        return written.to(DTYPES[dtype])
    if op == "permute":
        order = [d % len(shape) for d in params[0]]
        return written.permute([order.index(d) for d in range(len(shape))])
    if op == "swizzle":
        index = swizzled_index(shape).reshape(-1)
        places = torch.argsort(index)[int((index == 0).sum()) :]
        written = written.contiguous().view(torch.uint8).reshape(-1)[places].view(written.dtype)
    elif op == "pack2":
        written = unpack2(written)
    elif op == "pack4":
        written = unpack4(written)
    return written.reshape(tuple(shape))


def carry(op: str, params: Sequence[Any], mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Where a step's result, of this shape, has a part that is marked."""
    if op == "to":
        return mask
    if op == "swizzle":
        marks = torch.cat([torch.zeros(1, dtype=torch.bool), mask.reshape(-1)])
        return marks[swizzled_index(mask.shape)].reshape(tuple(shape))
    if op in ("pack2", "pack4"):
        return mask.reshape(*shape, -1).any(-1) if mask.numel() else mask.reshape(tuple(shape))
    return eager.PRIMITIVES[op](mask, *params)
