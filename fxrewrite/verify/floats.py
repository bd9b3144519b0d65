"""Floating-point formats, exactly: rounding, spacing and error-free steps, on values that are held in float64.

Sources: IEEE 754-2019 for binary16, binary32 and ties to even; OCP 8-bit Floating Point (OFP8) 1.0 for e4m3fn and e5m2;
OCP Microscaling Formats (MX) 1.0 for e2m1 and e8m0; Sterbenz and Dekker's `two_sum` and `two_mul` as in Muller et al.,
Handbook of Floating-Point Arithmetic, chapter 4.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

F64, F32 = torch.float64, torch.float32
UNIT = 2.0**-24  # half an ulp of f32, relative
_MANTISSA = (1 << 52) - 1


@frozen
class Format:
    """A binary format: bits of precision, exponent of the smallest normal number, largest finite value.

    `beyond`: what a value past the largest rounds to: "inf", or "nan" where the format has no infinity.
    `signed_zero`: -0 and +0 are two values.
    """

    precision: int
    least_exponent: int
    top: float
    beyond: str = "inf"
    signed_zero: bool = True


FORMATS: dict[str, Format] = {
    "f64": Format(53, -1022, 1.7976931348623157e308),  # never rounded to: what is computed here is held in it
    "f32": Format(24, -126, 3.4028234663852886e38),
    "bf16": Format(8, -126, 3.3895313892515355e38),
    "f16": Format(11, -14, 65504.0),
    "e4m3fn": Format(4, -6, 448.0, "nan"),
    "e4m3fnuz": Format(4, -7, 240.0, "nan", signed_zero=False),
    "e5m2": Format(3, -14, 57344.0),
    "e2m1": Format(2, 0, 6.0),  # no dtype: what `round_e2m1` gives, and `pack2` packs
}
FP8 = ("e4m3fn", "e4m3fnuz", "e5m2")
INTEGERS: dict[str, tuple[int, int]] = {
    "bool": (0, 1), "u8": (0, 255), "i8": (-128, 127), "i16": (-(1 << 15), (1 << 15) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1), "i64": (-(1 << 63), (1 << 63) - 1),
}  # fmt: skip
F32_TOP = FORMATS["f32"].top
E8M0_LEAST, E8M0_BEYOND = 2.0**-127, 1.5 * 2.0**127  # from here on NaN


def quantum(x: Tensor, format_: Format) -> Tensor:
    """The spacing of the format's values at x, a power of two."""
    exponent = ((x.view(torch.int64) >> 52) & 0x7FF).clamp_(format_.least_exponent + 1023, 2046)
    return ((exponent - (format_.precision - 1)) << 52).view(F64)


def rounded(x: Tensor, name: str) -> Tensor:
    """The nearest value of a format, ties to even, by one rounding; past the largest `inf` or NaN."""
    if name == "f32":
        return x.to(F32).to(F64)
    if name == "f64":
        return x
    if name == "e8m0fnu":
        return rounded_e8m0(x)
    format_ = FORMATS[name]
    q = quantum(x, format_)
    near = (x / q).round_().mul_(q)
    over = near.abs() > format_.top
    if bool(over.any()):
        beyond = torch.copysign(torch.full_like(near, torch.inf if format_.beyond == "inf" else torch.nan), near)
        near = torch.where(over, beyond, near)
    return near if format_.signed_zero else near + 0.0


def rounded_e8m0(x: Tensor) -> Tensor:
    """The nearest power of two, halves up, at least 2^-127; the sign is lost; past 2^127 NaN. As torch casts."""
    size = x.abs()
    power = ((size.view(torch.int64) >> 52) << 52).view(F64)
    near = torch.where(size >= 1.5 * power, 2 * power, power).clamp(min=E8M0_LEAST)
    return torch.where(size < E8M0_BEYOND, near, torch.nan)


def low_bit(x: Tensor) -> Tensor:
    """The value of the lowest bit that is set: x is a multiple of it. Infinite at 0."""
    bits = x.abs().view(torch.int64)
    rest = torch.where((bits & _MANTISSA) == 0, 0, bits & (bits - 1)).view(F64)
    return torch.where(x == 0, torch.inf, x.abs() - rest)


def below(x: Tensor) -> Tensor:
    """The next float64 down."""
    return torch.nextafter(x, torch.full_like(x, -torch.inf))


def above(x: Tensor) -> Tensor:
    """The next float64 up."""
    return torch.nextafter(x, torch.full_like(x, torch.inf))


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a + b and the error of that sum; 0 where it is not finite."""
    total = a + b
    t = total - a
    return total, ((a - (total - t)) + (b - t)).nan_to_num_(0.0, 0.0, 0.0)


def two_mul(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a * b and the error of that product; 0 where it is not finite."""
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return product, (((ah * bh - product) + ah * bl + al * bh) + al * bl).nan_to_num_(0.0, 0.0, 0.0)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    c = x * 134217729.0  # 2^27 + 1
    high = c - (c - x)
    return high, x - high
