"""What a text is laid out from: words, places where a line may break, groups of these, and remarks.

A node of the syntax tree becomes a flat list of pieces, in which `Part` stands for a node below it. Nothing here or in
the files beside it recurses, so the depth of a tree is no matter.
"""

from __future__ import annotations

from attrs import frozen

from fxrewrite.dsl.syntax import Node

Position = tuple[int, int]  # line and column of a source, from 1
INDENT = 2  # spaces


@frozen
class Break:
    """Where the line may end; else `flat` stands here.

    `before` is the source position of what follows: remarks that stand before it are written here. Where it `keeps`
    them, an empty line of the source lives, as `empty`, if the line ends here.
    """

    flat: str = " "
    before: Position | None = None
    keeps: bool = False
    empty: bool = False


@frozen
class Anchor:
    """Where remarks before the source position `before` are written, if there are any; else nothing is here.

    What follows stands on a line of its own then, indented as the group around this one.
    """

    before: Position | None = None


@frozen
class Newline:
    """Where the line ends, for a remark or behind one; `empty` leaves an empty line. `outer`: see `Anchor`."""

    empty: bool = False
    outer: bool = False


@frozen
class Remark:
    """The text of a comment, with its `#`: on a line alone, or the end of one."""

    text: str


@frozen
class Open:
    """A group begins. Its lines are indented by `indent` more than those of the group around it, or by the column
    where it begins (`align`).

    `mode` says what breaks where the group does not fit in one line: all of its breaks ("all") or those that must
    ("fill"). In a group with the mode "always" they break even where it fits.
    """

    mode: str = "all"
    indent: int = 0
    align: bool = False


@frozen
class Close:
    """The group ends."""


@frozen
class Part:
    """A node that pieces are still to be made of.

    `level` is how tightly an expression has to bind here (`expressions.binding`); one that binds less gets brackets.
    """

    node: Node
    level: int = 0


Piece = str | Break | Anchor | Newline | Remark | Open | Close | Part
CLOSE = Close()
