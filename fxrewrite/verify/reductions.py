"""Sums, products and extremes over axes, on sets: clauses 5, 6 and 8."""

from __future__ import annotations

import torch
from torch import Tensor

from fxrewrite.verify.floats import F32_TOP, UNIT, low_bit
from fxrewrite.verify.intervals import divide_relaxed, hull
from fxrewrite.verify.movement import moved
from fxrewrite.verify.sets import Set, any_of, collapse, either, number, same
from fxrewrite.verify.slack import Slack

LEAST_BIT = 2.0**-149  # of f32


def axes(x: Set, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that are meant: all of them where none is named."""
    return tuple(d % len(x.shape) for d in dims) or tuple(range(len(x.shape)))


def terms(x: Set, dims: tuple[int, ...]) -> int:
    """How many elements make one result."""
    count = 1
    for d in axes(x, dims):
        count *= x.shape[d]
    return count


def total(x: Set, dims: tuple[int, ...], keepdim: bool, slack: Slack) -> Set:
    """A sum, in any order."""
    over = axes(x, dims)
    if not over:
        return hull(x.lo, x.hi, x.nan)
    finite = _finite(x)
    size = _magnitude(finite)
    magnitude = size.sum(over, keepdim=keepdim)
    error = slack.terms(terms(x, dims)) * UNIT * magnitude
    if slack.exact_sums:
        error = _inexact(finite, magnitude, over, keepdim, error)
    lo = finite.lo.sum(over, keepdim=keepdim)
    hi = lo if finite.lo is finite.hi else finite.hi.sum(over, keepdim=keepdim)
    nan = None if x.nan is None else x.nan.expand(x.shape).sum(over, keepdim=keepdim) > 0
    lo, hi = _apart(lo, hi, error)
    if bool((magnitude == 0).any()):
        negative = ((x.lo == 0) & x.lo.signbit()).sum(over, keepdim=keepdim)
        lo, hi = _zeros(lo, hi, negative == _count(x.lo, over))
    lo, hi, nan = _beyond(lo, hi, nan, magnitude + error)
    if finite is not x:
        lo, hi, nan = _with_infinities(x, lo, hi, nan, over, keepdim)
    return hull(lo, hi, nan)


def _apart(lo: Tensor, hi: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    return (lo - error, hi + error) if bool(error.any()) else (lo, hi)


def _zeros(lo: Tensor, hi: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Where all terms are -0 the sum is either zero: it may have begun at +0. Other zeros are +0."""
    return torch.where((lo == 0) & negative, -0.0, lo), torch.where(hi == 0, 0.0, hi)


def _magnitude(x: Set) -> Tensor:
    return x.lo.abs() if x.lo is x.hi else torch.maximum(x.lo.abs(), x.hi.abs())


def _finite(x: Set) -> Set:
    """What is not finite as 0; itself where nothing is."""
    if bool(x.lo.isfinite().all()) and (x.lo is x.hi or bool(x.hi.isfinite().all())):
        return x
    kept = x.lo.isfinite() & x.hi.isfinite()
    lo = torch.where(kept, x.lo, 0.0)
    return Set(lo, lo if x.lo is x.hi else torch.where(kept, x.hi, 0.0), x.dtype)


def _inexact(x: Set, magnitude: Tensor, over: tuple[int, ...], keepdim: bool, error: Tensor) -> Tensor:
    """The error of a sum: nothing where every order is exact."""
    if not error.numel() or not x.lo.numel():
        return error
    bit = low_bit(x.lo).amin(over, keepdim=keepdim)
    exact = is_exact(magnitude, bit)
    if x.lo is not x.hi:
        exact &= same(x.lo, x.hi).sum(over, keepdim=keepdim) == _count(x.lo, over)
    return torch.where(exact, 0.0, error)


def _count(x: Tensor, over: tuple[int, ...]) -> int:
    count = 1
    for d in over:
        count *= x.shape[d]
    return count


def is_exact(magnitude: Tensor, bit: Tensor) -> Tensor:
    """Is every partial sum of terms of this total size, multiples of `bit`, one of f32?"""
    return (magnitude <= bit * 2.0**24) & (bit >= LEAST_BIT)


def _beyond(lo: Tensor, hi: Tensor, nan: Tensor | None, size: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Where a partial sum may overflow, the element is outside the contract: anything."""
    over = size > F32_TOP
    if not bool(over.any()):
        return lo, hi, nan
    return torch.where(over, -torch.inf, lo), torch.where(over, torch.inf, hi), either(nan, over)


def _with_infinities(
    x: Set, lo: Tensor, hi: Tensor, nan: Tensor | None, over: tuple[int, ...], keepdim: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Terms that are inf, -inf or NaN for certain decide the sum; one that only may be makes it anything."""

    def some(mask: Tensor) -> Tensor:
        return mask.sum(over, keepdim=keepdim) > 0

    up, down = some(x.lo == torch.inf), some(x.hi == -torch.inf)
    unsure = some((x.lo.isinf() | x.hi.isinf()) & ~same(x.lo, x.hi))
    beyond = (lo == -torch.inf) & (hi == torch.inf)
    sure = some(x.lo.isnan()) | up & down
    free = ~sure & (unsure | beyond & (up | down))
    lo, hi = _where(up, torch.inf, lo, hi)
    lo, hi = _where(down, -torch.inf, lo, hi)
    lo, hi = torch.where(free, -torch.inf, lo), torch.where(free, torch.inf, hi)
    lo, hi = _where(sure, torch.nan, lo, hi)
    return lo, hi, either(nan, free)


def _where(mask: Tensor, value: float, lo: Tensor, hi: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.where(mask, value, lo)
    return found, found if lo is hi else torch.where(mask, value, hi)


def mean(x: Set, dims: tuple[int, ...], keepdim: bool, slack: Slack) -> Set:
    """A sum by a count: a kernel may multiply by its rounded reciprocal."""
    n = terms(x, dims)
    whole = total(x, dims, keepdim, slack)
    return divide_relaxed(whole, number(n, "f32"), 0.0 if n & (n - 1) == 0 else 1.0)


def variance(x: Set, dims: tuple[int, ...], keepdim: bool, slack: Slack) -> Set:
    """mean((x - mean x)^2), in two passes or by Welford: an error of the mean enters squared.

    Of sets: the root of n * var is a seminorm, so it differs from that of the middles by at most the norm of the radii.
    """
    n, over = terms(x, dims), axes(x, dims)
    middle = x.lo if x.lo is x.hi else (x.lo + x.hi) / 2
    deviation = middle - middle.mean(over, keepdim=True)
    exact = (deviation * deviation).mean(over, keepdim=keepdim)
    size = _magnitude(x).mean(over, keepdim=keepdim)
    lo = hi = exact
    spread = deviation.abs().mean(over, keepdim=keepdim)
    if x.lo is not x.hi:
        radius = (x.hi - x.lo) / 2 * (1 + 2.0**-50) + middle.abs() * 2.0**-52
        apart = (radius * radius).mean(over, keepdim=keepdim).sqrt()
        lo = (exact.sqrt() - apart).clamp(min=0.0) ** 2
        hi = (exact.sqrt() + apart) ** 2
        spread = spread + 2 * radius.mean(over, keepdim=keepdim)
    error = _error_of_variance(hi, size, spread, slack.terms(n)) if n > 1 else torch.zeros_like(hi)
    nan = None if x.nan is None else x.nan.expand(x.shape).sum(over, keepdim=keepdim) > 0
    lo, hi = (lo - error).clamp(min=0.0), hi + error
    found = hull(*_undefined(x, lo, hi, over, keepdim), nan)
    beyond = (n * found.hi > F32_TOP) | (size * n > F32_TOP)
    return _set_free(found, beyond & ~found.lo.isnan())


def _error_of_variance(most: Tensor, size: Tensor, spread: Tensor, count: float) -> Tensor:
    """How far a variance of at most `most` may be off. `size`: the mean of |x|; `spread`: that of |x - mean|; `count`:
    c(n)."""
    far = (count + 2) * UNIT * size  # of the mean from the exact one
    return (count + 6) * UNIT * most + far * far + 2 * UNIT * size * spread + LEAST_BIT


def _undefined(x: Set, lo: Tensor, hi: Tensor, over: tuple[int, ...], keepdim: bool) -> tuple[Tensor, Tensor]:
    """NaN for certain where a term is NaN or infinite for certain."""
    sure = (x.lo.isnan() | same(x.lo, x.hi) & x.lo.isinf()).sum(over, keepdim=keepdim) > 0
    unsure = lo.isnan() | hi.isnan()
    lo, hi = torch.where(unsure, -torch.inf, lo), torch.where(unsure, torch.inf, hi)
    return torch.where(sure, torch.nan, lo), torch.where(sure, torch.nan, hi)


def _set_free(x: Set, mask: Tensor) -> Set:
    """Anything where the mask is."""
    if not bool(mask.any()):
        return x
    lo, hi = torch.where(mask, -torch.inf, x.lo), torch.where(mask, torch.inf, x.hi)
    return Set(lo, hi, x.dtype, either(x.nan, mask), None, None if x.ends is None else x.ends & ~mask)


def largest(x: Set, dims: tuple[int, ...], keepdim: bool) -> Set:
    """The maximum over axes; of -0 and +0 either."""
    over = axes(x, dims)
    lo = x.lo.amax(over, keepdim=keepdim)
    hi = lo if x.lo is x.hi else x.hi.amax(over, keepdim=keepdim)
    zero = (lo == 0) | (hi == 0)
    if bool(zero.any()):
        negative = ((x.lo == 0) & x.lo.signbit()).sum(over, keepdim=keepdim) > 0
        positive = ((x.hi == 0) & ~x.hi.signbit()).sum(over, keepdim=keepdim) > 0
        if bool((zero & negative & positive).any()):
            lo, hi = torch.where((lo == 0) & negative, -0.0, lo), torch.where((hi == 0) & positive, 0.0, hi)
    nan = None if x.nan is None else x.nan.expand(x.shape).sum(over, keepdim=keepdim) > 0
    return collapse(Set(lo, hi, x.dtype, nan, x.grid))


def product(a: Set, b: Set, slack: Slack) -> Set:
    """A matrix product, batched as torch does; exact where |a| @ |b| fits 24 bits over the common lowest bit."""
    if a.lo.ndim == 1:
        return moved(product(moved(a, lambda v: v[None, :]), b, slack), lambda v: v[..., 0, :])
    if b.lo.ndim == 1:
        return moved(product(a, moved(b, lambda v: v[:, None]), slack), lambda v: v[..., 0])
    fa, fb = _finite(a), _finite(b)
    (ma, ra), (mb, rb) = _middle(fa), _middle(fb)
    size_a, size_b = _magnitude(fa), _magnitude(fb)
    middle, magnitude = ma @ mb, size_a @ size_b
    n = a.shape[-1]
    error = slack.terms(n) * UNIT * magnitude + n * LEAST_BIT  # a product below the normal numbers loses bits
    if ra is None and rb is None:
        exact = is_exact(magnitude, _bits(fa.lo, -1) @ _bits(fb.lo, -2)) if n else magnitude == 0
        error = torch.where(exact, 0.0, error)
    else:
        wide = magnitude * 2.0**-48
        wide = wide if ra is None else wide + ra @ size_b
        error = error + (wide if rb is None else wide + size_a @ rb)
    lo, hi = _apart(middle, middle, error)
    if bool((magnitude == 0).any()):
        minus_a, minus_b = a.lo.signbit().double(), b.lo.signbit().double()
        lo, hi = _zeros(lo, hi, minus_a @ (1 - minus_b) + (1 - minus_a) @ minus_b == n)
    lo, hi, nan = _beyond(lo, hi, None, magnitude + error)
    found = hull(lo, hi, nan)
    return found if fa is a and fb is b and a.nan is None and b.nan is None else _with_undefined(found, a, b)


def _middle(x: Set) -> tuple[Tensor, Tensor | None]:
    return (x.lo, None) if x.lo is x.hi else ((x.lo + x.hi) / 2, (x.hi - x.lo) / 2)


def _bits(x: Tensor, dim: int) -> Tensor:
    """The lowest bit of each row (-1) or column (-2), as a factor of an outer product."""
    return low_bit(x).amin(dim, keepdim=True).clamp(max=2.0**500)


def _with_undefined(found: Set, a: Set, b: Set) -> Set:
    """Rows and columns with values that are not finite: as IEEE has it where all is certain, else anything."""
    value = torch.nan_to_num(found.lo, nan=torch.nan)
    exact = a.lo @ b.lo
    unsure_a, unsure_b = _unsure(a), _unsure(b)
    odd_a, odd_b = ~a.lo.isfinite() | ~a.hi.isfinite(), ~b.lo.isfinite() | ~b.hi.isfinite()
    odd = _touched(odd_a, odd_b)
    beyond = (found.lo == -torch.inf) & (found.hi == torch.inf)
    free = _touched(unsure_a, unsure_b) | beyond | odd & _touched(_several(a), _several(b))
    free &= ~_touched(a.lo.isnan(), b.lo.isnan())
    lo = torch.where(odd, exact, value)
    hi = torch.where(odd, exact, found.hi)
    lo, hi = torch.where(free, -torch.inf, lo), torch.where(free, torch.inf, hi)
    return Set(lo, hi, "f32", any_of([free, found.nan]))


def _several(x: Set) -> Tensor:
    return ~same(x.lo, x.hi)


def _unsure(x: Set) -> Tensor:
    """Where a value may or may not be finite."""
    unsure = (x.lo.isinf() | x.hi.isinf()) & _several(x)
    return unsure if x.nan is None else unsure | x.nan


def _touched(rows: Tensor, columns: Tensor) -> Tensor:
    """The elements of a product whose row or column has a mark."""
    ones_b = torch.ones_like(columns, dtype=torch.float64)
    ones_a = torch.ones_like(rows, dtype=torch.float64)
    return (rows.double() @ ones_b + ones_a @ columns.double()) > 0
