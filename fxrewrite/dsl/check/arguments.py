"""The positional arguments of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import names
from fxrewrite.dsl.check.scope import Listed, Scope, Value

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


def spread(elab: Elaborator, items: tuple[Any, ...], scope: Scope) -> list[Value]:
    """List items and positional arguments, `*name` spread."""
    out: list[Value] = []
    for i in items:
        if isinstance(i, syntax.Splat):
            value = names.lookup(elab, i.name, i, scope.child(spread=True))
            out += value.values if isinstance(value, Listed) else (value,)
        else:
            out.append(elab.one(i, scope))
    return out


def positional(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> list[Value]:
    """Positional arguments, spread; `first` stands for `e.args[0]` where it is given."""
    if first is None:
        return spread(elab, e.args, scope)
    return [first, *spread(elab, e.args[1:], scope)]


def texts(e: syntax.Call | syntax.BoundCall, count: int) -> list[Any]:
    """The text of each of `count` positional arguments: that of a spread list for each of its elements."""
    if len(e.args) == count:
        return list(e.args)
    return [*e.args[:count], *[e.args[-1] if e.args else e] * (count - len(e.args))]
