"""Sums over ranks: in any order, each partial sum kept or rounded to the dtype that the ranks send.

A ring adds in the order of the ranks and rounds what it passes on, a switch adds in f32 and rounds once, a tree adds in
pairs. All of these are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor

from fxrewrite.verify.casts import cast
from fxrewrite.verify.floats import FORMATS, low_bit
from fxrewrite.verify.intervals import add
from fxrewrite.verify.sets import Set, any_of, collapse, highest, lowest, same, surely_nan


def in_order(parts: Sequence[Tensor]) -> Tensor:
    """The sum in the order of the ranks, each partial sum rounded to the dtype: one of the orders there are."""
    return reduce(torch.add, parts)


def total(parts: Sequence[Set], dtype: str) -> Set:
    """Every sum of the parts, rounded to `dtype`: from the least to the largest that any order and rounding gives."""
    exact = _exact(parts, dtype)
    if bool(exact.all()):
        found = reduce(torch.add, [p.lo for p in parts])
        return Set(found, found, dtype, grid=dtype)
    return collapse(cast(_bounds(parts, dtype), dtype))


def _exact(parts: Sequence[Set], dtype: str) -> Tensor:
    """Where every partial sum in every order is a value of the dtype."""
    format_ = FORMATS[dtype]
    size = reduce(torch.add, [torch.maximum(p.lo.abs(), p.hi.abs()) for p in parts])
    bit = reduce(torch.minimum, [low_bit(p.lo) for p in parts])
    fits = (size <= bit * 2.0**format_.precision) & (size <= format_.top)
    return fits & reduce(torch.logical_and, [same(p.lo, p.hi) for p in parts])


def _bounds(parts: Sequence[Set], dtype: str) -> Set:
    """The least and the largest sum.

    A sum of some ranks is a sum of a part of them and a sum of the others. Addition and rounding are monotone, so the
    least of it is made of the least of those: the bounds are reached, and cost 3^n / 2 additions for n ranks.
    """
    shape = torch.broadcast_shapes(*(p.shape for p in parts))
    lo, hi = (torch.empty(1 << len(parts), *shape, dtype=torch.float64) for _ in range(2))
    nan = torch.zeros(1 << len(parts), *shape, dtype=torch.bool)
    for i, p in enumerate(parts):
        lo[1 << i], hi[1 << i] = p.lo, p.hi
        nan[1 << i] = surely_nan(p) if p.nan is None else p.nan
    for size in range(2, len(parts) + 1):
        masks = [m for m in range(1 << len(parts)) if m.bit_count() == size]
        pairs = ((Set(lo[a], hi[a], dtype, nan[a]), Set(lo[b], hi[b], dtype, nan[b])) for a, b in splits(masks))
        found = reduce(either_of, (_partial(a, b, dtype) for a, b in pairs))
        lo[masks], hi[masks], nan[masks] = found.lo, found.hi, any_of([found.nan])
    return Set(lo[-1], hi[-1], dtype, nan[-1] if bool(nan[-1].any()) else None)


def splits(masks: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """For subsets of one size, as bits: one way to part each of them in two, then another, until all are told."""
    for ways in zip(*map(_ways, masks), strict=True):
        yield list(ways), [mask ^ way for mask, way in zip(masks, ways)]


def _ways(mask: int) -> Iterator[int]:
    """The proper parts of a subset that hold its lowest member."""
    lowest_bit = mask & -mask
    rest = part = mask ^ lowest_bit
    while part:
        part = (part - 1) & rest
        yield part | lowest_bit


def _partial(a: Set, b: Set, dtype: str) -> Set:
    """a + b, kept or rounded."""
    kept = add(a, b)
    return kept if dtype == "f32" else either_of(kept, cast(kept, dtype))


def either_of(a: Set, b: Set) -> Set:
    """The hull of two sets; what one of them has for NaN is perhaps NaN."""
    nan = any_of([surely_nan(a), surely_nan(b), a.nan, b.nan])
    return Set(lowest([a.lo, b.lo]), highest([a.hi, b.hi]), "f32", nan)
