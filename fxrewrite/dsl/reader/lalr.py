"""Run the table over tokens. No recursion, so depth is a number that is counted and never a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxrewrite.dsl.reader.table import Reduction, Table
from fxrewrite.dsl.reader.tokens import END, Token, span
from fxrewrite.dsl.syntax import Span

Build = Callable[[list[Any], Span], Any]


class Stop(Exception):
    """No rule accepts `tokens[index]`; `accepted` are the kinds of token that could have stood there."""

    def __init__(self, index: int, accepted: frozenset[str]):
        super().__init__(index)
        self.index = index
        self.accepted = accepted


class TooDeep(Exception):
    """An expression nests deeper than the limit; `token` is the bracket, operator or attribute that did it."""

    def __init__(self, token: Token):
        super().__init__(token.text)
        self.token = token


def run(
    table: Table, tokens: Sequence[Token], builds: Mapping[str, Build], deepening: frozenset[str], limit: int, file: str
) -> Any:
    """The value of an item.

    `builds` has a function of the children and the place for each `Reduction.build`; those in `deepening` add one to
    the depth of what they hold, and so do brackets. Raises `Stop`, `TooDeep`, and whatever a function of `builds` raises.
    """
    actions, gotos, reductions = table.actions, table.gotos, table.reductions
    states, firsts, depths = [table.first], [tokens[0]], [0]
    values: list[Any] = [None]
    previous = tokens[0]
    for index, token in enumerate(tokens):
        kind = token.kind
        while (move := actions[states[-1]].get(kind)) is None or move < 0:
            if move is None:
                raise Stop(index, accepted(table, states_after(table, tokens[:index])))
            reduction = reductions[~move]
            length = reduction.length
            if length > 1 or reduction.build is not None:
                depth = max(depths[-length:])
                if reduction.build is None or reduction.build in deepening:
                    depth += 1
                    if depth > limit:
                        raise TooDeep(_mark(values[-length:], firsts[-length:]))
                value = _value(reduction, values[-length:], builds, file, firsts[-length], previous)
                del values[-length:], depths[-length:], states[-length:], firsts[len(firsts) - length + 1 :]
                values.append(value)
                depths.append(depth)
            else:
                del states[-1]
            states.append(gotos[states[-1]][reduction.origin])
            if kind == END and states[-1] == table.last:
                return values[-1]
        states.append(move)
        values.append(token)
        firsts.append(token)
        depths.append(0)
        previous = token
    raise AssertionError("the last token is END")


def states_after(table: Table, tokens: Sequence[Token]) -> list[int]:
    """The states on the stack when `tokens` are shifted and nothing more is known.

    A token that is refused may have reduced what it follows first, and then less would seem accepted: rows are shared.
    """
    states = [table.first]
    for token in tokens:
        while (move := table.actions[states[-1]][token.kind]) < 0:
            reduction = table.reductions[~move]
            del states[-reduction.length :]
            states.append(table.gotos[states[-1]][reduction.origin])
        states.append(move)
    return states


def accepted(table: Table, states: Sequence[int]) -> frozenset[str]:
    """The kinds of token that can be shifted on this stack, or end the item; LALR rows alone name some that cannot."""
    return frozenset(kind for kind in table.actions[states[-1]] if _shifts(table, list(states), kind))


def _shifts(table: Table, states: list[int], kind: str) -> bool:
    while (move := table.actions[states[-1]].get(kind)) is not None:
        if move >= 0:
            return True
        reduction = table.reductions[~move]
        del states[-reduction.length :]
        states.append(table.gotos[states[-1]][reduction.origin])
        if states[-1] == table.last:
            return kind == END
    return False


def _value(
    reduction: Reduction, values: list[Any], builds: Mapping[str, Build], file: str, first: Token, last: Token
) -> Any:
    children: list[Any] = []
    for take in reduction.takes:
        if take is None:
            children.append(None)
        elif take >= 0:
            children.append(values[take])
        elif children:
            children += values[~take]
        else:
            # A list that grows at its end is handed on, not copied: a long one takes linear time.
            children = values[~take]
    if reduction.build is None:
        return children[0]
    if not reduction.build:
        return children
    return builds[reduction.build](children, span(file, first, last))


def _mark(values: list[Any], firsts: list[Token]) -> Token:
    """The operator, bracket or attribute among the symbols of an expression."""
    return next((value for value in values if isinstance(value, Token)), firsts[0])
