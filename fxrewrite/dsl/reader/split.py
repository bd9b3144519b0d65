"""A file cut into items at column 0, before anything is parsed, so that a broken item hides no other."""

from __future__ import annotations

import re

from attrs import define, field

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.syntax import Span

_BLANKS = " \t\r"
_CLAUSES = "when|where|requires|prefer|decreasing|sample|contract|property|ref|level|flag|stage|after|over|keep|each"
_CONTINUATION = re.compile(rf"(?:=>|\|>|->|[)\]}}=,*+/%@|<>!;:.?]|(?:{_CLAUSES}|and|or|in)(?!\w))")
_BINDING = re.compile(r"(?:keep|each)\s.*=>")
# `form f.name ...` is an item, `form name ...` a clause.
_CLAUSE_OF_OP = re.compile(r"(?:form|impl)(?=\s+\w+(?!\w)(?!\s*\.))")
_DOC_PLACE = "a doc comment stands directly above its item"
_WORD = re.compile(r"[a-z]+")
_ITEM_WORDS = frozenset({"pack", "use", "native", "dtype", "def", "op", "fusion", "form", "impl"})


@define
class Chunk:
    """The text `source[start:end]` of one item, its first line, its documentation, and what is already wrong with it.

    `stray` is true for text that stands where no item can: it always has a `trouble`.
    """

    line: int
    start: int
    end: int
    doc: str = ""
    trouble: Diagnostic | None = None
    stray: bool = False


def split(source: str, file: str) -> tuple[list[Chunk], list[Diagnostic]]:
    """The items of `source` in order, and what is wrong outside of all items.

    A line at column 0 that can only be a continuation (`=> ...`, `requires ...`) spoils the item above it,
    which without it would mean something else.
    """
    splitter = _Splitter(source, file)
    start = 0
    for number, line in enumerate(source.split("\n"), 1):
        splitter.feed(number, start, line)
        start += len(line) + 1
    splitter.lose_doc()
    return splitter.chunks, splitter.loose


@define
class _Splitter:
    source: str
    file: str
    chunks: list[Chunk] = field(factory=list[Chunk])
    loose: list[Diagnostic] = field(factory=list[Diagnostic])
    doc: list[str] = field(factory=list[str])
    doc_line: int = 0

    def feed(self, number: int, start: int, line: str) -> None:
        """Take in a line, which starts at offset `start`."""
        bare = line.strip(_BLANKS)
        if not bare:
            self.lose_doc()
        elif bare.startswith("#") and not bare.startswith("##"):
            pass
        elif line[0] in _BLANKS:
            self._indented(number, start, line)
        elif line.startswith("##"):
            self.doc_line = self.doc_line if self.doc else number
            self.doc.append(line[2:].removeprefix(" ").rstrip(_BLANKS))
        else:
            self._at_column_0(number, start, line)
        if not line.isascii():
            self._not_ascii(number, line)

    def lose_doc(self) -> None:
        """Report doc lines that no item follows."""
        if self.doc:
            self.loose.append(
                Diagnostic("RW121", _DOC_PLACE, self._place(self.doc_line, 1, 3), "use `#` for other comments")
            )
            self.doc = []

    def _indented(self, number: int, start: int, line: str) -> None:
        indent = line[: len(line) - len(line.lstrip(_BLANKS))]
        if not self.chunks:
            trouble = self._continues_nothing(number, line, len(indent) + 1, len(indent) + 2)
            self.chunks.append(Chunk(number, start, start, trouble=trouble, stray=True))
        if self.doc:
            self._blame(Diagnostic("RW121", _DOC_PLACE, self._place(self.doc_line, 1, 3), "use `#` inside one"))
            self.doc = []
        if "\t" in indent:
            column = indent.index("\t") + 1
            self._blame(
                Diagnostic("RW112", "indent with spaces, not with a tab", self._place(number, column, column + 1))
            )
        self.chunks[-1].end = start + len(line)

    def _at_column_0(self, number: int, start: int, line: str) -> None:
        bound = _BINDING.match(line)  # `keep n = f(x) => y`: no continuation of anything
        found = (
            None
            if bound
            else _CONTINUATION.match(line) or (_CLAUSE_OF_OP.match(line) if self._above() == "op" else None)
        )
        if not found:
            self.chunks.append(Chunk(number, start, start + len(line), "\n".join(self.doc)))
        elif self._above():
            hint = _comment(line) or f"indent it to continue the {self._above()} of line {self.chunks[-1].line}"
            place = self._place(number, 1, found.end() + 1)
            self._blame(Diagnostic("RW111", "this line starts a new item", place, hint))
            self.chunks[-1].end = start + len(line)
        else:
            trouble = self._continues_nothing(number, line, 1, found.end() + 1)
            self.chunks.append(Chunk(number, start, start + len(line), trouble=trouble, stray=True))
        self.doc = []

    def _above(self) -> str:
        """What the last item is: "rule", "op", ...; "" where there is none."""
        if not self.chunks or self.chunks[-1].stray:
            return ""
        word = _WORD.match(self.source, self.chunks[-1].start)
        return word[0] if word and word[0] in _ITEM_WORDS else "rule"

    def _continues_nothing(self, number: int, line: str, column: int, end: int) -> Diagnostic:
        message = "this line continues an item, and there is none above"
        return Diagnostic("RW111", message, self._place(number, column, end), _comment(line))

    def _not_ascii(self, number: int, line: str) -> None:
        column = next(i for i, letter in enumerate(line, 1) if not letter.isascii())
        letter = line[column - 1]
        message, hint = f"the text of a file is ASCII; found U+{ord(letter):04X}", "write it in ASCII letters"
        if letter == "\ufeff" and (number, column) == (1, 1):
            message, hint = "the file begins with a byte order mark", "save it as UTF-8 without BOM"
        trouble = Diagnostic("RW129", message, self._place(number, column, column + 1), hint)
        if line.startswith("#") or not self.chunks:
            self.loose.append(trouble)
        else:
            self._blame(trouble)

    def _blame(self, trouble: Diagnostic) -> None:
        """Mark the last item as broken; the first trouble is the one that is told."""
        self.chunks[-1].trouble = self.chunks[-1].trouble or trouble

    def _place(self, line: int, column: int, end_column: int) -> Span:
        return Span(self.file, line, column, line, end_column)


def _comment(line: str) -> str:
    """A hint for a comment of another language."""
    return "a comment begins with `#`" if line.lstrip(_BLANKS).startswith(("//", "/*")) else ""
