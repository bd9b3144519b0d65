"""Clause 11: behind long sums, where sets are wide, few elements may differ from the centre.

The centre is the definition in float64 with its declared roundings only, each written output taken as it was written.
What the definition gives op by op is right wherever it is not the centre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from fxrewrite.verify.floats import FORMATS, quantum
from fxrewrite.verify.interpret import Eager, Simulated, Wide
from fxrewrite.verify.sets import INTEGER, Set, point, same
from fxrewrite.verify.slack import Slack
from fxrewrite.verify.straight import Slot, Step, Straight, walk

COARSE = ("bf16", "f16", "e4m3fn", "e4m3fnuz", "e5m2", "e2m1", INTEGER)  # grids whose rounding hides an error in f32
FEWEST = 1000  # a share of fewer elements says nothing
WIDTHS_PER_DIFFERENCE = (
    50.0  # right products use at most 0.57 of it (docs/contract.md; `python -m benchmarks products`)
)
LEAST_NORMAL = 2.0**-126  # of f32
EXACT = ("to", "clamp", "round", "round_e2m1", "reshape", "permute", "clone")  # between a result and its rounding


@define
class Centre(Simulated):
    """The steps in float64; `replaced`: what was written, by slot, and `own`: what the centre has there."""

    replaced: Mapping[int, Tensor] = field(kw_only=True)
    own: dict[int, Tensor] = field(factory=dict[int, Tensor], kw_only=True)

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Wide:
        """The value of a step, or what was written for it."""
        found = Simulated.step(self, slot, step, args)
        if slot not in self.replaced:
            return found
        self.own[slot] = found.value
        return Wide(point(self.replaced[slot]).lo, step.dtype)


@define
class Plain(Eager):
    """The steps op by op in f32; `replaced` and `own` as of the centre."""

    replaced: Mapping[int, Tensor]
    own: dict[int, Tensor] = field(factory=dict[int, Tensor])

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The tensor of a step, or what was written for it."""
        found = super().step(slot, step, args)
        if slot not in self.replaced:
            return found
        self.own[slot] = point(found).lo
        return self.replaced[slot]


@frozen(eq=False)
class Centred:
    """The centre of a program: the values of all slots, and `own` ones where outputs arise."""

    program: Straight
    values: list[Any]
    own: dict[int, Tensor]


def centre(program: Straight, inputs: Sequence[Tensor], replaced: Mapping[int, Tensor]) -> Centred:
    """The centre for these inputs, given what was written for some slots."""
    meaning = Centre(lambda op: False, replaced=replaced)
    values = walk(program, inputs, meaning)
    return Centred(program, values, meaning.own)


def op_by_op(program: Straight, inputs: Sequence[Tensor], replaced: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """What the definition gives for the slots that were written, given what was written for those before."""
    meaning = Plain(replaced)
    walk(program, inputs, meaning)
    return meaning.own


def applies(x: Set, several: int, slack: Slack) -> bool:
    """Is an output wide enough, coarse enough and large enough for clause 11?"""
    elements = x.lo.numel()
    return x.grid in COARSE and elements >= FEWEST and several > slack.several * elements


def adds_ranks(program: Straight, slot: int) -> bool:
    """Is a slot made of a sum over three ranks or more? Its partial sums may be rounded: right ones are off centre."""
    seen, waiting = set[int](), [slot]
    while waiting:
        step = program.step(waiting.pop())
        if step is None:
            continue
        if step.op == "psum" and len(step.args) > 2:
            return True
        new = {a.index for a in step.args if isinstance(a, Slot)} - seen
        seen |= new
        waiting += new
    return False


def off_centre(
    found: Centred, slot: int, x: Set, given: Tensor, slack: Slack, plain: Tensor | None = None
) -> tuple[float, float]:
    """The share of elements that are not the centre, and the share that may be.

    `plain`: what the definition gives op by op, which is no fault either: an f32 product that falls on a tie, a square
    that overflows. Elements of one value before their rounding count once. Where sets are very wide, right kernels may
    differ more often; where a step is below the normal numbers of f32, which kernels may flush to 0, all may.
    """
    if any(_underflows(v.value) for v in found.values if isinstance(v, Wide)):
        return 0.0, 1.0
    own, values = found.own[slot].expand(x.shape), point(given).lo
    off = ~same(own, values)
    if plain is not None:
        off &= ~same(plain.expand(x.shape), values)
    allowed = (_width(x) / WIDTHS_PER_DIFFERENCE).clamp(slack.off_centre, 1.0)
    before = _before_rounding(found, slot)
    if before is not None and before.shape == off.shape:
        distinct, place = torch.unique(before, return_inverse=True)
        if len(distinct) < FEWEST:
            return 0.0, 1.0
        off, allowed = (_mean_by(place, v.to(torch.float64), len(distinct)) for v in (off, allowed))
    return float(off.to(torch.float64).mean()), float(allowed.mean())


def _underflows(x: Tensor) -> bool:
    return bool(((x != 0) & (x.abs() < LEAST_NORMAL)).any())


def _width(x: Set) -> Tensor:
    """How many steps of its grid a set spans."""
    step = torch.ones_like(x.lo) if x.grid == INTEGER else quantum(x.lo, FORMATS[str(x.grid)])
    width = (x.hi - x.lo) / step
    return width.nan_to_num(0.0, WIDTHS_PER_DIFFERENCE, 0.0).expand(x.shape)


def _mean_by(place: Tensor, values: Tensor, count: int) -> Tensor:
    """The mean of the values that share a place."""
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, place.reshape(-1), values.reshape(-1))
    return sums / torch.bincount(place.reshape(-1), minlength=count)


def _before_rounding(found: Centred, slot: int) -> Tensor | None:
    """The centre before the last roundings of a slot."""
    step = found.program.step(slot)
    while step is not None and step.op in EXACT and isinstance(step.args[0], Slot):
        slot = step.args[0].index
        step = found.program.step(slot)
    value = found.values[slot]
    return value.value if isinstance(value, Wide) else None
