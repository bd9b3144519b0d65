"""The judge: is what was written admissible? (`docs/contract.md`)

    judge(program, inputs, {"qx": codes, "sx": scales})["qx"].ok

The reference program is walked in sets, in the order of its steps. An output is judged where its value arises, and from
there on it is what was written: codes are judged with the scales that were written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field
from torch import Tensor

from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.verify import centre
from fxrewrite.verify.casts import cast
from fxrewrite.verify.floats import rounded
from fxrewrite.verify.origins import Origin, origins, typed
from fxrewrite.verify.primitives import TABLE, NoMeaning
from fxrewrite.verify.sets import Set, point, same, tensor_of
from fxrewrite.verify.slack import DEFAULT, Slack
from fxrewrite.verify.straight import Step, Straight, walk
from fxrewrite.verify.verdicts import Comparison, Verdict, compare, first_wrong, verdict

__all__ = ["NoMeaning", "Verdict", "every_value", "judge"]


def judge(
    program: Straight, inputs: Sequence[Tensor], written: Mapping[str, Tensor], slack: Slack = DEFAULT
) -> dict[str, Verdict]:
    """A verdict for each output that was written, by name. Raises NoMeaning where sets cannot follow a step."""
    sets = Sets(program, written, slack)
    walk(program, inputs, sets)
    found = dict(sets.refused)
    replaced = {c.place.slot: c.given for c in sets.compared if c.place.slot >= len(program.inputs)}
    centred: list[centre.Centred] = []
    for c in sets.compared:
        first = verdict(c)
        wide = centre.applies(c.x, first.counts.two + first.counts.more, slack)
        if first.wrong or (wide and not centre.adds_ranks(program, c.place.slot)):
            centred = centred or [centre.centre(program, inputs, replaced)]
            first = _beside_centre(first, c, centred[0], slack, lambda: centre.op_by_op(program, inputs, replaced))
        found[first.output] = first
    return {name: found[name] for name, _ in program.outputs if name in found}


def _beside_centre(
    found: Verdict, c: Comparison, centred: centre.Centred, slack: Slack, plain: Callable[[], Mapping[int, Tensor]]
) -> Verdict:
    """The verdict with the value of the centre at the first wrong element, else with the test of clause 11."""
    if c.place.slot not in centred.own:
        return found
    if found.wrong:
        index = first_wrong(c)
        own = centred.own[c.place.slot].expand(c.values.shape)
        return found if index is None else evolve(found, centre=float(own[index]))
    share, allowed = centre.off_centre(centred, c.place.slot, c.x, c.given, slack)
    if share > allowed:
        share, allowed = centre.off_centre(centred, c.place.slot, c.x, c.given, slack, plain()[c.place.slot])
    why = f"{share:.1%} of its elements are not the centre of their sets, at most {allowed:.1%} may be"
    return evolve(found, off_centre=share, allowed=allowed, refused=why if share > allowed else "")


@define
class Sets:
    """The meaning of steps on sets; compares what was `written` on the way, and goes on from it."""

    program: Straight
    written: Mapping[str, Tensor]
    slack: Slack = DEFAULT
    compared: list[Comparison] = field(factory=list[Comparison], init=False)
    refused: dict[str, Verdict] = field(factory=dict[str, Verdict], init=False)
    places: dict[int, list[Origin]] = field(factory=dict[int, list[Origin]], init=False)
    spread: frozenset[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.spread = frozenset(s.args[0] for s in self.program.steps if s.op == "var")
        slots = dict(self.program.outputs)
        for name, places in origins(self.program).items():
            if name in self.written and self._comparable(name, slots[name]):
                for place in places:
                    self.places.setdefault(place.slot, []).append(place)

    def _comparable(self, name: str, slot: int) -> bool:
        tensor, (dtype, shape) = self.written[name], typed(self.program, slot)
        if tensor.dtype == DTYPES.get(dtype) and tuple(tensor.shape) == shape:
            return True
        wrote = NAMES.get(tensor.dtype, str(tensor.dtype))
        why = f"{wrote}{list(tensor.shape)} was written where {dtype}{list(shape)} is declared"
        self.refused[name] = Verdict(name, tensor.numel(), tensor.numel(), refused=why)
        return False

    def input(self, slot: int, tensor: Tensor) -> Set:
        """An input: points (clause 1)."""
        found = point(tensor)
        self._judged(slot, found)
        return found

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Set:
        """The set of a step, or what was written for it."""
        found = opaque(step, args) if step.opaque is not None else primitive(step, args, self._slack(step))
        return self._judged(slot, found)

    def _slack(self, step: Step) -> Slack:
        """The mean of what also has its variance taken may be that of Welford's algorithm (clause 6)."""
        moments = step.op == "mean" and step.args[0] in self.spread
        return evolve(self.slack, exact_sums=False) if moments else self.slack

    def _judged(self, slot: int, found: Set) -> Set:
        """The outputs that arise here are compared; the first of them replaces the set (clause 9)."""
        for place in self.places.get(slot, ()):
            done = any(c.place.output == place.output for c in self.compared)
            if not done and _exact_from_here(found, place.steps):
                self.compared.append(compare(place, _stored(found), self.written[place.output]))
                found = point(self.compared[-1].given)
        return found


def primitive(step: Step, args: Sequence[Any], slack: Slack) -> Set:
    """The set of a primitive."""
    if step.op not in TABLE:
        raise NoMeaning(step.op, step.span)
    return TABLE[step.op].on_sets(args, step, slack)


def opaque(step: Step, args: Sequence[Any]) -> Set:
    """A torch op or `ref` on values that are certain; what it gives is certain too."""
    assert step.opaque is not None
    tensors = [tensor_of(a) if isinstance(a, Set) else a for a in args]
    if any(t is None for t in tensors):
        raise NoMeaning(step.op, step.span, "it has no meaning on sets, and an operand is not one value")
    return point(step.opaque(tensors))


def _exact_from_here(x: Set, steps: Sequence[Step]) -> bool:
    """Does no step round a value of the set?"""
    if not any(step.op == "to" and step.dtype == "e8m0fnu" for step in steps):
        return True
    certain = same(x.lo, x.hi) if x.ends is None else same(x.lo, x.hi) | x.ends
    return all(bool((same(rounded(v, "e8m0fnu"), v) & certain).all()) for v in (x.lo, x.hi))


def _stored(x: Set) -> Set:
    """A set as a tensor holds it: what was kept wider than f32 is rounded when it is written."""
    return cast(x, "f32") if x.dtype == "f32" and x.grid is None else x


def every_value(program: Straight) -> list[tuple[Tensor]]:
    """Inputs that hold all 65,536 values of the one 16-bit operand of a program, in as many batches as that takes; the
    last is filled up with the first values. Empty where the program has other inputs."""
    if len(program.inputs) != 1 or program.inputs[0][0] not in ("bf16", "f16"):
        return []
    dtype, shape = program.inputs[0]
    size = math.prod(shape)
    if not size:
        return []
    codes = torch.arange(-(-65536 // size) * size) % 65536
    values = codes.to(torch.uint16).view(DTYPES[dtype])
    return [(part.reshape(shape),) for part in values.split(size)]
