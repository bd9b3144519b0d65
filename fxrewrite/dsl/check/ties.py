"""Ops of a fusion that share an attribute by its name alone: legal, and perhaps not what the author meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.places import parts_of
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Call, OpDef, Ref
from fxrewrite.dsl.diagnostics import Diagnostic, Related


def tied(f: syntax.Fusion, sig: OpDef, ops: Mapping[str, OpDef]) -> Diagnostic | None:
    """RW227, a note, where two ops are tied by an attribute that the text does not mention.

    Calls of one op are meant to be alike, and so are an op and another that its definition uses.
    """
    if not sig.attributes:
        return None
    written = _written(f)
    calls = calls_of(tuple(t for case in sig.equations for t in case.outputs))
    for a in sig.attributes:
        if a.name in written:
            continue
        holders = [c for c in calls if (a.name, Ref(a.name)) in c.attrs]
        pair = next(((b, c) for c in holders for b in holders if not _alike(b.op, c.op, ops)), None)
        if pair is not None:
            return _note(a.name, *pair)
    return None


def _note(name: str, second: Call, first: Call) -> Diagnostic | None:
    if second.span is None or first.span is None:
        return None
    message = f"`{name}` of {second.op} and `{name}` of {first.op} are one attribute here, by their name"
    hint = f"if they may differ, write `{name}={name}2` on one; if not, write `{name}={name}`"
    return Diagnostic("RW227", message, second.span, hint, (Related(first.span, f"{first.op} is here"),), "note")


def _written(f: syntax.Fusion) -> set[str]:
    """Attributes that the text declares, or names at a call."""
    found = {p.name for p in f.params.attributes}
    todo: list[Any] = [f.outputs, f.where]
    while todo:
        e = todo.pop()
        if isinstance(e, syntax.Kwarg):
            found.add(e.name)
        todo += parts_of(e)
    return found


def _alike(a: str, b: str, ops: Mapping[str, OpDef]) -> bool:
    """Is it one op, or is one a part of what the other means?"""
    return a == b or a in _parts(b, ops) or b in _parts(a, ops) or bool(_parts(a, ops) & _parts(b, ops))


def _parts(name: str, ops: Mapping[str, OpDef]) -> set[str]:
    """The ops that a definition calls, directly or through others."""
    found: set[str] = set()
    todo = [name]
    while todo:
        op = ops.get(todo.pop())
        inside = {c.op for case in op.equations for c in calls_of(case.outputs)} if op is not None else set[str]()
        todo += inside - found
        found |= inside
    return found
