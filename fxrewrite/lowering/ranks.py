"""What the built-ins over ranks mean where there is one rank: nothing is summed, cut or joined."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from fxrewrite.dsl.evaluate import EvaluationError


def ranks_of(group: Any) -> int:
    """The number of ranks of a process group, given by name or as an object with a `size`."""
    size = getattr(group, "size", None)
    if isinstance(size, int):
        return size
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.distributed_c10d._resolve_process_group(group).size()


def of_one_rank(x: Tensor, *parameters: Any) -> Tensor:
    """`psum(x, g)`, `pshard(x, d, g)`, `pconcat(x, d, g)` for a group of one. Raises EvaluationError for a larger one:
    what other ranks hold is not known in this process.
    """
    size = ranks_of(parameters[-1])
    if size != 1:
        raise EvaluationError(f"a group of {size} ranks has no meaning in one process")
    return x
