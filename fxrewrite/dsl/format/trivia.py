"""What a source holds beside its syntax tree: comments, empty lines, the spelling of numbers; and where it goes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

from attrs import evolve, field, frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.format.pieces import Anchor, Break, Newline, Piece, Position, Remark
from fxrewrite.dsl.reader.tokens import Token, tokenize

_BLANKS = " \t\r"
_COMMENT = re.compile(r'(?:[^"#]|"[^"]*")*+(#.*)', re.DOTALL)
_DOC = "##"
_NUMBERS = frozenset({"INT", "FLOAT", "SIZE"})


@frozen
class Trivia:
    """A comment or an empty line (whose text is empty). `alone`: nothing else stands on the line."""

    line: int
    column: int
    text: str
    alone: bool = True

    @property
    def position(self) -> Position:
        """Its line and column."""
        return self.line, self.column

    @property
    def indented(self) -> bool:
        """Is it a comment with a line of its own, and not at column 0?"""
        return bool(self.text) and self.alone and self.column > 1


def scan(text: str) -> list[Trivia]:
    """The comments, lines of documentation and empty lines of a right file, in order; of several empty lines, one."""
    found: list[Trivia] = []
    above = "-"
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip(_BLANKS)
        if not bare and above:
            found.append(Trivia(number, 1, ""))
        elif match := _COMMENT.match(line):
            start = match.start(1)
            found.append(Trivia(number, start + 1, _tidy(match[1]), not line[:start].strip(_BLANKS)))
        above = bare
    return found


def _tidy(comment: str) -> str:
    comment = comment.rstrip(_BLANKS)
    if not comment.startswith(_DOC):
        return comment
    rest = comment[len(_DOC) :].removeprefix(" ")
    return f"{_DOC} {rest}" if rest else _DOC


@frozen(slots=False)
class Source:
    """The text that a tree was read from; one that is empty knows nothing, and each answer is the canonical one."""

    text: str = field(default="", repr=False)

    @cached_property
    def _tokens(self) -> list[Token]:
        return tokenize(self.text, 0, len(self.text), 1) if self.text else []

    @cached_property
    def _starts(self) -> list[Position]:
        return [(token.line, token.column) for token in self._tokens]

    def tokens_of(self, span: syntax.Span) -> list[Token]:
        """The tokens from the beginning of `span` to its end."""
        first = bisect_left(self._starts, (span.line, span.column))
        return self._tokens[first : bisect_left(self._starts, (span.end_line, span.end_column))]

    def start(self, node: syntax.Node) -> Position | None:
        """Where a node begins."""
        return (node.span.line, node.span.column) if self.text else None

    def last(self, node: syntax.Node) -> Position | None:
        """Where the last letter of a node stands: the bracket that closes it, where it ends with one."""
        return (node.span.end_line, node.span.end_column - 1) if self.text else None

    def in_order(self, nodes: Sequence[syntax.Node]) -> Sequence[syntax.Node]:
        """Nodes in the order in which they stand; that given where nothing is known."""
        return sorted(nodes, key=lambda n: (n.span.line, n.span.column)) if self.text else nodes

    def word(self, kind: str, within: syntax.Node) -> Position | None:
        """Where the first token of a kind stands in a node."""
        return next(((t.line, t.column) for t in self.tokens_of(within.span) if t.kind == kind), None)

    def before(self, node: syntax.Node) -> Position | None:
        """Where the token before a node stands, brackets around the node not counted: the keyword of a clause."""
        if not self.text:
            return None
        index = bisect_left(self._starts, (node.span.line, node.span.column)) - 1
        while index > 0 and self._tokens[index].kind == "(":
            index -= 1
        return self._starts[index] if index >= 0 else self.start(node)

    def numbers(self, node: syntax.Node) -> list[str]:
        """The numbers of a node as they are spelled."""
        return [t.text for t in self.tokens_of(node.span) if t.kind in _NUMBERS]


def weave(pieces: Sequence[Piece], trivia: Sequence[Trivia]) -> tuple[list[Piece], list[Trivia]]:
    """The pieces of an item with its comments and empty lines, and those that stand behind it.

    Each is put at the first break before which it stands.
    """
    woven: list[Piece] = []
    taken = 0
    for piece in pieces:
        if not isinstance(piece, Break | Anchor):
            woven.append(piece)
            continue
        first = taken
        while taken < len(trivia) and piece.before is not None and trivia[taken].position < piece.before:
            taken += 1
        woven += _at(piece, trivia[first:taken])
    return woven, list(trivia[taken:])


def _at(piece: Break | Anchor, trivia: Sequence[Trivia]) -> list[Piece]:
    """A break where trivia stand; comments make it one that ends the line."""
    keeps, outer = (piece.keeps, False) if isinstance(piece, Break) else (False, True)
    if not any(one.text for one in trivia):
        return [evolve(piece, empty=keeps and bool(trivia))] if isinstance(piece, Break) else []
    out: list[Piece] = []
    empty = False
    for one in trivia:
        if not one.text:
            empty = keeps
        elif out or one.alone:
            out += [Newline(empty), Remark(one.text)]
            empty = False
        else:
            out.append(Remark(one.text))
    return [*out, Newline(empty, outer)]


def behind(trivia: Sequence[Trivia], indent: str) -> str:
    """The comments behind an item, as text to add to it: the first one on its last line, if it stood so."""
    out = ""
    empty = False
    for one in trivia:
        if not one.text:
            empty = True
            continue
        out += f"  {one.text}" if not (out or one.alone) else ("\n\n" if empty else "\n") + indent + one.text
        empty = False
    return out
