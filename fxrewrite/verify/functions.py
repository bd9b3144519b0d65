"""Functions of one value on sets, and bounds: clause 4, what is approximated widens by its slack; the rest is exact."""

from __future__ import annotations

from collections.abc import Callable

import torch
from attrs import evolve
from torch import Tensor

from fxrewrite.verify.floats import INTEGERS, UNIT, above, below, rounded, two_mul
from fxrewrite.verify.intervals import hull, negate, two_of, widen
from fxrewrite.verify.sets import INTEGER, Set, collapse, either, map_bounds, number, two_valued

FLUSHED = 2.0**-126  # what is smaller may be 0 in an exponential


def monotone(
    x: Set, f: Callable[[Tensor], Tensor], ulps: float, least: float = -torch.inf, most: float = torch.inf
) -> Set:
    """An increasing function that a kernel approximates."""
    lo, hi = map_bounds(x, f)
    lo, hi = widen(lo, hi, ulps)
    return hull(lo.clamp(least, most), hi.clamp(least, most), x.nan)


def exponential(x: Set, ulps: float, ulps_for_each: float) -> Set:
    """exp(x): what is below the normal numbers may be 0."""
    lo, hi = map_bounds(x, torch.exp)
    scale = ulps_for_each * UNIT
    relative = map_bounds(x, lambda v: v.abs().clamp(max=200.0).nan_to_num(0.0) * scale)
    lo, hi = widen(lo, hi, ulps, relative)
    lo = lo.clamp(min=0.0)
    return hull(torch.where(lo < FLUSHED, 0.0, lo), hi, x.nan)


def exponential2(x: Set, ulps: float) -> Set:
    """2^x, exact for an integer; what is below the normal numbers may be 0."""
    lo, hi = map_bounds(x, torch.exp2)
    whole = map_bounds(x, lambda v: v == v.round())
    wide = widen(lo, hi, ulps)
    low = torch.where(whole[0], lo, torch.where(wide[0] < FLUSHED, 0.0, wide[0]))
    high = torch.where(whole[1], hi, wide[1])
    two = two_valued(x) if x.grid == INTEGER else None
    return hull(low, low if x.lo is x.hi and bool(whole[0].all()) else high, x.nan, two)


def logarithm2(x: Set, ulps: float) -> Set:
    """log2(x), exact for a power of two."""
    x = within(x, 0.0)
    lo, hi = map_bounds(x, torch.log2)
    wide = widen(lo, hi, ulps)
    exact = map_bounds(x, lambda v: torch.frexp(v)[0] == 0.5)
    return hull(torch.where(exact[0], lo, wide[0]), torch.where(exact[1], hi, wide[1]), x.nan)


def within(x: Set, least: float) -> Set:
    """What lies in the domain of a function from `least` on; the rest may be NaN (a bound that is outside stays)."""
    if x.lo is x.hi:
        return x
    partly = (x.lo < least) & (x.hi >= least)
    if not bool(partly.any()):
        return x
    start = -0.0 if least == 0 else least
    return Set(torch.where(partly, start, x.lo), x.hi, x.dtype, either(x.nan, partly))


def square_root(x: Set) -> Set:
    """The hull of the root and its rounding."""
    x = within(x, 0.0)

    def bound(v: Tensor, away: Callable[[Tensor], Tensor]) -> Tensor:
        root = v.sqrt()
        square, error = two_mul(root, root)
        return torch.where((square == v) & (error == 0) | ~root.isfinite(), root, away(root))

    return collapse(hull(bound(x.lo, below), bound(x.hi, above), x.nan))


def reciprocal_root(x: Set, ulps: float) -> Set:
    """1 / sqrt(x), which falls."""
    x = within(x, 0.0)
    lo, hi = widen(x.hi.rsqrt(), x.lo.rsqrt(), ulps)
    both = x.lo.signbit() & ~x.hi.signbit() & (x.lo == 0)
    return hull(torch.where(both, -torch.inf, lo), torch.where(both, torch.inf, hi), x.nan)


# ---- exact functions


def absolute(x: Set) -> Set:
    """|x|."""
    if x.lo is x.hi:
        size = x.lo.abs()
        return Set(size, size, x.dtype, x.nan, x.grid)
    two = two_valued(x)
    a, b = x.lo.abs(), x.hi.abs()
    across = (x.lo < 0) & (x.hi > 0)
    lo = torch.minimum(a, b)
    lo = torch.where(across if two is None else across & ~two, 0.0, lo)
    return Set(lo, torch.maximum(a, b), x.dtype, x.nan, x.grid, two)


def whole(x: Set, f: Callable[[Tensor], Tensor]) -> Set:
    """ceil, floor or round."""
    lo, hi = map_bounds(x, f)
    return collapse(Set(lo, hi, x.dtype, x.nan, INTEGER, two_valued(x)))


def maximum(a: Set, b: Set) -> Set:
    """The larger; of -0 and +0 either."""
    lo, hi = torch.maximum(a.lo, b.lo), torch.maximum(a.hi, b.hi)
    lo = torch.where((lo == 0) & (a.lo == b.lo) & (a.lo.signbit() | b.lo.signbit()), -0.0, lo)
    hi = torch.where((hi == 0) & (a.hi == b.hi) & ~(a.hi.signbit() & b.hi.signbit()), 0.0, hi)
    return collapse(Set(lo, hi, a.dtype, either(a.nan, b.nan), _common_grid(a, b), two_of(a, b)))


def minimum(a: Set, b: Set) -> Set:
    """The smaller; of -0 and +0 either."""
    return negate(maximum(negate(a), negate(b)))


def clamp(x: Set, lo: Set | float | None, hi: Set | float | None) -> Set:
    """x bounded; NaN stays NaN."""
    if lo is not None:
        x = maximum(x, lo if isinstance(lo, Set) else _bound(lo, x))
    return x if hi is None else minimum(x, hi if isinstance(hi, Set) else _bound(hi, x))


def _bound(value: float, x: Set) -> Set:
    """A number as a bound of x, on the grid of x where it is one of its values."""
    bound = number(value, x.dtype)
    if x.grid is None or x.grid == bound.grid:
        return bound
    on_grid = bound.lo == (bound.lo.round() if x.grid == INTEGER else rounded(bound.lo, x.grid))
    return evolve(bound, grid=x.grid) if bool(on_grid) else bound


def _common_grid(a: Set, b: Set) -> str | None:
    """The grid that the values of both lie on."""
    if a.grid == b.grid:
        return a.grid
    return "f32" if a.grid is not None and b.grid is not None and a.dtype not in INTEGERS else None
