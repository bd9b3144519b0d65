"""The judge: is what was written admissible? (`docs/contract.md`)

    judge(program, inputs, {"qx": codes, "sx": scales})["qx"].ok

The reference program is walked in sets, in the order of its steps. An output is judged where its value arises, and from
there on it is what was written: codes are judged with the scales that were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from torch import Tensor

from fxrewrite.lowering import eager
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.verify.casts import cast
from fxrewrite.verify.findings import Counts
from fxrewrite.verify.floats import rounded
from fxrewrite.verify.movement import carry, undo
from fxrewrite.verify.origins import Origin, origins, typed
from fxrewrite.verify.primitives import TABLE, NoMeaning
from fxrewrite.verify.sets import Set, contains, counts, point, same, tensor_of
from fxrewrite.verify.slack import DEFAULT, Slack
from fxrewrite.verify.straight import Step, Straight, walk

__all__ = ["NoMeaning", "Verdict", "judge"]


@frozen
class Verdict:
    """What one output came to.

    `wrong` of `elements` are not admissible; `index`: the first of them, where `wrote` stands for a value from `lo` to
    `hi` (NaN: only NaN; `nan`: also NaN). `centre`: the value there by the definition in float64. `off_centre`: the
    share that clause 11 looks at, None where it does not apply. `refused`: why nothing could be compared. `mask`: which
    elements are wrong.
    """

    output: str
    elements: int
    wrong: int
    counts: Counts
    index: tuple[int, ...] | None = None
    wrote: float | None = None
    lo: float | None = None
    hi: float | None = None
    nan: bool = False
    centre: float | None = None
    off_centre: float | None = None
    refused: str = ""
    mask: Tensor | None = field(default=None, eq=False, repr=False)

    @property
    def ok(self) -> bool:
        """Is every element admissible?"""
        return not self.wrong and not self.refused


def judge(
    program: Straight, inputs: Sequence[Tensor], written: Mapping[str, Tensor], slack: Slack = DEFAULT
) -> dict[str, Verdict]:
    """A verdict for each output that was written, by name. Raises NoMeaning where sets cannot follow a step."""
    sets = Sets(program, written, slack)
    walk(program, inputs, sets)
    return {name: sets.verdicts[name] for name, _ in program.outputs if name in sets.verdicts}


@define
class Sets:
    """The meaning of steps on sets; judges what was `written` on the way."""

    program: Straight
    written: Mapping[str, Tensor]
    slack: Slack = DEFAULT
    verdicts: dict[str, Verdict] = field(factory=dict[str, Verdict])
    replaced: dict[int, Tensor] = field(factory=dict[int, Tensor])
    places: dict[int, list[Origin]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.places = {}
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
        elements = tensor.numel()
        self.verdicts[name] = Verdict(name, elements, elements, Counts(), refused=why)
        return False

    def input(self, slot: int, tensor: Tensor) -> Set:
        """An input: points (clause 1)."""
        return self._judged(slot, point(tensor))

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Set:
        """The set of a step, or what was written for it."""
        found = _opaque(step, args) if step.opaque is not None else self._primitive(step, args)
        return self._judged(slot, found)

    def _primitive(self, step: Step, args: Sequence[Any]) -> Set:
        primitive = TABLE.get(step.op)
        if primitive is None:
            raise NoMeaning(step.op, step.span)
        return primitive.on_sets(args, step, self.slack)

    def _judged(self, slot: int, found: Set) -> Set:
        for place in self.places.get(slot, ()):
            if place.output in self.verdicts or not _exact_from_here(found, place.steps):
                continue
            shape = self.program.inputs[slot][1] if slot < len(self.program.inputs) else tuple(found.shape)
            verdict, given = _compare(place, _stored(found), self.written[place.output], shape)
            self.verdicts[place.output] = verdict
            self.replaced[slot] = given
            found = point(given)
        return found


def _opaque(step: Step, args: Sequence[Any]) -> Set:
    """A torch op or `ref` on values that are certain; what it gives is certain too."""
    assert step.opaque is not None
    tensors = [tensor_of(a) if isinstance(a, Set) else a for a in args]
    if any(t is None for t in tensors):
        raise NoMeaning(step.op, step.span, "it has no meaning on sets, and an operand is not one value")
    return point(step.opaque(tensors))


def _exact_from_here(x: Set, steps: Sequence[Step]) -> bool:
    """Does no step round a value of the set?"""
    for step in steps:
        if step.op == "to" and step.dtype == "e8m0fnu":
            powers = [same(rounded(v, "e8m0fnu"), v) for v in (x.lo, x.hi)]
            certain = same(x.lo, x.hi) if x.ends is None else same(x.lo, x.hi) | x.ends
            if not bool((powers[0] & powers[1] & certain).all()):
                return False
    return True


def _stored(x: Set) -> Set:
    """A set as a tensor holds it: what was kept wider than f32 is rounded when it is written."""
    return cast(x, "f32") if x.dtype == "f32" and x.grid is None else x


def _compare(place: Origin, x: Set, written: Tensor, shape: tuple[int, ...]) -> tuple[Verdict, Tensor]:
    """The verdict on an output, and what was written as the value of its slot."""
    given = _put_back(place, x, written, shape)
    values = point(given).lo
    wrong_here = ~contains(x, values).expand(values.shape)
    mask = wrong_here
    again = given
    for step in place.steps:
        mask = carry(step.op, step.params, mask, step.shape)
        again = eager.PRIMITIVES[step.op](again, *step.params)
    lost = ~same(point(again).lo, point(written).lo) & ~mask
    mask = mask | lost
    return _verdict(place.output, x, values, wrong_here, mask, (point(written).lo, point(again).lo)), given


def _put_back(place: Origin, x: Set, written: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = written
    befores = [(tuple(shape), x.dtype), *((s.shape, s.dtype) for s in place.steps[:-1])]
    for step, (before, dtype) in zip(reversed(place.steps), reversed(befores)):
        undone = undo(step.op, step.params, given, before, dtype)
        assert undone is not None, step.op
        given = undone
    return given


def _verdict(
    name: str, x: Set, values: Tensor, wrong_here: Tensor, mask: Tensor, outputs: tuple[Tensor, Tensor]
) -> Verdict:
    wrong = int(mask.sum())
    if not wrong:
        return Verdict(name, mask.numel(), 0, counts(x), mask=mask)
    index = tuple(int(i) for i in mask.nonzero()[0])
    if bool(wrong_here.any()):
        here = tuple(int(i) for i in wrong_here.nonzero()[0])
        wrote, lo, hi = (float(v.expand(values.shape)[here]) for v in (values, x.lo, x.hi))
        nan = x.nan is not None and bool(x.nan.expand(values.shape)[here])
    else:
        wrote, lo, nan = float(outputs[0][index]), float(outputs[1][index]), False
        hi = lo
    return Verdict(name, mask.numel(), wrong, counts(x), index, wrote, lo, hi, nan, mask=mask)
