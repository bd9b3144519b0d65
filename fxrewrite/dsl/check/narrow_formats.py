"""Built-ins of narrow formats: rounding to E2M1, packing of codes and of scales, the layout of block scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from fxrewrite.dsl import dims, formats
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.solver import show, shown
from fxrewrite.dsl.check.typing import prim_term
from fxrewrite.dsl.core import Dtype, Ref, TensorType, Term
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span


def round_e2m1(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`round_e2m1(x)`: f32 to f32, one of the 16 values of E2M1."""
    type_ = item.type_of(values["x"])
    _need(item, type_, ("f32",), prim, "`round_e2m1(f32(x))`", span)
    return prim_term(item, prim, (values["x"],), (), type_, span)


def pack2(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`pack2(x)`: f32[.., 2*N], values of E2M1, to u8[.., N]."""
    return _packed(item, prim, values["x"], ("f32",), 2, "u8", "`pack2(round_e2m1(x))`", span)


def pack4(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`pack4(s)`: e8m0fnu[.., 4*N] to i32[.., N]."""
    return _packed(item, prim, values["x"], ("e8m0fnu",), 4, "i32", "`pack4(e8m0fnu(s))`", span)


def swizzle(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`swizzle(s)`: [T, C] of a dtype of one byte to [up(T, 128), up(C, 4)]."""
    type_ = item.type_of(values["x"])
    bytes_ = tuple(n for n, size in formats.BYTES.items() if size == 1)
    _need(item, type_, bytes_, prim, "`swizzle(e8m0fnu(s))`", span)
    return prim_term(item, prim, (values["x"],), (), TensorType(type_.dtype, swizzled(type_.shape, span)), span)


def swizzled(shape: Shape | None, span: Span) -> Shape | None:
    """The shape of scales of this shape once they are in tiles. RW303 for another rank than 2."""
    if shape is None:
        return None
    if len(shape) != 2 or isinstance(shape[0], Star):
        raise Problem("RW303", f"scales in tiles have two axes, not {show(shape)}", span, "`reshape(s, [T, _])`")
    tiles = ((d, n) for d, n in zip(shape, formats.SCALE_TILE, strict=True) if isinstance(d, Dim))
    return tuple(dims.combine("up", d, dims.constant(n)) for d, n in tiles)


def stored(type_: TensorType, given: Mapping[str, Any], span: Span) -> TensorType:
    """The type of the tensor that holds a result of this type: scales that are "swizzled" are whole tiles.

    `given`: values of attributes.
    """
    layout = given.get(type_.layout.name) if isinstance(type_.layout, Ref) else type_.layout
    return evolve(type_, shape=swizzled(type_.shape, span)) if layout == "swizzled" else type_


def _packed(
    item: Item, prim: str, x: Term, allowed: tuple[str, ...], count: int, into: str, hint: str, span: Span
) -> Term:
    """`count` neighbours along the last axis become one element."""
    type_ = item.type_of(x)
    _need(item, type_, allowed, prim, hint, span)
    shape = type_.shape
    if shape is not None:
        if not shape or not isinstance(shape[-1], Dim):
            raise Problem("RW303", f"{prim} packs along a last axis, and {show(shape)} has none", span, hint)
        shape = (*shape[:-1], dims.combine("//", shape[-1], dims.constant(count)))
    return prim_term(item, prim, (x,), (), TensorType(Dtype(into), shape), span)


def _need(item: Item, type_: TensorType, allowed: tuple[str, ...], prim: str, hint: str, span: Span) -> None:
    """RW301 for another dtype."""
    dtype = item.solver.dtype(type_.dtype)
    if dtype is not None and not (isinstance(dtype, Dtype) and dtype.name in allowed):
        wanted = allowed[0] if len(allowed) == 1 else "a dtype of one byte"
        raise Problem("RW301", f"{prim} takes {wanted}, not {shown(dtype)}", span, hint)
