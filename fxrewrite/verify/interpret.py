"""Programs computed in other ways: op by op, as right kernels compute them, and with one step changed.

run(program, inputs, Eager())                      # the outputs, by name
run(program, inputs, RIGHT["fma"](program))        # see right_kernels.py
run(program, inputs, Mutant("to", 1, change))      # the second rounding changed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from fxrewrite.lowering import eager
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.floats import F32, F64, FORMATS, INTEGERS, rounded
from fxrewrite.verify.rank_sums import in_order
from fxrewrite.verify.sets import point
from fxrewrite.verify.straight import Step, Straight, results, walk

Change = Callable[..., Tensor]  # (original, *args, *params), where original(*args, *params) is what the step does


class Eager:
    """Op by op, in torch."""

    def input(self, slot: int, tensor: Tensor) -> Any:
        """The tensor."""
        return tensor

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The tensor of a step."""
        return step.opaque(args) if step.opaque is not None else self.primitive(slot, step, args)

    def primitive(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The tensor of a primitive."""
        return in_order(args) if step.op == "psum" else eager.PRIMITIVES[step.op](*args, *step.params)

    def tensor(self, value: Any) -> Tensor:
        """A value as it is written to memory."""
        return value


def run(program: Straight, inputs: Sequence[Tensor], meaning: Eager) -> dict[str, Tensor]:
    """The outputs of a program under a meaning, by name."""
    return {name: meaning.tensor(v) for name, v in results(program, walk(program, inputs, meaning)).items()}


@define
class Kernel(Eager):
    """Op by op with some primitives computed in another way: `changes`, by name."""

    changes: Mapping[str, Change]

    def primitive(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The tensor of a primitive, as the change has it."""
        change, original = self.changes.get(step.op), eager.PRIMITIVES[step.op]
        return original(*args, *step.params) if change is None else change(original, *args, *step.params)


@define
class Mutant(Eager):
    """Op by op with the `k`-th step of one primitive changed, counted from 0 in the order of the program."""

    op: str
    k: int
    change: Change
    seen: list[int] = field(factory=list[int], init=False)

    def primitive(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The tensor of a primitive; of the one that is meant as `change` has it."""
        original = eager.PRIMITIVES[step.op]
        if step.op != self.op:
            return original(*args, *step.params)
        self.seen = [s for s in self.seen if s < slot]  # a second walk counts anew
        self.seen.append(slot)
        here = len(self.seen) - 1 == self.k
        return self.change(original, *args, *step.params) if here else original(*args, *step.params)


# ---- simulated kernels


@frozen(eq=False)
class Wide:
    """A value that a kernel holds, in float64; `dtype` is the declared one."""

    value: Tensor
    dtype: str

    def tensor(self) -> Tensor:
        """The value in its declared dtype."""
        return as_tensor(self.value, self.dtype)


def as_tensor(value: Tensor, dtype: str) -> Tensor:
    """Numbers in float64 as a tensor of a dtype that holds them; f32 is rounded."""
    if dtype in INTEGERS:
        return value.nan_to_num(0.0).to(DTYPES[dtype])
    return value.to(F32).to(DTYPES[dtype])


Policy = Callable[[str], bool]


@define
class Simulated(Eager):
    """A kernel that holds f32 values in registers: after a primitive for which `rounds` is true it rounds them to f32,
    else it keeps them as float64 has them. What it writes (`stored`: slots) it rounds, and reads from there on."""

    rounds: Policy
    stored: frozenset[int] = frozenset()

    def input(self, slot: int, tensor: Tensor) -> Wide:
        """The values of a tensor."""
        found = point(tensor)
        return Wide(found.lo, found.dtype)

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Wide:
        """The values of a step."""
        if step.opaque is not None:
            return self.input(slot, step.opaque([a.tensor() if isinstance(a, Wide) else a for a in args]))
        found = self.compute(step, args)
        if slot in self.stored:
            found = rounded(found, "f32") if step.dtype == "f32" else found
        return Wide(found, step.dtype)

    def compute(self, step: Step, args: Sequence[Any]) -> Tensor:
        """A primitive in float64, rounded to f32 where the policy says so."""
        if step.op in BY_BYTES:
            tensors = [a.tensor() for a in args]
            return point(eager.PRIMITIVES[step.op](*tensors, *step.params)).lo
        if step.op == "to":
            return _cast(args[0], step.dtype)
        values = [a.value if isinstance(a, Wide) else _number(a, step.dtype) for a in args]
        if step.op == "psum":
            return rounded(in_order(values), step.dtype)
        found = eager.PRIMITIVES[step.op](*values, *step.params)
        if step.op in DIVISIONS or (step.op in WIDE and step.dtype == "f32" and self.rounds(step.op)):
            return rounded(found, "f32")
        return found + 0.0 if step.dtype in INTEGERS else found

    def tensor(self, value: Wide) -> Tensor:
        """A value as it is written to memory."""
        return value.tensor()


BY_BYTES = ("pack4", "swizzle")
DIVISIONS = ("div", "reciprocal")  # one IEEE division each, whatever else a kernel keeps wide
WIDE = frozenset(
    "add sub mul fdiv sqrt rsqrt exp exp2 log log1p log2 tanh erf sigmoid sum mean var matmul".split()
)  # what a kernel may keep wider than f32


def _number(value: Any, dtype: str) -> Any:
    """A number as an f32 constant."""
    if value is None or dtype in INTEGERS:
        return value
    return float(torch.tensor(float(value), dtype=F32))


def _cast(x: Wide, dtype: str) -> Tensor:
    if dtype == "bool":
        return (x.value != 0).to(F64)
    if dtype in INTEGERS:
        least, most = INTEGERS[dtype]
        return x.value.nan_to_num(0.0).clamp(float(least), float(most)).trunc() + 0.0
    found = rounded(x.value, dtype)
    if dtype != "e4m3fn":
        return found
    past = found.isnan() & ~x.value.isnan()  # torch on a CPU saturates there
    return torch.where(past, torch.copysign(torch.full_like(found, FORMATS[dtype].top), x.value), found)
