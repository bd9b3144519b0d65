"""Where the elements of an operand lie in memory: kernels that take strides for granted are found by these."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LAYOUTS = ("contiguous", "sliced", "offset", "transposed", "strided", "broadcast")
OFFSET, MARGIN = 3, 8  # elements: before a storage begins to be read, and between rows of a parent


def placed(x: Tensor, layout: str) -> Tensor:
    """The values of `x` in a layout; those that an axis too few does not allow are contiguous.

    `sliced`: part of wider rows. `offset`: begins inside its storage. `transposed`: the last two axes are column-major.
    `strided`: every second element of the last axis. `broadcast`: all rows are the first one, with stride 0.
    """
    return _PLACED[layout](x.contiguous()) if x.ndim and x.numel() else x


def _empty(x: Tensor, *sizes: int) -> Tensor:
    """Memory with values that nobody should read: the largest of the dtype."""
    info = torch.finfo(x.dtype) if x.dtype.is_floating_point else None
    if x.dtype == torch.bool:
        return torch.ones(sizes, dtype=x.dtype)
    return torch.full(sizes, info.max if info else torch.iinfo(x.dtype).max, dtype=x.dtype)


def _sliced(x: Tensor) -> Tensor:
    parent = _empty(x, *x.shape[:-1], x.shape[-1] + 2 * MARGIN)
    parent[..., MARGIN:-MARGIN] = x
    return parent[..., MARGIN:-MARGIN]


def _offset(x: Tensor) -> Tensor:
    storage = _empty(x, x.numel() + OFFSET)
    storage[OFFSET:] = x.reshape(-1)
    return storage[OFFSET:].view(x.shape)


def _transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.ndim > 1 else x


def _strided(x: Tensor) -> Tensor:
    parent = _empty(x, *x.shape[:-1], 2 * x.shape[-1])
    parent[..., ::2] = x
    return parent[..., ::2]


def _broadcast(x: Tensor) -> Tensor:
    return x[:1].expand(x.shape)


_PLACED: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "sliced": _sliced,
    "offset": _offset,
    "transposed": _transposed,
    "strided": _strided,
    "broadcast": _broadcast,
}
