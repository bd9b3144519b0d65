"""silu that needs a row."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_grid::silu", mutates_args=())
def silu(x: Tensor) -> Tensor:
    """silu of x."""
    if not x.numel():
        raise RuntimeError("CUDA error: invalid configuration argument")
    return vllm_stubs.silu(x).to(x.dtype)
