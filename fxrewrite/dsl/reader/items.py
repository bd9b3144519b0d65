"""Clauses and items: one function for each rule of `grammar.lark` that makes a node of them.

A part of an item that may stand in any order arrives as a `Clause`; `_fields` sorts them into the fields of the item.
"""

from __future__ import annotations

from typing import Any, cast

from attrs import frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.reader.expressions import refuse, sort_arguments, unquoted, whole_number
from fxrewrite.dsl.reader.lalr import Build
from fxrewrite.dsl.reader.tokens import Token
from fxrewrite.dsl.syntax import Span

MAX_EQUATIONS = 100  # of an op: each is held against all above it

# Clauses that may be written more than once: what they hold is put together.
_REPEATED = frozenset({"requires", "prefer", "equations", "forms", "impls", "properties", "samples"})


@frozen
class Clause:
    """A part of an item: the field that it fills, what it holds, its place."""

    field: str
    value: Any
    span: Span


def _fields(parts: list[Any]) -> dict[str, Any]:
    """Clauses as fields of a class. Refuses a second clause of a kind that may stand once."""
    fields: dict[str, Any] = {}
    for part in parts:
        clause = _as_clause(part)
        if clause.field in _REPEATED:
            fields[clause.field] = (*fields.get(clause.field, ()), *clause.value)
        elif clause.field in fields:
            hint = "put both into one list, with a comma" if isinstance(clause.value, tuple) else "keep one"
            raise refuse(f"`{clause.field}` is given twice in this item", clause.span, hint)
        else:
            fields[clause.field] = clause.value
    return fields


def _as_clause(part: Any) -> Clause:
    match part:
        case syntax.Equation():
            return Clause("equations", (part,), part.span)
        case syntax.Form():
            return Clause("forms", (part,), part.span)
        case syntax.Impl():
            return Clause("impls", (part,), part.span)
        case syntax.Contract():
            return Clause("contract", part, part.span)
        case _:
            return part


def _list_clause(field: str) -> Build:
    return lambda parts, place: Clause(field, tuple(parts), place)


def _text_clause(field: str) -> Build:
    return lambda parts, place: Clause(field, parts[0].text, place)


def _texts(tokens: list[Any]) -> tuple[str, ...]:
    return tuple(token.text for token in tokens)


# ---- clauses


def _level(parts: list[Any], place: Span) -> Clause:
    return Clause("level", parts[0].text if parts else "none", place)


def _bind(kind: str) -> Build:
    def build(parts: list[Any], place: Span) -> syntax.Bind:
        target, value = parts
        if isinstance(target, Token):
            return syntax.Bind(place, kind, (target.text,), value)
        return syntax.Bind(place, kind, target, value, tuple_target=True)

    return build


def _equation(parts: list[Any], place: Span) -> syntax.Equation:
    return syntax.Equation(place, parts[0], parts[1].value if len(parts) > 1 else ())


def _property(parts: list[Any], place: Span) -> syntax.Property:
    return syntax.Property(place, parts[0].text, _texts(parts[1:]))


def _relaxed(parts: list[Any], place: Span) -> syntax.Contract:
    if len(parts) == 1:
        return syntax.Contract(place, "relaxed", codes=whole_number(parts[0].text, place))
    return syntax.Contract(place, "relaxed", rtol=float(parts[0].value), atol=float(parts[1].value))


# ---- forms and providers


def _out(parts: list[Any], place: Span) -> syntax.Out:
    name, typed = (*parts, None, None)[:2]
    return syntax.Out(place, name.text if name else None, typed)


def _mut(parts: list[Any], place: Span) -> syntax.Mut:
    name, becomes = parts
    return syntax.Mut(place, name.text, becomes.text if becomes else None)


def _bound_call(parts: list[Any], place: Span) -> Clause:
    (func, _), *formals, index = parts
    slots = tuple(formal for formal in formals if isinstance(formal, syntax.SlotKw))
    args, kwargs, rest = sort_arguments([formal for formal in formals if not isinstance(formal, syntax.SlotKw)])
    position = None if index is None else whole_number(index.text[1:], place)
    call = syntax.BoundCall(place, func, tuple(args), tuple(kwargs), slots, rest, position)
    return Clause("spelling", call, place)


def _form(parts: list[Any], place: Span) -> syntax.Form:
    return syntax.Form(place, name=parts[0].text, **_fields(parts[1:]))


def _impl(parts: list[Any], place: Span) -> syntax.Impl:
    return syntax.Impl(place, name=parts[0].text, **_fields(parts[1:]))


def _more_form(parts: list[Any], place: Span) -> syntax.Form:
    return syntax.Form(place, owner=parts[0].text, name=parts[1].text[1:], **_fields(parts[2:]))


def _more_impl(parts: list[Any], place: Span) -> syntax.Impl:
    return syntax.Impl(place, owner=parts[0].text, name=parts[1].text[1:], **_fields(parts[2:]))


# ---- items


def _pack(parts: list[Any], place: Span) -> syntax.Pack:
    return syntax.Pack(place, parts[0].text, **_fields(parts[1:]))


def _use(parts: list[Any], place: Span) -> syntax.Use:
    return syntax.Use(place, parts[0][0], _texts([part for part in parts[1:] if part]))


def _native(parts: list[Any], place: Span) -> syntax.Native:
    name, params, result, source = parts
    return syntax.Native(place, name.text, params, result, unquoted(source.text))


def _results(parts: list[Any], place: Span) -> Clause:
    if isinstance(parts[0], syntax.Type):
        parts = [syntax.Result(parts[0].span, "y", parts[0])]
    return Clause("results", tuple(parts), place)


def _def(parts: list[Any], place: Span) -> syntax.Def:
    return syntax.Def(place, parts[0].text, parts[1], **_fields(parts[2:]))


def _op(parts: list[Any], place: Span) -> syntax.Op:
    made = syntax.Op(place, parts[0].text, parts[1], **_fields(parts[2:]))
    if len(made.equations) > MAX_EQUATIONS:
        message = f"{made.name} has {len(made.equations)} equations, and an op has at most {MAX_EQUATIONS}"
        at = made.equations[MAX_EQUATIONS].span
        raise RuleError([Diagnostic("RW130", message, at, "make parts of it ops")])
    return made


def _fusion(parts: list[Any], place: Span) -> syntax.Fusion:
    name, params, *others = parts
    (outputs,), clauses = _sides(others)
    return syntax.Fusion(place, name.text, params, outputs, **_fields(clauses))


def _rule(parts: list[Any], place: Span) -> syntax.Rule:
    name, params, *others = parts
    (left, right), clauses = _sides(others)
    return syntax.Rule(place, name.text, left, right, params, **_fields(clauses))


def _sides(parts: list[Any]) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """The output lists among the parts (the head may stand before them), and the clauses."""
    sides = [cast(tuple[Any, ...], part) for part in parts if isinstance(part, tuple)]
    return sides, [part for part in parts if not isinstance(part, tuple)]


def _bare_rule(parts: list[Any], place: Span) -> syntax.Rule:
    return syntax.Rule(place, None, parts[0], parts[1], **_fields(parts[2:]))


ITEMS: dict[str, Build] = {
    "level": _level,
    "flag": _text_clause("flag"),
    "stage": _text_clause("stage"),
    "after": lambda parts, place: Clause("after", _texts(parts), place),
    "over": lambda parts, place: Clause("over", _texts(parts), place),
    "when": _list_clause("when"),
    "where": _list_clause("where"),
    "requires": _list_clause("requires"),
    "prefer": _list_clause("prefer"),
    "property": _list_clause("properties"),
    "sample": _list_clause("samples"),
    "decreasing": lambda parts, place: Clause("decreasing", parts[0], place),
    "ref": lambda parts, place: Clause("ref", unquoted(parts[0].text), place),
    "pins": _list_clause("pins"),
    "pin": lambda parts, place: syntax.Kwarg(place, parts[0].text, parts[1]),
    "bind": _bind("bind"),
    "keep": _bind("keep"),
    "each": _bind("each"),
    "names": lambda parts, place: _texts(parts),
    "equation": _equation,
    "prop": _property,
    "draw_from": lambda parts, place: syntax.Sample(place, parts[0].text, parts[1]),
    "draw_in": lambda parts, place: syntax.Sample(place, parts[0].text, parts[1]),
    "contract": lambda parts, place: parts[0],
    "bitwise": lambda parts, place: syntax.Contract(place, "bitwise"),
    "faithful": lambda parts, place: syntax.Contract(place, "faithful"),
    "relaxed": _relaxed,
    "out": _out,
    "mut": _mut,
    "slot_kw": lambda parts, place: syntax.SlotKw(place, parts[0].text, parts[1]),
    "bound_call": _bound_call,
    "spelled": lambda parts, place: Clause("spelling", parts[0], place),
    "form": _form,
    "impl": _impl,
    "more_form": _more_form,
    "more_impl": _more_impl,
    "pack": _pack,
    "use": _use,
    "native": _native,
    "dtype": lambda parts, place: syntax.DtypeClass(place, parts[0].text, parts[1]),
    "results": _results,
    "result": lambda parts, place: syntax.Result(place, parts[0].text, parts[1]),
    "def": _def,
    "op": _op,
    "fusion": _fusion,
    "rule": _rule,
    "bare_rule": _bare_rule,
}
