"""The canonical layout of a file of rules: `format_text`.

`items`, `clauses` and `expressions` make pieces of a syntax tree, `trivia` puts comments and empty lines among them,
and `render` makes lines of them. The layout depends on the tree, the comments and the empty lines alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from attrs import frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.format.items import pieces_of
from fxrewrite.dsl.format.pieces import INDENT, Position
from fxrewrite.dsl.format.render import render
from fxrewrite.dsl.format.same import same
from fxrewrite.dsl.format.trivia import Source, Trivia, behind, scan, weave
from fxrewrite.dsl.parse import parse


class Unfaithful(Exception):
    """A fault of the formatter: its text would not say what the file says. Nothing is to be written."""


@frozen
class Formatted:
    """The canonical text of a file. Where the file is wrong: the text as it was, and what is wrong with it."""

    text: str
    diagnostics: tuple[Diagnostic, ...] = ()


def format_text(text: str, path: str) -> Formatted:
    """The canonical text of a `.rw` file; `path` is only the name that diagnostics carry.

    Raises Unfaithful where that text would not read as the same syntax tree with the same comments.
    """
    file, diagnostics = parse(text, path)
    if diagnostics:
        return Formatted(text, tuple(diagnostics))
    formatted = format_file(file)
    again, diagnostics = parse(formatted, path)
    if diagnostics:
        raise Unfaithful(f"the formatted text of {path} would not be read: {diagnostics[0].message}")
    if not same(again.items, file.items):
        raise Unfaithful(f"the formatted text of {path} would read as another syntax tree")
    if _comments(formatted) != _comments(text):
        raise Unfaithful(f"the formatted text of {path} would have other comments")
    return Formatted(formatted)


def _comments(text: str) -> list[str]:
    return [one.text for one in scan(text) if one.text]


def format_file(file: syntax.File) -> str:
    """The canonical text of a syntax tree, with the comments and numbers of its source, if it has one."""
    source = Source(file.source)
    trivia = scan(file.source)
    starts = [_index_at(trivia, (item.span.line, item.span.column)) for item in file.items]
    text = "".join(one.text + "\n" for one in trivia[: starts[0] if starts else len(trivia)])
    for item, start, end in zip(file.items, starts, [*starts, len(trivia)][1:], strict=True):
        near = trivia[start:end]
        own = _own(item, near)
        pieces, rest = weave(pieces_of(item, source), near[:own])
        text += "" if file.source else _documentation(item)
        text += render(pieces) + behind(rest, " " * INDENT) + "\n"
        text += "".join(one.text + "\n" for one in near[own:])
    text = text.strip("\n")
    return text + "\n" if text else ""


def _index_at(trivia: Sequence[Trivia], position: Position) -> int:
    return bisect_left(trivia, position, key=lambda one: one.position)


def _documentation(item: syntax.Item) -> str:
    return "".join(f"## {line}".rstrip(" ") + "\n" for line in item.doc.split("\n")) if item.doc else ""


def _own(item: syntax.Item, trivia: Sequence[Trivia]) -> int:
    """How many of the trivia belong to an item: those in it and on its last line, and what is indented below it."""
    own = index = _index_at(trivia, (item.span.end_line + 1, 1))
    while index < len(trivia) and (trivia[index].indented or not trivia[index].text):
        index += 1
        own = index if trivia[index - 1].text else own
    return own
