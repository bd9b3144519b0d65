"""The terms that slices and splits make."""

from __future__ import annotations

from typing import Any, cast

from fxrewrite.dsl import dims
from fxrewrite.dsl.check import conditions, ranges, shapes
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Many, Value
from fxrewrite.dsl.check.solver import as_dim, show
from fxrewrite.dsl.check.typing import prim_term
from fxrewrite.dsl.check.values import items
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Dtype,
    DtypeVar,
    Extern,
    Lit,
    Scalar,
    Size,
    TensorType,
    Term,
    TorchCall,
)
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def slice(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`slice(x, d, a, b)` and `slice_scatter(x, y, d, a, b)`."""
    args = (values["x"],) if prim == "slice" else (values["x"], values["y"])
    params = tuple(values[n] for n in ("dim", "start", "stop", "step"))
    type_ = item.type_of(values["x"])
    _sliceable(type_.shape, values, span)
    shape = type_.shape if prim == "slice_scatter" else None
    return prim_term(item, prim, args, params, TensorType(type_.dtype, shape), span)


def _sliceable(shape: Shape | None, values: dict[str, Any], span: Span) -> None:
    """RW303 for an axis that is not there, RW305 for bounds that hold nothing, RW310 for a step below 1."""
    given = [conditions.constant(values[n]) for n in ("dim", "start", "stop", "step")]
    axis, first, last, stride = (getattr(p, "value", None) for p in given)
    ranked = shape is not None and not any(isinstance(d, Star) for d in shape)
    if ranked and shape is not None and type(axis) is int and not -len(shape) <= axis < len(shape):
        raise Problem("RW303", f"{show(shape)} has no axis {axis}", span, "`-1` is the last axis")
    if isinstance(given[3], Lit) and (type(stride) is not int or stride < 1):
        raise Problem("RW310", "a step is a whole number of 1 or more", span, "`slice(x, d, a, b, 2)`")
    if type(first) is int and type(last) is int and (first >= 0) == (last >= 0) and first > last:
        raise Problem("RW305", f"nothing lies from {first} to {last}", span, "the lower bound comes first")


def slice_last(item: Item, x: Term, start: Scalar | None, stop: Scalar | None, step: Scalar | None, span: Span) -> Term:
    """`x[..., start:stop:step]`. Bounds that count from the end become sizes."""
    type_ = item.type_of(x)
    last = type_.shape[-1] if type_.shape and isinstance(type_.shape[-1], Dim) else None
    start, stop = (_within(_bound(b, last, span), last) for b in (start, stop))
    literal = step is None or isinstance(step, Lit)
    stride: Any = (1 if step is None else getattr(step, "value", None)) if literal else 0
    if literal and (type(stride) is not int or stride < 1):
        raise Problem("RW310", "a step is a whole number of 1 or more", span, "`x[..., ::2]`")
    params = (Lit(-1), start or Lit(0), stop or Lit(None), step or Lit(1))
    shape: Shape | None = None
    if last is not None and type_.shape and stride:
        end = last if stop is None or stop == Lit(None) else as_dim(stop)
        size = dims.combine("-", end, as_dim(start or Lit(0)))
        _holds_something(size, end, as_dim(start or Lit(0)), last, span)
        if stride > 1:  # ceil(size / stride), which is size / stride where the whole axis divides
            size = _strided(size, dims.combine("-", last, as_dim(start or Lit(0))), stride, end == last)
        shape = (*type_.shape[:-1], size)
    return prim_term(item, "slice", (x,), params, TensorType(type_.dtype, shape), span)


def _holds_something(size: Dim, end: Dim, start: Dim, last: Dim, span: Span) -> None:
    """RW305 where a slice is certainly empty."""
    if size.number is not None and size.number <= 0:
        hint = f"0 to {last} are there" if start == last else "the lower bound comes first"
        raise Problem("RW305", f"this slice holds nothing: from {start} to {end}", span, hint)


def _strided(size: Dim, rest: Dim, stride: int, whole: bool) -> Dim:
    if whole:
        for offset in range(stride):  # (n*k - offset) / k, rounded up, is n
            exact = dims.exact_quotient(dims.add(rest, dims.constant(offset)), stride)
            if exact is not None:
                return exact
    return dims.combine("//", dims.add(size, dims.constant(stride - 1)), dims.constant(stride))


def _bound(bound: Scalar | None, last: Dim | None, span: Span) -> Scalar | None:
    value = getattr(bound, "value", None) if isinstance(bound, Lit) else None
    if isinstance(bound, Dtype | DtypeVar) or (value is not None and type(value) is not int):
        raise Problem("RW310", "a bound of a slice is a whole number or a size", span, "`x[..., :D]`")
    if type(value) is int and value < 0:
        if last is None:
            raise Problem("RW303", "a bound that counts from the end needs a known size", span, "write the size")
        return Size(dims.add(last, dims.constant(value)))
    if isinstance(bound, Size) and bound.dim.terms and all(c < 0 for _, c in bound.dim.terms) and last is not None:
        return Size(dims.add(last, bound.dim))  # `-K` counts from the end too
    return bound


def _within(bound: Scalar | None, last: Dim | None) -> Scalar | None:
    """A bound that is certainly before or behind the axis, brought to its end as torch does."""
    if last is None or bound is None or not isinstance(bound, Lit | Size) or bound == Lit(None):
        return bound
    at = as_dim(bound)
    if (at.number or 0) < 0:
        return Lit(0)
    return Size(last) if ranges.unmet((Apply(">=", (Size(last), Size(at))),), {}) else bound


def split(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`split(x, [a, b], d)` and `chunk(x, n, d)` as slices; as the torch op where the axis is not known."""
    x, dim = values["x"], values["dim"]
    type_ = item.type_of(x)
    shape, axis = type_.shape, cast("Any", getattr(dim, "value", None))
    if type(axis) is int and shape is not None and not any(isinstance(d, Star) for d in shape):
        if not -len(shape) <= axis < len(shape):
            raise Problem("RW303", f"{show(shape)} has no axis {axis}", span, "`-1` is the last axis")
        axis = axis - len(shape) if axis >= 0 else axis
    size = shape[axis] if shape and type(axis) is int and axis < 0 and -axis <= len(shape) else None
    if not isinstance(size, Dim) or shape is None:
        return _torch_split(item, prim, x, values, span)
    sizes = _chunks(item, values["chunks"], span) if prim == "chunk" else _sizes(item, values["sizes"], span)
    if prim == "chunk" and size.number is not None and size.number % len(sizes):
        message = f"{size} elements have no {len(sizes)} equal parts"
        raise Problem("RW305", message, span, f"write the sizes: `split(x, [...], {axis})`")
    total = dims.constant(0)
    for n in sizes:
        total = dims.add(total, n)
    item.solver.unify_dim(total, size, span, "the sizes of a split")
    return _parts(item, x, TensorType(type_.dtype, shape), axis, sizes, span)


def _parts(item: Item, x: Term, type_: TensorType, axis: int, sizes: list[Dim], span: Span) -> Many:
    out: list[Term] = []
    start, shape = dims.constant(0), type_.shape or ()
    for i, n in enumerate(map(item.solver.dim, sizes)):
        stop = dims.add(start, n)
        end: Scalar = Lit(None) if i == len(sizes) - 1 else Size(stop)
        made = TensorType(type_.dtype, (*shape[:axis], n, *shape[axis:][1:]))
        out.append(prim_term(item, "slice", (x,), (Lit(axis), Size(start), end, Lit(1)), made, span))
        start = stop
    return Many(tuple(out))


def _sizes(item: Item, given: Scalar, span: Span) -> list[Dim]:
    listed = given.args if isinstance(given, Apply) and given.op == "list" else tuple(map(Lit, items(given) or ()))
    if not listed:
        raise Problem(
            "RW304", "a split takes a list of sizes", span, "`split(x, [a, b], -1)`; equal parts: `chunk(x, 2, -1)`"
        )
    axes = [shapes.axis(item, s) for s in listed]
    opens = sum((d.name or "").startswith("_") for d in axes if isinstance(d, Dim))
    if opens > 1 or any(isinstance(d, Star) for d in axes):
        raise Problem("RW304", "a split has one `_` at most, and no `*`", span, "write the other sizes")
    return [d for d in axes if isinstance(d, Dim)]


def _chunks(item: Item, given: Scalar, span: Span) -> list[Dim]:
    """Equal parts: what does not divide is not this split."""
    count = getattr(given, "value", None)
    if type(count) is not int or not 1 <= count <= 64:
        raise Problem("RW304", "the number of chunks is a literal, at most 64", span, "`chunk(x, 2, -1)`")
    return [dims.name(item.solver.fresh("_"))] * count


def _torch_split(item: Item, prim: str, x: Term, values: dict[str, Any], span: Span) -> Value:
    """In clean-up rules the axis is what the rule binds: the torch op itself is meant."""
    sizes: Any = values.get("sizes")
    computed = isinstance(sizes, Apply) and sizes.op == "sizes"
    if prim == "chunk" or not (computed or (isinstance(sizes, Apply) and sizes.op == "list") or isinstance(sizes, Lit)):
        raise Problem(
            "RW303", "the axis that is split needs a known size", span, "give the operand a type: `x: real[T, D]`"
        )
    count = 0 if computed else len(_sizes(item, sizes, span))
    call = item.intern(TorchCall("aten.split_with_sizes.default", (x, sizes, values["dim"]), (), False, span))
    if computed:
        return item.intern(Extern(call, None, None, UNKNOWN, span))
    return Many(tuple(item.intern(Extern(call, i, None, UNKNOWN, span)) for i in range(count)))
