"""A quantizer with one scale."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_scales::codes", mutates_args=())
def codes(x: Tensor, s: Tensor) -> Tensor:
    """Codes of x with the first scale."""
    return vllm_stubs.codes(x.float() / s[:1], vllm_stubs.FP8)
