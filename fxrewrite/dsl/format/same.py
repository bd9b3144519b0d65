"""Are two syntax trees the same? Places are no part of a tree; whether a number is whole is."""

from __future__ import annotations

from typing import Any, cast

import attrs

from fxrewrite.dsl import syntax


def same(first: Any, second: Any) -> bool:
    """Do two nodes, tuples of nodes, or values say the same thing?"""
    todo: list[tuple[Any, Any]] = [(first, second)]
    while todo:
        one, other = todo.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, syntax.Node):
            names = [f.name for f in attrs.fields(type(one)) if f.eq]
            todo += [(getattr(one, name), getattr(other, name)) for name in names]
        elif isinstance(one, tuple):
            ones, others = cast(tuple[Any, ...], one), cast(tuple[Any, ...], other)
            if len(ones) != len(others):
                return False
            todo += zip(ones, others, strict=True)
        elif one != other:
            return False
    return True
