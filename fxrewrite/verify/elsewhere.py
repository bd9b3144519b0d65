"""What other machines make of the same steps: a cast to e4m3fn that goes beyond its largest value is NaN there.

Torch 2.13 on a CPU gives 448, and so nothing here shows that a clamp is missing before the cast (clause 8).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fxrewrite.dsl.core import Prim
from fxrewrite.lowering.eager import Torch
from fxrewrite.verify.straight import Recording, Slot


def to_e4m3fn(x: Tensor) -> Tensor:
    """e4m3fn of x, NaN where x rounds beyond 448: values are 32 apart there."""
    wide = x.float()
    beyond = ((wide / 32).round() * 32).abs() > 448
    return wide.masked_fill(beyond, float("nan")).to(torch.float8_e4m3fn)


SOURCE = inspect.getsource(to_e4m3fn).replace("Tensor", "torch.Tensor")


class Elsewhere(Torch):
    """The algebra of torch tensors on a machine whose casts to e4m3fn do not saturate."""

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        """The tensor of a primitive."""
        made = super().primitive(op, args, params, term)
        is_cast = op == "to" and made.dtype == torch.float8_e4m3fn and args[0].is_floating_point()
        return to_e4m3fn(args[0]) if is_cast else made


def overflows(side: Recording) -> bool:
    """Does a side cast to e4m3fn what is beyond it?"""
    casts = [s.args[0] for s in side.program.steps if s.op == "to" and s.dtype == "e4m3fn"]
    values = [side.values[a.index] for a in casts if isinstance(a, Slot)]
    return any(bool((to_e4m3fn(v).isnan() & ~v.isnan()).any()) for v in values if v.is_floating_point())
