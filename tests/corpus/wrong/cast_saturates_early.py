"""A quantizer whose largest exponent is one too small."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_early::quant", mutates_args=())
def quant(x: Tensor, s: Tensor) -> Tensor:
    """Codes of x with one scale."""
    scaled = x.float() * s.reciprocal()
    found = vllm_stubs.codes(scaled, vllm_stubs.FP8).float()
    return torch.where(found.abs() >= 256, torch.copysign(torch.tensor(448.0), found), found).to(vllm_stubs.FP8)
