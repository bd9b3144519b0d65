"""Built-ins over the ranks of a group: what collectives mean."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Value
from fxrewrite.dsl.check.typing import prim_term
from fxrewrite.dsl.core import Ref, TensorType
from fxrewrite.dsl.syntax import Span


def psum(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`psum(x, g)`: the sum over the ranks of g, on each of them."""
    x = values["x"]
    return prim_term(item, prim, (x,), (_group(values, span),), item.type_of(x), span)


def resized(item: Item, prim: str, values: dict[str, Any], span: Span) -> Value:
    """`pshard(x, d, g)`: this rank's part along d; `pconcat(x, d, g)`: the parts of all ranks along d."""
    x = values["x"]
    type_ = TensorType(item.type_of(x).dtype, None)  # which axis it is, an attribute says
    return prim_term(item, prim, (x,), (values["dim"], _group(values, span)), type_, span)


def _group(values: dict[str, Any], span: Span) -> Ref:
    group = values["group"]
    if not isinstance(group, Ref):
        raise Problem("RW310", "ranks are those of a group", span, "take it as an attribute: `; g: group`")
    return group
