"""Schemas of torch ops as data: `aten::gelu(Tensor self, *, str approximate="none") -> Tensor`, parsed.

The text is that of native_functions.yaml and of `str(op._schema)`; `Tensor! x` is `Tensor(a!) x` without a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import field, frozen

_ALIAS = re.compile(r"\((?:\w|\$\d+)+!?(?: -> [^)]*)?\)(?=[?\[ ]|$)|!")  # `(a!)`, `(a -> *)`, `!`

_LETTER = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1|.""", re.S)  # a string, or one letter outside of strings


@frozen
class Argument:
    """One argument. `type` is without alias marks; `default` is its text, None where it must be given.

    `by_name`: it goes by keyword only. `written`: the op writes to it.
    """

    name: str
    type: str
    default: str | None = None
    by_name: bool = False
    written: bool = False


@frozen
class Schema:
    """One overload of an op. `op` is its dotted name without overload; `returns` are types; `text` is the schema."""

    op: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    variadic: bool = False
    text: str = field(eq=False, default="")

    def argument(self, name: str) -> Argument | None:
        """The argument of that name."""
        return next((a for a in self.arguments if a.name == name), None)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """The arguments that may go by position."""
        return tuple(a for a in self.arguments if not a.by_name)


def parse(text: str) -> Schema:
    """`namespace::name.overload(arguments) -> returns`. Raises ValueError where it is something else."""
    head, paren, rest = text.partition("(")
    namespace, colons, name = head.strip().partition("::")
    end = _closing(rest)
    arrow, returned = rest[end + 1 :].lstrip()[:2], rest[end + 1 :].lstrip()[2:].strip()
    if not (paren and colons and name and arrow == "->"):
        raise ValueError(f"no schema: {text}")
    name, _, overload = name.partition(".")
    parts = [" ".join(p.split()) for p in _split(rest[:end])]
    listed = (
        _split(returned[1:-1]) if returned.startswith("(") and _closing(returned[1:]) == len(returned) - 2 else None
    )
    returns = [returned] if listed is None else listed
    return Schema(
        f"{namespace}.{name}", overload, tuple(_arguments(parts)), tuple(r.strip() for r in returns if r.strip()),
        "..." in parts, " ".join(text.split()),
    )  # fmt: skip


def _arguments(parts: list[str]) -> Iterator[Argument]:
    by_name = False
    for part in parts:
        if part == "*":
            by_name = True
        elif part and part != "...":
            declared, has_default, default = part.partition("=")
            type_, _, name = declared.rpartition(" ")
            plain = _ALIAS.sub("", type_)
            yield Argument(name, plain, default if has_default else None, by_name, "!" in type_)


def _closing(text: str) -> int:
    """Where the bracket closes that opened before `text`; the length where it does not."""
    depth = 1
    for at, letter in _outside_strings(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0:
            return at
    return len(text)


def _split(text: str) -> list[str]:
    """The parts between commas outside brackets and strings."""
    parts, start, depth = list[str](), 0, 0
    for at, letter in _outside_strings(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """The letters of `text` that stand in no string, with their places."""
    for found in _LETTER.finditer(text):
        if found[0][0] not in "\"'":
            yield found.start(), found[0]
