"""The number formats behind the dtype names: what they hold, without torch."""

from __future__ import annotations

from attrs import frozen


@frozen
class Format:
    """A floating-point format.

    `precision`: bits of the significand, the implicit one counted. `lowest`: exponent of the smallest positive value.
    `max`, `min`, `eps` and `tiny` (the smallest normal value) are those of `torch.finfo`.
    """

    precision: int
    lowest: int
    max: float
    min: float
    eps: float
    tiny: float
    infinite: bool = True
    negative_zero: bool = True


def _format(precision: int, smallest_normal: int, largest: float, **kinds: bool) -> Format:
    lowest = smallest_normal - precision + 1
    return Format(precision, lowest, largest, -largest, 2.0 ** (1 - precision), 2.0**smallest_normal, **kinds)


FLOATS: dict[
    str, Format
] = {  # IEEE 754; OCP 8-bit Floating Point 1.0; OCP Microscaling 1.0; e4m3fnuz: arXiv 2206.02915
    "f64": _format(53, -1022, (2 - 2.0**-52) * 2.0**1023),
    "f32": _format(24, -126, (2 - 2.0**-23) * 2.0**127),
    "bf16": _format(8, -126, (2 - 2.0**-7) * 2.0**127),
    "f16": _format(11, -14, 65504.0),
    "e4m3fn": _format(4, -6, 448.0, infinite=False),
    "e4m3fnuz": _format(4, -7, 240.0, infinite=False, negative_zero=False),
    "e5m2": _format(3, -14, 57344.0),
    "e8m0fnu": Format(1, -127, 2.0**127, 2.0**-127, 1.0, 2.0**-127, infinite=False, negative_zero=False),
}
INTEGERS: dict[str, tuple[int, int]] = {
    "bool": (0, 1),
    "u8": (0, 2**8 - 1),
    "i8": (-(2**7), 2**7 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
BYTES: dict[str, int] = {
    **dict.fromkeys(("e4m3fn", "e4m3fnuz", "e5m2", "e8m0fnu", "i8", "u8", "bool"), 1),
    **dict.fromkeys(("bf16", "f16", "i16"), 2),
    **dict.fromkeys(("f32", "i32"), 4),
    **dict.fromkeys(("f64", "i64"), 8),
}
DTYPE_HINTS = {  # what other languages call dtypes
    "bfloat16": "bf16", "float16": "f16", "half": "f16", "fp16": "f16", "float32": "f32", "float": "f32", "fp32": "f32",
    "float64": "f64", "double": "f64", "fp64": "f64", "int8": "i8", "int16": "i16", "int32": "i32", "int": "i32",
    "int64": "i64", "long": "i64", "uint8": "u8", "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2": "e5m2", "float8_e8m0fnu": "e8m0fnu",
}  # fmt: skip
SCALE_TILE = (128, 4)  # rows and columns of a tile of block scales: cuBLAS, "1D Block Scaling Factors Layout"


def widens(narrow: str, wide: str) -> bool:
    """Is every value of `narrow`, infinities and the sign of zero counted, a value of `wide`?"""
    if narrow == wide:
        return True
    if narrow in INTEGERS:
        return _holds_integers(*INTEGERS[narrow], wide)
    if wide in INTEGERS or wide == "e8m0fnu":
        return False
    a, b = FLOATS[narrow], FLOATS[wide]
    kinds = (b.infinite or not a.infinite) and (b.negative_zero or not a.negative_zero)
    return kinds and a.precision <= b.precision and a.lowest >= b.lowest and a.max <= b.max


def _holds_integers(lo: int, hi: int, wide: str) -> bool:
    if wide in INTEGERS:
        return INTEGERS[wide][0] <= lo and hi <= INTEGERS[wide][1]
    bound = max(-lo, hi)  # the lower end is a power of two: exact wherever its neighbours are
    return wide != "e8m0fnu" and hi <= 2 ** FLOATS[wide].precision and bound <= FLOATS[wide].max
