"""Declared roundings: `to` replaces a set by its image (clause 7). FP8 beyond its largest value: clause 8."""

from __future__ import annotations

import torch
from torch import Tensor

from fxrewrite.verify.floats import FORMATS, FP8, INTEGERS, rounded
from fxrewrite.verify.functions import absolute
from fxrewrite.verify.sets import INTEGER, Set, collapse, either, map_bounds, same, two_valued


def cast(x: Set, dtype: str) -> Set:
    """The image of a set in a dtype."""
    if dtype in INTEGERS:
        return _to_integer(x, dtype)
    two = two_valued(x)
    if dtype == "e8m0fnu":
        return _to_e8m0(x, two)
    lo, hi = map_bounds(x, lambda v: rounded(v, dtype))
    nan = x.nan
    grid = x.grid if x.grid in FORMATS and _holds(dtype, x.grid) else dtype
    if dtype in FP8:
        lo, hi, nan = _beyond(x, lo, hi, nan, FORMATS[dtype].top)
    return collapse(Set(lo, hi, dtype, nan, None if dtype == "f64" and x.grid is None else grid, two))


def _holds(dtype: str, grid: str | None) -> bool:
    """Is every value of a grid one of a dtype?"""
    if grid is None or grid not in FORMATS:
        return False
    wide, narrow = FORMATS[dtype], FORMATS[grid]
    return (
        wide.precision >= narrow.precision
        and wide.top >= narrow.top
        and wide.least_exponent - wide.precision <= narrow.least_exponent - narrow.precision
    )


def _beyond(x: Set, lo: Tensor, hi: Tensor, nan: Tensor | None, top: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """Past the largest value an FP8 cast gives that or what the format has there: conversions differ, so definitions
    clamp."""
    lost = lo.isnan() & ~x.lo.isnan() | hi.isnan() & ~x.hi.isnan()
    if bool(lost.any()):
        nan = either(nan, lost)
        lo = torch.where(lost & lo.isnan(), torch.copysign(torch.full_like(x.lo, top), x.lo), lo)
        hi = torch.where(lost & hi.isnan(), torch.copysign(torch.full_like(x.hi, top), x.hi), hi)
    return torch.where(lo == torch.inf, top, lo), torch.where(hi == -torch.inf, -top, hi), nan


def _to_e8m0(x: Set, two: Tensor | None) -> Set:
    size = x if x.lo is x.hi and not bool(x.lo.signbit().any()) else absolute(x)
    lo, hi = map_bounds(size, lambda v: rounded(v, "e8m0fnu"))
    if bool(((size.hi > 2.0**-127) & (size.hi < 2.0**-126)).any()):  # torch 2.13 rounds these up, the nearest is below
        hi = torch.where((size.hi > 2.0**-127) & (size.hi < 2.0**-126), 2.0**-126, hi)
    nan = x.nan
    part = hi.isnan() & ~lo.isnan()
    if bool(part.any()):
        nan, hi = either(nan, part), torch.where(part, 2.0**127, hi)
    return collapse(Set(lo, hi, "e8m0fnu", nan, "e8m0fnu", two))


def _to_integer(x: Set, dtype: str) -> Set:
    """Toward zero; what does not fit, and NaN, is any value."""
    least, most = INTEGERS[dtype]
    if dtype == "bool":
        return _to_bool(x)
    lo, hi = map_bounds(x, lambda v: v.trunc() + 0.0)
    two = two_valued(x)
    inside = (lo >= least) & (hi <= most)
    if x.nan is not None:
        inside &= ~x.nan
    if not bool(inside.all()):
        two = two if two is None else two & inside
        lo, hi = torch.where(inside, lo, float(least)), torch.where(inside, hi, float(most))
    return collapse(Set(lo, hi, dtype, None, INTEGER, two))


def _to_bool(x: Set) -> Set:
    maybe_zero, maybe_more = (x.lo <= 0) & (x.hi >= 0), ~same(x.lo + 0.0, torch.zeros_like(x.lo)) | (x.hi != 0)
    if x.nan is not None:
        maybe_more = maybe_more | x.nan
    lo = torch.where(maybe_zero, 0.0, 1.0).to(x.lo.dtype)
    return collapse(Set(lo, torch.where(maybe_more, 1.0, 0.0).to(x.lo.dtype), "bool", None, INTEGER))
