"""Hostile values: what tells one rounding, one order of steps, one bound from another (contract.md, section 3).

    values("midpoints", (256, 64), torch.bfloat16, generator)
    mixed((256, 64), torch.bfloat16, generator)              # every kind, a few rows each

A kind is made in float32, or float64 for wider ranges, and rounded to the dtype; what overflows it saturates, but where
infinities are the point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Generator, Tensor

CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2)
Maker = Callable[[tuple[int, ...], torch.dtype, Generator], Tensor]


# ---- grids


@cache
def grid(dtype: torch.dtype) -> Tensor:
    """The finite values >= 0 of an 8-bit float, ascending, in float32; of int8 those that a code may be."""
    if dtype == torch.int8:
        return torch.arange(128).float()
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype).float()
    return codes[codes.isfinite() & (codes >= 0)].unique()


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # OCP Microscaling 1.0, table 5


def midpoints(codes: Tensor) -> Tensor:
    """Halfway between neighbours of a grid, and where the next code above the largest would begin."""
    top = codes[-1] + (codes[-1] - codes[-2]) / 2
    return torch.cat([(codes[1:] + codes[:-1]) / 2, top[None]])


# ---- kinds


def _normal(shape: tuple[int, ...], g: Generator) -> Tensor:
    return torch.randn(shape, generator=g)


def _uniform(shape: tuple[int, ...], g: Generator) -> Tensor:
    return torch.rand(shape, generator=g)


def _sign(shape: tuple[int, ...], g: Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=g) * 2.0 - 1.0


def _ints(lo: int, hi: int, shape: tuple[int, ...], g: Generator) -> Tensor:
    """Integers from lo to hi, hi among them."""
    return torch.randint(lo, hi + 1, shape, generator=g).float()


def _power(lo: int, hi: int, shape: tuple[int, ...], g: Generator) -> Tensor:
    return torch.exp2(_ints(lo, hi, shape, g))


def _pick(values: Tensor, shape: tuple[int, ...], g: Generator) -> Tensor:
    return values[torch.randint(len(values), shape, generator=g)]


def _narrow(dtype: torch.dtype) -> bool:
    """Has it few exponents?"""
    return torch.finfo(dtype).tiny > 2.0**-100


def _by_row(shape: tuple[int, ...], values: Tensor) -> Tensor:
    """A value a row, over the last axis."""
    return values.reshape(*shape[:-1], 1)


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1)


def _midpoints(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Midpoints of codes times a power of two, a power a row; the largest code stands first in half of the rows."""
    codes = grid(torch.float8_e4m3fn)
    x = _pick(midpoints(codes)[:-1], shape, g) * _sign(shape, g)
    if shape[-1] > 1:
        x[..., 0] = torch.where(_uniform(shape[:-1], g) < 0.5, codes[-1], x[..., 0])
    return x * _power(-9, 3, _rows(shape), g)


def _scaled_midpoints(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Midpoints times a scale that is no power of two: ties of a division by the scale that an amax gives.

    The amax is that of each row, or in half of the tensors that of all rows.
    """
    codes = grid(torch.float8_e4m3fn)
    one = bool(torch.rand((), generator=g) < 0.5)
    amax = (_uniform((1,) * len(shape) if one else _rows(shape), g) * 8 + 0.25).to(dtype).float()
    x = (_pick(midpoints(codes)[:-1], shape, g) * (amax / codes[-1])).to(dtype).float() * _sign(shape, g)
    x[..., :1] = amax
    return x


def _saturating(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    ends = torch.tensor([447.0, 448, 449, 456, 464, 465, 480, 512, 239, 240, 241, 248, 5.0, 6, 7, 127, 127.5, 128, 1e4])
    return _pick(ends, shape, g) * _sign(shape, g)


def _neighbours_of_powers(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    x = _power(-10, 10, shape, g)
    return x * (1 + _ints(-1, 1, shape, g) * torch.finfo(dtype).eps) * _sign(shape, g)


def _zero_rows(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    return _normal(shape, g) * _by_row(shape, _ints(0, 1, shape[:-1], g))


def _one_of_a_row(value: float) -> Maker:
    """Normal values, and `value` once in half of the rows."""

    def make(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
        x = _normal(shape, g)
        if shape[-1] == 0:
            return x
        at = torch.randint(shape[-1], _rows(shape), generator=g)
        there = torch.full(_rows(shape), value).where(_uniform(_rows(shape), g) < 0.5, x.gather(-1, at))
        return x.scatter(-1, at, there)

    return make


def _amax_at(index: int) -> Maker:
    """The largest of a row at one place, at least 4 times the rest; neighbouring rows up to 2^12 larger."""

    def make(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
        x = _uniform(shape, g) * 2 - 1
        if shape[-1]:
            x[..., index] = (4 + 4 * _uniform(shape[:-1], g)) * _sign(shape[:-1], g)
        count = math.prod(shape[:-1])
        return x * _by_row(shape, torch.exp2((torch.arange(count) * 5 % 13).float()))

    return make


def _amax_of_groups(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Groups of 16 channels, the largest first or last in each, every group of another magnitude."""
    x = _uniform(shape, g) * 2 - 1
    place = torch.arange(shape[-1])
    x = torch.where((place % 32 == 0) | (place % 32 == 31), 4 * x.sign() + 4 * x, x)
    return x * torch.exp2((place // 16 * 5 % 13).float())


def _zero_groups(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Zeros in whole groups of 16 to 128 channels; the others as in `_amax_of_groups`."""
    size = (16, 32, 64, 128)[int(torch.randint(4, (), generator=g))]
    return _amax_of_groups(shape, dtype, g) * (torch.arange(shape[-1]) // size % 2)


def _amax_code(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """The largest of a row is the largest code times a power of two: the scale is that power."""
    top = _pick(torch.tensor([448.0, 240.0, 57344.0, 6.0, 127.0, 224.0]), _rows(shape), g)
    x = (_uniform(shape, g) * 2 - 1) * top
    if shape[-1]:
        x[..., -1:] = top
    return x * _power(-12, 2, _rows(shape), g)


def _mixed_magnitudes(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    lo, hi = (-14, 10) if _narrow(dtype) else (-40, 40)
    return _normal(shape, g) * _power(lo, hi, shape, g)


def _times(narrow: float, wide: float) -> Maker:
    """Normal values times a number: one for dtypes of few exponents, one for the others."""
    return lambda shape, dtype, g: _normal(shape, g) * (narrow if _narrow(dtype) else wide)


KINDS: dict[str, Maker] = {
    "normal": lambda shape, dtype, g: _normal(shape, g),
    "midpoints": _midpoints,
    "scaled midpoints": _scaled_midpoints,
    "codes": lambda shape, dtype, g: _pick(grid(torch.float8_e4m3fn), shape, g) * _sign(shape, g),
    "saturating": _saturating,
    "powers": lambda shape, dtype, g: _power(-14, 11, shape, g) * _sign(shape, g),
    "powers and neighbours": _neighbours_of_powers,
    "zero rows": _zero_rows,
    "zero groups": _zero_groups,
    "signed zeros": lambda shape, dtype, g: torch.zeros(shape) * _sign(shape, g),
    "sparse": lambda shape, dtype, g: _normal(shape, g) * (_uniform(shape, g) < 0.05),
    "subnormal": _times(2.0**-20, 2.0**-130),
    "tiny": _times(2.0**-12, 2.0**-60),
    "huge": _times(1e4, 1e30),
    "mixed": lambda shape, dtype, g: _normal(shape, g) * _power(-14, 10, shape, g),
    "mixed magnitudes": _mixed_magnitudes,
    "offset": lambda shape, dtype, g: _normal(shape, g) + 300.0,
    "outlier": _one_of_a_row(3e4),
    "nan": _one_of_a_row(math.nan),
    "inf": _one_of_a_row(math.inf),
    "-inf": _one_of_a_row(-math.inf),
    "negative": lambda shape, dtype, g: _uniform(shape, g) * -110.0,
    "integers": lambda shape, dtype, g: _ints(-8, 8, shape, g),
    "constant": lambda shape, dtype, g: torch.full(shape, 1.7),
    "amax first": _amax_at(0),
    "amax last": _amax_at(-1),
    "amax of groups": _amax_of_groups,
    "amax is a code": _amax_code,
}
EXACT = "integers"  # the kind on which every sum is exact
SPECIAL = ("nan", "inf", "-inf")


def values(kind: str, shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Values of a kind: floats of any width; of an 8-bit float, codes near them."""
    if not shape:
        return values(kind, (1,), dtype, g).reshape(())
    return rounded(KINDS[kind](shape, torch.float32 if dtype.itemsize == 1 else dtype, g), dtype)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in a dtype. What is finite and beyond it is its largest value: an infinity is there only where it is meant."""
    if dtype == torch.float8_e8m0fnu:
        return x.abs().nan_to_num(1.0).clamp(2.0**-127, 2.0**127).to(dtype)
    top = torch.finfo(dtype).max
    return torch.where(x.isfinite(), x.clamp(-top, top), x).to(dtype)


def mixed(shape: tuple[int, ...], dtype: torch.dtype, g: Generator, kinds: Sequence[str] = tuple(KINDS)) -> Tensor:
    """Rows of every kind in turn, so that neighbours are of different kinds. Shape: at least one axis."""
    count = math.prod(shape[:-1])
    each = -(-count // len(kinds))
    blocks = [values(k, (each, shape[-1]), dtype, g) for k in kinds]
    rows = torch.stack(blocks, 1).reshape(each * len(kinds), shape[-1])[:count]
    return rows.reshape(shape)


def integers(shape: tuple[int, ...], dtype: torch.dtype, g: Generator, below: int | None, distinct: bool) -> Tensor:
    """Integers of a dtype: indices below a bound where there is one, all different if `distinct`; else of its range."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if below is None:
        return _whole_range(shape, dtype, g)
    count = math.prod(shape)
    if distinct and count <= below:
        return torch.randperm(below, generator=g)[:count].reshape(shape).to(dtype)
    found = torch.randint(0, max(below, 1), shape, generator=g).to(dtype)
    if found.numel():
        found.reshape(-1)[-1] = max(below - 1, 0)
    return found


def _whole_range(shape: tuple[int, ...], dtype: torch.dtype, g: Generator) -> Tensor:
    """Half of them any of at most 32 bits, a quarter near zero, a quarter where something ends: see `ENDS`."""
    info = torch.iinfo(dtype)
    lo, hi = max(info.min, -(2**31)), min(info.max, 2**31 - 1)
    ends = torch.tensor([n for n in (*ENDS, info.min, info.max) if info.min <= n <= info.max])
    near = torch.randint(max(lo, -8), 9, shape, generator=g)
    found = torch.randint(lo, hi + 1, shape, generator=g)
    turn = torch.randint(4, shape, generator=g)
    return torch.where(turn == 0, near, torch.where(turn == 1, _pick(ends, shape, g), found)).to(dtype)


ENDS = (0, 1, -1, 2**16, 46341, 2**24 + 1, -(2**24) - 1, 2**31, -(2**31) - 1)  # 46341: its square overflows i32


# ---- scales


SCALES = (0.037, 7.5, 3 * 2.0**-8, 100.0, 2.0**-5, 3.1e4, 0.0123, 1.0, 9.033203241415322e-05, 5 * 2.0**-6)


FACTORS = (-0.75, 0.0, -0.0, math.inf, math.nan, -math.inf)  # what a factor may be besides that no scale is


def scale(index: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A scale of one element: round ones and odd ones in turn."""
    return torch.full(shape, SCALES[index % len(SCALES)]).to(dtype)


# ---- natives: facts about values that operands are given


def _doubled(x: Tensor) -> Tensor:
    half = x[..., : x.shape[-1] // 2]
    return torch.cat([half, half, x[..., 2 * half.shape[-1] :]], -1)


FACTS: dict[str, Callable[[Tensor], Tensor]] = {"fxrewrite.facts:doubled": _doubled}
