"""Sets of admissible values, element by element.

A set is an interval of numbers in the order that has -0 < +0, held in float64; or exactly its two ends; and it may hold
NaN besides. Its bounds are sound: what float64 cannot hold exactly was moved outward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from attrs import evolve, frozen
from torch import Tensor

from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.verify.findings import Counts
from fxrewrite.verify.floats import F32, F64, FORMATS, INTEGERS, Format, quantum

INTEGER = "integer"  # the grid of what `ceil`, `floor` and `round` give


@frozen(eq=False)
class Set:
    """One set an element.

    `lo` and `hi` are one tensor where every set is one value (`is_point`); both NaN: surely NaN. `nan`: what may be NaN
    besides. `grid`: every value is one of this format. `ends`: where the set is exactly {lo, hi}. `source`: the tensor
    that a point was made of.
    """

    lo: Tensor
    hi: Tensor
    dtype: str
    nan: Tensor | None = None
    grid: str | None = None
    ends: Tensor | None = None
    source: Tensor | None = None

    @property
    def is_point(self) -> bool:
        """Is every set one value?"""
        return self.lo is self.hi and self.nan is None

    @property
    def shape(self) -> torch.Size:
        """The sizes of the tensor."""
        return self.lo.shape

    @property
    def is_integer(self) -> bool:
        """Does an integer tensor hold it?"""
        return self.dtype in INTEGERS


def point(tensor: Tensor) -> Set:
    """The values of a tensor."""
    name = NAMES.get(tensor.dtype, str(tensor.dtype))
    exact = tensor.dtype in (F64, F32) or not tensor.dtype.is_floating_point
    values = tensor.to(F64) if exact else tensor.to(F32).to(F64)
    if (name in FORMATS and not FORMATS[name].signed_zero) or name in INTEGERS:
        values = values + 0.0
    return Set(values, values, name, grid=INTEGER if name in INTEGERS else name, source=tensor)


def number(value: float, dtype: str) -> Set:
    """A number beside a tensor of `dtype`: it takes that dtype."""
    made = torch.tensor(float(value), dtype=F64)
    if dtype not in INTEGERS and dtype != "f64":
        made = made.to(F32).to(DTYPES[dtype]).to(F32).to(F64)
    return Set(made, made, dtype, grid=INTEGER if dtype in INTEGERS else dtype)


def tensor_of(x: Set) -> Tensor | None:
    """The tensor that a set is, where it is one value everywhere."""
    if x.source is not None:
        return x.source
    if not x.is_point and not (x.nan is None and bool(same(x.lo, x.hi).all())):
        return None
    return x.lo.to(DTYPES[x.dtype]) if x.is_integer else x.lo.to(F32).to(DTYPES[x.dtype])


def same(a: Tensor, b: Tensor) -> Tensor:
    """Equal values: NaN is NaN, -0 is not +0."""
    return (a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()


def collapse(x: Set) -> Set:
    """The same set; a point where both bounds are equal everywhere."""
    if x.lo is x.hi or not bool(same(x.lo, x.hi).all()):
        return x
    return evolve(x, hi=x.lo, ends=None)


# ---- bounds


def lowest(values: Sequence[Tensor]) -> Tensor:
    """The lowest of some tensors, -0 below +0, NaN ignored."""
    least = values[0]
    for v in values[1:]:
        least = torch.fmin(least, v)
    zero = least == 0
    if len(values) > 1 and bool(zero.any()):
        negative = any_of([(v == 0) & v.signbit() for v in values])
        least = torch.where(zero & negative, -0.0, least)
    return least


def highest(values: Sequence[Tensor]) -> Tensor:
    """The highest of some tensors, +0 above -0, NaN ignored."""
    most = values[0]
    for v in values[1:]:
        most = torch.fmax(most, v)
    zero = most == 0
    if len(values) > 1 and bool(zero.any()):
        positive = any_of([(v == 0) & ~v.signbit() for v in values])
        most = torch.where(zero, torch.where(positive, 0.0, -0.0), most)
    return most


def any_of(masks: Sequence[Tensor | None]) -> Tensor:
    """True where one of the masks is; there is at least one."""
    given = [m for m in masks if m is not None]
    found = given[0]
    for m in given[1:]:
        found = found | m
    return found


def either(*masks: Tensor | None) -> Tensor | None:
    """True where one of the masks is; None where there is none."""
    return any_of(masks) if any(m is not None for m in masks) else None


def surely_nan(x: Set) -> Tensor:
    """Where the value is NaN for certain."""
    return x.lo.isnan()


def ends_of(x: Set) -> list[Tensor]:
    """The bounds: one tensor of a point, else two."""
    return [x.lo] if x.lo is x.hi else [x.lo, x.hi]


def map_bounds(x: Set, f: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """`f` of both bounds; one tensor again where they are one."""
    lo = f(x.lo)
    return lo, lo if x.hi is x.lo else f(x.hi)


# ---- what a set holds


def two_valued(x: Set) -> Tensor | None:
    """Where the set is exactly {lo, hi}: where it is known to be, and where lo and hi are neighbours. None: nowhere
    more than one value, or unknown."""
    if x.lo is x.hi:
        return None
    near = None if x.grid is None else _neighbours(x.lo, x.hi, x.grid)
    return either(x.ends, near)


def _neighbours(lo: Tensor, hi: Tensor, grid: str) -> Tensor:
    """Where nothing of the grid lies between two of its values (equal ones too)."""
    if grid == "f64":
        return hi <= lo
    step = lo if grid == "e8m0fnu" else 1 if grid == INTEGER else _step_up(lo, FORMATS[grid])
    near = hi <= lo + step
    between = (lo == 0) & lo.signbit() & (hi > 0) | (lo < 0) & (hi == 0) & ~hi.signbit()  # +0 or -0 lies there
    return near & ~between


def _step_up(x: Tensor, format_: Format) -> Tensor:
    """At least the way to the next value of the format, less than to the one after."""
    step = quantum(x, format_)
    inside = -x / (1 + 2.0**-format_.precision)  # below a power of two a negative number steps by the smaller spacing
    return torch.where(x < 0, torch.minimum(step, quantum(inside, format_)), step)


def contains(x: Set, values: Tensor) -> Tensor:
    """Where `values`, of the dtype of the set, are admissible."""
    inside = (x.lo <= values) & (values <= x.hi)
    if x.ends is not None:
        inside &= ~x.ends | (values == x.lo) | (values == x.hi)
    if x.dtype in FORMATS and FORMATS[x.dtype].signed_zero:
        below_zero = (x.lo < 0) | (x.lo == 0) & x.lo.signbit()
        above_zero = (x.hi > 0) | (x.hi == 0) & ~x.hi.signbit()
        inside &= (values != 0) | torch.where(values.signbit(), below_zero, above_zero)
    could = surely_nan(x) if x.nan is None else surely_nan(x) | x.nan
    return inside | could if x.is_integer else inside | values.isnan() & could  # as an integer NaN is any value


def counts(x: Set) -> Counts:
    """How many elements have one admissible value, two, or more."""
    total = x.lo.numel()
    if x.is_point:
        return Counts(one=total)
    several = ~same(x.lo, x.hi)
    exactly_two = two_valued(x)
    more = several & ~exactly_two if exactly_two is not None else several
    if x.nan is not None:
        besides = x.nan & ~surely_nan(x)
        several, more = several | besides, more | several & besides
    n_more = int(more.expand(x.shape).sum())
    n_several = int(several.expand(x.shape).sum())
    return Counts(total - n_several, n_several - n_more, n_more)
