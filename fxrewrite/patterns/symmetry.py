"""May two names of a pattern be exchanged? Then one order of `a + b` is enough: the other is the same match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from fxrewrite.dsl.core import Call, Operand, Prim
from fxrewrite.patterns.values import COMMUTATIVE

Swaps = Mapping[str, tuple[int, int]]  # a declared op -> the positions of two operands that may be exchanged


def interchangeable(parts: Any, a: str, b: str, swaps: Swaps) -> bool:
    """Are terms and guards the same when `a` and `b` change places, the types of names left aside?"""
    numbers: dict[Any, int] = {}
    return _number(parts, {}, swaps, numbers, {}) == _number(parts, {a: b, b: a}, swaps, numbers, {})


def _number(x: Any, names: dict[str, str], swaps: Swaps, numbers: dict[Any, int], done: dict[int, int]) -> int:
    """A number for `x` with its operands renamed: equal ones have the same. Operands of `+` have no order."""
    found = done.get(id(x))
    if found is not None:
        return found

    def number(y: Any) -> int:
        return _number(y, names, swaps, numbers, done)

    if isinstance(x, Operand):
        key: tuple[Any, ...] = (Operand, names.get(x.name, x.name))
    elif isinstance(x, Prim) and x.op in COMMUTATIVE:
        key = (Prim, x.op, *sorted(map(number, x.args)))
    elif isinstance(x, Call) and x.op in swaps:
        j, k = swaps[x.op]
        rest = [a for i, a in enumerate(x.args) if i not in (j, k)]
        key = (Call, x.op, *sorted(map(number, (x.args[j], x.args[k]))), *map(number, rest), number(x.attrs))
    elif isinstance(x, tuple):
        key = (tuple, *map(number, x))
    elif attrs.has(type(x)):
        key = (type(x), *(number(getattr(x, f.name)) for f in attrs.fields(type(x)) if f.eq))
    else:
        key = (type(x), repr(x))
    done[id(x)] = numbers.setdefault(key, len(numbers))
    return done[id(x)]
