"""Primitives as nodes of one dialect: the table of `dialect.py` backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from fxrewrite.dsl.core import UNARY
from fxrewrite.patterns.dialect import END

aten, prims = torch.ops.aten, torch.ops.prims


class Dialect:
    """How one IR writes primitives. `cast` is its cast op; a clamp is one op or two."""

    def __init__(self, name: str, cast: Any, reshape: Any, one_clamp: bool):
        self.name, self.cast, self.reshape, self.one_clamp = name, cast, reshape, one_clamp

    def __repr__(self) -> str:
        return f"Dialect({self.name})"


INDUCTOR = Dialect("inductor", prims.convert_element_type.default, aten.reshape.default, False)
CORE = Dialect("core aten", aten._to_copy.default, aten.view.default, True)
TRAINING = Dialect("training", aten.to.dtype, aten.reshape.default, True)


def detect(graph: torch.fx.Graph) -> Dialect:
    """The dialect of a graph, by the cast that occurs in it; Inductor's where none does."""
    for node in graph.nodes:
        for dialect in (INDUCTOR, CORE, TRAINING):
            if node.target is dialect.cast:
                return dialect
    return INDUCTOR


Call = Callable[..., Node]  # call(target, *args, **kwargs) appends a node


def _write_to(d: Dialect, call: Call, x: Node, dtype: torch.dtype) -> Node:
    return call(d.cast, x, dtype=dtype) if d is CORE else call(d.cast, x, dtype)


def _write_clamp(d: Dialect, call: Call, x: Node, lo: Any, hi: Any) -> Node:
    if d.one_clamp:
        return call(aten.clamp.default, x, lo, hi)
    x = x if lo is None else call(aten.clamp_min.default, x, lo)
    return x if hi is None else call(aten.clamp_max.default, x, hi)


def _write_reshape(d: Dialect, call: Call, x: Node, shape: Sequence[Any]) -> Node:
    """A reshape; where the dialect has views only and there is no such view, of a contiguous copy."""
    if d.reshape is aten.view.default and not _viewable(x, shape):
        x = call(aten.clone.default, x, memory_format=torch.contiguous_format)
    return call(d.reshape, x, list(shape))


def _viewable(x: Node, shape: Sequence[Any]) -> bool:
    val = x.meta["val"]
    if val.is_contiguous():
        return True
    try:
        val.view([s.meta["val"] if isinstance(s, Node) else s for s in shape])
    except (RuntimeError, ValueError):
        return False
    return True


def _write_slice(d: Dialect, call: Call, x: Node, axis: int, start: Any, stop: Any, step: int = 1) -> Node:
    axis = axis % len(x.meta["val"].shape)
    return call(aten.slice.Tensor, x, axis, start, END if stop is None else stop, *([step] if step != 1 else []))


def _write_reduce(op: Any, **fixed: Any) -> Callable[..., Node]:
    def write(d: Dialect, call: Call, x: Node, axes: Sequence[int], keepdim: bool) -> Node:
        axes = list(axes) or list(range(len(x.meta["val"].shape)))
        return call(op, x, axes, keepdim=keepdim, **fixed) if fixed else call(op, x, axes, keepdim)

    return write


def _write_binary(op: Any) -> Callable[..., Node]:
    def write(d: Dialect, call: Call, a: Any, b: Any) -> Node:
        if not isinstance(a, Node):  # a number first: only where the op has such a form
            if op in (aten.add.Tensor, aten.mul.Tensor):
                a, b = b, a
            elif op is aten.sub.Tensor:
                return call(aten.rsub.Scalar, b, a)
            else:
                a = _scalar(call, a, b)
        elif not isinstance(b, Node) and op in (aten.maximum.default, aten.minimum.default):
            b = _scalar(call, b, a)
        return call(op, a, b)

    return write


def _scalar(call: Call, number: Any, like: Node) -> Node:
    val = like.meta["val"]
    return call(aten.scalar_tensor.default, number, dtype=val.dtype, device=val.device)


def _write_matmul(d: Dialect, call: Call, x: Node, y: Node) -> Node:
    """A product of two matrices, or of two batches of as many."""
    ranks = [len(a.meta["val"].shape) for a in (x, y)]
    op = aten.mm.default if ranks == [2, 2] else aten.bmm.default if ranks == [3, 3] else aten.matmul.default
    return call(op, x, y)


WRITERS: dict[str, Callable[..., Node]] = {
    **{op: (lambda d, call, x, op=op: call(getattr(aten, op).default, x)) for op in UNARY},
    "add": _write_binary(aten.add.Tensor),
    "sub": _write_binary(aten.sub.Tensor),
    "mul": _write_binary(aten.mul.Tensor),
    "div": _write_binary(aten.div.Tensor),
    "fdiv": _write_binary(aten.div.Tensor),
    "maximum": _write_binary(aten.maximum.default),
    "minimum": _write_binary(aten.minimum.default),
    "clamp": _write_clamp,
    "to": _write_to,
    "reshape": _write_reshape,
    "permute": lambda d, call, x, order: call(aten.permute.default, x, list(order)),
    "expand": lambda d, call, x, shape: call(aten.expand.default, x, list(shape)),
    "slice": _write_slice,
    "slice_scatter": lambda d, call, x, y, axis, start, stop, step=1: call(
        aten.slice_scatter.default, x, y, axis, start, END if stop is None else stop, step
    ),
    "cat": lambda d, call, *xs_and_axis: call(aten.cat.default, list(xs_and_axis[:-1]), xs_and_axis[-1]),
    "clone": lambda d, call, x: call(aten.clone.default, x),
    "amax": _write_reduce(aten.amax.default),
    "mean": _write_reduce(aten.mean.dim),
    "sum": _write_reduce(aten.sum.dim_IntList),
    "var": _write_reduce(aten.var.correction, correction=0),
    "matmul": _write_matmul,
}
NOT_WRITTEN: dict[str, str] = {  # primitives without a writer, and why; none of them is read off a graph either
    "round_e2m1": "no torch op rounds to E2M1: a kernel, a provider or the registered op does",
    "pack2": "no torch op packs nibbles: a kernel, a provider or the registered op does",
    "pack4": "no torch op packs exponents: a kernel, a provider or the registered op does",
    "swizzle": "no torch op puts scales in tiles: a kernel, a provider or the registered op does",
    "psum": "a collective is the op that is declared with it, not its parts",
    "pshard": "a collective is the op that is declared with it, not its parts",
    "pconcat": "a collective is the op that is declared with it, not its parts",
}
