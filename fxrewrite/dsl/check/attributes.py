"""What a call gives for the attributes of an op: written, captured, carried or the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import check_attribute, check_size
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Attribute,
    Dtype,
    DtypeVar,
    Lit,
    OpDef,
    Operand,
    Ref,
    Scalar,
    Size,
    Wild,
)
from fxrewrite.dsl.diagnostics import Related

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator

SCALARS = (Lit, Ref, Size, Dtype, DtypeVar, Apply)


def check_names(elab: Elaborator, op: OpDef, e: syntax.Call) -> None:
    """RW211 where a call names an attribute that the op does not have."""
    known = [a.name for a in op.attributes]
    for k in e.kwargs:
        if k.name in known:
            continue
        place = elab.places.word(k.span, k.name)
        if k.name in {o.name for o in op.operands}:
            value = elab.places.text(k.value.span)
            raise Problem(
                "RW211", f"`{k.name}` of {op.name} is an operand", place, f"operands go by position: `{value}`"
            )
        hint = closest(k.name, known) or (f"its attributes: {', '.join(known)}" if known else "it has none")
        raise Problem("RW211", f"{op.name} has no attribute `{k.name}`", place, hint)


def value(elab: Elaborator, op: OpDef, a: Attribute, e: syntax.Call, scope: Scope) -> Scalar:
    """The value of one attribute at a call."""
    written = next((k for k in e.kwargs if k.name == a.name), None)
    if written is not None:
        found, at = _written(elab, op, a, written, scope), written.value.span
    else:
        found = _captured(elab, op, a, e, scope) if scope.matched else _carried(elab, op, a, e, scope)
        at = e.func_span or e.span
    absent = None if a.optional else may_be_none(elab.item, found, scope)
    if absent is not None:
        message = f"`{a.name}` of {op.name} may not be `none`, and `{absent}` may"
        raise Problem("RW307", message, at, f"write `when {absent} != none`, or `requires {absent} != none` in a rule")
    return found


def may_be_none(item: Item, value: Any, scope: Scope) -> str | None:
    """The name of an attribute or operand that may be `none` where nothing says that it is there."""
    if isinstance(value, Operand):
        return value.name if value.optional else None
    if not isinstance(value, Ref):
        return None
    source = item.own.get(value.name) or item.captured.get(value.name)
    if source is None or not source.optional or value.name in item.there:
        return None
    return None if value.name in scope.present else value.name


def _captured(elab: Elaborator, op: OpDef, a: Attribute, e: syntax.Call, scope: Scope) -> Scalar:
    """Left out on a matched side: captured under its own name; in a `def` a parameter comes first."""
    at = e.func_span or e.span
    s = scope
    while s.caller is not None:
        found = s.names.get(a.name)
        if isinstance(found, SCALARS):
            return _checked(op, a, conditions.constant(found), at)
        s = s.caller
    if a.name in elab.item.bound:
        place = elab.item.tensors.get(a.name)
        related = [Related(place, f"`{a.name}` is a tensor here")] if place else []
        message = f"the attribute `{a.name}` of {op.name} is captured, and the rule binds another `{a.name}`"
        raise Problem("RW213", message, at, f"write `{a.name}={a.name}2`", related)
    elab.item.capture(a, a.name, at, op.name)
    return Ref(a.name)


def _carried(elab: Elaborator, op: OpDef, a: Attribute, e: syntax.Call, scope: Scope) -> Scalar:
    """Left out on a built side: what has that name in scope, else the default."""
    at = e.func_span or e.span
    s: Scope | None = scope
    while s is not None:
        found = s.names.get(a.name)
        if isinstance(found, SCALARS):
            return _checked(op, a, conditions.constant(found), at)
        s = s.caller
    item = elab.item
    if a.name in item.captured:
        _same_kind(elab, op, a, a.name, at)
        return Ref(a.name)
    if isinstance(item.bound.get(a.name), Ref):
        return Ref(a.name)
    if a.default is not NO_DEFAULT:
        return conditions.literal(a.default)
    message = f"`{a.name}` of {op.name} has no default and nothing here gives it a value"
    raise Problem(
        "RW212",
        message,
        at,
        f"write `{op.name}(..., {a.name}=...)`, or take it as an attribute: `; {a.name}: {a.type}`",
    )


def _written(elab: Elaborator, op: OpDef, a: Attribute, k: syntax.Kwarg, scope: Scope) -> Scalar:
    if isinstance(k.value, syntax.Any):
        if not scope.wild:
            message = f"`_` gives `{a.name}` of {op.name} no value: only the left side of a rule drops one on purpose"
            raise Problem("RW212", message, k.value.span, f"write `{a.name}=...`, or leave it out: then it is carried")
        return Wild()
    if scope.matched and isinstance(k.value, syntax.Var) and not _known(elab, k.value.name, scope):
        elab.item.capture(a, k.value.name, k.value.span, op.name)
        return Ref(k.value.name)
    found = elab.scalar(k.value, scope)
    if isinstance(found, Ref):
        _same_kind(elab, op, a, found.name, k.value.span)
    found = _checked(op, a, conditions.constant(found), k.value.span)
    check_size(a.name, getattr(found, "value", None), op, k.value.span)
    return found


def _same_kind(elab: Elaborator, op: OpDef, a: Attribute, name: str, span: syntax.Span) -> None:
    """RW213 where a name stands for an attribute of another type."""
    other = elab.item.own.get(name) or elab.item.captured.get(name)
    if other is None or other.type == a.type or (other.type, a.type) == ("int", "float"):
        return
    place = elab.item.captured_at.get(name) or other.span or span
    message = f"`{a.name}` of {op.name} is of type {a.type}, and `{name}` of type {other.type}"
    raise Problem("RW213", message, span, f"write `{a.name}=...`", [Related(place, f"`{name}` is this")])


def _checked(op: OpDef, a: Attribute, found: Scalar, span: syntax.Span) -> Scalar:
    """A literal, fitted to the type of the attribute."""
    if isinstance(found, Lit | Dtype):
        check_attribute(a, conditions.plain(found), span, op.name)
    elif isinstance(found, DtypeVar):
        if a.type != "dtype":
            raise Problem(
                "RW310", f"`{a.name}` of {op.name} is of type {a.type}, not a dtype", span, f"write `{a.name}=...`"
            )
    elif isinstance(found, Size) and a.type not in ("int", "float"):
        raise Problem(
            "RW310", f"`{a.name}` of {op.name} is of type {a.type}, not a size", span, f"write `{a.name}=...`"
        )
    return found


def _known(elab: Elaborator, name: str, scope: Scope) -> bool:
    """Has a name a meaning already, so that `eps=name` gives its value and does not bind it?"""
    item = elab.item
    here: tuple[Any, ...] = (scope.names, scope.parts, scope.dims, item.captured, item.own, DTYPES)
    if any(name in names for names in here) or name in elab.checker.classes(scope.file):
        return True
    if scope.caller is not None:
        return True
    return name in item.bound or (name[0].isupper() and name in item.solver.used)
