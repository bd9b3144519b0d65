"""What the built-ins of narrow formats mean on torch tensors.

Sources: OCP Microscaling Formats (MX) 1.0 for E2M1 and E8M0; PTX ISA, `cvt.rn.satfinite.e2m1x2`, for NaN and for which
nibble comes first; cuBLAS, "1D Block Scaling Factors Layout", for the tiles of scales.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fxrewrite.dsl.formats import SCALE_TILE
from fxrewrite.lowering.layouts import stored_shape

E2M1_MAX = 6.0


def round_e2m1(x: Tensor) -> Tensor:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, with the sign of x; ties go to the even mantissa. f32 to f32.

    What is larger becomes 6, and NaN, which the format does not have, becomes 6 too.
    """
    size = x.abs().clamp(max=E2M1_MAX)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))  # between neighbours, from this value on
    rounded = torch.copysign(torch.round(size / step) * step, x)  # torch rounds halves to even
    return torch.where(x.isnan(), E2M1_MAX, rounded)


def codes_e2m1(x: Tensor) -> Tensor:
    """The 4-bit codes of values of E2M1: sign, two bits of exponent, one of mantissa. f32 to u8."""
    size = x.abs()
    magnitude = torch.where(size < 2, size * 2, torch.where(size < 4, size + 2, size / 2 + 4))
    return magnitude.to(torch.uint8) + torch.signbit(x).to(torch.uint8) * 8


def pack2(x: Tensor) -> Tensor:
    """Values of E2M1, f32[.., 2*N], as bytes, u8[.., N]: the even ones in the low nibbles."""
    codes = codes_e2m1(x)
    return codes[..., 0::2] + codes[..., 1::2] * 16


def pack4(x: Tensor) -> Tensor:
    """Exponents, e8m0fnu[.., 4*N], as i32[.., N]: the first in the low byte, as DeepGEMM reads them."""
    parts = x.contiguous().view(torch.uint8).to(torch.int32)
    packed = parts[..., 0::4]
    for i in range(1, 4):
        packed = packed | (parts[..., i::4] << (8 * i))
    return packed


def swizzle(x: Tensor) -> Tensor:
    """Scales [T, C], one byte each, in tiles of 128 rows by 4 columns, row-major; padded with zero bytes.

    Row r and column c of a tile lie at byte (r % 32) * 16 + (r // 32) * 4 + c of its 512.
    """
    (rows, columns), (height, width) = SCALE_TILE, stored_shape(x.shape, "swizzled")
    wide = torch.cat([x, _zero_bytes(x, x.shape[0], width - x.shape[1])], 1)
    padded = torch.cat([wide, _zero_bytes(x, height - x.shape[0], width)], 0)
    tiles = padded.reshape(height // rows, rows // 32, 32, width // columns, columns).permute(0, 3, 2, 1, 4)
    return tiles.reshape(height, width)


def _zero_bytes(like: Tensor, rows: int, columns: int) -> Tensor:
    """Of any dtype of one byte: E8M0 has no zero."""
    return torch.zeros((rows, columns), dtype=torch.uint8, device=like.device).view(like.dtype)
