"""Primitives as nodes of a spelling: the algebra of `spelling.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from fxrewrite.dsl.core import Prim
from fxrewrite.dsl.evaluate import UNKNOWN, Algebra
from fxrewrite.dsl.scalars import FIT
from fxrewrite.lowering.plain.choices import Dead
from fxrewrite.lowering.plain.shapes import Val, val_of
from fxrewrite.lowering.plain.sizes import Free
from fxrewrite.lowering.plain.spelled import Captured, Spelled
from fxrewrite.patterns.dtypes import NAMES, to_graph
from fxrewrite.patterns.writers import INDUCTOR, NOT_WRITTEN, WRITERS

aten = torch.ops.aten
TWO_OPERANDS = ("add", "sub", "mul", "div", "fdiv", "maximum", "minimum")


class Nodes(Algebra):
    """Primitives as nodes; each promotion is a cast of its own, except beside a number."""

    def __init__(self, spelled: Spelled):
        self.spelled = spelled

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Node:
        """A primitive as Inductor's post-grad graphs spell it."""
        if op in NOT_WRITTEN:
            raise Dead(NOT_WRITTEN[op].split(":")[0])
        given = [to_graph(p) for p in params]
        if any(p == FIT for p in given if isinstance(p, int)) and op in ("reshape", "expand"):
            raise Dead("a size that fits")
        if op in TWO_OPERANDS:
            args = self._promoted(args)
        if op == "to" and args[0].meta["val"].dtype == given[0]:
            return args[0]
        vals = [a.meta.get("val", a) if isinstance(a, Node) else a for a in args]
        val = val_of(op, vals, given)
        if op == "mul" and args[0] is args[1] and self.spelled.choose(["pow", "mul"]) == "pow":
            return self.spelled.store.call(val, aten.pow.Tensor_Scalar, args[0], 2)
        return WRITERS[op](INDUCTOR, partial(self.spelled.store.call, val), *args, *given)

    def _promoted(self, args: Sequence[Any]) -> list[Any]:
        vals = [a.meta["val"] for a in args if isinstance(a, Node) and "val" in a.meta]
        if len(vals) < 2 or vals[0].dtype == vals[1].dtype or (vals[0].ndim > 0) != (vals[1].ndim > 0):
            return list(args)
        wide = torch.promote_types(vals[0].dtype, vals[1].dtype)
        return [self._cast(a, wide) for a in args]

    def _cast(self, x: Node, dtype: torch.dtype) -> Node:
        val = x.meta["val"]
        return x if val.dtype == dtype else self.spelled.store.call(Val(dtype, val.shape), INDUCTOR.cast, x, dtype)

    def dtype(self, value: Any) -> str | None:
        """The short name of a dtype."""
        return NAMES[value.meta["val"].dtype] if isinstance(value, Node) and "val" in value.meta else None

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes."""
        return value.meta["val"].shape if isinstance(value, Node) and "val" in value.meta else None

    def number(self, value: Any) -> Any:
        """A number; one that the match binds is a placeholder."""
        if not isinstance(value, Captured):
            return value
        if value.name not in self.spelled.numbers:
            self.spelled.numbers[value.name] = self.spelled.store.placeholder(value.name, None)
        return self.spelled.numbers[value.name]

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of what a match binds: it is assumed, and becomes a part of the check."""
        if op == "==" and left == right:
            return True
        if not all(isinstance(a, int | float | Free | Captured) for a in (left, right)):
            return UNKNOWN
        if (op, left, right) not in self.spelled.assumed:
            self.spelled.assumed.append((op, left, right))
        return True
