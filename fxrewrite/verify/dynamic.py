"""Operands aimed at the ties of scales that a definition computes: the largest of a row by 448, behind a norm, say.

Such a tie needs a largest value of few bits and another one that is half a code times the scale, both after whatever
stands before the division. So two elements of each group are moved in an operand, by the secant method, until what is
divided is what it should be, and groups where rounding hits it stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Generator, Tensor

from fxrewrite.verify import inputs
from fxrewrite.verify.codes import codes_of
from fxrewrite.verify.shaped import Given
from fxrewrite.verify.straight import Recording, Slot

RUNS = 4  # of the definition, for one case
BITS = 4  # the largest is an odd factor of the largest code times a number below it, times a power of two
FARTHEST = 4.0  # how much larger or smaller an element may become
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@frozen(eq=False)
class Division:
    """`values`, a slot, by `scale`, which is made of the largest of each `size` of them; `codes`: the grid of what
    comes of it."""

    values: int
    scale: int
    size: int
    codes: Tensor

    def groups(self, recording: Recording) -> Tensor:
        """What is divided: a row for each scale."""
        return recording.values[self.values].reshape(-1, self.size).double()

    def scales(self, recording: Recording) -> Tensor:
        """The scale of each row."""
        return recording.values[self.scale].reshape(-1, 1).double()

    def ties(self, recording: Recording) -> Tensor:
        """Where the quotient is halfway between two codes."""
        quotient = (self.groups(recording) / self.scales(recording)).float().abs()
        return torch.isin(quotient, inputs.midpoints(self.codes)[:-1])


def division(recording: Recording) -> Division | None:
    """The first division by a scale that is made of what it divides."""
    program, offset = recording.program, len(recording.inputs)
    for slot, step in enumerate(program.steps, offset):
        slots = [a.index for a in step.args if isinstance(a, Slot)]
        codes = codes_of(program.steps, slot, offset) if step.op == "div" and len(slots) == 2 else None
        size = None if codes is None else _size(recording, slots[1])
        if codes is None or size is None:
            continue
        counts = [recording.values[s].numel() for s in slots]
        if counts[0] and counts[0] == counts[1] * size:
            return Division(slots[0], slots[1], size, codes)
    return None


def _size(recording: Recording, slot: int) -> int | None:
    """How many values the largest is taken of, from which a slot is made; None where it is none."""
    while (step := recording.program.step(slot)) is not None:
        slots = [a.index for a in step.args if isinstance(a, Slot)]
        if not slots:
            return None
        if step.op == "amax":
            return recording.values[slots[0]].numel() // max(1, recording.values[slot].numel())
        slot = slots[0]
    return None


# ---- what to aim at


def _targets(division: Division, recording: Recording, g: Generator) -> tuple[Tensor, Tensor] | None:
    """Two places of each row, as positions among all values, and what should stand there."""
    y, s = division.groups(recording), division.scales(recording)
    size = y.abs()
    if division.size < 2 or not bool(size.isfinite().all()):
        return None
    most, first = size.max(-1, keepdim=True)
    chance = torch.rand(y.shape, generator=g) + (size > most / 64)
    second = chance.scatter(-1, first, -1.0).argmax(-1, keepdim=True)
    top = float(division.codes[-1])
    odd = top / 2 ** _twos(top)
    unit = torch.exp2((most / odd).clamp(min=1e-30).log2().floor()) * 2.0 ** (1 - BITS)
    largest = (most / (odd * unit)).round() * odd * unit
    is_power = bool((torch.frexp(s)[0] == 0.5).all())
    scale = s if is_power else s * largest / most.clamp(min=1e-30)
    middles = inputs.midpoints(division.codes)[:-1].double()
    ratio = size.gather(-1, second) / scale
    other = middles[(ratio - middles).abs().argmin(-1)].reshape(-1, 1) * scale
    places = torch.cat([first, second], -1)
    wanted = torch.cat([most if is_power else largest, other], -1) * y.gather(-1, places).sign()
    return places + torch.arange(len(y)).reshape(-1, 1) * division.size, wanted


def _twos(number: float) -> int:
    """How often 2 divides a number."""
    count = 0
    while number % 2 == 0:
        number, count = number / 2, count + 1
    return count


# ---- moving operands


def aimed_rows(given: Given, run: Callable[[list[Any]], Recording], seed: int) -> Given | None:
    """`given` with ties of the scale that its definition computes; None where it computes none, or none was hit. `run`
    gives the definition on operands."""
    recording = run(given.operands)
    found = division(recording)
    at = None if found is None else _operand(given.operands, recording.values[found.values])
    targets = None if found is None else _targets(found, recording, Generator().manual_seed(seed))
    if found is None or at is None or targets is None:
        return None
    places, wanted = targets
    x = given.operands[at]
    width = recording.values[found.values].numel() // (x.numel() // x.shape[-1])
    where = places // width * x.shape[-1] + places % width + x.shape[-1] - width  # of a gate and its factor: the factor
    operands, recording = _moved(given.operands, at, where, places, wanted, found, recording, run)
    hit = int(found.ties(recording).sum())
    return evolve(given, operands=operands, label=f"aimed at {hit} ties, {given.label}") if hit else None


def _operand(operands: list[Any], values: Tensor) -> int | None:
    """The first operand with a row for each row of values, as wide or wider."""
    for i, o in enumerate(operands):
        if isinstance(o, Tensor) and o.dtype in FLOATS and o.ndim > 1 and o.numel() >= values.numel() > 0:
            rows = o.numel() // o.shape[-1]
            return i if values.numel() % rows == 0 and values.numel() // rows <= o.shape[-1] else None
    return None


def _moved(
    operands: list[Any], at: int, where: Tensor, places: Tensor, wanted: Tensor, found: Division,
    recording: Recording, run: Callable[[list[Any]], Recording],
) -> tuple[list[Any], Recording]:  # fmt: skip
    """Operands of which the elements `where` of one were moved until the values at `places` are those wanted."""
    x = operands[at]
    begun = x.reshape(-1)[where].double()
    u0, y0 = begun, found.groups(recording).reshape(-1)[places]
    u1 = u0 * wanted / y0
    for _ in range(RUNS):
        bad = ~u1.isfinite() | (u1.abs() > FARTHEST * begun.abs()) | (u1.abs() * FARTHEST < begun.abs())
        u1 = inputs.rounded(torch.where(bad, u0, u1).float(), x.dtype).double()
        moved = x.reshape(-1).clone()
        moved[where.reshape(-1)] = u1.reshape(-1).to(x.dtype)
        operands = [moved.reshape(x.shape) if i == at else o for i, o in enumerate(operands)]
        recording = run(operands)
        y1 = found.groups(recording).reshape(-1)[places]
        slope = torch.where((u1 != u0) & (y1 != y0), (y1 - y0) / (u1 - u0), y1 / u1)
        u0, y0, u1 = u1, y1, u1 + (wanted - y1) / slope
    return operands, recording
