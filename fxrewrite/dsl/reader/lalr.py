"""Run the table over tokens. No recursion, so depth is a number that is counted and never a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, frozen

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


@frozen
class Language:
    """A table, the function for each `Reduction.build`, those of them that deepen an expression, and the limit.

    Brackets around an expression deepen it too.
    """

    table: Table
    builds: Mapping[str, Build]
    deepening: frozenset[str]
    max_depth: int


def run(language: Language, tokens: Sequence[Token], file: str) -> Any:
    """The value of an item, whose last token is END. Raises `Stop`, `TooDeep`, and what a building function raises."""
    table = language.table
    stack = _Stack(language, file, [table.first], [None], [tokens[0]], [0])
    previous = tokens[0]
    for index, token in enumerate(tokens):
        kind = token.kind
        while (move := table.actions[stack.states[-1]].get(kind)) is None or move < 0:
            if move is None:
                raise Stop(index, accepted(table, states_after(table, tokens[:index])))
            stack.reduce(table.reductions[~move], previous)
            if kind == END and stack.states[-1] == table.last:
                return stack.values[-1]
        stack.states.append(move)
        stack.values.append(token)
        stack.firsts.append(token)
        stack.depths.append(0)
        previous = token
    raise AssertionError("the last token is END")


@define
class _Stack:
    """What is read and not yet part of something larger: for each symbol its state, value, first token and depth."""

    language: Language
    file: str
    states: list[int]
    values: list[Any]
    firsts: list[Token]
    depths: list[int]

    def reduce(self, reduction: Reduction, last: Token) -> None:
        """Replace the symbols of a complete rule, which ends with `last`, by what it makes."""
        length, states = reduction.length, self.states
        if length > 1 or reduction.build is not None:
            depth = self._depth(reduction)
            values = self.values[-length:]
            value = _value(reduction, values, self.language.builds, self.file, self.firsts[-length], last)
            del self.values[-length:], self.depths[-length:], self.firsts[len(self.firsts) - length + 1 :]
            self.values.append(value)
            self.depths.append(depth)
        del states[-length:]
        states.append(self.language.table.gotos[states[-1]][reduction.origin])

    def _depth(self, reduction: Reduction) -> int:
        length, build = reduction.length, reduction.build
        depth = max(self.depths[-length:])
        if build is None or build in self.language.deepening:
            depth += 1
            if depth > self.language.max_depth:
                raise TooDeep(_mark(self.values[-length:], self.firsts[-length]))
        return depth


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


def _mark(values: list[Any], first: Token) -> Token:
    """The operator, bracket or attribute among the symbols of an expression."""
    return next((value for value in values if isinstance(value, Token)), first)
