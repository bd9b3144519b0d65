"""Calls of torch ops as Python text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch

from fxrewrite.dsl.core import Dtype
from fxrewrite.dsl.evaluate import Buffer, Overwritten
from fxrewrite.patterns.dtypes import TORCH_NAMES


def literal(x: Any) -> str:
    """A number, dtype or list as Python."""
    if isinstance(x, Dtype):
        return f"torch.{TORCH_NAMES[x.name]}"
    if isinstance(x, torch.dtype):
        return str(x)
    if isinstance(x, list | tuple):
        inner = ", ".join(map(literal, x))
        return (
            f"({inner},)"
            if len(x) == 1 and isinstance(x, tuple)
            else f"[{inner}]"
            if isinstance(x, list)
            else f"({inner})"
        )
    return repr(x)


def spelled_call(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., str]:
    """What spells one result of a call: returned (by position, None for the only one) or written (by slot)."""
    slots, buffers = count(), {}

    def said(a: Any) -> str:
        if hasattr(a, "tensor"):
            return f"{{{next(slots)}}}"
        if isinstance(a, Buffer):
            buffers[a.slot] = f"b{len(buffers)}"
            return f"({buffers[a.slot]} := torch.empty({literal(tuple(a.shape or ()))}, dtype={literal(a.dtype)}))"
        if isinstance(a, Overwritten):
            buffers[a.slot] = f"b{len(buffers)}"
            return f"({buffers[a.slot]} := {said(a.value)}.clone())"
        if isinstance(a, list | tuple):
            return "[" + ", ".join(map(said, a)) + "]"
        return literal(a).replace("{", "{{").replace("}", "}}")

    given = [*map(said, args), *(f"{k}={said(v)}" for k, v in kwargs.items())]
    call = f"torch.ops.{op}({', '.join(given)})"

    def result(which: Any, written: bool = False) -> str:
        if written:
            return f"({call}, {buffers[which]})[1]"
        return call if which is None else f"{call}[{which}]"

    return result
