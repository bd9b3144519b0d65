"""Diagnostics as workflow commands of GitHub Actions, which show them at their lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from fxrewrite.dsl.diagnostics import Diagnostic

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def as_annotations(found: Iterable[Diagnostic]) -> str:
    """A line for each diagnostic: `::error file=...,line=...,title=RW204::message`."""
    return "\n".join(map(_annotation, found))


def _annotation(d: Diagnostic) -> str:
    span = d.span
    properties = {"file": span.file, "line": span.line, "endLine": span.end_line}
    if span.line == span.end_line:  # columns belong to one line
        properties |= {"col": span.column, "endColumn": span.end_column}
    properties["title"] = d.code
    told = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    related = [f"{r.span}: {r.message}" for r in d.related]
    text = "\n".join([d.message, *related, *([f"hint: {d.hint}"] if d.hint else [])])
    return f"::{_COMMANDS[d.severity]} {told}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
