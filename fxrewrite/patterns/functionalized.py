"""Mutable ops as functional graphs hold them, `auto_functionalized` v1 and v2: which result is which argument, written.

A result of v1 is the new content of an argument. A result of v2 is that of a *base*, of which several arguments may be
parts: the base with each part put into its place (`Place`), which is read back as what the op wrote there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product
from math import prod
from typing import Any

import torch
from attrs import evolve, frozen
from torch.fx import Node

from fxrewrite.patterns.arguments import argument, op_name
from fxrewrite.patterns.values import FRESH, Dims, Table, Value, apart, dims_of, shown, size

aten = torch.ops.aten
EMPTY = {
    aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.new_empty_strided.default,
}  # fmt: skip
EMPTY_NAMES = frozenset(map(op_name, EMPTY))
MAX_AXES = 5  # of a base whose axes are looked for in a view: their orders are tried
REARRANGED = {
    aten.permute.default, aten.t.default, aten.transpose.int, aten.mT.default, aten.reshape.default, aten.view.default,
    aten.slice.Tensor,
}  # fmt: skip


def _higher_order(name: str) -> Any:
    return getattr(torch.ops.higher_order, name, None)


WRITE_ONLY: Any = getattr(torch.Tag, "out", None)  # a tag of `out=` ops, in versions of torch that have it
FUNCTIONALIZED = {_higher_order("auto_functionalized"), _higher_order("auto_functionalized_v2")} - {None}


# ---- where a written argument lies in its base


@frozen
class Place:
    """Part of a base: `ranges` of its axes (axis, start, stop), then `order` of the axes, in the shape `shape`.

    Sizes are ints or sympy expressions, axes are negative.
    """

    base: Node
    shape: Dims
    ranges: tuple[tuple[int, Any, Any], ...] = ()
    order: tuple[int, ...] = ()

    def content(self, t: Table) -> Value:
        """What the part holds before the call."""
        x = t.of_node[self.base]
        for r in self.ranges:
            x = _cut(t, x, r)
        return t.reshape(t.permute(x, self.order) if self.order else x, self.shape)

    def put(self, t: Table, base: Value, part: Value) -> Value:
        """`base` with `part` in this place."""
        order = self.order or tuple(range(len(base.shape)))
        shape = list(base.shape)
        for axis, start, stop in self.ranges:
            shape[axis] = stop - start
        back = tuple(order.index(i) for i in range(len(order)))
        return _put(t, base, self.ranges, t.permute(t.reshape(part, tuple(shape[i] for i in order)), back))

    def is_apart(self, other: Place) -> bool:
        """Is it shown that two places of one base have no element in common?"""
        return any(
            a[0] == b[0] and apart(a[1:], b[1:]) for a in self.ranges for b in other.ranges
        )  # of different axes two ranges always meet


def _cut(t: Table, x: Value, r: tuple[int, Any, Any]) -> Value:
    axis, start, stop = r
    at = len(x.shape) + axis
    return t.slice(x, axis, start, stop, 1, (*x.shape[:at], stop - start, *x.shape[at + 1 :]))


def _put(t: Table, x: Value, ranges: Sequence[tuple[int, Any, Any]], part: Value) -> Value:
    if not ranges:
        return part
    (axis, start, stop), rest = ranges[0], ranges[1:]
    return t.slice_scatter(x, _put(t, _cut(t, x, ranges[0]), rest, part) if rest else part, axis, start, stop, 1)


def strided_place(base: Node, shape: Dims, strides: Dims, offset: Any) -> Place | None:
    """The part of a base that these sizes, strides and offset are, where each axis is (part of) an axis of the base, or
    several that one was split into, or several axes of the base joined; or where it is all of a contiguous base in
    another shape. A joined part that begins or ends inside an inner axis is no range of each axis: None.
    """
    val = base.meta["val"]
    sizes, steps = dims_of(val), tuple(map(size, val.stride()))
    start = offset - size(val.storage_offset())
    whole = Place(base, shape)
    if start == 0 and prod(shape) == prod(sizes) and strides == _rows(shape) and steps == _rows(sizes):
        return whole
    kept = [i for i, n in enumerate(sizes) if n != 1]
    if len(kept) > MAX_AXES or 0 in steps:
        return None
    joined = {steps[i]: (sizes[i], sizes[i] * steps[i]) for i in kept}
    axes = [a for n, s in zip(shape, strides, strict=True) if n != 1 for a in _split(n, s, joined)]
    for count in range(min(len(axes), len(kept)), -1, -1):
        for merged, order in product(_merged(axes, count), permutations(kept, count)):
            of_axis = {i: (1, steps[i]) for i in kept} | dict(zip(order, merged, strict=True))
            ranges = _ranges(sizes, steps, of_axis, start)
            if ranges is not None:
                return evolve(whole, ranges=ranges, order=_with_ones(order, len(sizes)))
    return None


def _rows(shape: Dims) -> Dims:
    """The strides of a contiguous tensor."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _split(n: Any, step: Any, joined: dict[Any, tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """An axis of a view as those of the base that it goes over, outermost first, where it goes over inner ones whole.

    `joined`: the stride of an axis of the base -> its size, and the stride of an axis that lies outside it without gap.
    """
    inner: list[tuple[Any, Any]] = []
    while step in joined:
        m, outer = joined[step]
        if outer not in joined or n == m or n % m != 0:
            break
        inner.insert(0, (m, step))
        n, step = n // m, outer
    return [(n, step), *inner]


def _merged(axes: list[tuple[Any, Any]], count: int) -> Iterator[list[tuple[Any, Any]]]:
    """`axes` (size, stride) as `count` axes, neighbours that lie behind one another joined."""
    if len(axes) == count:
        yield axes
        return
    for i in range(len(axes) - 1) if len(axes) > count else ():
        (n, outer), (m, inner) = axes[i : i + 2]
        if outer == m * inner:
            yield from _merged([*axes[:i], (n * m, inner), *axes[i + 2 :]], count)


def _ranges(sizes: Dims, steps: Dims, of_axis: dict[int, tuple[Any, Any]], start: Any) -> Any:
    """The ranges of the axes of a base; None where a stride is another, or an axis would run over its end."""
    out: list[tuple[int, Any, Any]] = []
    if any(of_axis[i][1] != steps[i] for i in of_axis):
        return None
    for i, (n, step) in sorted(of_axis.items(), key=lambda item: -_known(item[1][1])):
        if n == sizes[i]:
            continue
        first = start // step if isinstance(start, int) and isinstance(step, int) else 0 if start == 0 else None
        if first is None or not shown(sizes[i] - n - first):
            return None
        start = start - first * step
        out.append((i - len(sizes), first, first + n))
    return tuple(out) if start == 0 else None


def _known(stride: Any) -> float:
    return stride if isinstance(stride, int) else float("inf")


def _with_ones(order: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A permutation of some axes as one of all axes; the others have one element."""
    moved = iter(order)
    full = tuple(next(moved) if i in order else i for i in range(rank))
    return () if full == tuple(range(rank)) else full


def places(call: Node) -> dict[str, Place | None] | None:
    """Where each written argument lies, None for one that is `none`; None where one of them is not understood."""
    op: Any = call.args[0]
    found: dict[str, Place | None] = {}
    for a in op._schema.arguments:
        if a.is_write:
            node = call.kwargs.get(a.name)
            if isinstance(node, Node) and "_all_bases" not in call.kwargs:
                found[a.name] = Place(node, dims_of(node.meta["val"]))
                continue
            if "_all_bases" not in call.kwargs or f"_{a.name}_base_index" not in call.kwargs:
                if a.name not in call.kwargs or node is not None:
                    return None  # a list of tensors, or an `out` that v2 leaves out
                found[a.name] = None
                continue
            found[a.name] = _place_of_v2(call.kwargs, f"_{a.name}")
            if found[a.name] is None and call.kwargs[f"_{a.name}_base_index"] is not None:
                return None
    pairs = combinations([p for p in found.values() if p is not None], 2)
    if "_all_bases" in call.kwargs and any(p.base is q.base and not p.is_apart(q) for p, q in pairs):
        return None
    return found


def _place_of_v2(kwargs: dict[str, Any], name: str) -> Place | None:
    index = kwargs[f"{name}_base_index"]
    if index is None:
        return None
    base: Node = kwargs["_all_bases"][index]
    sizes = dims_of(base.meta["val"])
    if f"{name}_slice_dim" in kwargs:
        axis, start, stop = (_size_of(kwargs[f"{name}_slice_{part}"]) for part in ("dim", "start", "end"))
        if not (shown(start) and shown(sizes[axis] - stop)):
            return None
        shape = (*sizes[:axis], stop - start, *sizes[axis + 1 :])
        return Place(base, shape, ((axis - len(sizes), start, stop),))
    if f"{name}_size" in kwargs:
        shape, strides = (tuple(map(_size_of, kwargs[f"{name}_{part}"])) for part in ("size", "stride"))
        return strided_place(base, shape, strides, _size_of(kwargs[f"{name}_storage_offset"]))
    return Place(base, sizes)


def _size_of(s: Any) -> Any:
    return size(s.meta["val"] if isinstance(s, Node) else s)


# ---- values


def functionalized(t: Table, call: Node, i: int, val: Any) -> Value | None:
    """Result `i` of a functionalized mutable op: a pure value `op#k` of its arguments, k the name of what it writes or
    the position of what it returns. Of v2: the base with these values in their places. A buffer that holds nothing yet
    is `FRESH`; one that holds only what calls wrote there, whatever reads that, is among `Table.scratch`.
    """
    op: Any = call.args[0]
    if writes_only(call):
        return _filled(t, call, i, val)
    found = places(call)
    if found is None:
        return None
    args: list[Any] = []
    for a in op._schema.arguments:
        if a.is_write:
            args.append(_before(t, found[a.name]))
        else:
            args.append(argument(t, call.kwargs.get(a.name, a.default_value)))
    try:
        if i < len(op._schema.returns):
            return t.cons(f"{op_name(op)}#{i}", tuple(args), (), val.dtype, dims_of(val))
        return _written(t, call, i - max(len(op._schema.returns), 1), found, tuple(args))
    except TypeError:  # an argument that cannot be hashed
        return None


def _written(t: Table, call: Node, j: int, found: dict[str, Place | None], args: tuple[Any, ...]) -> Value | None:
    """What written argument `j` of v1, or base `j` of v2, holds after the call."""
    name = op_name(call.args[0])
    v2 = "_all_bases" in call.kwargs
    chosen = [n for n in found if call.kwargs.get(f"_{n}_base_index") == j] if v2 else list(found)[j : j + 1]
    here = [(n, p) for n in chosen if (p := found[n]) is not None]
    if not here:
        return None
    base = here[0][1].base
    x = t.of_node[base]
    scratch = is_fresh(t, base) or _is_scratch(t, x)
    for n, place in here:
        part = t.cons(f"{name}#{n}", args, (), base.meta["val"].dtype, place.shape)
        x = place.put(t, x, part)
        if scratch:
            t.scratch.update((part, x))
    return x


def writes_only(call: Node) -> bool:
    """Is a call one of v2 that makes the buffers of an `out=` op itself, and returns them alone?"""
    tags = getattr(call.args[0], "tags", ())
    return WRITE_ONLY in tags and call.kwargs.get("_all_bases") == []


def _filled(t: Table, call: Node, i: int, val: Any) -> Value | None:
    """Buffer `i` of an `out=` op, filled."""
    op: Any = call.args[0]
    arguments = op._schema.arguments
    names = [a.name for a in arguments if a.is_write]
    args = [FRESH if a.is_write else argument(t, call.kwargs.get(a.name, a.default_value)) for a in arguments]
    try:
        part = t.cons(f"{op_name(op)}#{names[i]}", tuple(args), (), val.dtype, dims_of(val))
    except TypeError:  # an argument that cannot be hashed
        return None
    t.scratch.add(part)
    return part


def base_of(result: Node) -> Node | None:
    """What a `getitem` of a call is the new content of: a base of v2, a written argument of v1; None for a returned
    value.
    """
    call, i = result.args
    assert isinstance(call, Node) and isinstance(i, int)
    op: Any = call.args[0]
    j = i - max(len(op._schema.returns), 1)
    written: Any = call.kwargs.get("_all_bases", [call.kwargs.get(a.name) for a in op._schema.arguments if a.is_write])
    found = written[j] if 0 <= j < len(written) else None
    return found if isinstance(found, Node) else None


def _before(t: Table, place: Place | None) -> Any:
    """What a written argument holds before the call."""
    if place is None or is_fresh(t, place.base):
        return place and FRESH
    content = place.content(t)
    if _is_scratch(t, content):
        t.scratch.add(content)
    return content


def _is_scratch(t: Table, content: Value) -> bool:
    """Is a content, or what it is part of, all from a buffer that held nothing but what calls wrote into it?"""
    todo = [content]
    while todo:
        x = todo.pop()
        if x in t.scratch or x.op in EMPTY_NAMES:
            continue
        if x.op not in ("slice", "reshape", "permute", "slice_scatter"):
            return False
        todo += x.args
    return True


def is_fresh(t: Table, buffer: Node) -> bool:
    """Does a buffer, however it is viewed, hold nothing yet? Others may read it too: they read nothing."""
    while buffer.target in REARRANGED:
        buffer = buffer.args[0]  # type: ignore[assignment]
    return buffer.target in EMPTY and not (t.writes and t.writes.to(buffer))
