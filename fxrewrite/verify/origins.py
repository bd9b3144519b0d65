"""Where the outputs of a program arise: before they are moved, packed or cast without loss."""

from __future__ import annotations

from attrs import frozen

from fxrewrite.verify.floats import FORMATS
from fxrewrite.verify.movement import UNDONE
from fxrewrite.verify.straight import Slot, Step, Straight


@frozen
class Origin:
    """Where an output may be judged: at `slot`, before `steps` (from there to the output) moved or packed it."""

    output: str
    slot: int
    steps: tuple[Step, ...]


def origins(program: Straight) -> dict[str, list[Origin]]:
    """For each output the places where it may be judged, the first one first."""
    found: dict[str, list[Origin]] = {}
    for name, output in program.outputs:
        slot, steps = output, ()
        places = [Origin(name, slot, ())]
        while (step := program.step(slot)) is not None and _can_be_undone(program, step):
            slot, steps = step.args[0].index, (step, *steps)
            places.append(Origin(name, slot, steps))
        found[name] = places[::-1]
    return found


def written_slots(program: Straight) -> frozenset[int]:
    """The slots that hold what is written, and all that follow them to an output."""
    return frozenset(place.slot for places in origins(program).values() for place in places)


def _can_be_undone(program: Straight, step: Step) -> bool:
    if step.opaque is not None or step.op not in UNDONE or not isinstance(step.args[0], Slot):
        return False
    before = program.step(step.args[0].index)
    if before is None:
        return False
    return step.op != "to" or step.dtype == "e8m0fnu" or _widens(before.dtype, step.dtype)


def _widens(narrow: str, wide: str) -> bool:
    return wide == "f32" and narrow in FORMATS and narrow not in ("f64", "f32")


def typed(program: Straight, slot: int) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape of a slot."""
    step = program.step(slot)
    return program.inputs[slot] if step is None else (step.dtype, step.shape)
