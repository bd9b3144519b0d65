"""Built-ins that `check` writes as calls of torch ops, as the steps that they stand for: sets can follow these.

`stack` is a call where the text does not give the shapes of its parts (a `cos` that is broadcast, say), `addmm` always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from fxrewrite.patterns.values import LOW

if TYPE_CHECKING:
    from fxrewrite.verify.straight import Recorded, Recorder


def _stack(recorder: Recorder, parts: Sequence[Recorded], dim: int = 0) -> Recorded:
    """A `cat` along a new axis."""
    shape = parts[0].tensor.shape
    at = dim % (len(shape) + 1)
    inner = (*shape[:at], 1, *shape[at:])
    return recorder.add("cat", [recorder.add("reshape", [p], [inner], None) for p in parts], [at], None)


def _addmm(recorder: Recorder, b: Recorded, x: Recorded, w: Recorded) -> Recorded | None:
    """A product and a sum in f32, rounded once."""
    dtype = x.tensor.dtype
    if dtype != torch.float32 and dtype not in LOW:
        return None
    x, w, b = (recorder.cast(v, torch.float32, None) for v in (x, w, b))
    product = recorder.add("matmul", [x, w], [], None)
    return recorder.cast(recorder.add("add", [product, b], [], None), dtype, None)


STEPS_OF: Mapping[str, Callable[..., Recorded | None]] = {  # None: not for these operands
    "aten.stack.default": _stack,
    "aten.addmm.default": _addmm,
}
