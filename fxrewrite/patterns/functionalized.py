"""Mutable ops as functional graphs hold them, `auto_functionalized` v1 and v2: which result is which argument, written.

Of v2 a result is the new content of a *base*: only one that is whole and was made for the call counts as a buffer.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch.fx import Node

from fxrewrite.patterns.arguments import argument, op_name
from fxrewrite.patterns.values import FRESH, Table, Value, dims_of, size

aten = torch.ops.aten
EMPTY = {
    aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.new_empty_strided.default,
}  # fmt: skip
PERMUTED = {aten.permute.default, aten.t.default, aten.transpose.int, aten.mT.default}  # of axes, nothing else


def _higher_order(name: str) -> Any:
    return getattr(torch.ops.higher_order, name, None)


FUNCTIONALIZED = {_higher_order("auto_functionalized"), _higher_order("auto_functionalized_v2")} - {None}


def functionalized(t: Table, call: Node, i: int, val: Any) -> Value | None:
    """Result `i` of a functionalized mutable op: a pure value `op#k` of its arguments, k the name of what it writes or
    the position of what it returns. A written argument that nobody else sees is `FRESH`.
    """
    op: Any = call.args[0]
    schema = op._schema
    written = [a.name for a in schema.arguments if a.is_write]
    returns = len(schema.returns)
    buffers = written_buffers(call)
    if buffers is None:
        return None
    args: list[Any] = []
    for a in schema.arguments:
        if a.is_write:
            buffer = buffers[a.name]
            args.append(FRESH if is_fresh(buffer, call) else None if buffer is None else t.of_node[buffer])
        else:
            args.append(argument(t, call.kwargs.get(a.name, a.default_value)))
    which: Any = i if i < returns else None
    if which is None:
        order = written_order(call, written)
        if order is None or i - max(returns, 1) >= len(order):
            return None
        which = order[i - max(returns, 1)]
    order = view_order(call, which) if isinstance(which, str) else None
    shape = dims_of(val)
    try:
        result = t.cons(
            f"{op_name(op)}#{which}", tuple(args), (), val.dtype, tuple(shape[i] for i in order) if order else shape
        )
    except TypeError:
        return None
    return t.permute(result, tuple(order.index(i) for i in range(len(order)))) if order else result


def written_buffers(call: Any) -> dict[str, Node | None] | None:
    """The node behind each written argument, whose axes may be permuted; None where one is only part of its base."""
    op: Any = call.args[0]
    names = [a.name for a in op._schema.arguments if a.is_write]
    if "_all_bases" not in call.kwargs:
        found: dict[str, Any] = {n: call.kwargs.get(n) for n in names}
    else:
        found = {}
        bases: Any = call.kwargs["_all_bases"]
        for n in names:
            index = call.kwargs.get(f"_{n}_base_index")
            viewed = any(f"_{n}_{part}" in call.kwargs for part in ("size", "slice_dim", "alias"))
            if viewed and view_order(call, n) is None:
                return None
            found[n] = None if index is None else bases[index]
    return found if all(b is None or isinstance(b, Node) for b in found.values()) else None


def view_order(call: Node, name: str) -> tuple[int, ...] | None:
    """The permutation of its base that a written argument is, where it is one."""
    if f"_{name}_size" not in call.kwargs:
        return None
    part = {p: call.kwargs.get(f"_{name}_{p}") for p in ("size", "stride", "storage_offset")}
    base: Any = call.kwargs["_all_bases"][call.kwargs[f"_{name}_base_index"]]  # type: ignore[index]
    val = base.meta["val"]
    sizes, strides = ([_size_of(s) for s in part[p]] for p in ("size", "stride"))  # type: ignore[union-attr]
    if _size_of(part["storage_offset"]) != _size_of(val.storage_offset()) or len(sizes) != val.ndim:
        return None
    for order in permutations(range(val.ndim)):
        if all(
            (_size_of(val.shape[i]), _size_of(val.stride(i))) == (n, s)
            for i, n, s in zip(order, sizes, strides, strict=True)
        ):
            return order
    return None


def _size_of(s: Any) -> Any:
    return size(s.meta["val"] if isinstance(s, Node) else s)


def written_order(call: Any, written: list[str]) -> list[str] | None:
    """Which written argument each result after the returned ones is."""
    if "_all_bases" not in call.kwargs:
        return [n for n in written if call.kwargs.get(n) is not None]
    bases: Any = call.kwargs["_all_bases"]
    out: list[str | None] = [None] * len(bases)
    for n in written:
        index: Any = call.kwargs.get(f"_{n}_base_index")
        if index is not None:
            if out[index] is not None:
                return None
            out[index] = n
    return None if None in out else [n for n in out if n is not None]


def is_fresh(buffer: Node | None, call: Node) -> bool:
    """Was the buffer, whose axes may be permuted, made for this call alone?"""
    user = call
    while buffer is not None and all(u is user for u in buffer.users):
        if buffer.target in EMPTY:
            return True
        if buffer.target not in PERMUTED:
            return False
        user, buffer = buffer, buffer.args[0]  # type: ignore[assignment]
    return False
