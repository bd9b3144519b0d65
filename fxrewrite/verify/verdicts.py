"""What was written for one output against its set: which elements are wrong, and the first of them."""

from __future__ import annotations

from attrs import field, frozen
from torch import Tensor

from fxrewrite.lowering import eager
from fxrewrite.verify.findings import Counts
from fxrewrite.verify.movement import carry, undo
from fxrewrite.verify.origins import Origin
from fxrewrite.verify.sets import Set, contains, counts, point, same

NOTHING = Counts()


@frozen
class Verdict:
    """What one output came to.

    `wrong` of `elements` are not admissible; `index`: the first of them, where `wrote` stands for a value from `lo` to
    `hi` (both NaN: only NaN; `nan`: NaN too). `centre`: the value there by the definition in float64, where it was
    asked for. `closest`: of the right elements with more than two values, how much of its slack the worst used, 1 for
    all of it. `off_centre`: the share that is not the centre, where clause 11 applies; `allowed`: that which may be.
    `refused`: why all is wrong.
    """

    output: str
    elements: int
    wrong: int
    counts: Counts = NOTHING
    index: tuple[int, ...] | None = None
    wrote: float | None = None
    lo: float | None = None
    hi: float | None = None
    nan: bool = False
    centre: float | None = None
    closest: float | None = None
    off_centre: float | None = None
    allowed: float | None = None
    refused: str = ""
    mask: Tensor | None = field(default=None, eq=False, repr=False)

    @property
    def ok(self) -> bool:
        """Is every element admissible?"""
        return not self.wrong and not self.refused

    def __str__(self) -> str:
        if self.refused:
            return f"{self.output}: {self.refused}"
        if self.ok or self.index is None:
            return f"{self.output}: {self.elements} elements, all admissible"
        where = f"{self.output}[{', '.join(map(str, self.index))}]"
        return f"{where} is {self.wrote!r}, right is {self._right()} ({self.wrong} of {self.elements} elements)"

    def _right(self) -> str:
        assert self.lo is not None
        if self.lo != self.lo:
            return "nan"
        values = f"{self.lo!r}" if repr(self.lo) == repr(self.hi) else f"{self.lo!r} to {self.hi!r}"
        return f"{values} or nan" if self.nan else values


@frozen(eq=False)
class Comparison:
    """An output beside its set `x`, both where the output arises: `given` is what was written, put back there.

    `wrong` marks elements there, `mask` those of the output; `again` is `given` moved to the output once more.
    """

    place: Origin
    x: Set
    written: Tensor
    given: Tensor
    values: Tensor
    wrong: Tensor
    mask: Tensor
    again: Tensor


def compare(place: Origin, x: Set, written: Tensor) -> Comparison:
    """An output beside its set."""
    given = put_back(place, x, written)
    values = point(given).lo
    wrong = mask = ~contains(x, values).expand(values.shape)
    again = given
    for step in place.steps:
        mask = carry(step.op, step.params, mask, step.shape)
        again = eager.PRIMITIVES[step.op](again, *step.params)
    mask = mask | ~same(point(again).lo, point(written).lo)  # what no value gives: padding, a number between two of f16
    return Comparison(place, x, written, given, values, wrong, mask, again)


def put_back(place: Origin, x: Set, written: Tensor) -> Tensor:
    """What was written as a value of the slot where the output arises."""
    befores = [(tuple(x.shape), x.dtype), *((s.shape, s.dtype) for s in place.steps[:-1])]
    given = written
    for step, (shape, dtype) in zip(reversed(place.steps), reversed(befores)):
        given = undo(step.op, step.params, given, shape, dtype)
    return given


def verdict(c: Comparison) -> Verdict:
    """The verdict on an output, element by element."""
    name, elements, wrong = c.place.output, c.mask.numel(), int(c.mask.sum())
    found = counts(c.x)
    if not wrong:
        return Verdict(name, elements, 0, found, closest=_closest(c) if found.more else None, mask=c.mask)
    index = _first(c.mask)
    wrote, lo, hi, nan = _seen(c, _first(c.wrong)) if bool(c.wrong.any()) else _lost(c, index)
    return Verdict(name, elements, wrong, found, index, wrote, lo, hi, nan, mask=c.mask)


def first_wrong(c: Comparison) -> tuple[int, ...] | None:
    """The first wrong element where the output arises."""
    return _first(c.wrong) if bool(c.wrong.any()) else None


def _first(mask: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in mask.nonzero()[0])


def _seen(c: Comparison, index: tuple[int, ...]) -> tuple[float, float, float, bool]:
    wrote, lo, hi = (float(v.expand(c.values.shape)[index]) for v in (c.values, c.x.lo, c.x.hi))
    return wrote, lo, hi, c.x.nan is not None and bool(c.x.nan.expand(c.values.shape)[index])


def _lost(c: Comparison, index: tuple[int, ...]) -> tuple[float, float, float, bool]:
    right = float(point(c.again).lo[index])
    return float(point(c.written).lo[index]), right, right, False


def _closest(c: Comparison) -> float | None:
    width = (c.x.hi - c.x.lo).expand(c.values.shape)
    used = ((2 * c.values - c.x.lo - c.x.hi) / width).abs()
    inside = (width > 0) & used.isfinite()
    used = used[inside if c.x.ends is None else inside & ~c.x.ends]
    return float(used.max()) if used.numel() else None
