"""`native` items: what they take and give, at their declaration and at their calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import kinds
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Value
from fxrewrite.dsl.check.signatures import ATTRIBUTE_TYPES, PYTHON_TYPES

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker
    from fxrewrite.dsl.check.expressions import Elaborator

RESULTS = ("bool", "int", "float", "str", "list", "dtype")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check_source(source: str, span: syntax.Span, what: str, code: str) -> None:
    """`code` where a string does not name a function of a package."""
    if not _FUNCTION.fullmatch(source):
        raise Problem(code, f'{what} names a function, and "{source}" does not', span, 'write `"package.module:name"`')


def check_native(checker: Checker, native: syntax.Native) -> None:
    """The types of a native, and where it comes from. Raises Problem."""
    for p in (*native.params.operands, *native.params.attributes):
        checker.param_type(p, native.params)
    if native.result.name not in RESULTS or native.result.dims is not None:
        place = checker.places.word(native.result.span, native.result.name)
        hint = closest(native.result.name, RESULTS) or f"one of {', '.join(RESULTS)}"
        raise Problem("RW310", "a native gives a value for conditions, not a tensor", place, hint)
    head = checker.places.head(native.span)
    place = checker.places.end(head, len(native.source) + 2) if head == native.span else head
    check_source(native.source, place, "`from`", "RW310")


def check_call(elab: Elaborator, native: syntax.Native, pairs: list[tuple[Value, Any]]) -> None:
    """RW310 where an argument is certainly of another type."""
    for p, (value, text) in zip((*native.params.operands, *native.params.attributes), pairs):
        kind = kinds.kind_of(elab, value)
        if p.type is None or kind is None or (kind == "none" and p.type.optional):
            continue
        scalar = p.type.dims is None and p.type.name in ATTRIBUTE_TYPES
        wanted = p.type.name if scalar else "tensor"
        fits = kind == wanted or (kind in kinds.NUMBERS and wanted in ("int", "float") and kind != "float")
        if not (fits or (wanted == "float" and kind in kinds.NUMBERS) or wanted not in (*PYTHON_TYPES, "tensor")):
            message = f"`{p.name}` of {native.name} is {kinds.said_kind(wanted)}, and {kinds.shown(elab, text)} is not"
            raise Problem("RW310", message, text.span, f"give {kinds.said_kind(wanted)}")
