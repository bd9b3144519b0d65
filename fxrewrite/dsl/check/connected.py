"""The outputs of a left side share a value: else it would match any two places of a graph."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item
from fxrewrite.dsl.check.terms import operands_of, walk
from fxrewrite.dsl.core import Call, Each, Operand, Prim, Term, TorchCall


def connected(texts: tuple[Any, ...], terms: tuple[Term, ...], named: tuple[tuple[str, Term], ...], item: Item) -> None:
    """RW207 where the outputs, and the parts that the text names, are two or more groups without a common value."""
    if len(terms) == 1 and not named:
        return
    groups: list[set[Any]] = []
    for term in terms:
        groups = _joined(groups, term)
    if len(groups) > 1:
        message = "the outputs share no value: this matches any two places of a graph"
        raise Problem("RW207", message, texts[-1].span, "write one item for each")
    for name, term in named:
        if len(_joined(groups, term)) > 1:
            place = item.places.word(item.span, name)
            message = f"`{name}` shares no value with the outputs: it would stand anywhere in a graph"
            raise Problem("RW207", message, place, "remove it, or use it")


def anchored(each: Each, text: Any) -> None:
    """RW207 where the values of an output `*y` have nothing in common: it would take all such values of a graph."""
    if all(o.name in each.lists or o.star for o in operands_of(each.body)):
        message = f"the values of `*{text.name}` share no value: these are all of their kind in a graph"
        raise Problem("RW207", message, text.span, "use in each a value that is one for all: `each y = f(t, b)`")


def _joined(groups: list[set[Any]], term: Term) -> list[set[Any]]:
    """The groups with the values of one more term: those that it touches become one."""
    mine = {t for t in walk(term, conditions=False) if isinstance(t, Operand | Prim | Call | TorchCall)}
    return [g for g in groups if not g & mine] + [mine.union(*(g for g in groups if g & mine))]
