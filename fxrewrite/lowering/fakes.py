"""Fake values of new nodes whose type is known: made without torch's dispatcher, which takes longer for one of them
than all else at a site. What is not plain (symbolic sizes, gaps, gradients) goes through the op's fake kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.fx.passes.shape_prop import TensorMetadata, _extract_tensor_metadata


def view(val: Any, shape: Sequence[Any]) -> torch.Tensor | None:
    """`val` in another shape, in the same memory, as a reshape gives it; None where only the fake kernel can tell."""
    if not _is_plain(val) or not _are_fixed(shape) or not val.is_contiguous():
        return None
    with in_kernel_invocation_manager(val.fake_mode):
        made = val.view(tuple(shape))
    return FakeTensor(val.fake_mode, made, val.fake_device)


def empty(
    mode: Any, shape: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A new fake tensor."""
    if isinstance(mode, FakeTensorMode) and _are_fixed(shape) and _are_fixed(strides):
        with in_kernel_invocation_manager(mode):
            made = torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device="meta")
        return FakeTensor(mode, made, device)
    with mode:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def metadata(val: torch.Tensor) -> TensorMetadata:
    """What passes of torch call `tensor_meta`."""
    if _is_plain(val) and val.is_contiguous():
        return TensorMetadata(val.shape, val.dtype, False, val.stride(), torch.contiguous_format, False, {})
    return _extract_tensor_metadata(val)


def _is_plain(val: Any) -> bool:
    return (
        type(val) is FakeTensor and val.layout is torch.strided and not val.requires_grad and _are_fixed(val.shape)
        and not val.is_quantized
    )  # fmt: skip


def _are_fixed(sizes: Sequence[Any]) -> bool:
    return all(type(s) is int for s in sizes)
