"""Fake values made without the dispatcher are those that the dispatcher makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from fxrewrite.lowering import fakes

aten = torch.ops.aten


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def facts(t: torch.Tensor) -> tuple[Any, ...]:
    return type(t), t.shape, t.stride(), t.dtype, t.device, t.storage_offset(), t.requires_grad, t.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64])
@pytest.mark.parametrize(("shape", "wanted"), [((2, 3, 8), (6, 8)), ((6, 1), (3, 2)), ((0, 4), (4, 0)), ((1,), ())])
def test_a_view(dtype: torch.dtype, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    mode = FakeTensorMode()
    with mode:
        x = torch.empty(shape, dtype=dtype)
        expected = aten.reshape.default(x, wanted)
    made = fakes.view(x, wanted)
    assert made is not None
    assert facts(made) == facts(expected)
    assert shares_memory(made, x)
    assert fakes.metadata(made) == _extract_tensor_metadata(expected)
    assert made.fake_mode is mode  # type: ignore[attr-defined]


@pytest.mark.parametrize(("shape", "strides"), [((2, 3), (3, 1)), ((2, 3), (1, 2)), ((), ()), ((4, 8), (12, 1))])
def test_a_new_one(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    mode = FakeTensorMode()
    with mode:
        expected = torch.empty_strided(shape, strides, dtype=torch.float32, device="cuda:0")
    with FakeTensorMode():  # that a host has another one on changes nothing
        made = fakes.empty(mode, shape, strides, torch.float32, torch.device("cuda:0"))
    assert facts(made) == facts(expected)
    assert made.fake_mode is mode  # type: ignore[attr-defined]
    assert not shares_memory(made, expected)
    assert fakes.metadata(made) == _extract_tensor_metadata(expected)


def test_only_the_kernel_can_tell() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    dynamic = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC])
    symbolic = mode.from_tensor(torch.empty(4, 8), symbolic_context=dynamic)
    with mode:
        gaps = torch.empty(4, 8)[:, :4]
    assert fakes.view(gaps, (16,)) is None, "a copy"
    assert fakes.view(torch.empty(4, 4), (16,)) is None, "not fake"
    assert fakes.view(symbolic, (symbolic.shape[0] * 8,)) is None
    assert fakes.metadata(symbolic) == _extract_tensor_metadata(symbolic)
    (size,) = fakes.empty(mode, symbolic.shape[:1], (1,), torch.float32, torch.device("cpu")).shape
    assert isinstance(size, torch.SymInt)
