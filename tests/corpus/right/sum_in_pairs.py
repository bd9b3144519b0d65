"""A norm whose sum adds neighbours first, in f64 at the end."""

import torch
from torch import Tensor

import vllm_stubs
from fxrewrite.verify.right_kernels import pairwise


@torch.library.custom_op("corpus_pairs::rms_norm", mutates_args=())
def rms_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """The norm of x."""
    t = x.float()
    mean = pairwise(t * t) / x.shape[-1]
    return vllm_stubs.weighed(t * (1.0 / torch.sqrt(mean + eps)), w, x.dtype)
