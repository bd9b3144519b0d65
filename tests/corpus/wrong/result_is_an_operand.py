"""Nothing, by a kernel."""

import torch
from torch import Tensor

LIBRARY = torch.library.Library("corpus_alias", "FRAGMENT")


def same(x: Tensor) -> Tensor:
    """x itself."""
    return x


LIBRARY.define("same(Tensor x) -> Tensor")
LIBRARY.impl("same", same, "CompositeExplicitAutograd")
