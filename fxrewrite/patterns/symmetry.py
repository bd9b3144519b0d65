"""May two names of a pattern be exchanged? Then one order of `a + b` is enough: the other is the same match."""

from __future__ import annotations

from typing import Any

import attrs

from fxrewrite.dsl.core import Operand, Prim
from fxrewrite.patterns.values import COMMUTATIVE


def interchangeable(parts: Any, a: str, b: str) -> bool:
    """Are terms and guards the same when `a` and `b` change places, the types of names left aside?"""
    numbers: dict[Any, int] = {}
    return _number(parts, {}, numbers, {}) == _number(parts, {a: b, b: a}, numbers, {})


def _number(x: Any, names: dict[str, str], numbers: dict[Any, int], done: dict[int, int]) -> int:
    """A number for `x` with its operands renamed: equal ones have the same. Operands of `+` have no order."""
    found = done.get(id(x))
    if found is not None:
        return found

    def number(y: Any) -> int:
        return _number(y, names, numbers, done)

    if isinstance(x, Operand):
        key: tuple[Any, ...] = (Operand, names.get(x.name, x.name))
    elif isinstance(x, Prim) and x.op in COMMUTATIVE:
        key = (Prim, x.op, *sorted(map(number, x.args)))
    elif isinstance(x, tuple):
        key = (tuple, *map(number, x))
    elif attrs.has(type(x)):
        key = (type(x), *(number(getattr(x, f.name)) for f in attrs.fields(type(x)) if f.eq))
    else:
        key = (type(x), repr(x))
    done[id(x)] = numbers.setdefault(key, len(numbers))
    return done[id(x)]
