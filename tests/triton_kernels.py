"""Kernels in Triton for the tests of verification on a GPU: codes of `x / s`, right and wrong in ways that kernels are.

Importing this needs triton.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

BLOCK = 256


@triton.jit
def _codes(x, s, out, width, row, step, DIVIDE: tl.constexpr, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        wide = tl.load(x + line * row + at * step, mask=at < width, other=0.0).to(tl.float32)
        scale = tl.load(s)
        y = tl.div_rn(wide, tl.full((BLOCK,), 0.0, tl.float32) + scale) if DIVIDE else wide * (1.0 / scale)
        y = tl.clamp(y, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
        if NARROW:
            y = y.to(x.dtype.element_ty).to(tl.float32)
        tl.store(out + line * width + at, y.to(tl.float8e4nv), mask=at < width)


def codes(x: Tensor, s: Tensor, divide: bool = True, narrow: bool = False, strided: bool = True) -> Tensor:
    """`x` [*B, D] over `s` [1], clamped, as e4m3fn. `narrow` rounds to the dtype of `x` first; not `strided` takes rows
    for contiguous."""
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    if not x.numel():
        return out
    width = x.shape[-1]
    flat = x.reshape(-1, width) if strided else x.as_strided((x.numel() // width, width), (width, 1))
    row, step = flat.stride()
    run: Any = _codes
    run[(flat.shape[0],)](flat, s, out, width, row, step, divide, narrow, BLOCK)
    return out
