"""What the built-ins over ranks mean in this process: collectives of torch where a group has several ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fxrewrite.dsl.evaluate import EvaluationError


def psum(x: Tensor, group: Any) -> Tensor:
    """The sum over the ranks of a group, on each of them."""
    size, name = _of(group)
    if size == 1:
        return x
    _can_run(x, size)
    c10d = torch.ops._c10d_functional
    return c10d.wait_tensor(c10d.all_reduce(x.contiguous(), "sum", name))


def pconcat(x: Tensor, dim: int, group: Any) -> Tensor:
    """The parts of all ranks, along `dim`."""
    size, name = _of(group)
    if size == 1:
        return x
    _can_run(x, size)
    c10d = torch.ops._c10d_functional
    sent = x.contiguous().view(torch.uint8) if x.element_size() == 1 else x.contiguous()  # gloo has no FP8
    gathered = c10d.wait_tensor(c10d.all_gather_into_tensor(sent, size, name)).view(x.dtype)
    return gathered if dim in (0, -x.ndim) else torch.cat(gathered.chunk(size), dim)


def pshard(x: Tensor, dim: int, group: Any) -> Tensor:
    """This rank's part along `dim`."""
    size, name = _of(group)
    if size == 1:
        return x
    _can_run(x, size)
    length = x.shape[dim] // size
    rank = 0 if isinstance(x, FakeTensor) else dist.get_rank(_in_torch(name))
    return x.narrow(dim, rank * length, length)


def _of(group: Any) -> tuple[int, str]:
    """The number of ranks and the name of a group, given by name or as an object with a `size`."""
    name = getattr(group, "name", group)
    size = getattr(group, "size", None)
    if isinstance(size, int):
        return size, name
    if not (dist.is_available() and dist.is_initialized()):
        return 1, name
    return _in_torch(name).size(), name


def _can_run(x: Tensor, size: int) -> None:
    """Raise EvaluationError where the other ranks are needed and there are none."""
    if not isinstance(x, FakeTensor) and not (dist.is_available() and dist.is_initialized()):
        raise EvaluationError(f"a group of {size} ranks has no meaning in one process")


def _in_torch(name: Any) -> Any:
    return dist.distributed_c10d._resolve_process_group(name)
