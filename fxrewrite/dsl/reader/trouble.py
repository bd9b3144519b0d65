"""Where the reading of an item stopped, and what the tokens around it are: what the explanations are written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.reader.tokens import END, KEYWORDS, Token, span

CLOSER = {"(": ")", "[": "]", "{": "}"}
CLAUSES = frozenset({
    "where", "requires", "prefer", "when", "form", "impl", "ref", "property", "sample", "contract", "decreasing",
    "level", "flag", "stage", "after", "over",
})  # fmt: skip
CONDITIONS = frozenset({"requires", "prefer", "when", "decreasing"})
ITEMS = frozenset({"pack", "use", "native", "dtype", "def", "op", "fusion", "rule", "form", "impl"})
LEAVES = frozenset({"NAME", "INT", "FLOAT", "SIZE", "STRING", "true", "false", "none", "_"})
OPERATORS = {
    "*": "a product", "@": "a product", "/": "a quotient", "//": "a quotient", "%": "a remainder", "+": "a sum",
    "-": "a difference", "CMP": "a comparison", "in": "a comparison", "and": "a condition", "or": "a condition",
    "[": "an index", "DOTNAME": "an attribute", "DOTINT": "a result by position",
}  # fmt: skip
_MAX_HINT = 200  # characters
_SHOWN = 40  # characters of the source in a message


@frozen
class Trouble:
    """`tokens[index]` is accepted by no rule; `accepted` are the kinds that would have been."""

    file: str
    tokens: Sequence[Token]
    index: int
    accepted: frozenset[str]
    openers: Mapping[int, int]  # closing bracket -> its opening one, by index

    @classmethod
    def of(cls, file: str, tokens: Sequence[Token], index: int, accepted: frozenset[str]) -> Trouble:
        """The trouble with `tokens[index]`."""
        return cls(file, tokens, index, accepted, _pairs(tokens))

    @property
    def at(self) -> Token:
        """The token that is not accepted."""
        return self.tokens[self.index]

    def near(self, distance: int) -> Token:
        """The token so many places after `at` (before it: negative); an END token where there is none."""
        index = self.index + distance
        return self.tokens[index] if 0 <= index < len(self.tokens) else Token(END, "", 0, 0, 0)

    @property
    def head(self) -> str:
        """The word that the item starts with; "" for a bare rule."""
        return self.tokens[0].kind if self.tokens[0].kind in ITEMS else ""

    def says(
        self, code: str, message: str, hint: str = "", first: Token | None = None, last: Token | None = None
    ) -> Diagnostic:
        """A diagnostic at `first` to `last`, or at the token that is not accepted; without a hint too long to read."""
        return Diagnostic(
            code, message, span(self.file, first or self.at, last), hint if len(hint) <= _MAX_HINT else ""
        )

    def opened(self) -> list[int]:
        """Indices of the brackets that are open at the stop, innermost last."""
        return open_brackets(self.tokens[: self.index])

    def clause_start(self) -> int | None:
        """Index of the keyword of the clause that the stop is in; None where it is in none."""
        depth_0 = self._outside_brackets(0, self.index)
        return next((i for i in reversed(depth_0) if self.tokens[i].kind in CLAUSES), None)

    def clause(self) -> str:
        """The keyword of the clause that the stop is in, or ""."""
        start = self.clause_start()
        return "" if start is None else self.tokens[start].kind

    def element_start(self) -> int:
        """Where the part of the list (of arguments, conditions, ...) that the stop is in begins."""
        inside = self.opened()
        begin = inside[-1] if inside else self.clause_start()
        begin = -1 if begin is None else begin
        places = self._outside_brackets(begin + 1, self.index)
        return next((i + 1 for i in reversed(places) if self.tokens[i].kind in (",", "=>", ":", ";")), begin + 1)

    def element_end(self, start: int) -> int:
        """Where the part that begins at `start` ends (exclusive): a comma, a closing bracket, a clause, `=>`, end."""
        depth = 0
        for i in range(start, len(self.tokens)):
            kind = self.tokens[i].kind
            depth += (kind in CLOSER) - (kind in CLOSER.values())
            if depth < 0 or (depth == 0 and (kind in (",", "=>", ";", END) or kind in CLAUSES)):
                return i
        return len(self.tokens) - 1

    def opener_of(self, closer: int) -> int:
        """The index of the bracket that `tokens[closer]` closes; -1 where there is none."""
        return self.openers.get(closer, -1)

    def closer_of(self, opener: int) -> int:
        """The index of the bracket that closes `tokens[opener]`, or of the last token."""
        depth = 0
        for i in range(opener, len(self.tokens)):
            depth += (self.tokens[i].kind in CLOSER) - (self.tokens[i].kind in CLOSER.values())
            if depth == 0:
                return i
        return len(self.tokens) - 1

    def text(self, start: int, end: int) -> str:
        """The source of `tokens[start:end]` on one line."""
        words: list[str] = []
        for i in range(start, end):
            token = self.tokens[i]
            if i > start and (token.line, token.column) != (self.tokens[i - 1].line, self.tokens[i - 1].end_column):
                words.append(" ")
            words.append(token.text)
        return "".join(words)

    def short(self, start: int, end: int) -> str:
        """`text`, cut where it is long."""
        text = self.text(start, end)
        return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

    def _outside_brackets(self, start: int, end: int) -> list[int]:
        """Indices from `start` to `end` that no bracket opened after `start` encloses."""
        found: list[int] = []
        depth = 0
        for i in range(start, end):
            kind = self.tokens[i].kind
            depth = max(0, depth - (kind in CLOSER.values()))
            if depth == 0:
                found.append(i)
            depth += kind in CLOSER
        return found


def open_brackets(tokens: Sequence[Token]) -> list[int]:
    """Indices of the brackets that are open behind `tokens`, innermost last; a closing one of any kind closes one."""
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind in CLOSER:
            opened.append(index)
        elif token.kind in CLOSER.values():
            del opened[-1:]
    return opened


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    opened: list[int] = []
    pairs: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.kind in CLOSER:
            opened.append(index)
        elif token.kind in CLOSER.values() and opened:
            pairs[index] = opened.pop()
    return pairs


def is_reserved(token: Token) -> bool:
    """Is it a word that cannot be a name?"""
    return token.text in KEYWORDS
