"""The effect `collective(g)`: do ranks of the group meet in the op?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fxrewrite.verify.claims import Claim
from fxrewrite.verify.straight import Recording, Slot, record_side
from fxrewrite.verify.strategies import Given


def collective_fault(claim: Claim, given: Given) -> str | None:
    """That no result of the first rank is made of what others have; None where one is. `claim`: over two ranks."""
    recording = record_side(claim.expected, given.operands, given.attributes)
    first = [slot for name, slot in recording.program.outputs if "@0" in name]
    own = {id(x) for x in _leaves(given.operands)}
    first = [slot for name, slot in recording.program.outputs if "@0" in name]
    met = any(id(recording.inputs[i]) not in own for i in _inputs_of(recording, first))
    return None if met else "no rank meets another: what one rank gives is made of its own operands"


def _inputs_of(recording: Recording, slots: Iterable[int]) -> set[int]:
    """The inputs that values are made of."""
    program = recording.program
    found, waiting = set[int](), list(slots)
    while waiting:
        slot = waiting.pop()
        if slot in found:
            continue
        found.add(slot)
        step = program.step(slot)
        waiting += [] if step is None else [a.index for a in step.args if isinstance(a, Slot)]
    return {s for s in found if s < len(program.inputs)}


def _leaves(operands: Iterable[Any]) -> Iterable[Any]:
    for x in operands:
        if isinstance(x, list):
            yield from x
        else:
            yield x
