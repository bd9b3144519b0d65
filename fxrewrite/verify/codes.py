"""The grids of codes that a program rounds to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fxrewrite.dsl.core import Dtype
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify import inputs
from fxrewrite.verify.straight import Slot, Step


def codes_of(steps: Sequence[Step], slot: int, offset: int) -> Tensor | None:
    """The grid to which the value of a slot is rounded, through bounds and moves alone."""
    for at, step in enumerate(steps[slot - offset + 1 :], slot + 1):
        if Slot(slot) not in step.args:
            continue
        if step.op in ("clamp", "reshape", "minimum", "maximum"):
            slot = at
        elif step.op == "round_e2m1":
            return inputs.E2M1
        elif step.op == "round":
            return inputs.grid(torch.int8)
        elif step.op == "to" and isinstance(step.params[0], Dtype) and DTYPES[step.params[0].name] in inputs.CODES:
            return inputs.grid(DTYPES[step.params[0].name])
    return None
