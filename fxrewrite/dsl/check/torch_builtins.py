"""Built-ins that are one torch op: the language says the type, and what they mean is the op."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims, formats
from fxrewrite.dsl.check import typing
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.shapes import cat, listed_shape, unsqueeze
from fxrewrite.dsl.check.solver import as_dim, as_dtype, show
from fxrewrite.dsl.check.values import items
from fxrewrite.dsl.core import UNKNOWN, Apply, Dtype, Extern, Lit, Size, TensorType, Term, TorchCall
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def torch_term(item: Item, op: str, args: tuple[Any, ...], type_: TensorType, span: Span, **kwargs: Any) -> Term:
    """What a torch op returns, with its type."""
    call = item.intern(TorchCall(op, args, tuple(kwargs.items()), False, span))
    return item.intern(Extern(call, 0, None, type_, span))


def addmm(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`addmm(b, x, w)`: `x @ w + b` with one rounding, [N], [M, K] and [K, N]."""
    b, x, w = (values[n] for n in ("b", "x", "w"))
    type_ = item.type_of(typing.matmul(item, x, w, span))
    bias = item.type_of(b)
    item.solver.unify_dtype(type_.dtype, bias.dtype, span, "the bias of addmm")
    if bias.shape is not None and type_.shape is not None:
        met = item.solver.broadcast(bias.shape, type_.shape, span)
        if met is not None and len(met) > len(type_.shape):
            message = f"the bias of addmm is {show(bias.shape)}, and the product {show(type_.shape)}"
            raise Problem("RW303", message, span, "a bias is added to each row: [N]")
    return torch_term(item, "aten.addmm.default", (b, x, w), type_, span)


def stack(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`stack([a, b], d)`: a `cat` along a new axis; the torch op itself where the shapes of the parts are not known."""
    xs, dim = tuple(values["xs"]), values["dim"]
    types = [item.type_of(x) for x in xs]
    if any(t.shape is None for t in types):
        for t in types[1:]:
            item.solver.unify_dtype(types[0].dtype, t.dtype, span, "a part of `stack`")
        return torch_term(item, "aten.stack.default", (Apply("list", xs), dim), TensorType(types[0].dtype, None), span)
    parts = [unsqueeze(item, "unsqueeze", {"x": x, "dim": dim}, span) for x in xs]
    return cat(item, "cat", {"xs": parts, "dim": dim}, span)


def constant_pad_nd(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`constant_pad_nd(x, [before, after], value)`: pads the last axis; longer lists pad further axes from the end."""
    x, pad = values["x"], values["pad"]
    type_ = item.type_of(x)
    listed = pad.args if isinstance(pad, Apply) and pad.op == "list" else tuple(map(Lit, items(pad) or ()))
    if not listed or len(listed) % 2:
        raise Problem("RW310", "the padding is a list of pairs", span, "`constant_pad_nd(x, [0, n], 0.0)`")
    shape = None
    if type_.shape is not None and len(listed) // 2 <= len([d for d in type_.shape if isinstance(d, Dim)]):
        shape = _padded(type_.shape, listed)
    elif type_.shape is not None and not any(isinstance(d, Star) for d in type_.shape):
        message = f"{show(type_.shape)} has fewer than {len(listed) // 2} axes to pad"
        raise Problem("RW303", message, span, "two numbers an axis, the last axis first")
    return torch_term(
        item, "aten.constant_pad_nd.default", (x, pad, values["value"]), TensorType(type_.dtype, shape), span
    )


def _padded(shape: Shape, pad: tuple[Any, ...]) -> Shape:
    out = list(shape)
    for i in range(0, len(pad), 2):
        axis = -1 - i // 2
        before, after = (as_dim(p) for p in pad[i : i + 2])
        size: Any = out[axis]
        out[axis] = dims.add(dims.add(size, before), after)
    return tuple(out)


def view_dtype(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`view_dtype(x, t)`: the bytes of x as another dtype; the last axis grows or shrinks with the width."""
    x, dtype = values["x"], as_dtype(values["dtype"])
    if not isinstance(dtype, Dtype):
        raise Problem("RW217", "this is no fixed dtype", span, "`view_dtype(x, i32)`")
    have = item.type_of(x)
    source = item.solver.dtype(have.dtype)
    shape = None
    if isinstance(source, Dtype) and have.shape and isinstance(have.shape[-1], Dim):
        old, new = formats.BYTES[source.name], formats.BYTES[dtype.name]
        last = dims.combine("//", dims.scale(have.shape[-1], old), dims.constant(new))
        shape = (*have.shape[:-1], last)
    return torch_term(item, "aten.view.dtype", (x, dtype), TensorType(dtype, shape), span)


def index(item: Item, x: Term, at: Term, span: Span) -> Term:
    """`x[i]` with a tensor of indices: rows of x."""
    rows, have = item.type_of(at), item.type_of(x)
    if rows.dtype is not None and item.solver.dtype(rows.dtype) not in (Dtype("i64"), Dtype("i32")):
        raise Problem("RW301", "an index is a tensor of whole numbers", span, "`i64[T]`")
    shape = None
    if have.shape is not None and rows.shape is not None:
        if not have.shape or isinstance(have.shape[0], Star):
            raise Problem("RW303", f"{show(have.shape)} has no first axis of its own", span, "give it a written type")
        shape = (*rows.shape, *have.shape[1:])
    return torch_term(item, "aten.index.Tensor", (x, Apply("list", (at,))), TensorType(have.dtype, shape), span)


def index_put(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`index_put(x, [i], y)`: x with y in the rows i, as a new value."""
    x, at, y = values["x"], tuple(values["at"]), values["y"]
    item.solver.unify_dtype(item.type_of(x).dtype, item.type_of(y).dtype, span, "what `index_put` writes")
    return torch_term(item, "aten.index_put.default", (x, Apply("list", at), y), item.type_of(x), span)


def zeros(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`zeros([..], t)`."""
    dtype, shape = as_dtype(values["dtype"]), listed_shape(item, values["shape"])
    if dtype is None or shape is None:
        raise Problem("RW310", "zeros takes a list of sizes and a dtype", span, "`zeros([T, D], f32)`")
    sizes = Apply("list", tuple(d if isinstance(d, Star) else Size(d) for d in shape))
    return torch_term(item, "aten.zeros.default", (sizes,), TensorType(dtype, shape), span, dtype=values["dtype"])


def same_type(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`zeros_like(x)`."""
    return torch_term(item, f"aten.{prim}.default", (values["x"],), item.type_of(values["x"]), span)


def complex_parts(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`view_as_complex`, `view_as_real`, `real_part`, `imag_part`: the language has no complex dtype, so no type."""
    op = {"real_part": "aten.real.default", "imag_part": "aten.imag.default"}.get(prim, f"aten.{prim}.default")
    return torch_term(item, op, (values["x"],), UNKNOWN, span)
