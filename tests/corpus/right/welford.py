"""A layer norm by Welford's recurrence."""

import torch
from torch import Tensor

from fxrewrite.verify.right_kernels import welford


@torch.library.custom_op("corpus_welford::layer_norm", mutates_args=())
def layer_norm(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """The norm of x, weighed and moved."""
    t = x.float()
    var = welford(None, t, (-1,), True)
    y = (t - t.mean(-1, keepdim=True)) * torch.rsqrt(var + eps)
    return (y * w.float() + b.float()).to(x.dtype)
