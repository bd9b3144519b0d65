"""Every IR in one primitive language: which torch op is which primitive. `writers.py` is the way back.

`READERS` maps an op to the function that numbers it; whatever has none is an opaque value of all its arguments, by
schema. So an argument that is not a default makes an op another op. IRs spell a cast, a clamp or a reshape each in its
own way; here the spellings become one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch.fx import Node
from torch.utils._sympy.functions import FloorDiv

from fxrewrite.dsl.core import UNARY
from fxrewrite.patterns.arguments import argument, op_name, opaque, schema_arguments
from fxrewrite.patterns.functionalized import FUNCTIONALIZED, functionalized, writes_only
from fxrewrite.patterns.values import FRESH, Dims, Symbol, Table, Value, constant, dims_of, size

aten, prims = torch.ops.aten, torch.ops.prims
END = 2**63 - 1

Reader = Callable[[Table, Any, Any], "Value | None"]  # (table, node, its fake value)
READERS: dict[Any, Reader] = {}
BOOKKEEPING = {
    aten._assert_tensor_metadata.default,
    aten.sym_size.int,
    aten.sym_numel.default,
}  # users that never count
CONVERT = prims.convert_element_type.default
COPIES = (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.to.device)
LIKE = (aten.type_as.default, aten.to.other)
CASTS = (CONVERT, *COPIES, *LIKE)
RESHAPES = (
    aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.squeeze.default, aten.unsqueeze.default, aten.flatten.using_ints, aten.unflatten.int,
)  # fmt: skip
TRANSPOSES = (aten.t.default, aten.transpose.int, aten.mT.default)
VIEWS: set[Any] = set()  # ops whose result shares storage with their first argument


def reads(*targets: Any, view: bool = False) -> Callable[[Reader], Reader]:
    """Register a reader for these op overloads; `view`: the result shares storage with the first argument."""

    def register(reader: Reader) -> Reader:
        for target in targets:
            READERS[target] = reader
            if view:
                VIEWS.add(target)
        return reader

    return register


# ---- nodes


def base(node: Node) -> Node:
    """What a view is a view of."""
    while node.op == "call_function" and node.target in VIEWS:
        source: Any = node.args[0]
        node = source
    return node


def called(node: Node) -> str:
    """The op of a node, for people: `silu`."""
    schema = getattr(node.target, "_schema", None)
    return getattr(node.target, "__name__", str(node.target)) if schema is None else schema.name.split("::")[-1]


# ---- reading a graph


def read_node(t: Table, node: Any) -> Any:
    """Number one node; what it reads must be numbered."""
    value = _read(t, node)
    t.of_node[node] = value
    if type(value) is Value:
        value.nodes.append(node)
    return value


def _read(t: Table, node: Any) -> Any:
    val = node.meta.get("val")
    kind = node.op
    if kind == "call_function":
        if isinstance(val, torch.Tensor):
            reader = READERS.get(node.target)
            if reader is not None:
                value = reader(t, node, val)
                if value is not None:
                    return value
            return opaque(t, node, val.dtype, dims_of(val))
        if isinstance(val, torch.SymInt):
            return _symbol(t, node, val)
        reader = LIST_READERS.get(node.target)
        value = reader(t, node) if reader is not None else None
        return opaque(t, node, None, ()) if value is None else value
    if kind == "output":
        return None
    if isinstance(val, torch.SymInt):
        return _symbol(t, node, val)
    if isinstance(val, torch.SymFloat):
        return t.fresh("symfloat", (), (), torch.float64, ())
    if isinstance(val, torch.Tensor):
        if kind == "get_attr":
            return t.cons("get_attr", (node.target,), (), val.dtype, dims_of(val))
        return t.fresh("input", (), (node.target,), val.dtype, dims_of(val))
    return t.fresh(kind, (), (node.target,), None, ())


def _symbol(t: Table, node: Any, val: torch.SymInt) -> Symbol:
    expr = size(val)
    t.size_nodes.setdefault(expr, []).append(node)
    return Symbol(expr)


# ---- casts


@reads(CONVERT)
def _convert(t: Table, node: Any, val: Any) -> Value | None:
    return t.cast(t.of_node[node.args[0]], val.dtype)


@reads(*COPIES)
def _to(t: Table, node: Any, val: Any) -> Value | None:
    source = node.args[0].meta["val"]
    if source.device != val.device or source.layout != val.layout:
        return None
    for a in node.kwargs.values():
        if isinstance(a, torch.memory_format) and a != torch.preserve_format:
            return None
    return t.cast(t.of_node[node.args[0]], val.dtype)


@reads(*LIKE)
def _to_other(t: Table, node: Any, val: Any) -> Value | None:
    if node.args[0].meta["val"].device != val.device or len(node.args) > 2 or node.kwargs:
        return None
    return t.cast(t.of_node[node.args[0]], val.dtype)


@reads(aten.alias.default, aten.detach.default, view=True)
@reads(aten.lift_fresh_copy.default)
def _alias(t: Table, node: Any, val: Any) -> Value | None:
    return t.of_node[node.args[0]]


# ---- elementwise


def _operand(t: Table, a: Any, dtype: torch.dtype, shape: Dims) -> Any:
    """An operand with its promotion written out. A 0-d operand keeps its own precision beside one of higher rank."""
    if not isinstance(a, Node):
        return constant(a, dtype) if isinstance(a, int | float) else None
    v = t.of_node[a]
    if not isinstance(v, Value) or v.dtype is None:
        return None
    if v.dtype == dtype or (not v.shape and shape):
        return v
    return t.cast(v, dtype)


def _binary(op: str, t: Table, node: Any, val: Any) -> Value | None:
    args = node.args
    if node.kwargs or len(args) != 2:
        return None
    dtype, shape = val.dtype, dims_of(val)
    a, b = _operand(t, args[0], dtype, shape), _operand(t, args[1], dtype, shape)
    if a is None or b is None:
        return None
    return t.binary(op, a, b, dtype, shape)


for _name, _packet in (
    ("add", aten.add), ("sub", aten.sub), ("mul", aten.mul), ("div", aten.div),
    ("maximum", aten.maximum), ("minimum", aten.minimum),
):  # fmt: skip
    for _overload in ("Tensor", "Scalar", "default"):
        if hasattr(_packet, _overload):
            reads(getattr(_packet, _overload))(lambda t, n, v, op=_name: _binary(op, t, n, v))


@reads(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(t: Table, node: Any, val: Any) -> Value | None:
    if node.kwargs or len(node.args) != 2:
        return None
    a, b = (_operand(t, x, val.dtype, dims_of(val)) for x in node.args)
    return None if a is None or b is None else t.binary("sub", b, a, val.dtype, dims_of(val))


@reads(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(t: Table, node: Any, val: Any) -> Value | None:
    """A division where it does not round to whole numbers."""
    if node.kwargs.get("rounding_mode") is not None or len(node.args) != 2:
        return None
    a, b = (_operand(t, x, val.dtype, dims_of(val)) for x in node.args)
    return None if a is None or b is None else t.binary("div", a, b, val.dtype, dims_of(val))


def _unary(op: str, t: Table, node: Any, val: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    if len(node.args) != 1 or node.kwargs or x.dtype != val.dtype:
        return None
    return t.unary(op, x)


for _name in UNARY:
    if hasattr(aten, _name) and hasattr(getattr(aten, _name), "default"):
        reads(getattr(aten, _name).default)(lambda t, n, v, op=_name: _unary(op, t, n, v))


@reads(aten.pow.Tensor_Scalar)
def _pow(t: Table, node: Any, val: Any) -> Value | None:
    x, exponent = t.of_node[node.args[0]], node.args[1]
    if exponent != 2 or isinstance(exponent, bool) or x.dtype != val.dtype:
        return None
    return t.binary("mul", x, x, val.dtype, x.shape)


@reads(aten.square.default)
def _square(t: Table, node: Any, val: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    return t.binary("mul", x, x, val.dtype, x.shape)


def _clamp(t: Table, node: Any, val: Any, lo: Any, hi: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    if not val.dtype.is_floating_point or x.dtype != val.dtype:
        return None
    bounds = [None if b is None else constant(b, val.dtype) if isinstance(b, int | float) else FRESH for b in (lo, hi)]
    return None if FRESH in bounds else t.clamp(x, *bounds)


@reads(aten.clamp.default, aten.hardtanh.default)
def _clamp_both(t: Table, node: Any, val: Any) -> Value | None:
    return _clamp(t, node, val, *schema_arguments(node.target, node.args, node.kwargs)[1:3])


@reads(aten.clamp_min.default)
def _clamp_min(t: Table, node: Any, val: Any) -> Value | None:
    return _clamp(t, node, val, node.args[1], None) if len(node.args) == 2 else None


@reads(aten.clamp_max.default)
def _clamp_max(t: Table, node: Any, val: Any) -> Value | None:
    return _clamp(t, node, val, None, node.args[1]) if len(node.args) == 2 else None


@reads(aten.relu.default)
def _relu(t: Table, node: Node, val: Any) -> Value | None:
    return _clamp(t, node, val, 0, None)


# ---- reductions


def _axes(x: Value, axes: Any) -> tuple[int, ...]:
    """Axes of a reduction: negative, sorted; all where none is given."""
    rank = len(x.shape)
    listed = [axes] if isinstance(axes, int) else list(axes or range(rank))
    return tuple(sorted(a - rank if a >= 0 else a for a in listed))


def _reduce(op: str, t: Table, node: Any, val: Any) -> Value | None:
    args = schema_arguments(node.target, node.args, node.kwargs)
    x = t.of_node[args[0]]
    if x.dtype != val.dtype or any(a is not None for a in args[3:]):
        return None
    normal, rank = _axes(x, args[1] if len(args) > 1 else None), len(x.shape)
    keepdim = bool(args[2]) if len(args) > 2 else False
    return t.reduce(op, x, () if len(normal) == rank and not keepdim else normal, keepdim, dims_of(val))


for _name, _targets in (
    ("amax", (aten.amax.default,)), ("mean", (aten.mean.dim,)), ("sum", (aten.sum.dim_IntList,)),
):  # fmt: skip
    reads(*_targets)(lambda t, n, v, op=_name: _reduce(op, t, n, v))


@reads(aten.var.correction)
def _var(t: Table, node: Any, val: Any) -> Value | None:
    """The variance that divides by n."""
    x = t.of_node[node.args[0]]
    if node.kwargs.get("correction") != 0 or x.dtype != val.dtype:
        return None
    axes, keepdim = _axes(x, node.args[1] if len(node.args) > 1 else None), bool(node.kwargs.get("keepdim", False))
    return t.reduce("var", x, () if len(axes) == len(x.shape) and not keepdim else axes, keepdim, dims_of(val))


def _var_mean(t: Table, call: Any, i: int, val: Any) -> Value | None:
    """One of two reductions as the primitive that it is by itself; the variance where it divides by n."""
    x = t.of_node[call.args[0]]
    if (i == 0 and call.kwargs.get("correction") != 0) or x.dtype != val.dtype:
        return None
    axes, keepdim = _axes(x, call.args[1] if len(call.args) > 1 else None), bool(call.kwargs.get("keepdim", False))
    whole = len(axes) == len(x.shape) and not keepdim
    return t.reduce(("var", "mean")[i], x, () if whole else axes, keepdim, dims_of(val))


@reads(aten.max.default)
def _max(t: Table, node: Any, val: Any) -> Value | None:
    return t.reduce("amax", t.of_node[node.args[0]], (), False, ())


@reads(aten.mean.default, aten.sum.default)
def _all(t: Table, node: Any, val: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    if x.dtype != val.dtype or len(node.args) > 1 or node.kwargs:
        return None
    return t.reduce("mean" if node.target is aten.mean.default else "sum", x, (), False, ())


@reads(torch.ops._c10d_functional.wait_tensor.default)
def _wait(t: Table, node: Any, val: Any) -> Value | None:
    return t.cons(op_name(node.target), (t.of_node[node.args[0]],), (), val.dtype, dims_of(val))  # torch has it impure


@reads(aten.mm.default, aten.matmul.default)
def _matmul(t: Table, node: Any, val: Any) -> Value | None:
    x, y = (t.of_node[a] for a in node.args)
    return t.cons("matmul", (x, y), (), val.dtype, dims_of(val)) if x.dtype == y.dtype == val.dtype else None


# ---- movement


@reads(*RESHAPES, view=True)
def _reshape(t: Table, node: Any, val: Any) -> Value | None:
    return t.reshape(t.of_node[node.args[0]], dims_of(val))


@reads(aten.permute.default, view=True)
def _permute(t: Table, node: Any, val: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    return t.permute(x, tuple(a % len(x.shape) for a in node.args[1]))


@reads(*TRANSPOSES, view=True)
def _transpose(t: Table, node: Any, val: Any) -> Value | None:
    x = t.of_node[node.args[0]]
    rank = len(x.shape)
    if rank < 2:
        return x if node.target is aten.t.default else None
    a, b = node.args[1:] if node.target is aten.transpose.int else (rank - 2, rank - 1)
    order = list(range(rank))
    order[a % rank], order[b % rank] = b % rank, a % rank
    return t.permute(x, tuple(order))


@reads(aten.expand.default, view=True)
def _expand(t: Table, node: Any, val: Any) -> Value | None:
    x, shape = t.of_node[node.args[0]], dims_of(val)
    return x if x.shape == shape else t.cons("expand", (x,), shape, x.dtype, shape)


@reads(aten.slice.Tensor, view=True)
def _slice(t: Table, node: Any, val: Any) -> Value | None:
    x, dim, start, stop, step = schema_arguments(node.target, node.args, node.kwargs)
    x = t.of_node[x]
    axis = dim - len(x.shape) if dim >= 0 else dim
    length = x.shape[axis]
    start, stop = _bound(t, start, length), _bound(t, stop, length)
    if not isinstance(step, int) or start is NotImplemented or stop is NotImplemented:
        return None
    return t.slice(x, axis, start or 0, stop, step, dims_of(val))


def _bound(t: Table, b: Any, length: Any) -> Any:
    """A slice bound as a number in 0..length; None is open, NotImplemented is unknown."""
    if isinstance(b, Node):
        b = t.of_node[b]
        return b.expr if isinstance(b, Symbol) else NotImplemented
    if isinstance(b, torch.SymInt):
        return size(b)
    if b is None or b == END:
        return None
    if b < 0:
        return max(0, length + b) if isinstance(length, int) else NotImplemented
    return min(b, length) if isinstance(length, int) else b


def _one(x: Value, dim: Any, i: Any) -> tuple[int, int] | None:
    """The axis, negative, and the place on it that a `select` means."""
    axis = dim - len(x.shape) if dim >= 0 else dim
    length = x.shape[axis]
    if not isinstance(i, int) or (i < 0 and not isinstance(length, int)):
        return None
    return axis, i + length if i < 0 else i


@reads(aten.select.int, view=True)
def _select(t: Table, node: Any, val: Any) -> Value | None:
    """One of an axis of what was written in parts: a slice without that axis. Elsewhere it is what rules name so."""
    x, dim, i = node.args
    x = t.of_node[x]
    at = _one(x, dim, i)
    if at is None or x.op != "slice_scatter":
        return None
    axis, i = at
    shape = dims_of(val)
    where = len(x.shape) + axis
    return t.reshape(t.slice(x, axis, i, i + 1, 1, (*shape[:where], 1, *shape[where:])), shape)


@reads(aten.select_scatter.default)
def _select_scatter(t: Table, node: Any, val: Any) -> Value | None:
    x, y, dim, i = node.args
    x, y = t.of_node[x], t.of_node[y]
    at = _one(x, dim, i)
    if at is None or x.dtype != y.dtype:
        return None
    axis, i = at
    where = len(x.shape) + axis
    part = t.reshape(y, (*x.shape[:where], 1, *x.shape[where + 1 :]))
    return t.slice_scatter(x, part, axis, i, i + 1, 1)


@reads(aten.cat.default)
def _cat(t: Table, node: Any, val: Any) -> Value | None:
    xs = tuple(t.of_node[a] for a in node.args[0])
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if not isinstance(dim, int) or any(x.dtype != val.dtype for x in xs):
        return None
    rank = len(val.shape)
    return t.cons("cat", xs, (dim - rank if dim >= 0 else dim,), val.dtype, dims_of(val))


@reads(aten.slice_scatter.default)
def _slice_scatter(t: Table, node: Any, val: Any) -> Value | None:
    x, y, dim, start, stop, step = schema_arguments(node.target, node.args, node.kwargs)
    x, y = t.of_node[x], t.of_node[y]
    axis = dim - len(x.shape) if dim >= 0 else dim
    start, stop = _bound(t, start, x.shape[axis]), _bound(t, stop, x.shape[axis])
    if not isinstance(step, int) or start is NotImplemented or stop is NotImplemented or x.dtype != y.dtype:
        return None
    return t.slice_scatter(x, y, axis, start or 0, stop, step)


# ---- ops that return lists: a split is a list of slices


class Parts:
    """The slices that a split makes of one axis."""

    __slots__ = ("axis", "cuts", "x")

    def __init__(self, x: Value, axis: int, cuts: tuple[Any, ...]):
        self.x, self.axis, self.cuts = x, axis, cuts


def _split(t: Table, node: Any) -> Parts | None:
    x, sizes, dim = schema_arguments(node.target, node.args, node.kwargs)
    x = t.of_node[x]
    axis = dim - len(x.shape) if dim >= 0 else dim
    length, count = x.shape[axis], len(node.meta["val"])
    if isinstance(sizes, list | tuple):
        steps = [argument(t, s) for s in sizes]
        steps = [s.expr if isinstance(s, Symbol) else s for s in steps]
        return Parts(x, axis, (0, *accumulate(steps[:-1]), None)) if all(s is not None for s in steps) else None
    step: Any = argument(t, sizes)
    step = step.expr if isinstance(step, Symbol) else step
    if node.target is aten.chunk.default:
        step = (
            -(-length // sizes) if isinstance(length, int) else FloorDiv(length, sizes) if length % sizes == 0 else None
        )
    if step is None:
        return None
    cuts: list[Any] = [step * i for i in range(count)]
    return Parts(x, axis, (*cuts, None))


LIST_READERS: dict[Any, Callable[[Table, Node], Any]] = {
    aten.split.Tensor: _split, aten.split_with_sizes.default: _split, aten.chunk.default: _split,
}  # fmt: skip
VIEWS |= set(LIST_READERS)


@reads(*FUNCTIONALIZED)
def _functionalized(t: Table, node: Any, val: Any) -> Value | None:
    """The one buffer of an `out=` op."""
    return functionalized(t, node, 0, val) if writes_only(node) else None


@reads(operator.getitem)
def _getitem(t: Table, node: Any, val: Any) -> Value | None:
    source, i = t.of_node[node.args[0]], node.args[1]
    if isinstance(source, Parts) and isinstance(i, int):
        return t.slice(source.x, source.axis, source.cuts[i], source.cuts[i + 1], 1, dims_of(val))
    hop = node.args[0].target
    if hop is aten.var_mean.correction:
        return _var_mean(t, node.args[0], i, val)
    if hop in FUNCTIONALIZED:
        return functionalized(t, node.args[0], i, val)
    return t.cons("getitem", (source, i), (), val.dtype, dims_of(val)) if isinstance(source, Value) else None
