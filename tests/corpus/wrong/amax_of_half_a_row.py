"""A quantizer whose largest value is that of every other channel."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_amax::quant", mutates_args=())
def quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and one scale a row."""
    scale = x[..., ::2].abs().amax(-1, keepdim=True).float() / 448
    return vllm_stubs.codes(x.float() / scale, vllm_stubs.FP8), scale
