"""Sizes of a match: equations that wait for their names, declared shapes as numbers, quick tests of a type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Dtype, DtypeVar, Size
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.scalars import UNKNOWN, size
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.state import UNSET, Slots, State, lookup
from fxrewrite.patterns.values import Value


def settle(s: State, slots: Slots) -> bool:
    """Solve deferred equations for names that are the only open ones, and test the closed ones. False where one is
    wrong.
    """
    progress = True
    while progress and s.deferred:
        progress = False
        find = lookup(slots, s)
        for expr, value in list(s.deferred):
            if not isinstance(expr, Size):
                continue
            solved = dims.solve(expr.dim, partial(known, find), value)
            if solved is None:
                continue
            name, numerator, divisor = solved
            if divisor != 1 and numerator % divisor != 0:
                return False
            at = slots("dim:" + name)
            if s.v[at] is UNSET:
                s.v[at] = numerator // divisor if divisor != 1 else numerator
                s.trail.append(at)
                progress = True
    return True


def known(find: Callable[[str], Any], name: str) -> Any:
    """What a name in a size is bound to: a dim, or an attribute that is a constant; None where it is open."""
    found = find("dim:" + name)
    if found is UNKNOWN:
        found = find(name)
    return None if found is UNKNOWN or type(found) is Value else found


def evaluate_shape(shape: tuple[Any, ...], env: SiteEnv) -> tuple[Any, ...] | None:
    """A declared shape as numbers, or None where a name is open."""
    out: list[Any] = []
    for item in shape:
        found = env.star(item.name) if isinstance(item, Star) else size(item, env)
        if found is UNKNOWN:
            return None
        out += found if isinstance(item, Star) else [found]
    return tuple(out)


def possible_rank(declared: tuple[Any, ...] | None) -> Callable[[tuple[Any, ...]], bool] | None:
    """A quick test that a shape must pass to be a declared one; None where any shape may be."""
    if declared is None:
        return None
    if declared and isinstance(declared[0], Star):
        least = len(declared) - 1
        return (lambda shape: len(shape) >= least) if least else None
    if len(declared) == 1 and declared[0].number == 1:
        return lambda shape: all(d == 1 for d in shape)  # one element, any rank
    count = len(declared)
    return lambda shape: len(shape) == count


def allowed_dtypes(dtype: Any) -> frozenset[Any] | None:
    """The dtypes that a declared one stands for; None where anything may be."""
    if isinstance(dtype, DtypeVar):
        return frozenset(DTYPES[m] for m in dtype.members)
    return frozenset({DTYPES[dtype.name]}) if isinstance(dtype, Dtype) else None
