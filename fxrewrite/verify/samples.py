"""`sample` clauses: those of an item, and of the ops that it calls, in its own names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import evolve
from torch import Generator, Tensor

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Call, OpDef, Operand, Program, Ref, Sample
from fxrewrite.dsl.dims import Dim


def samples_of(program: Program, op: OpDef) -> dict[str, Sample]:
    """What is to be drawn for operands, attributes and dims, by name; what an item says itself stands first."""
    found = {s.name: s for s in op.samples}
    for call in calls_of(tuple(e.outputs for e in op.equations)):
        called = program.ops[call.op]
        theirs = samples_of(program, called)
        for name, own in _renamed(called, call):
            if name in theirs:
                found.setdefault(own, evolve(theirs[name], name=own))
    return found


def _renamed(op: OpDef, call: Call) -> Iterator[tuple[str, str]]:
    """Names of a called op, each with the name that the caller has for the same thing."""
    yield from ((name, a.name) for name, a in call.attrs if isinstance(a, Ref))
    for info, given in zip(op.operands, call.args):
        if isinstance(given, Operand):
            yield info.name, given.name
        theirs, ours = info.type.shape or (), getattr(getattr(given, "type", None), "shape", None) or ()
        for a, b in zip(theirs[::-1], ours[::-1]):
            if isinstance(a, Dim) and isinstance(b, Dim) and a.name and b.name:
                yield a.name, b.name


def drawn(sample: Sample, shape: tuple[int, ...], g: Generator) -> Tensor:
    """Values of the distribution of a sample, or of its set."""
    if sample.distribution == "normal":
        return torch.randn(shape, generator=g) * sample.b + sample.a
    unit = torch.rand(shape, generator=g)
    if sample.distribution == "uniform":
        return unit * (sample.b - sample.a) + sample.a
    if sample.distribution == "log_uniform":
        return sample.a * (sample.b / sample.a) ** unit
    numbers: list[Any] = [v for v in sample.values if isinstance(v, int | float)]
    return torch.tensor(numbers or [0.0], dtype=torch.float32)[(unit * len(numbers or [0.0])).long()]
