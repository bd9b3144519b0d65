"""The terms that built-ins on shapes make: reshapes, permutations, concatenations."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.solver import as_dim, show
from fxrewrite.dsl.check.typing import prim_term
from fxrewrite.dsl.check.values import items
from fxrewrite.dsl.core import (
    Apply,
    Lit,
    Scalar,
    Size,
    TensorType,
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
    elif type_.shape is not None:
        _expandable(type_.shape, target, span)
    return prim_term(item, prim, (x,), (Apply("shape_list", target),), TensorType(type_.dtype, target), span)


def _expandable(source: Shape, target: Shape, span: Span) -> None:
    """RW305 where an axis that has more than one element would get another size, or axes would go."""
    fewer = len(target) < len(source) and not any(isinstance(d, Star) for d in source)
    pairs = zip(source[::-1], target[::-1])
    sizes = [(a.number, b.number) for a, b in pairs if isinstance(a, Dim) and isinstance(b, Dim)]
    if fewer or any(None not in pair and pair[0] not in (1, pair[1]) for pair in sizes):
        raise Problem("RW305", f"{show(source)} does not expand to {show(target)}", span, "axes of size 1 grow")


def listed_shape(item: Item, shape: Scalar) -> Shape | None:
    """The shape that a list of sizes says; None for an attribute."""
    if isinstance(shape, Apply) and shape.op == "list":
        return tuple(axis(item, a) for a in shape.args)
    if isinstance(shape, Lit) and isinstance(shape.value, tuple):
        sizes = items(shape) or ()
        return tuple(dims.name(item.solver.fresh("_")) if n == -1 else as_dim(Lit(n)) for n in sizes)
    if isinstance(shape, Apply) and shape.op == "shape" and len(shape.args) == 1:
        return item.type_of(shape.args[0]).shape
    return None


def axis(item: Item, scalar: Scalar | Star) -> Dim | Star:
    """One item of a list of sizes; `_` is a size of its own."""
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
    ranked = shape is not None and not any(isinstance(d, Star) for d in shape)
    if shape is not None and ranked and type(at) is int and not -len(shape) - 1 <= at <= len(shape):
        message = f"{show(shape)} has no place {at} for a new axis"
        raise Problem("RW303", message, span, f"{-len(shape) - 1} to {len(shape)}: `-1` puts it last")
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
    fixed = [s for s in known if not any(isinstance(d, Star) for d in s)]
    other = next((s for s in fixed if len(s) != len(fixed[0])), None)
    if other is not None:
        message = f"{show(fixed[0])} and {show(other)} have no common rank"
        raise Problem("RW303", message, span, "parts of `cat` differ along one axis only")
    if fixed and type(dim) is int and not -len(fixed[0]) <= dim < len(fixed[0]):
        raise Problem("RW303", f"{show(fixed[0])} has no axis {dim}", span, "`-1` is the last axis")
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
