"""Scales aimed at what a definition divides: ties that a reciprocal, or a skipped rounding, breaks.

Random scales show none of this: x * (1 / s) in the place of x / s changes a code only where
x / s is a tie. So the definition is run once, and its scale is chosen for the values that it then divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Generator, Tensor

from fxrewrite.dsl.binding import is_element
from fxrewrite.verify import inputs
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.codes import codes_of
from fxrewrite.verify.dynamic import aimed_rows
from fxrewrite.verify.shaped import Given
from fxrewrite.verify.straight import Recording, Slot, record_side

TRIED = 4096  # pairs of a value and a tie
HAIR = 2.0**-13  # how far off a tie, relatively
LOWEST = 8  # codes from zero up at which nothing is aimed: there a scale is as large as the values
SMALLEST = 1e-30  # scales below it overflow what they divide
MOVES = frozenset("reshape expand to permute slice reciprocal clone".split())  # from an operand to where it is used


@frozen
class Use:
    """An input of one element that a step combines with the values of another slot. `codes`: the grid that the result
    is rounded to, if that is soon.
    """

    op: str
    input: int
    values: int
    codes: Tensor | None


def uses(recording: Recording) -> Iterator[Use]:
    """Where inputs of one element divide, multiply or bound others."""
    program = recording.program
    for slot, step in enumerate(program.steps, len(program.inputs)):
        slots = [a.index for a in step.args if isinstance(a, Slot)]
        if step.op not in ("div", "mul", "minimum", "maximum") or len(slots) != 2:
            continue
        for values, scale in (slots, slots[::-1]):
            source, through = _source(recording, scale)
            if source is not None and recording.values[values].numel() > 1 and (step.op != "div" or scale == slots[1]):
                op = "div" if step.op == "mul" and "reciprocal" in through else step.op
                yield Use(op, source, values, codes_of(program.steps, slot, len(program.inputs)))


def _source(recording: Recording, slot: int) -> tuple[int | None, list[str]]:
    """The input of one element that a slot holds, and the steps between."""
    through: list[str] = []
    while (step := recording.program.step(slot)) is not None:
        if step.op not in MOVES or not isinstance(step.args[0], Slot):
            return None, through
        through.append(step.op)
        slot = step.args[0].index
    return (slot if recording.inputs[slot].numel() == 1 else None), through


def tie_scale(y: Tensor, codes: Tensor, g: Generator, near: bool = False) -> float | None:
    """A scale s under which some y / s is halfway between two codes and the code of y * (1 / s) is the other one.

    `near`: where y / s is a hair off halfway instead. None where no value allows it.
    """
    found = _pairs(y, codes, g)
    if found is None:
        return None
    v, below = found
    middle = inputs.midpoints(codes)[below]
    if near:
        s = v / (middle * (1 + HAIR * (torch.randint(0, 2, v.shape, generator=g) * 2.0 - 1)))
        return _first(s, s > SMALLEST)
    s = v / middle
    product = v * s.reciprocal()
    other = torch.where(below % 2 == 0, product > middle, product < middle)  # a tie goes to the even code
    return _first(s, (v / s == middle) & other)


def tie_factor(y: Tensor, codes: Tensor, g: Generator) -> float | None:
    """A factor under which some product with y is halfway between two codes."""
    found = _pairs(y, codes, g)
    if found is None:
        return None
    v, below = found
    middle = inputs.midpoints(codes)[below]
    return _first(middle / v, v * (middle / v) == middle)


def _pairs(y: Tensor, codes: Tensor, g: Generator) -> tuple[Tensor, Tensor] | None:
    """Values of y, and positions of codes above the smallest few, at random."""
    v = y.float().abs().flatten()
    v = v[v.isfinite() & (v > SMALLEST)]
    if not v.numel():
        return None
    below = torch.randint(min(LOWEST, len(codes) // 4), len(codes) - 1, (TRIED,), generator=g)
    return v[torch.randint(len(v), (TRIED,), generator=g)], below


def _first(s: Tensor, holds: Tensor) -> float | None:
    fits = s[holds & s.isfinite() & (s > SMALLEST)]
    return float(fits[0]) if fits.numel() else None


# ---- whole cases


def aimed(claim: Claim, given: Given, seed: int) -> Given | None:
    """`given` with its scales and bounds aimed at what they meet, and its rows at the scales that are made of them;
    None where nothing is aimed at anything."""

    def run(operands: list[Any]) -> Recording:
        return record_side(claim.expected, operands, given.attributes)

    try:
        has_scales = any(is_element(o.type) for o in claim.op.operands)
        found = _with_scales(given, run(given.operands), seed) if has_scales else None
        return aimed_rows(found or given, run, seed) or found
    except (NotThisCase, ValueError, RuntimeError, IndexError):  # what has no value here has no steps
        return None


def _with_scales(given: Given, recording: Recording, seed: int) -> Given | None:
    g = Generator().manual_seed(seed)
    chosen: dict[int, float] = {}
    for use in uses(recording):
        if use.input not in chosen and (found := _value(use, recording.values[use.values], g, seed)) is not None:
            chosen[use.input] = found
    if not chosen:
        return None
    made = {id(recording.inputs[i]): torch.full_like(recording.inputs[i], s) for i, s in chosen.items()}
    operands = [_replaced(o, made) for o in given.operands]
    listed = ", ".join(f"{s:.9g}" for s in chosen.values())
    return evolve(given, operands=operands, label=f"aimed at {listed}, {given.label}")


def _value(use: Use, y: Tensor, g: Generator, seed: int) -> float | None:
    if use.op in ("minimum", "maximum"):
        finite = y[y.isfinite()].float().flatten()
        return float(finite.sort().values[finite.numel() // 2]) if finite.numel() else None
    if use.codes is None:
        return None
    return tie_factor(y, use.codes, g) if use.op == "mul" else tie_scale(y, use.codes, g, seed % 3 == 2)


def _replaced(operand: Any, made: dict[int, Tensor]) -> Any:
    if isinstance(operand, list):
        return [_replaced(o, made) for o in operand]
    return made.get(id(operand), operand)
