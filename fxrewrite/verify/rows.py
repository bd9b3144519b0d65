"""What rows of results follow: rows of some operands, of these alone, wherever they stand (`rowwise`, `elementwise`).

Rows are all axes but the last: they are permuted, read alone, and stood between rows of NaN, of the largest number and
of zeros; where an op takes any number of leading axes, these are made one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Generator, Tensor

from fxrewrite.dsl.core import OpDef, OperandInfo
from fxrewrite.dsl.dims import Star
from fxrewrite.verify.claims import NotThisCase
from fxrewrite.verify.same import same_values

Results = Mapping[str, Tensor]
Run = Callable[[Sequence[Any]], Results]  # the results of an op; NotThisCase where operands are none of it
FILLERS = ("NaN", "the largest number", "zero")


@frozen
class Rows:
    """The rows of one case. `axes`: how many lead in each listed operand, by position; `sizes`: of these axes."""

    op: OpDef
    operands: Sequence[Any]
    axes: dict[int, int]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, op: OpDef, names: Sequence[str], operands: Sequence[Any]) -> Rows | None:
        """The rows of the operands called `names`; None where there are not two, or one is `none`."""
        listed = {i: o for i, o in enumerate(op.operands) if o.name in names}
        lead = max((_lead(o) for o in listed.values()), key=len, default=())
        if any(operands[i] is None for i in listed):
            return None
        axes = {i: operands[i].ndim - (0 if o.type.shape == lead else 1) for i, o in listed.items()}
        shapes = {tuple(operands[i].shape[:n]) for i, n in axes.items()}
        if len(shapes) != 1:
            raise NotThisCase("the listed operands differ in their rows")
        sizes = shapes.pop()
        return cls(op, operands, axes, sizes) if torch.Size(sizes).numel() > 1 else None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return torch.Size(self.sizes).numel()

    def with_rows(self, change: Callable[[Tensor], Tensor], sizes: Sequence[int] | None = None) -> list[Any]:
        """The operands, `change` applied to each listed one as a matrix of rows; `sizes`: of the new leading axes."""
        given = list(self.operands)
        for i, n in self.axes.items():
            x: Tensor = given[i]
            given[i] = change(x.reshape(self.count, *x.shape[n:])).reshape(*(sizes or self.sizes), *x.shape[n:])
        return given

    def of_result(self, y: Tensor) -> Tensor:
        """A result as a matrix of rows."""
        return y.reshape(self.count, *y.shape[len(self.sizes) :])

    def is_free(self) -> bool:
        """May there be any number of leading axes?"""
        shapes = [self.op.operands[i].type.shape or () for i in self.axes]
        return len(self.sizes) > 1 and all(any(isinstance(d, Star) for d in s) for s in shapes)


def _lead(o: OperandInfo) -> tuple[Any, ...]:
    return (o.type.shape or ())[:-1]


def row_faults(rows: Rows, run: Run, exact: bool, generator: Generator) -> Iterator[str]:
    """How results do not follow their rows.

    `exact`: is every element computed in one way wherever it stands? Else (a kernel) only other rows are changed, and
    not to NaN: what a kernel reads past a row it may multiply by zero.
    """
    base = run(rows.operands)
    for name, y in base.items():
        if tuple(y.shape[: len(rows.sizes)]) != rows.sizes:
            yield f"`{name}` has no row for each of {rows.count} rows: its shape is {tuple(y.shape)}"
            return
    want = {name: rows.of_result(y) for name, y in base.items()}
    for filler in FILLERS if exact else FILLERS[1:]:
        kept = torch.randperm(rows.count, generator=generator)[: (rows.count + 1) // 2].sort().values
        found = attempt(run, rows.with_rows(lambda x, f=filler, kept=kept: others(x, kept, f)))
        pick = lambda y, kept=kept: y[kept]  # noqa: E731
        yield from _differs(want, found, pick, f"other rows are {filler}", pick)
    if not exact:
        return
    order = torch.randperm(rows.count, generator=generator)
    moved = attempt(run, rows.with_rows(lambda x: x[order]))
    yield from _differs(want, moved, lambda y: y[order], "rows are in another order")
    yield from _alone(rows, run, want)
    if rows.is_free():
        flat = attempt(run, rows.with_rows(lambda x: x, [rows.count]))
        yield from _differs(want, flat, lambda y: y, "the leading axes are one")


def _alone(rows: Rows, run: Run, want: Results) -> Iterator[str]:
    """Some first indices of the leading axes without the others."""
    length = rows.sizes[0]
    inner = rows.count // length
    for start, stop in ((0, 1), (length - 1, length), (length // 3, length // 3 + 3)):
        a, b = start * inner, min(stop, length) * inner
        given = rows.with_rows(lambda x, a=a, b=b: x[a:b], [(b - a) // inner, *rows.sizes[1:]])
        found = attempt(run, given)
        if found is None:
            continue
        for name, y in want.items():
            if not same_values(y[a:b], found[name].reshape(b - a, *found[name].shape[len(rows.sizes) :])):
                yield f"`{name}` of row {a} changes when there are {b - a} rows, not {rows.count}"


def column_faults(rows: Rows, run: Run, generator: Generator) -> Iterator[str]:
    """How results do not follow the columns of their operands, which are in another order."""
    widths = {rows.operands[i].shape[-1] for i in rows.axes}
    base = run(rows.operands)
    for name, y in base.items():
        if {y.shape[-1]} != widths:
            yield f"`{name}` is {tuple(y.shape)}, another shape than its operands"
            return
    order = torch.randperm(widths.pop(), generator=generator)
    moved = attempt(run, rows.with_rows(lambda x: x[..., order]))
    for name, y in base.items():
        if moved is not None and not same_values(y[..., order], moved[name]):
            yield f"`{name}` changes when columns are in another order"


def attempt(run: Run, operands: Sequence[Any]) -> Results | None:
    """The results; None where the op is not for these operands."""
    try:
        return run(operands)
    except NotThisCase:
        return None


def others(x: Tensor, kept: Tensor, filler: str) -> Tensor:
    """The rows `kept`, all others filled; integers, which may be indices, become those of a row that is kept."""
    if not x.dtype.is_floating_point:
        filled = x[kept[:1]].expand(x.shape).clone()
    else:
        top = torch.finfo(x.dtype).max
        number = {"NaN": float("nan"), "zero": 0.0}.get(filler, top)
        filled = torch.full(x.shape, number, dtype=torch.float64).to(torch.float32).to(x.dtype)
    words = (lambda t: t.view(torch.uint8)) if x.element_size() == 1 else (lambda t: t)
    words(filled)[kept] = words(x)[kept]
    return filled


def _differs(
    want: Results, found: Results | None, pick: Callable[[Tensor], Tensor], when: str,
    of_found: Callable[[Tensor], Tensor] = lambda y: y,
) -> Iterator[str]:  # fmt: skip
    if found is None:
        return
    for name, y in want.items():
        if not same_values(pick(y), of_found(found[name].reshape(y.shape))):
            yield f"`{name}` changes when {when}"


def close(a: Tensor, b: Tensor) -> bool:
    """Equal but for the last bits: what kernels make of other orders and places."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if not a.dtype.is_floating_point:
        return bool(((a.long() - b.long()).abs() <= 1).all())
    spacing = torch.finfo(a.dtype).eps
    x, y = a.double(), b.double()
    top = x.abs().amax() if x.numel() else 0.0
    return torch.allclose(
        x, y, rtol=4 * spacing, atol=float(spacing * top) if top < float("inf") else 0.0, equal_nan=True
    )
