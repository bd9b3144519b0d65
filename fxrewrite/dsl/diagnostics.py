"""Errors as data: a stable code, a place, related places, one hint.

Rendered as text, JSON or SARIF; never a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from fxrewrite.dsl.syntax import Span


@frozen
class Related:
    """Another place that has to do with a diagnostic."""

    span: Span
    message: str


@frozen
class Diagnostic:
    """One finding about a `.rw` text.

    `code` is stable ("RW204"); `message` says what is wrong in one line; `hint` says what to type, or is empty.
    `severity` is "error", "warning" or "note".
    """

    code: str
    message: str
    span: Span
    hint: str = ""
    related: tuple[Related, ...] = ()
    severity: str = "error"

    def render(self, sources: Mapping[str, str]) -> str:
        """Text for a person: place, message, the line with a caret under it, hint.

        `sources` maps file names to their text.
        """
        lines = [f"{self.span}: {self.severity}[{self.code}]: {self.message}", *underline(self.span, sources)]
        for related in self.related:
            lines += [f"  {related.span}: {related.message}", *underline(related.span, sources)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """A JSON object: code, severity, message, hint, place and related places (lines and columns from 1)."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "hint": self.hint,
            **span_json(self.span),
            "related": [{"message": r.message, **span_json(r.span)} for r in self.related],
        }


class RuleError(Exception):
    """One or more diagnostics that stop what was asked. `str()` is the rendered text."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None):
        self.diagnostics = tuple(diagnostics)
        self.sources = dict(sources or {})
        super().__init__("\n".join(d.render(self.sources) for d in self.diagnostics))

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling and copying: made again from its diagnostics, not from its text."""
        return type(self), (self.diagnostics, self.sources)


def span_json(span: Span) -> dict[str, Any]:
    """`span` as JSON members."""
    return {
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def lines_of(span: Span | None, sources: Mapping[str, str]) -> list[str]:
    """The source lines that `span` lies on; nothing where the text is not at hand."""
    text = None if span is None else sources.get(span.file)
    return [] if span is None or text is None else text.split("\n")[span.line - 1 : span.end_line]


def underline(span: Span, sources: Mapping[str, str]) -> list[str]:
    """The source line of `span` and a line of carets under it; nothing where the text is not at hand."""
    text = sources.get(span.file, "").split("\n")
    if text == [""] or not 0 < span.line <= len(text):
        return []
    line = text[span.line - 1].rstrip("\r")
    end = span.end_column if span.end_line == span.line else len(line) + 1
    width = max(1, min(end, len(line) + 1) - span.column)
    gutter = f"{span.line:5} | "
    return [gutter + line, " " * (len(gutter) - 2) + "| " + " " * (span.column - 1) + "^" * width]
