"""A norm of a sum, for a norm."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_sum::rms_norm", mutates_args=())
def rms_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """The norm of x."""
    residual = torch.empty_like(x)
    return vllm_stubs.add_rms_norm(x, residual, w, eps)[0]
