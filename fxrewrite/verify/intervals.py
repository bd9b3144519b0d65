"""Arithmetic on sets.

Clause 2 of the contract: `+ - *` give the hull of the exact result and its rounding to f32. Clause 3: `/` is one IEEE
division, `fdiv` a relaxed one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fxrewrite.verify.floats import FORMATS, above, below, quantum, rounded, two_mul, two_sum
from fxrewrite.verify.sets import (
    Set,
    collapse,
    either,
    ends_of,
    highest,
    lowest,
    same,
    surely_nan,
    two_valued,
)

SMALL_RECIPROCAL = 2.0**126


def hull(lo: Tensor, hi: Tensor, nan: Tensor | None = None, ends: Tensor | None = None) -> Set:
    """A result that may be rounded to f32 or kept wider: an exact one stays one value."""
    near = rounded(lo, "f32")
    if hi is lo and bool(same(near, lo).all()):
        return Set(lo, lo, "f32", nan, "f32")
    return Set(lowest([lo, near]), highest([hi, rounded(hi, "f32")]), "f32", nan, ends=ends)


def widen(lo: Tensor, hi: Tensor, ulps: float, relative: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Outward by ulps of f32, and by a relative amount; an exact zero stays."""
    d_lo, d_hi = quantum_f32(lo) * ulps, quantum_f32(hi) * ulps
    if relative is not None:
        d_lo, d_hi = d_lo + lo.abs() * relative[0], d_hi + hi.abs() * relative[1]
    return _moved(lo, lo - d_lo), _moved(hi, hi + d_hi)


def quantum_f32(x: Tensor) -> Tensor:
    """The spacing of f32 at x."""
    return quantum(x, FORMATS["f32"])


def _moved(x: Tensor, wider: Tensor) -> Tensor:
    return torch.where((x == 0) | ~x.isfinite(), x, wider)


def _outward(lows: list[tuple[Tensor, Tensor]], highs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The hull of results that come with the error of their own float64 rounding."""
    low = lowest([torch.where(e < 0, below(x), x) for x, e in lows])
    return low, highest([torch.where(e > 0, above(x), x) for x, e in highs])


def _of_points(value: Tensor, error: Tensor, nan: Tensor | None) -> Set:
    """The result of a step on points, with the error of its float64 rounding: one tensor where there is none."""
    if not bool(error.any()):
        return hull(value, value, nan)
    return hull(*_outward([(value, error)], [(value, error)]), nan)


def is_single(x: Set) -> Tensor:
    """Where a set is one number."""
    return x.lo == x.hi


# ---- + - * /


def add(a: Set, b: Set) -> Set:
    """a + b."""
    nan = either(a.nan, b.nan)
    if a.lo is a.hi and b.lo is b.hi:
        return _of_points(*two_sum(a.lo, b.lo), nan)
    lo, hi = _outward([two_sum(a.lo, b.lo)], [two_sum(a.hi, b.hi)])
    if not bool((lo.isfinite() & hi.isfinite()).all()):
        lo, hi, nan = _infinities(a, b, lo, hi, nan)
    return hull(lo, hi, nan)


def _infinities(a: Set, b: Set, lo: Tensor, hi: Tensor, nan: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """inf - inf inside a sum of sets: NaN for certain where both are numbers, else perhaps."""
    clash = (a.hi == torch.inf) & (b.lo == -torch.inf) | (a.lo == -torch.inf) & (b.hi == torch.inf)
    sure = surely_nan(a) | surely_nan(b) | clash & is_single(a) & is_single(b)
    lo = torch.where(lo.isnan(), -torch.inf, lo)
    hi = torch.where(hi.isnan(), torch.inf, hi)
    return torch.where(sure, torch.nan, lo), torch.where(sure, torch.nan, hi), either(nan, clash)


def negate(x: Set) -> Set:
    """-x."""
    if x.lo is x.hi:
        lo = hi = -x.lo
    else:
        lo, hi = -x.hi, -x.lo
    if x.is_integer:
        return collapse(Set(lo + 0.0, hi + 0.0, x.dtype, x.nan, x.grid, x.ends))
    return Set(lo, hi, x.dtype, x.nan, x.grid, x.ends)


def subtract(a: Set, b: Set) -> Set:
    """a - b."""
    return add(a, negate(b))


def multiply(a: Set, b: Set) -> Set:
    """a * b."""
    nan = either(a.nan, b.nan)
    if a.lo is a.hi and b.lo is b.hi:
        return _of_points(*two_mul(a.lo, b.lo), nan)
    products = [two_mul(x, y) for x in ends_of(a) for y in ends_of(b)]
    lows, highs = products, products
    if any(bool(p.isnan().any()) for p, _ in products):  # 0 * inf: no bound of the numbers among the products
        lows = [(p.nan_to_num(-0.0, torch.inf, -torch.inf), e) for p, e in products]
        highs = [(p.nan_to_num(0.0, torch.inf, -torch.inf), e) for p, e in products]
        sure = surely_nan(a) | surely_nan(b) | products[0][0].isnan() & is_single(a) & is_single(b)
        zero_a, zero_b = (a.lo <= 0) & (a.hi >= 0), (b.lo <= 0) & (b.hi >= 0)
        nan = either(nan, zero_a & (b.lo.isinf() | b.hi.isinf()) | zero_b & (a.lo.isinf() | a.hi.isinf()))
        lo, hi = _outward(lows, highs)
        return hull(torch.where(sure, torch.nan, lo), torch.where(sure, torch.nan, hi), nan)
    return hull(*_outward(lows, highs), nan)


def divide(a: Set, b: Set) -> Set:
    """One IEEE division: exactly the rounding of a / b to f32."""
    if a.lo is a.hi and b.lo is b.hi:
        q = rounded(a.lo / b.lo, "f32")  # the second rounding changes nothing: both are f32
        return Set(q, q, "f32", either(a.nan, b.nan), "f32")
    quotients = [_quotient(x, y) for x in ends_of(a) for y in ends_of(b)]
    lo, hi, nan = _spread([q[0] for q in quotients], [q[1] for q in quotients], a, b)
    return collapse(Set(rounded(lo, "f32"), rounded(hi, "f32"), "f32", nan, "f32", two_of(a, b)))


def _quotient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of x / y whose rounding to f32 is that of the exact quotient, or beyond it."""
    q = x / y
    innocent = same(rounded(x, "f32"), x) & same(rounded(y, "f32"), y) | ~q.isfinite()
    return torch.where(innocent, q, below(q)), torch.where(innocent, q, above(q))


def two_of(a: Set, b: Set) -> Tensor | None:
    """Where an exact function of two operands has exactly two values: one operand has two, the other one."""
    two_a, two_b = two_valued(a), two_valued(b)
    found = [m for m in (_and(two_a, b), _and(two_b, a)) if m is not None]
    return either(*found) if found else None


def _and(two: Tensor | None, other: Set) -> Tensor | None:
    if two is None:
        return None
    return (
        two & is_single(other)
        if other.lo is not other.hi
        else two.expand(torch.broadcast_shapes(two.shape, other.shape))
    )


def _spread(lows: list[Tensor], highs: list[Tensor], a: Set, b: Set) -> tuple[Tensor, Tensor, Tensor | None]:
    """The hull of quotients, everything where the divisor has both signs."""
    lo, hi = lowest(lows), highest(highs)
    nan = either(a.nan, b.nan)
    sure = surely_nan(a) | surely_nan(b)
    both = b.lo.signbit() & ~b.hi.signbit()
    lost = (both | lo.isnan()) & ~sure & ~(is_single(a) & is_single(b) & lo.isnan())
    if bool(lost.any()):
        lo, hi = torch.where(lost, -torch.inf, lo), torch.where(lost, torch.inf, hi)
    if bool(sure.any()):
        lo, hi = torch.where(sure, torch.nan, lo), torch.where(sure, torch.nan, hi)
    zeros = (b.lo <= 0) & (b.hi >= 0) & (a.lo <= 0) & (a.hi >= 0)
    undefined = zeros | (a.lo.isinf() | a.hi.isinf()) & (b.lo.isinf() | b.hi.isinf())
    return lo, hi, either(nan, undefined) if bool(undefined.any()) else nan


def divide_relaxed(a: Set, b: Set, ulps: float) -> Set:
    """The hull of the quotient, and `ulps` more: a kernel may multiply by a rounded reciprocal."""
    quotients = [(x / y, x, y) for x in ends_of(a) for y in ends_of(b)]
    exact = [_exact_quotient(*q) for q in quotients]
    lows = [torch.where(e, q, below(q)) for (q, _, _), e in zip(quotients, exact)]
    highs = [torch.where(e, q, above(q)) for (q, _, _), e in zip(quotients, exact)]
    lo, hi, nan = _spread(lows, highs, a, b)
    found = hull(lo, hi, nan)
    if not ulps:
        return collapse(found)
    lo, hi = widen(found.lo, found.hi, ulps)
    size = torch.maximum(b.lo.abs(), b.hi.abs())
    if bool((size > SMALL_RECIPROCAL).any()):  # whose reciprocal is below the normal numbers and loses bits
        lost = torch.where(size > SMALL_RECIPROCAL, torch.maximum(a.lo.abs(), a.hi.abs()) * 2.0**-149, 0.0)
        lo, hi = _moved(lo, lo - lost), _moved(hi, hi + lost)
    return Set(lo, hi, "f32", nan)


def _exact_quotient(q: Tensor, x: Tensor, y: Tensor) -> Tensor:
    product, error = two_mul(q, y)
    return (product == x) & (error == 0) | ~q.isfinite()
