"""A quantizer that takes a bound."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_bound::quant", mutates_args=())
def quant(x: Tensor, ub: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and one scale a row."""
    return vllm_stubs.per_token(x, None, vllm_stubs.FP8, 0.0)
