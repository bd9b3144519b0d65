"""A rotation of the first head."""

import torch
from torch import Tensor

from fxrewrite import ref


@torch.library.custom_op("corpus_head::rope", mutates_args=())
def rope(pos: Tensor, q: Tensor, cs: Tensor, size: int, neox: bool) -> Tensor:
    """q with its first head turned."""
    turned = ref.rope_q(pos, q[:, :size], cs, Dh=size, neox=neox, off=0, inv=False, wide=True)
    return torch.cat([turned[0], q[:, size:]], -1)
