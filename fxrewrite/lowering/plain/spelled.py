"""A spelling of a rule's left side as data: a graph that nobody runs, and what a match of it binds."""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, field
from torch.fx import Graph, Node

from fxrewrite.dsl.core import RuleDef
from fxrewrite.lowering.plain.choices import Choose
from fxrewrite.lowering.plain.shapes import Val
from fxrewrite.lowering.plain.sizes import Free

aten = torch.ops.aten


class NeedsLiteral(Exception):
    """Arithmetic on an attribute that is captured: it must be a number."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


class Captured:
    """The value of a float attribute that a match binds."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def _refuse(self, *others: Any) -> Any:
        raise NeedsLiteral(self.name)

    __neg__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __mod__ = _refuse


@define(eq=False)
class Store:
    """The nodes of all spellings of a rule; equal ones are one."""

    graph: Graph = field(factory=Graph)
    made: dict[Any, Node] = field(factory=dict)

    def placeholder(self, name: str, val: Val | None) -> Node:
        """An operand, or a number that is captured."""
        key = (name, val)
        if key not in self.made:
            node = self.made[key] = self.graph.placeholder(name)
            if val is not None:
                node.meta["val"] = val
        return self.made[key]

    def call(self, val: Val, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A torch op."""
        key = (target, repr(args), repr(kwargs))
        if key not in self.made:
            node = self.made[key] = self.graph.call_function(target, args, kwargs)
            node.meta["val"] = val if target is not aten.scalar_tensor.default else Val(val.dtype, ())
        return self.made[key]


@define(eq=False)
class Spelled:
    """`outputs` of the rule, nodes of `store`. `operands`: by name, a node, or None for `none`. `attributes`: by name;
    a `Captured` or a `Free` is bound by the match. `fixed`: what a form pins of captured ones. `assumed`: comparisons
    that must hold. Every node has a `Val` in `meta["val"]`; `numbers`, which are captured, are placeholders without.
    """

    rule: RuleDef
    choose: Choose
    store: Store
    outputs: list[Node] = field(factory=list)
    operands: dict[str, Node | None] = field(factory=dict)
    attributes: dict[str, Any] = field(factory=dict)
    fixed: dict[str, Any] = field(factory=dict)
    assumed: list[tuple[str, Any, Any]] = field(factory=list)
    leading: dict[str, tuple[Free, ...]] = field(factory=dict)  # the axes that each `*B` has here
    served: bool = False  # by the provider that was named
    numbers: dict[str, Node] = field(factory=dict)

    def pin(self, name: str, pinned: Any) -> bool:
        """May a captured attribute have this value?"""
        return self.fixed.setdefault(name, pinned) == pinned
