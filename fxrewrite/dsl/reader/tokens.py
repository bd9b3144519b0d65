"""An item's text as tokens. Never fails: what the language does not have becomes a token that no rule accepts."""

from __future__ import annotations

import re
from typing import NamedTuple

from fxrewrite.dsl.syntax import Span

END = "$END"
DOC = "DOC"
SINGLE_QUOTED = "SINGLE_QUOTED"
PRIME = "PRIME"
OPEN_STRING = "OPEN_STRING"
ESCAPE = "ESCAPE"
UNKNOWN = "UNKNOWN"
STRANGE = frozenset({DOC, SINGLE_QUOTED, PRIME, OPEN_STRING, ESCAPE, UNKNOWN, "&&", "||", "**", ".."})

KEYWORDS = frozenset({
    "pack", "level", "flag", "stage", "after", "when", "use", "native", "from", "dtype", "def", "op", "fusion",
    "rule", "ref", "form", "impl", "out", "mut", "as", "property", "over", "where", "keep", "each", "requires",
    "prefer", "decreasing", "sample", "contract", "bitwise", "faithful", "relaxed", "codes", "rtol", "atol", "and",
    "or", "not", "in", "true", "false", "none", "True", "False", "None", "O0", "O1", "O2", "O3",
})  # fmt: skip
LEVELS = frozenset({"O0", "O1", "O2", "O3"})
BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

# Longest spelling first where one starts with another. Groups in lower case have no token of their own name.
_LEXEME = re.compile(
    r"""
      (?P<blank>[ ]+|\r(?=\n|\Z)|\#(?!\#)[^\n]*)
    | (?P<newline>\n)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>\.\.\.|=>|->|\|>|//|&&|\|\||\*\*|\.\.|[()\[\]{},;:?+\-/%@~|]|\*|=(?!=))
    | (?P<CMP>[=!<>]=|[<>])
    | (?P<DOTNAME>\.[A-Za-z_]\w*)
    | (?P<DOTINT>\.\d+)
    | (?P<SIZE>\d+(?:KiB|MiB|GiB))
    | (?P<FLOAT>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    | (?P<INT>\d+)
    | (?P<ESCAPE>"[^"\\\n]*\\[^\n]?)
    | (?P<STRING>"[^"\n]*")
    | (?P<DOC>\#\#[^\n]*)
    | (?P<PRIME>(?<=\w)'+)
    | (?P<SINGLE_QUOTED>'[^'\n]*')
    | (?P<OPEN_STRING>["'][^\n]*)
    | (?P<UNKNOWN>.)
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is the text itself for marks and reserved words, else NAME, INT, ...

    Columns count from 1, the end is exclusive. A token never spans lines.
    """

    kind: str
    text: str
    line: int
    column: int
    end_column: int


def tokenize(text: str, start: int, end: int, line: int) -> list[Token]:
    """The tokens of `text[start:end]`, which begins at column 1 of `line`; the last one has the kind END."""
    tokens: list[Token] = []
    origin = start - 1
    for lexeme in _LEXEME.finditer(text, start, end):
        kind = lexeme.lastgroup
        if kind == "blank":
            continue
        first, last = lexeme.span()
        if kind == "newline":
            line += 1
            origin = last - 1
            continue
        word = lexeme.group()
        tokens.append(Token(_kind(str(kind), word), word, line, first - origin, last - origin))
    tokens.append(_end(tokens, line))
    return tokens


def _kind(group: str, word: str) -> str:
    if group == "word":
        if word in LEVELS:
            return "LEVEL"
        return word if word == "_" or word in KEYWORDS else "NAME"
    return word if group == "mark" else group


def _end(tokens: list[Token], line: int) -> Token:
    """Where the item ends: just behind its last token."""
    if not tokens:
        return Token(END, "", line, 1, 1)
    last = tokens[-1]
    return Token(END, "", last.line, last.end_column, last.end_column)


def span(file: str, first: Token, last: Token | None = None) -> Span:
    """The place from `first` to `last` (or of `first` alone)."""
    last = last or first
    return Span(file, first.line, first.column, last.line, last.end_column)
