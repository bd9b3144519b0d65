"""Where a word stands in the text: a caret goes under the word that is wrong, not under the item that holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs
from attrs import define, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.syntax import Span

_SILENT = re.compile(r'"[^"\n]*"|#[^\n]*')  # a word in a string or a comment is not meant


@define(eq=False, repr=False)
class Places:
    """The texts that spans point into, by file name."""

    sources: Mapping[str, str]
    lines: dict[str, list[str]] = field(factory=dict[str, list[str]])

    def text(self, span: Span) -> str:
        """The text of a span."""
        return "\n".join(t for _, _, t in self._parts(span, self._lines(span.file)))

    def word(self, within: Span, word: str, nth: int = 0) -> Span:
        """The `nth` place of a whole word in a span; the first line of the span where it does not stand in it."""
        for line, column, text in self._parts(within, self._lines(within.file)):
            if word not in text:
                continue
            silent = _SILENT.sub(lambda m: " " * len(m[0]), text) if '"' in text or "#" in text else text
            for start in _whole_words(silent, word):
                if nth == 0:
                    return Span(within.file, line, column + start, line, column + start + len(word))
                nth -= 1
        return self.head(within)

    def end(self, span: Span, count: int) -> Span:
        """The last `count` characters of a span."""
        return Span(span.file, span.end_line, span.end_column - count, span.end_line, span.end_column)

    def behind(self, word: Span, text: str) -> Span:
        """The first place of `text` on the line of `word` or the next, behind it; `word` itself where it is not."""
        lines = self._lines(word.file)
        for number in (word.line, word.line + 1):
            line = lines[number - 1] if number <= len(lines) else ""
            at = line.find(text, word.end_column - 1 if number == word.line else 0)
            if at >= 0:
                return Span(word.file, number, at + 1, number, at + 1 + len(text))
        return word

    def head(self, span: Span) -> Span:
        """The first line of a span."""
        if span.line == span.end_line:
            return span
        text = next(iter(self._parts(span, self._lines(span.file))), (0, 0, ""))[2].rstrip()
        return Span(span.file, span.line, span.column, span.line, span.column + max(1, len(text)))

    def _lines(self, file: str) -> list[str]:
        if file not in self.lines:
            self.lines[file] = self.sources.get(file, "").split("\n")
        return self.lines[file]

    def _parts(self, span: Span, lines: list[str]) -> list[tuple[int, int, str]]:
        """The lines of a span: number, first column, text."""
        out: list[tuple[int, int, str]] = []
        for number in range(span.line, min(span.end_line, len(lines)) + 1):
            start = span.column - 1 if number == span.line else 0
            end = span.end_column - 1 if number == span.end_line else None
            out.append((number, start + 1, lines[number - 1][start:end]))
        return out


def _whole_words(text: str, word: str) -> Iterator[int]:
    """Where a word stands in a text, neither in a longer one nor behind a dot."""
    at = text.find(word) if word else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if not (before == "." or _is_letter(before)) and not _is_letter(after):
            yield at
        at = text.find(word, at + 1)


def _is_letter(text: str) -> bool:
    return text == "_" or text.isalnum()


def across(first: Span, last: Span) -> Span:
    """From the beginning of one span to the end of another."""
    return Span(first.file, first.line, first.column, last.end_line, last.end_column)


def outputs_span(outputs: tuple[Any, ...]) -> Span:
    """The span of a comma list."""
    return across(outputs[0].span, outputs[-1].span)


def names_in(e: Any) -> list[syntax.Var]:
    """Every name in an expression, a clause or a tuple of them, spread ones included, in the order of the text."""
    found: list[syntax.Var] = []
    todo = [e]
    while todo:
        one = todo.pop()
        if isinstance(one, syntax.Var):
            found.append(one)
        elif isinstance(one, syntax.Splat):
            found.append(syntax.Var(one.span, one.name))
        else:
            todo += reversed(parts_of(one))
    return found


def called_in(e: Any, without: str = "") -> set[str]:
    """The names of everything that an expression calls; `without` an attribute of this name that is written down."""
    own = {e.func} if isinstance(e, syntax.Call) and all(k.name != without for k in e.kwargs) else set[str]()
    return own.union(*(called_in(part, without) for part in parts_of(e)))


def parts_of(e: Any) -> tuple[Any, ...]:
    """What stands directly inside a syntax node or a tuple of them, texts and numbers apart."""
    kind = e.__class__
    return e if kind is tuple else tuple([getattr(e, name) for name in _parts(kind)])


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """The fields of a class of syntax that may hold nodes."""
    fields = attrs.fields(kind) if issubclass(kind, syntax.Node) else ()
    leaves = ("str", "bool", "int", "float", "int | float", "Span")
    return tuple(a.name for a in fields if str(a.type).removesuffix(" | None") not in leaves)


def said_to_be_there(requires: tuple[syntax.Expr, ...]) -> frozenset[str]:
    """The names of which one of these says `x != none`."""
    return frozenset(
        e.first.name
        for e in requires
        if isinstance(e, syntax.Compare) and isinstance(e.first, syntax.Var) and len(e.rest) == 1
        and e.rest[0][0] == "!=" and isinstance(e.rest[0][1], syntax.NoneLit)
    )  # fmt: skip
