"""Sums over ranks, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def in_order(parts: Sequence[Tensor]) -> Tensor:
    """The sum in the order of the ranks, each partial sum rounded to the dtype: one of the orders there are."""
    return reduce(torch.add, parts)
