"""The terms that built-ins on shapes make: reshapes, permutations, slices, splits."""

from __future__ import annotations

from typing import Any, cast

from fxrewrite.dsl import dims
from fxrewrite.dsl.check import conditions
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
    Wild,
)
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def reshape(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`reshape(x, [..])`, `expand(x, [..])`. A `_` in the list of a reshape is the size that fits."""
    x, shape = values["x"], values["shape"]
    type_ = item.type_of(x)
    if isinstance(shape, Lit) and not isinstance(shape.value, tuple):
        raise Problem("RW310", "a shape is a list", span, "`reshape(x, [T, D])`")
    target = listed_shape(item, shape)
    if target is None:
        return prim_term(item, prim, (x,), (shape,), TensorType(type_.dtype, None), span)
    if prim == "reshape":
        target = _fitted(item, type_.shape, target, span)
    return prim_term(item, prim, (x,), (Apply("shape_list", target),), TensorType(type_.dtype, target), span)


def listed_shape(item: Item, shape: Scalar) -> Shape | None:
    """The shape that a list of sizes says; None for an attribute."""
    if isinstance(shape, Apply) and shape.op == "list":
        return tuple(_axis(item, a) for a in shape.args)
    if isinstance(shape, Lit) and isinstance(shape.value, tuple):
        sizes = items(shape) or ()
        return tuple(dims.name(item.solver.fresh("_")) if n == -1 else as_dim(Lit(n)) for n in sizes)
    if isinstance(shape, Apply) and shape.op == "shape" and len(shape.args) == 1:
        return item.type_of(shape.args[0]).shape
    return None


def _axis(item: Item, scalar: Scalar | Star) -> Dim | Star:
    if isinstance(scalar, Star):
        return scalar
    opens = isinstance(scalar, Wild) or scalar == Lit(-1)
    return dims.name(item.solver.fresh("_")) if opens else as_dim(scalar)


def _fitted(item: Item, source: Shape | None, target: Shape, span: Span) -> Shape:
    """`target` with its open size solved where what both sides share can be taken away; RW303 where it cannot be."""
    opens = [d for d in target if isinstance(d, Dim) and (d.name or "").startswith("_")]
    if len(opens) > 1:
        raise Problem("RW304", "a shape has one `_` at most", span, "write the other sizes")
    if source is None:
        return target
    left, right = list(source), [d for d in target if d not in opens]
    for d in list(right):
        if d in left:
            left.remove(d)
            right.remove(d)
    if any(isinstance(d, Star) for d in (*left, *right)):
        return target
    before, after = _product(left), _product(right)
    if not opens:
        _same_count(item, before, after, f"{show(source)} has no shape {show(target)}", span)
        return target
    size = dims.combine("//", before, after) if after.number != 1 else before
    exact = dims.combine("%", before, after)
    if after.number != 1 and exact.number != 0:
        item.solver.guard(Apply("==", (Size(exact), Lit(0))))
    return tuple(size if d in opens else d for d in target)


def _same_count(item: Item, before: Dim, after: Dim, wrong: str, span: Span) -> None:
    """The sizes of a reshape have one product: an equation, where it is linear."""
    difference = dims.add(before, after, -1)
    if difference.terms and all(isinstance(a, str) for a, _ in difference.terms):
        item.solver.unify_dim(before, after, span, "a reshape")
    elif difference.const and not difference.terms:
        raise Problem("RW305", wrong, span, "the sizes of both have one product")


def _product(shape: list[Any]) -> Dim:
    out = dims.constant(1)
    for d in sorted(shape, key=lambda d: isinstance(d, Dim) and bool(d.name)):  # compounds first: (D//G) * G is D
        out = dims.combine("*", out, d)
    return out


def unsqueeze(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`unsqueeze(x, d)` as a reshape."""
    type_ = item.type_of(values["x"])
    shape, at = type_.shape, getattr(values["dim"], "value", None)
    if shape is None or type(at) is not int or not -len(shape) - 1 <= at <= len(shape):
        raise Problem(
            "RW303", "unsqueeze needs an operand of known rank and a literal axis", span, "`unsqueeze(x, -1)`"
        )
    if any(isinstance(d, Star) for d in shape) and not -len(shape) <= at < 0:
        raise Problem("RW303", "this axis lies among the leading ones", span, "count it from the end: `-1`")
    at = at + len(shape) + 1 if at < 0 else at
    target = (*shape[:at], dims.constant(1), *shape[at:])
    params = (Apply("shape_list", target),)
    return prim_term(item, "reshape", (values["x"],), params, TensorType(type_.dtype, target), span)


def permute(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`permute(x, [..])`."""
    x, order = values["x"], values["order"]
    type_ = item.type_of(x)
    shape: Shape | None = None
    if isinstance(order, Lit):
        listed = items(order) or ()
        count = len(listed)
        named = sorted(i % count if type(i) is int and -count <= i < count else -1 for i in listed)
        if not count or named != [*range(count)]:
            raise Problem("RW310", "an order of axes names each axis once", span, "`permute(x, [1, 0])`")
        if type_.shape is not None and not any(isinstance(d, Star) for d in type_.shape):
            if len(type_.shape) != count:
                raise Problem(
                    "RW303", f"{show(type_.shape)} has {len(type_.shape)} axes, not {count}", span, "name each once"
                )
            axes: list[Dim | Star] = [type_.shape[i] for i in listed]
            shape = tuple(axes)
    return prim_term(item, prim, (x,), (order,), TensorType(type_.dtype, shape), span)


def cat(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`cat([a, b], d)`."""
    xs = tuple(values["xs"])
    if not xs:
        raise Problem("RW204", "cat takes a list of at least one tensor", span, "`cat([a, b], -1)`")
    types = [item.type_of(x) for x in xs]
    for type_ in types[1:]:
        item.solver.unify_dtype(types[0].dtype, type_.dtype, span, "a part of `cat`")
    shape = _joined(item, [t.shape for t in types], getattr(values["dim"], "value", None), span)
    return prim_term(item, prim, xs, (values["dim"],), TensorType(types[0].dtype, shape), span)


def _joined(item: Item, shapes: list[Shape | None], dim: Any, span: Span) -> Shape | None:
    """The shape of a `cat`: the parts differ along one axis only. None where that cannot be told."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes) or type(dim) is not int or len({len(s) for s in known}) > 1:
        return None
    first = known[0]
    at = dim - len(first) if dim >= 0 and not any(isinstance(d, Star) for d in first) else dim
    if not -len(first) <= at < 0 or isinstance(first[at], Star):
        return None
    total = dims.constant(0)
    for shape in known:
        size = shape[at]
        if not isinstance(size, Dim):
            return None
        total = dims.add(total, size)
        rest, other = (*shape[:at], dims.constant(1), *shape[at:][1:]), (*first[:at], dims.constant(1), *first[at:][1:])
        item.solver.unify_shape(other, rest, span, "a part of `cat`")
    return item.solver.shape((*first[:at], total, *first[at:][1:]))


# ---- slices


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
    start, stop = (_bound(b, last, span) for b in (start, stop))
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
    """RW305 where a slice is certainly empty, or reaches beyond the axis."""
    beyond = dims.combine("-", last, end).number
    if size.number is not None and size.number <= 0:
        raise Problem("RW305", f"this slice holds nothing: from {start} to {end}", span, "the lower bound comes first")
    if (beyond is not None and beyond < 0) or (start.number or 0) < 0:
        raise Problem("RW305", f"this slice leaves the axis, which has {last} elements", span, f"0 to {last} are there")


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
    axes = [_axis(item, s) for s in listed]
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
