"""Layouts of results in memory: the strides that a declared layout name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for

from fxrewrite.dsl.formats import SCALE_TILE

TMA_ROWS = 4  # a TMA descriptor wants strides that are multiples of 16 bytes: four float32 scales


class UnknownLayout(ValueError):
    """A layout that torch tensors of this rank cannot have."""


def stored_shape(shape: Sequence[Any], layout: str) -> tuple[Any, ...]:
    """The sizes of the tensor that holds a result of these sizes: "swizzled" scales are whole tiles."""
    if layout != "swizzled":
        return tuple(shape)
    if len(shape) != 2:
        raise UnknownLayout(f"a tensor with {len(shape)} axes cannot be stored in the layout {layout!r}")
    return tuple((n + tile - 1) // tile * tile for n, tile in zip(shape, SCALE_TILE, strict=True))


def strides(shape: Any, layout: str) -> tuple[Any, ...]:
    """The strides of a tensor of `shape` (ints or SymInts).

    "row": contiguous, and so is "swizzled" in its stored shape. "col": the last two axes column-major. "tma":
    column-major, the rows padded to a multiple of 4. Raises UnknownLayout for another name, and for fewer than two
    axes.
    """
    if layout in ("row", "swizzled"):
        return tuple(make_contiguous_strides_for(shape))
    if layout not in ("col", "tma") or len(shape) < 2:
        raise UnknownLayout(f"a tensor with {len(shape)} axes cannot be stored in the layout {layout!r}")
    *leading, rows, columns = shape
    height: Any = torch.sym_max(rows, 1)
    if layout == "tma":
        height = (height + TMA_ROWS - 1) // TMA_ROWS * TMA_ROWS
    inner: Any = torch.sym_max(columns, 1) * height
    outer = make_contiguous_strides_for((*leading, inner))[:-1]
    return (*outer, 1, height)


def empty(shape: Sequence[Any], layout: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A new tensor in the layout."""
    if layout in ("row", "swizzled"):
        return torch.empty(stored_shape(shape, layout), dtype=dtype, device=device)
    return torch.empty_strided(tuple(shape), strides(shape, layout), dtype=dtype, device=device)


def stored(value: Tensor, layout: str, taken: set[int]) -> Tensor:
    """`value` in the layout, in memory that is none of `taken` (addresses of storages); copied only if it has to be."""
    if value.untyped_storage().data_ptr() not in taken and value.stride() == strides(value.shape, layout):
        return value
    copy = empty(value.shape, layout, value.dtype, value.device)
    copy.copy_(value)
    return copy
