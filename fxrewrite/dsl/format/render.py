"""Pieces as lines: a group stays on its line where it fits, else its breaks end lines."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field, frozen

from fxrewrite.dsl.format.pieces import Break, Close, Newline, Open, Piece, Remark

WIDTH = 120  # columns of a line; what has no break may be longer, and remarks count for nothing
MAX_INDENT = WIDTH // 2  # deeper nesting shows no more, or a text would grow with the square of its depth


@frozen
class _Group:
    indent: int
    mode: str  # as in `Open`, or "flat"


@define
class _Lines:
    pieces: Sequence[Piece]
    written: list[str] = field(factory=list[str])
    column: int = 0
    pending: bool = False  # the line ended, and its indentation is not written: nothing may follow
    groups: list[_Group] = field(factory=lambda: [_Group(0, "always")])

    def write(self, text: str) -> None:
        if self.pending and text:
            self.written.append(" " * self.column)
            self.pending = False
        self.written.append(text)
        self.column += len(text)

    def end_line(self, indent: int, empty: bool = False) -> None:
        self.written.append("\n\n" if empty else "\n")
        self.column = indent
        self.pending = True

    def open(self, index: int, group: Open) -> None:
        around = self.groups[-1]
        indent = min(self.column if group.align else around.indent + group.indent, MAX_INDENT)
        flat = around.mode == "flat" or (group.mode != "always" and self.fits(index))
        self.groups.append(_Group(indent, "flat" if flat else group.mode))

    def break_(self, index: int, piece: Break) -> None:
        group = self.groups[-1]
        if group.mode == "flat" or (group.mode == "fill" and self.fits(index)):
            self.write(piece.flat)
        else:
            self.end_line(group.indent, piece.empty)

    def fits(self, index: int) -> bool:
        """Does the line hold the pieces from here to the next break that may end it?"""
        room = WIDTH - self.column
        depth = 0
        for i in range(index, len(self.pieces)):
            piece = self.pieces[i]
            if isinstance(piece, str):
                room -= len(piece)
            elif isinstance(piece, Open):
                if piece.mode == "always":
                    return False
                depth += 1
            elif isinstance(piece, Close):
                depth -= 1
            elif isinstance(piece, Newline):
                return depth <= 0
            elif isinstance(piece, Break):
                if depth <= 0 and i > index:
                    return True
                room -= len(piece.flat)
            if room < 0:
                return False
        return True


def render(pieces: Sequence[Piece]) -> str:
    """The text of pieces without `Part` and `Anchor`. It takes time in proportion to its length."""
    lines = _Lines(pieces)
    for index, piece in enumerate(pieces):
        match piece:
            case str():
                lines.write(piece)
            case Remark():
                lines.write(piece.text if lines.pending else "  " + piece.text)
            case Open():
                lines.open(index, piece)
            case Close():
                lines.groups.pop()
            case Newline():
                lines.end_line(lines.groups[-2 if piece.outer else -1].indent, piece.empty)
            case Break():
                lines.break_(index, piece)
            case _:
                raise TypeError(f"{piece!r} is not laid out yet")
    return "".join(lines.written)


def flat_width(pieces: Sequence[Piece]) -> int:
    """How many columns the pieces take on one line."""
    return sum(len(p) if isinstance(p, str) else len(p.flat) if isinstance(p, Break) else 0 for p in pieces)
