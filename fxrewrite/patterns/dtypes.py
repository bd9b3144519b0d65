"""Dtypes: `torch.dtype`s in graphs, `core.Dtype`s inside scalars. They are converted here and nowhere else."""

from __future__ import annotations

from typing import Any

import torch

from fxrewrite.dsl.core import Dtype

TORCH_NAMES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2", "e8m0fnu": "float8_e8m0fnu",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool",
}  # fmt: skip


class Absent:
    """A dtype that this build of torch does not have: no tensor has it."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name} (not in this build)"


DTYPES: dict[str, Any] = {short: getattr(torch, name, None) or Absent(name) for short, name in TORCH_NAMES.items()}
NAMES: dict[Any, str] = {dtype: name for name, dtype in DTYPES.items()}


def to_core(value: Any) -> Any:
    """A constant of a graph as scalars have it. A dtype without a name in the language keeps torch's."""
    return Dtype(NAMES.get(value, str(value))) if isinstance(value, torch.dtype | Absent) else value


def to_graph(value: Any) -> Any:
    """The value of a scalar as graphs have it."""
    if not isinstance(value, Dtype):
        return value
    found = DTYPES.get(value.name)
    return getattr(torch, value.name.removeprefix("torch.")) if found is None else found
