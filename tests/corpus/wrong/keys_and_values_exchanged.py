"""A gate that reads the halves of its operand from the wrong side."""

import torch
from torch import Tensor

import vllm_stubs


@torch.library.custom_op("corpus_packed::silu_and_mul", mutates_args=())
def silu_and_mul(x: Tensor) -> Tensor:
    """The right half gates the left one."""
    up, gate = x.chunk(2, -1)
    return vllm_stubs.silu_and_mul(torch.cat([gate, up], -1))
