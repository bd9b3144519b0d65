"""The LALR(1) table of `grammar.lark`: it lies beside this file as plain JSON, so that reading rules needs no Lark."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from attrs import frozen

STORED = Path(__file__).parent / "table.json"  # written by `python tools/parse_table.py`


@frozen
class Reduction:
    """What happens when a rule of the grammar is complete.

    `length` symbols are replaced by one `origin`. `takes` says which of them the value is made of: `i` takes the value
    of symbol i, `~i` (negative) all values of the list at i, None stands for an optional part that is absent. `build`
    names the function that makes the value; "" leaves a list, and None passes the only value on.
    """

    origin: str
    length: int
    takes: tuple[int | None, ...]
    build: str | None


@frozen
class Table:
    """`actions[state][token kind]`: a state to shift to, or `~i` (negative) to reduce by `reductions[i]`."""

    actions: tuple[dict[str, int], ...]
    gotos: tuple[dict[str, int], ...]
    reductions: tuple[Reduction, ...]
    first: int
    last: int


def language_table() -> Table:
    """The table of `grammar.lark`: the stored one, or one made now where the grammar has been edited since."""
    data = json.loads(STORED.read_text(encoding="utf-8"))
    grammar = grammar_text()
    if data["grammar"] != digest(grammar):
        from fxrewrite.dsl.reader.make_table import make_table

        data = make_table(grammar)
    return load_table(data)


def grammar_text() -> str:
    """The text of `grammar.lark`."""
    return (Path(__file__).parent.parent / "grammar.lark").read_text(encoding="utf-8")


def digest(grammar: str) -> str:
    """What a table says of the grammar that it is of."""
    return hashlib.sha256(grammar.encode()).hexdigest()


def load_table(data: Any) -> Table:
    """The table in `data`, which `make_table` made."""
    reductions = tuple(
        Reduction(origin, length, tuple(takes), build) for origin, length, takes, build in data["reductions"]
    )
    return Table(tuple(data["actions"]), tuple(data["gotos"]), reductions, data["first"], data["last"])
