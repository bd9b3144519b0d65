"""The outputs of a left side share a value: else it would match any two places of a graph."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Call, Operand, Prim, Term, TorchCall


def connected(texts: tuple[Any, ...], terms: tuple[Term, ...], named: tuple[tuple[str, Term], ...], item: Item) -> None:
    """RW207 where the outputs, and the parts that the text names, are two or more groups without a common value."""
    groups: list[set[Any]] = []
    for term in (*terms, *(t for _, t in named)):
        mine = {t for t in walk(term, conditions=False) if isinstance(t, Operand | Prim | Call | TorchCall)}
        touching = [g for g in groups if g & mine]
        groups = [g for g in groups if not g & mine] + [mine.union(*touching)]
    if len(groups) < 2:
        return
    last = texts[-1].span if len(texts) > 1 else item.places.head(item.span)
    message = "the outputs share no value: this matches any two places of a graph" if len(texts) > 1 else (
        "a part under `where` has no value in common with the outputs"
    )  # fmt: skip
    raise Problem("RW207", message, last, "write one item for each")
