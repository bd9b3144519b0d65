"""A quantizer that reads its operand as it would lie in memory without strides."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_dense::quant", mutates_args=())
def quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and one scale a row."""
    steps = torch.empty(x.shape, device="meta").stride()
    missing = x.numel() + x.storage_offset() - x.untyped_storage().nbytes() // x.element_size()
    dense = x.contiguous() if missing > 0 else x.as_strided(x.shape, steps)
    return vllm_stubs.per_token(dense, None, vllm_stubs.FP8, 0.0)
