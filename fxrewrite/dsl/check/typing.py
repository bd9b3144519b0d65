"""The terms that elementwise built-ins and reductions make, with their types."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.check import promotion
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.solver import DtypeExpr, as_dtype, show, shown
from fxrewrite.dsl.check.values import items
from fxrewrite.dsl.core import (
    Apply,
    Dtype,
    DtypeVar,
    Lit,
    Number,
    Prim,
    Ref,
    Scalar,
    Size,
    TensorType,
    Term,
    Wild,
)
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def prim_term(
    item: Item, op: str, args: tuple[Term, ...], params: tuple[Scalar, ...], type_: TensorType, span: Span
) -> Term:
    """An interned primitive."""
    return item.intern(Prim(op, args, params, 0, type_, span))


# ---- elementwise


def cast(item: Item, x: Term, dtype: Scalar, span: Span) -> Term:
    """`to(x, t)`; a cast to the own dtype is nothing."""
    target = as_dtype(dtype)
    if target is None and not isinstance(dtype, Ref | Apply | Wild):
        raise Problem("RW217", "this is no dtype", span, "`to(x, bf16)`, `to(x, w.dtype)`")
    have = item.type_of(x)
    if target is not None and have.dtype is not None and item.solver.dtype(target) == have.dtype:
        return x
    return prim_term(item, "to", (x,), (dtype,), TensorType(target, have.shape), span)


def binary(item: Item, op: str, left: Term, right: Term, span: Span) -> Term:
    """An elementwise primitive of two terms. A promotion is written out as a cast; a number takes the other's dtype."""
    a, b = item.type_of(left), item.type_of(right)
    if op == "sub":  # torch takes no bool from anything, nor anything from one
        for one in (a, b):
            promotion.of_step(item, op, one.dtype, span)
    if isinstance(right, Number) or isinstance(left, Number):
        _no_text((left, right), span)
        return _with_number(item, op, left, right, span)
    met = promotion.of_two(item, a.dtype, b.dtype, span)
    if met is not None:
        _ranks_promote(item, a, b, met, span)
    dtype = promotion.of_step(item, op, met, span)
    left, right = _met(item, left, dtype, span), _met(item, right, dtype, span)
    type_ = TensorType(dtype, item.solver.broadcast(a.shape, b.shape, span))
    return prim_term(item, op, (left, right), (), type_, span)


def _with_number(item: Item, op: str, left: Term, right: Term, span: Span) -> Term:
    """A tensor and a number."""
    x, number = (right, left) if isinstance(left, Number) else (left, right)
    have = item.type_of(x)
    dtype = promotion.of_number(item, have.dtype, number.value if isinstance(number, Number) else None, span)
    dtype = promotion.of_step(item, op, dtype, span)
    x = _met(item, x, dtype, span)
    pair = (left, x) if isinstance(left, Number) else (x, right)
    return prim_term(item, op, pair, (), TensorType(dtype, have.shape), span)


def _met(item: Item, x: Term, dtype: DtypeExpr, span: Span) -> Term:
    """`x` in the dtype in which a step is computed."""
    return x if dtype is None or item.type_of(x).dtype is None else cast(item, x, dtype, span)


def unary(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """A primitive of one tensor, element by element."""
    dtype = promotion.of_step(item, prim, item.type_of(values["x"]).dtype, span)
    x = _met(item, values["x"], dtype, span)
    return prim_term(item, prim, (x,), (), TensorType(dtype, item.type_of(x).shape), span)


def _no_text(terms: tuple[Term, Term], span: Span) -> None:
    for t in terms:
        value = t.value if isinstance(t, Number) else None
        dtype = isinstance(value, Dtype | DtypeVar)
        if dtype or (isinstance(value, Lit) and not isinstance(value.value, int | float)):
            raise Problem(
                "RW310", "a number or a tensor is needed here", span, "text, lists and dtypes have no arithmetic"
            )


def _ranks_promote(item: Item, a: TensorType, b: TensorType, met: DtypeExpr, span: Span) -> None:
    """RW301 where torch would not promote: a 0-d tensor widens one of more axes only if it is of a higher kind."""
    for scalar, other in ((a, b), (b, a)):
        if scalar.shape != () or other.shape == () or met == item.solver.dtype(other.dtype):
            continue
        if promotion.least_kind(item, scalar.dtype) <= promotion.greatest_kind(item, other.dtype):
            message = f"a 0-d {shown(scalar.dtype)} does not widen {shown(other.dtype)}: torch would round it"
            dtype = met if isinstance(met, Dtype) else "f32"
            hint = f"write the cast: `{dtype}(...)`, or give the scalar a dim: `reshape(s, [1])`"
            raise Problem("RW301", message, span, hint)


def relu(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`max(x, 0)`."""
    promotion.of_step(item, "relu", item.type_of(values["x"]).dtype, span)
    return clamp(item, prim, {"x": values["x"], "lo": Number(Lit(0))}, span)


def square(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`x * x`."""
    promotion.of_step(item, "square", item.type_of(values["x"]).dtype, span)
    return binary(item, "mul", values["x"], values["x"], span)


def pow(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`pow(x, 2)`."""
    if values["exponent"] not in (Lit(2), Lit(2.0)):
        raise Problem("RW129", "`pow` takes the exponent 2", span, "write `x * x * x` for another")
    return square(item, prim, values, span)


def clamp(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`clamp(x, lo, hi)`; a bound may be `none`."""
    bounds = (values.get(n) or Number(Lit(None)) for n in ("lo", "hi"))
    bounds = tuple(Number(Lit(None)) if b == Lit(None) else b for b in bounds)
    dtype = item.type_of(values["x"]).dtype
    for bound in bounds:
        if isinstance(bound, Number) and bound != Number(Lit(None)):
            dtype = promotion.of_number(item, dtype, bound.value, span)
        elif not isinstance(bound, Number):
            dtype = promotion.of_two(item, dtype, item.type_of(bound).dtype, span)
    dtype = promotion.of_step(item, "clamp", dtype, span)
    x = _met(item, values["x"], dtype, span)
    return prim_term(item, "clamp", (x, *bounds), (), TensorType(dtype, item.type_of(x).shape), span)


def to(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`to(x, t)`."""
    return cast(item, values["x"], values["dtype"], span)


def matmul_call(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`matmul(x, y)`."""
    return matmul(item, values["x"], values["y"], span)


def matmul(item: Item, left: Term, right: Term, span: Span) -> Term:
    """`a @ b`: [*B, K] @ [K, N] -> [*B, N]. Both have one dtype. RW303 for a vector on the right."""
    a, b = item.type_of(left), item.type_of(right)
    item.solver.unify_dtype(a.dtype, b.dtype, span, "the right side of `@`")
    for side, type_, least in (("left", a, 1), ("right", b, 2)):
        if type_.shape is not None and len(type_.shape) < least and not any(isinstance(d, Star) for d in type_.shape):
            hint = "`reshape(w, [K, 1])` is a matrix of one column"
            raise Problem("RW303", f"the {side} side of `@` is {show(type_.shape)}, no matrix", span, hint)
    shape = None
    if a.shape and b.shape and len(b.shape) == 2:
        inner, outer = a.shape[-1], b.shape[0]
        if isinstance(inner, Dim) and isinstance(outer, Dim):
            item.solver.unify_dim(inner, outer, span, "`@`")
            shape = (*a.shape[:-1], b.shape[-1])
    return prim_term(item, "matmul", (left, right), (), TensorType(a.dtype, shape), span)


def of_matrices(item: Item, product: Value, span: Span) -> None:
    """RW303 where `aten.mm` is given what is certainly no matrix."""
    for x in product.args if isinstance(product, Prim) else ():
        shape = item.type_of(x).shape
        if shape is not None and len(shape) != 2 and not any(isinstance(d, Star) for d in shape):
            raise Problem("RW303", f"`aten.mm` takes matrices, not {show(shape)}", span, "write `x @ w`")


# ---- reductions


def reduce(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`amax`, `mean`, `sum`, `var` over axes."""
    x, keepdim = values["x"], values["keepdim"]
    dtype = item.type_of(x).dtype if prim == "amax" else promotion.of_step(item, prim, item.type_of(x).dtype, span)
    x = _met(item, x, dtype, span)
    type_ = TensorType(dtype, item.type_of(x).shape)
    axes = as_axes(values["dims"], type_.shape, span)
    if keepdim not in (Lit(True), Lit(False)) and not isinstance(keepdim, Ref | Wild):
        raise Problem("RW310", "`keepdim` is `true` or `false`", span, "`keepdim=true`")
    shape: Shape | None = None
    if axes == Lit(()):
        shape = () if keepdim == Lit(False) else None
    elif type_.shape is not None and isinstance(axes, Lit) and keepdim in (Lit(True), Lit(False)):
        shape = _reduced(type_.shape, items(axes) or (), keepdim == Lit(True))
    return prim_term(item, prim, (x,), (axes, keepdim), TensorType(type_.dtype, shape), span)


def _reduced(shape: Shape, axes: tuple[int, ...], keep: bool) -> Shape | None:
    """The shape after a reduction; None where an axis may lie among the leading ones."""
    tail = len(shape) - (1 if shape and isinstance(shape[0], Star) else 0)
    if any(a >= 0 or -a > tail for a in axes):
        return None
    out: list[Dim | Star] = []
    for i, d in enumerate(shape):
        if i - len(shape) not in axes:
            out.append(d)
        elif keep:
            out.append(dims.constant(1))
    return tuple(out)


def as_axes(scalar: Scalar, shape: Shape | None, span: Span) -> Scalar:
    """Axes counted from the end, sorted, as a tuple literal; () is all axes. An attribute stays what it is."""
    if isinstance(scalar, Ref | Apply | Wild | Size):
        return scalar
    listed = items(scalar)
    axes: tuple[Any, ...] = (getattr(scalar, "value", None),) if listed is None else listed
    if not all(type(a) is int for a in axes):
        raise Problem("RW310", "an axis is a whole number", span, "`-1` is the last; several: `[-2, -1]`")
    ranked = shape is not None and not any(isinstance(d, Star) for d in shape)
    if ranked and shape is not None:
        if any(not -len(shape) <= a < len(shape) for a in axes):
            raise Problem(
                "RW303", f"{show(shape)} has no axis {', '.join(map(str, axes))}", span, "`-1` is the last axis"
            )
        axes = tuple(a - len(shape) if a >= 0 else a for a in axes)
    if len(set(axes)) < len(axes):
        said = ", ".join(map(str, listed or axes))
        raise Problem("RW310", f"an axis is named twice: {said}", span, "name each once")
    return Lit(tuple(sorted(axes)))
