"""Functions in the place of ops that an engine alone computes, such as attention over its cache. A rule around such an
op must hold whatever the op computes, so it is tried with one function, which looks at every operand and at the order
of elements. Natives that do not know here say yes: where they say no, the rule takes no part.

Forms and providers of such an op are claims about the op itself, and an op that writes what an engine holds is there
for that write, which nothing here would show: they are `not run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fxrewrite.dsl import registered
from fxrewrite.dsl.core import OpDef, Program
from fxrewrite.dsl.evaluate import Bindings, EvaluationError, bind
from fxrewrite.dsl.scalars import UNKNOWN, sizes, value
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.dtypes import DTYPES

STEPS = (7, 13)  # through the elements of all operands: primes, so that no two results read the same ones


def stand_ins(program: Program) -> dict[str, Callable[..., Any]]:
    """A function for each `ref` of a program that no package registers, and for each native, by source."""
    lacking = [op for op in program.ops.values() if not op.equations and not _writes(op)]
    refs = {op.ref: op for op in lacking if op.ref and registered.function(registered.REFS, op.ref) is None}
    guards = [*(r.guards for r in program.rules), *(c.guards for o in program.ops.values() for c in o.equations)]
    natives = dict.fromkeys(registered.named(guards), _yes)
    return {**natives, **{source: _function(program, op) for source, op in refs.items()}}


def _writes(op: OpDef) -> bool:
    """Is it there for what it writes? No value that stands for that would be seen."""
    return any(kind == "writes" for kind, _ in op.effects)


def _yes(*args: Any) -> bool:
    return True


def _function(program: Program, op: OpDef) -> Callable[..., Any]:
    def stand_in(*operands: Any, **attributes: Any) -> tuple[Tensor, ...]:
        bindings = bind(program, op, operands, attributes, Torch())
        pool = _pool(operands)
        return tuple(_mixed(pool, *_type(op, i, bindings), i) for i in range(len(op.results)))

    return stand_in


def _pool(operands: Sequence[Any]) -> Tensor:
    """The elements of all operands in float32."""
    tensors = [t for o in operands for t in (o if isinstance(o, list | tuple) else [o]) if isinstance(t, Tensor)]
    return torch.cat([*(t.float().reshape(-1) for t in tensors), torch.ones(1, device=tensors[0].device)])


def _type(op: OpDef, index: int, bindings: Bindings) -> tuple[torch.dtype, list[Any]]:
    declared = op.results[index].type
    dtype, shape = value(declared.dtype, bindings), sizes(declared.shape or (), bindings)
    if dtype is UNKNOWN or UNKNOWN in shape:
        raise EvaluationError(f"{op.name} does not say of which type `{op.results[index].name}` is")
    return DTYPES[dtype.name], list(shape)


def _mixed(pool: Tensor, dtype: torch.dtype, shape: Sequence[Any], index: int) -> Tensor:
    count = 1
    for n in shape:
        count = count * n
    at = torch.arange(count, device=pool.device) + index
    first, second = (pool[(at * step + step) % pool.shape[0]] for step in STEPS)
    return (first * 0.5 + second).to(dtype).reshape(list(shape))
