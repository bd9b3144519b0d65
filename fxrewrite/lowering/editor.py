"""New nodes of one graph, each with its fake value and metadata, and how they are taken back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import copy
from typing import Any

import sympy
import torch
from attrs import define, field
from torch.fx import Graph, Node

from fxrewrite.lowering import fakes
from fxrewrite.lowering.plan import Refusal, live
from fxrewrite.patterns.values import Dims, Table, Value, dims_of
from fxrewrite.patterns.writers import WRITERS, Dialect

aten = torch.ops.aten
# metadata that a new node inherits
COPIED = ("stack_trace", "nn_module_stack", "custom", "source_fn_stack", "from_node", "seq_nr")


@define(eq=False)
class Editor:
    """Writes nodes into one graph. `put` is where the next node goes; `made` is what can be taken back."""

    graph: Graph
    table: Table
    dialect: Dialect
    fake_mode: Any
    truth: Callable[[Any], bool | None] | None = None
    made: list[Node] = field(factory=list)
    cursor: Node | None = None

    def call(self, target: Any, *args: Any, val: Any = None, like: Node | None = None, **kwargs: Any) -> Node:
        """A new node behind the cursor. `val`: its fake value where it is known; else the op's fake kernel gives it."""
        assert self.cursor is not None
        with self.graph.inserting_after(self.cursor):
            node = self.graph.call_function(target, args, kwargs)
        self.cursor = node
        self.made.append(node)
        if self.table.writes:
            self.table.writes.note(node)
        if self.table.effects is not None:
            self.table.effects.note(node)
        vals, kwvals = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        if val is None:
            if target in (operator.getitem, operator.add, operator.mul):
                val = target(*vals)
            else:
                with self.fake_mode:
                    val = target(*vals, **kwvals)
        node.meta["val"] = val
        if isinstance(target, torch._ops.OpOverload) or target is torch.ops.higher_order.auto_functionalized:
            node.meta["eager_input_vals"] = (vals, kwvals)
        if isinstance(val, torch.Tensor):
            node.meta["tensor_meta"] = fakes.metadata(val)
        if like is not None:
            node.meta.update({k: copy(like.meta[k]) for k in COPIED if k in like.meta})  # passes append to `from_node`
        return node

    def node(self, value: Value) -> Node:
        """The node of a value; one that has none is written down."""
        made: dict[Value, Node] = {}
        todo = [value]  # no recursion: a chain of values without nodes may be as long as the graph
        while todo:
            v = todo[-1]
            found = made.get(v) or self._existing(v)
            if found is None:
                if v.op not in WRITERS:
                    raise Refusal("shape", f"a value of {v.op} has no node")
                args = [(made.get(a) or self._existing(a)) if isinstance(a, Value) else a for a in v.args]
                lacking = [a for a, n in zip(v.args, args, strict=True) if isinstance(a, Value) and n is None]
                if lacking:
                    todo += reversed(lacking)
                    continue
                found = self._written(v, args)
            made[v] = found
            todo.pop()
        return made[value]

    def _existing(self, value: Value) -> Node | None:
        """A node that holds a value where the next one goes."""
        assert self.cursor is not None
        ready = (n for n in live(value) if n is self.cursor or n < self.cursor)
        return next((n for n in ready if self.holds(n, value)), None)

    def _written(self, value: Value, args: list[Any]) -> Node:
        """A new node for a value of these arguments."""
        if value.op == "reshape":
            val = fakes.view(args[0].meta["val"], value.shape)
            node = self.call(self.dialect.reshape, args[0], self.sizes(value.shape), val=val)
        else:
            node = WRITERS[value.op](self.dialect, self.call, *args, *value.attrs)
        value.nodes.append(node)
        self.table.of_node[node] = value
        return node

    def holds(self, node: Node, value: Value) -> bool:
        """Does `node` hold `value` where the next node goes?"""
        writes = self.table.writes
        return not writes or (self.cursor is not None and writes.holds(node, value, self.cursor))

    def sizes(self, shape: Dims) -> list[Any]:
        """A shape as arguments of a reshape: numbers, nodes that hold a size here, and one -1 where a size has no
        node.
        """
        found = [s if isinstance(s, int) else self.size_node(s) for s in shape]
        if found.count(None) > 1:
            found = [self.written_size(s) if n is None else n for s, n in zip(shape, found, strict=True)]
        return [-1 if n is None else n for n in found]

    def size_node(self, expr: Any) -> Node | None:
        """A node before the cursor that holds a size."""
        for node in self.table.size_nodes.get(expr, ()):
            if not node._erased and (self.cursor is None or node is self.cursor or node < self.cursor):
                return node
        return None

    def written_size(self, expr: Any) -> Any:
        """A node for a size, made of those that there are."""
        found = int(expr) if isinstance(expr, sympy.Integer) else self.size_node(expr)
        if found is not None:
            return found
        if not isinstance(expr, sympy.Add | sympy.Mul):
            return self.size_of_a_tensor(expr)
        op = operator.add if isinstance(expr, sympy.Add) else operator.mul
        parts = [self.written_size(a) for a in expr.args]
        result = parts[0]
        for part in parts[1:]:
            result = self.call(op, result, part)
        self.table.size_nodes.setdefault(expr, []).append(result)
        return result

    def size_of_a_tensor(self, expr: Any) -> Node:
        """A new node for a size that a tensor before the cursor has."""
        for node in self.graph.nodes:
            val = node.meta.get("val")
            if isinstance(val, torch.Tensor) and expr in dims_of(val):
                result = self.call(aten.sym_size.int, node, dims_of(val).index(expr))
                self.table.size_nodes.setdefault(expr, []).append(result)
                return result
            if node is self.cursor:
                break
        raise Refusal("shape", f"no node has the size {expr}")

    def undo(self, keep: int = 0, cursor: Node | None = None) -> None:
        """Remove everything that was written but the first `keep` nodes; the next one goes behind `cursor`."""
        for node in reversed(self.made[keep:]):
            value = self.table.of_node.pop(node, None)
            if isinstance(value, Value) and node in value.nodes:
                value.nodes.remove(node)
            self.graph.erase_node(node)
        del self.made[keep:]
        self.cursor = cursor
