"""What an expression asks of a value: its dtype, its shape, a result, a slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import kinds, shapes, slices, torch_builtins
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Listed, Many, Scope, Value
from fxrewrite.dsl.check.terms import TERMS
from fxrewrite.dsl.check.values import said, single, stage_span
from fxrewrite.dsl.core import UNKNOWN, Apply, Dtype, DtypeVar, Extern, Lit, Ref, Scalar, Size
from fxrewrite.dsl.dims import Dim, Shape, Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker
    from fxrewrite.dsl.check.expressions import Elaborator

FINFO = ("max", "min", "eps", "tiny", "smallest_normal")


def attribute(elab: Elaborator, e: syntax.Attr, scope: Scope) -> Value:
    """`x.dtype`, `x.shape`, `finfo(t).max`, `g.size`."""
    inner = e.value
    if isinstance(inner, syntax.Call) and inner.func == "finfo":
        return _finfo(elab, e, inner, scope)
    _no_op_without_brackets(elab, e, scope)
    value = single(elab.value(inner, scope))
    if e.name == "dtype" and isinstance(value, (*TERMS, Extern)):
        type_ = elab.item.type_of(value)
        return type_.dtype if type_.dtype is not None else Apply("dtype", (value,))
    if e.name == "shape" and isinstance(value, TERMS):
        return Apply("shape", (value,))
    if e.name in ("name", "size") and isinstance(value, Ref):
        return Apply("group." + e.name, (value,))
    place = elab.places.end(e.span, len(e.name))
    raise Problem("RW216", f"there are no methods and no `.{e.name}`", place, _fact_hint(elab, e, value))


def _no_op_without_brackets(elab: Elaborator, e: syntax.Attr, scope: Scope) -> None:
    """RW205 for the name of a torch op that is not called: `aten.silu => x`."""
    if not is_torch_op(elab.checker, e) or not isinstance(e.value, syntax.Var):
        return
    name = e.value.name
    if not any(name in known for known in (scope.names, scope.parts, elab.item.bound)):
        op = f"{name}.{e.name}"
        raise Problem("RW205", f"`{op}` is an op, and is called with brackets", e.span, f"write `{op}(...)`")


def is_torch_op(checker: Checker, e: syntax.Expr) -> bool:
    """Is it the name of a torch op whose schema is known?"""
    return (
        isinstance(e, syntax.Attr)
        and isinstance(e.value, syntax.Var)
        and bool(checker.schemas.find(f"{e.value.name}.{e.name}"))
    )


def _fact_hint(elab: Elaborator, e: syntax.Attr, value: Value) -> str:
    """What to write for an attribute that values do not have."""
    if isinstance(value, Many):
        results = [elab.result_name(v) for v in value.values]
        if e.name in results:
            return f"results go by position: `.{results.index(e.name)}`"
    kind = kinds.kind_of(elab, value)
    facts = {"group": ("name", "size"), "tensor": ("dtype", "shape")}.get(kind or "", ())
    hints = {"T": "write `permute(x, [1, 0])`", "mT": "write `permute(x, [1, 0])`",
             "ndim": "dims of types say it: `x: real[T, D]`"}  # fmt: skip
    return hints.get(e.name) or closest(e.name, facts) or f"write `{e.name}(...)`"


def _finfo(elab: Elaborator, e: syntax.Attr, call: syntax.Call, scope: Scope) -> Value:
    if len(call.args) != 1 or call.kwargs or isinstance(call.args[0], syntax.Splat):
        raise Problem(
            "RW204", f"finfo takes 1 dtype, not {len(call.args)}", call.func_span or call.span, "`finfo(qt).max`"
        )
    if e.name not in FINFO:
        place = elab.places.end(e.span, len(e.name))
        raise Problem("RW216", f"finfo has no `.{e.name}`", place, f"one of {', '.join(FINFO)}")
    dtype = elab.scalar(call.args[0], scope)
    if not isinstance(dtype, Dtype | DtypeVar | Ref | Apply):
        raise Problem(
            "RW310", f"{said(call.args[0])} is no dtype", call.args[0].span, "`finfo(x.dtype)`, `finfo(e4m3fn)`"
        )
    return Apply("finfo." + e.name, (dtype,))


def projection(elab: Elaborator, e: syntax.Proj, scope: Scope) -> Value:
    """`x.0`: a result by its position."""
    value = elab.value(e.value, scope)
    if isinstance(value, Extern):
        elab.item.returns.check(value.call, e.index, stage_span(e.value))
        return elab.item.intern(Extern(value.call, e.index, None, UNKNOWN, e.span))
    many = value.values if isinstance(value, Many | Listed) else (value,)
    if e.index >= len(many):
        count = f"{len(many)} result{'s' if len(many) != 1 else ''}"
        raise Problem(
            "RW203", f"{said(e.value)} has {count}; there is no `.{e.index}`", stage_span(e.value), "they count from 0"
        )
    return many[e.index]


def index(elab: Elaborator, e: syntax.Index, scope: Scope) -> Value:
    """`x[..., a:b:c]`, `x.shape[i]`."""
    value = elab.one(e.value, scope)
    last = e.items[-1]
    if isinstance(value, Many) and len(e.items) == 1 and isinstance(last, syntax.Number):
        hint = f"write `.{last.value}`"
        raise Problem("RW203", f"results of {said(e.value)} go by position behind a dot", e.span, hint)
    if len(e.items) == 2 and isinstance(e.items[0], syntax.Rest) and isinstance(last, syntax.Slice):
        bounds = [None if b is None else _slice_bound(elab, b, scope) for b in (last.start, last.stop, last.step)]
        x = elab.as_term(value, e.value)
        elab.present(x, "what is sliced", e.value.span)
        return slices.slice_last(elab.item, x, bounds[0], bounds[1], bounds[2], e.span)
    if len(e.items) == 1 and not isinstance(last, syntax.Rest | syntax.Slice):
        if isinstance(value, Apply) and value.op == "shape":
            return _size(elab, value, elab.scalar(last, scope), e)
        if isinstance(value, Ref | Apply | Lit):
            return Apply("item", (value, elab.scalar(last, scope)))
        at = elab.one(last, scope)
        if isinstance(value, TERMS) and isinstance(at, TERMS):
            return torch_builtins.index(elab.item, elab.as_term(value, e.value), elab.as_term(at, last), e.span)
    raise Problem(
        "RW129", "an index is `[..., a:b:c]` on the last axis", e.span, "`x[..., :D]`; other axes: `slice(x, d, a, b)`"
    )


def _slice_bound(elab: Elaborator, e: Any, scope: Scope) -> Scalar:
    found = elab.scalar(e, scope)
    kinds.must_be_whole(elab, found, e, "a bound of a slice", "`x[..., :D]`")
    return found


def _size(elab: Elaborator, shape: Apply, at: Scalar, e: syntax.Index) -> Scalar:
    known = elab.item.type_of(shape.args[0]).shape
    _on_an_axis(known, at, e)
    if isinstance(at, Lit) and isinstance(at.value, int) and known is not None and -len(known) <= at.value < len(known):
        found = known[at.value]
        if isinstance(found, Dim) and (at.value < 0 or not any(isinstance(d, Star) for d in known)):
            return Size(found)
    return Apply("shape", (shape.args[0], at))


def _on_an_axis(known: Shape | None, at: Scalar, e: syntax.Index) -> None:
    """RW303 where a shape has no such axis."""
    if known is None or any(isinstance(d, Star) for d in known):
        return
    if isinstance(at, Lit) and isinstance(at.value, int) and not -len(known) <= at.value < len(known):
        message = f"{shapes.show(known)} has no axis {at.value}"
        raise Problem("RW303", message, e.items[-1].span, "`-1` is the last axis")
