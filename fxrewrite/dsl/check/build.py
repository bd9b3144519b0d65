"""Calls of built-ins: which function makes the term of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxrewrite.dsl.check import narrow_formats, ranks, shapes, slices, torch_builtins, typing
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.syntax import Span


def build(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """The term of a built-in call. `values`: its arguments by name, terms and scalars."""
    maker = _MAKERS.get(prim)
    if maker is not None:
        return maker(item, prim, values, span)
    x = values["x"]
    if "y" in values:
        return typing.binary(item, prim, x, values["y"], span)
    return typing.unary(item, prim, values, span)


_MAKERS: dict[str, Callable[[Item, str, dict[str, Any], Span], Value]] = {
    "relu": typing.relu,
    "square": typing.square,
    "pow": typing.pow,
    "clamp": typing.clamp,
    "to": typing.to,
    "matmul": typing.matmul_call,
    **dict.fromkeys(("amax", "mean", "sum", "var"), typing.reduce),
    "reshape": shapes.reshape,
    "expand": shapes.reshape,
    "unsqueeze": shapes.unsqueeze,
    "permute": shapes.permute,
    "cat": shapes.cat,
    "slice": slices.slice,
    "slice_scatter": slices.slice,
    "split": slices.split,
    "chunk": slices.split,
    "addmm": torch_builtins.addmm,
    "stack": torch_builtins.stack,
    "constant_pad_nd": torch_builtins.constant_pad_nd,
    "index_put": torch_builtins.index_put,
    "view_dtype": torch_builtins.view_dtype,
    **dict.fromkeys("view_as_complex view_as_real real_part imag_part".split(), torch_builtins.complex_parts),
    "zeros": torch_builtins.zeros,
    "zeros_like": torch_builtins.same_type,
    "round_e2m1": narrow_formats.round_e2m1,
    "pack2": narrow_formats.pack2,
    "pack4": narrow_formats.pack4,
    "swizzle": narrow_formats.swizzle,
    "psum": ranks.psum,
    **dict.fromkeys(("pshard", "pconcat"), ranks.resized),
}
