"""The terms that built-ins make, with their types."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.solver import as_dim, as_dtype
from fxrewrite.dsl.core import UNKNOWN, Apply, Lit, Number, Operand, Prim, Scalar, Size, Term, TensorType, Wild
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def build(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """The term of a built-in call. `values`: its arguments by name, terms and scalars."""
    x = values.get("x")
    if prim == "relu":
        return build(item, "clamp", {"x": x, "lo": Number(Lit(0))}, span)
    if prim == "square" or prim == "pow" and values["exponent"] in (Lit(2), Lit(2.0)):
        return binary(item, "mul", x, x, span)
    if prim == "pow":
        raise Problem("RW129", "`pow` takes the exponent 2", span, "write `x * x * x` for another")
    if len(values) == 2 and "y" in values:
        return matmul(item, x, values["y"], span) if prim == "matmul" else binary(item, prim, x, values["y"], span)
    if prim == "clamp":
        bounds = tuple(values.get(n) or Number(Lit(None)) for n in ("lo", "hi"))
        bounds = tuple(Number(Lit(None)) if b == Lit(None) else b for b in bounds)
        return prim_term(item, "clamp", (x, *bounds), (), item.type_of(x), span)
    if prim == "to":
        return cast(item, x, values["dtype"], span)
    if prim in ("amax", "mean", "sum", "var"):
        axes = as_axes(values["dims"], item.type_of(x).shape)
        return reduce(item, prim, x, axes, values["keepdim"], span)
    if prim in ("reshape", "expand"):
        return reshape(item, prim, x, values["shape"], span)
    if prim == "unsqueeze":
        return unsqueeze(item, x, values["dim"], span)
    if prim == "permute":
        return permute(item, x, values["order"], span)
    if prim in ("slice", "slice_scatter"):
        args = (x,) if prim == "slice" else (x, values["y"])
        params = tuple(values[n] for n in ("dim", "start", "stop", "step"))
        return prim_term(item, prim, args, params, TensorType(item.type_of(x).dtype, None), span)
    if prim == "cat":
        xs = tuple(values["xs"])
        return prim_term(item, "cat", xs, (values["dim"],), TensorType(item.type_of(xs[0]).dtype, None), span)
    if prim in ("split", "chunk"):
        return split(item, x, values, span)
    return prim_term(item, prim, (x,), (), item.type_of(x), span)


def prim_term(
    item: Item, op: str, args: tuple[Term, ...], params: tuple[Scalar, ...], type_: TensorType, span: Span
) -> Term:
    """An interned primitive."""
    return item.intern(Prim(op, args, params, 0, type_, span))


def cast(item: Item, x: Term, dtype: Scalar, span: Span) -> Term:
    """`to(x, t)`; a cast to the own dtype is nothing."""
    target = as_dtype(dtype)
    have = item.type_of(x)
    if target is not None and have.dtype is not None and item.solver.dtype(target) == have.dtype:
        return x
    return prim_term(item, "to", (x,), (dtype,), TensorType(target, have.shape), span)


def binary(item: Item, op: str, left: Term, right: Term, span: Span) -> Term:
    """An elementwise primitive of two terms. A promotion is written out as a cast; a number takes the other's dtype."""
    a, b = item.type_of(left), item.type_of(right)
    if isinstance(right, Number) or isinstance(left, Number):
        return prim_term(item, op, (left, right), (), b if isinstance(left, Number) else a, span)
    dtype = item.solver.promote(a.dtype, b.dtype, span)
    if dtype is not None:
        left, right = (
            t if ty.dtype is None or item.solver.dtype(ty.dtype) == dtype else cast(item, t, dtype, span)
            for t, ty in ((left, a), (right, b))
        )
    type_ = TensorType(dtype, item.solver.broadcast(a.shape, b.shape))
    return prim_term(item, op, (left, right), (), type_, span)


def matmul(item: Item, left: Term, right: Term, span: Span) -> Term:
    """`a @ b`: [*B, K] @ [K, N] -> [*B, N]."""
    a, b = item.type_of(left), item.type_of(right)
    shape = None if not a.shape or not b.shape else (*a.shape[:-1], b.shape[-1])
    return prim_term(item, "matmul", (left, right), (), TensorType(a.dtype, shape), span)


def as_axes(scalar: Scalar, shape: Shape | None) -> Lit:
    """Axes counted from the end, as a tuple literal; () is all axes."""
    value = getattr(scalar, "value", None)
    axes = value if isinstance(value, tuple) else (value,)
    ranked = shape is not None and not any(isinstance(d, Star) for d in shape)
    return Lit(tuple(a - len(shape) if isinstance(a, int) and a >= 0 and ranked and shape else a for a in axes))


def reduce(item: Item, op: str, x: Term, axes: Lit, keepdim: Scalar, span: Span) -> Term:
    """A reduction over `axes`."""
    type_ = item.type_of(x)
    shape: Shape | None = None
    if not axes.value:
        shape = ()
    elif type_.shape is not None and all(isinstance(a, int) and a < 0 and -a <= len(type_.shape) for a in axes.value):
        keep: list[Dim | Star] = []
        for i, d in enumerate(type_.shape):
            if i - len(type_.shape) not in axes.value:
                keep.append(d)
            elif keepdim == Lit(True):
                keep.append(dims.constant(1))
        shape = tuple(keep)
    return prim_term(item, op, (x,), (axes, keepdim), TensorType(type_.dtype, shape), span)


def reshape(item: Item, op: str, x: Term, shape: Scalar, span: Span) -> Term:
    """`reshape(x, [..])`. A `_` in the list is the size that fits: an open dim."""
    type_ = item.type_of(x)
    if isinstance(shape, Apply) and shape.op == "list":
        target = tuple(_target(item, a) for a in shape.args)
        params: tuple[Scalar, ...] = (Apply("shape_list", target),)
        return prim_term(item, op, (x,), params, TensorType(type_.dtype, target), span)
    if isinstance(shape, Lit) and isinstance(shape.value, tuple):
        target = tuple(dims.constant(n) for n in shape.value)
        return prim_term(item, op, (x,), (Apply("shape_list", target),), TensorType(type_.dtype, target), span)
    if isinstance(shape, Apply) and shape.op == "shape" and len(shape.args) == 1:
        of = item.type_of(shape.args[0])
        if of.shape is not None:
            return prim_term(item, op, (x,), (Apply("shape_list", of.shape),), TensorType(type_.dtype, of.shape), span)
    return prim_term(item, op, (x,), (shape,), TensorType(type_.dtype, None), span)


def _target(item: Item, scalar: Scalar | Star) -> Dim | Star:
    if isinstance(scalar, Star):
        return scalar
    return dims.name(item.solver.fresh("_")) if isinstance(scalar, Wild) else as_dim(scalar)


def unsqueeze(item: Item, x: Term, dim: Scalar, span: Span) -> Term:
    """`unsqueeze(x, d)` as a reshape."""
    shape = item.type_of(x).shape
    at = getattr(dim, "value", None)
    if shape is None or not isinstance(at, int) or any(isinstance(d, Star) for d in shape):
        raise Problem("RW303", "unsqueeze needs an operand of known rank and a literal axis", span)
    at = at + len(shape) + 1 if at < 0 else at
    target = (*shape[:at], dims.constant(1), *shape[at:])
    return prim_term(
        item, "reshape", (x,), (Apply("shape_list", target),), TensorType(item.type_of(x).dtype, target), span
    )


def permute(item: Item, x: Term, order: Scalar, span: Span) -> Term:
    """`permute(x, [..])`."""
    type_ = item.type_of(x)
    value = getattr(order, "value", None)
    shape = None
    if isinstance(value, tuple) and type_.shape is not None and len(type_.shape) == len(value):
        shape = tuple(type_.shape[i] for i in value)
    return prim_term(item, "permute", (x,), (order,), TensorType(type_.dtype, shape), span)


def slice_last(item: Item, x: Term, start: Scalar | None, stop: Scalar | None, step: Scalar | None, span: Span) -> Term:
    """`x[..., start:stop:step]`."""
    type_ = item.type_of(x)
    params = (Lit(-1), start or Lit(0), stop or Lit(None), step or Lit(1))
    shape: Shape | None = None
    if type_.shape and isinstance(type_.shape[-1], Dim) and params[3] in (Lit(1), Lit(2)):
        end = type_.shape[-1] if stop is None else as_dim(stop)
        size = dims.combine("-", end, as_dim(start or Lit(0)))
        if params[3] == Lit(2):
            size = dims.combine(
                "//", dims.combine("+", size, dims.constant(1 if start is None else 0)), dims.constant(2)
            )
            half = dims.exact_quotient(type_.shape[-1], 2)
            size = half if half is not None and stop is None else size
        shape = (*type_.shape[:-1], size)
    return prim_term(item, "slice", (x,), params, TensorType(type_.dtype, shape), span)


def split(item: Item, x: Term, values: dict[str, Any], span: Span) -> tuple[Term, ...]:
    """`split(x, [a, b], d)` and `chunk(x, n, d)` as slices."""
    type_, dim = item.type_of(x), values["dim"]
    shape = type_.shape
    axis = getattr(dim, "value", None)
    if isinstance(axis, int) and axis >= 0 and shape is not None and not any(isinstance(d, Star) for d in shape):
        axis -= len(shape)
    size = shape[axis] if shape and isinstance(axis, int) and -axis <= len(shape) else None
    if not isinstance(size, Dim):
        raise Problem("RW303", "the axis that is split needs a known size", span)
    if "chunks" in values:
        n = values["chunks"].value
        sizes: list[Dim] = [dims.combine("//", size, dims.constant(n))] * n
    else:
        given = values["sizes"]
        listed = given.args if isinstance(given, Apply) and given.op == "list" else tuple(map(Lit, given.value))
        sizes = [as_dim(s) for s in listed]
    out: list[Term] = []
    start = dims.constant(0)
    for i, n in enumerate(sizes):
        stop = dims.add(start, n)
        end: Scalar = Lit(None) if i == len(sizes) - 1 else Size(stop)
        new = TensorType(type_.dtype, (*shape[:axis], n, *shape[axis:][1:]) if shape else None)
        out.append(prim_term(item, "slice", (x,), (Lit(axis), Size(start), end, Lit(1)), new, span))
        start = stop
    return tuple(out)


__all__ = ["UNKNOWN", "Operand", "binary", "build", "cast", "slice_last"]
