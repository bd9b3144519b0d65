"""A rotation of halves."""

import torch
from torch import Tensor

from fxrewrite import ref


@torch.library.custom_op("corpus_neox::rope", mutates_args=())
def rope(pos: Tensor, q: Tensor, cs: Tensor, size: int) -> Tensor:
    """q turned as NeoX does."""
    return ref.rope_q(pos, q, cs, Dh=size, neox=True, off=0, inv=False, wide=True)[0].clone()
