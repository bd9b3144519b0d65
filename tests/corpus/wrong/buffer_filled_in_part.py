"""silu that does not write what it believes to be zero."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_sparse::silu", mutates_args=("y",))
def silu(y: Tensor, x: Tensor) -> None:
    """silu of x, into y."""
    busy = (x != 0).any(-1, keepdim=True)
    y.copy_(torch.where(busy, vllm_stubs.silu(x).to(x.dtype), y))
