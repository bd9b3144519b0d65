"""Writes in a graph that is not functional: which nodes share memory, and which node holds a value when.

After a write every node that shares memory with what was written holds another value: an opaque one, equal to nothing.
A graph without writes costs one look at each op.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch._inductor.pattern_matcher import is_mutation_op
from torch.fx import Graph, Node

from fxrewrite.patterns.values import Table, Value


@cache
def shares_memory(target: torch._ops.OpOverload) -> bool:
    """May a result of this op share memory with an argument?"""
    return any(r.alias_info is not None for r in target._schema.returns)


@cache
def _mutable(target: torch._ops.OpOverload) -> bool:
    return target._schema.is_mutable


def writes(node: Node) -> bool:
    """Does this node write to an argument?"""
    if isinstance(node.target, torch._ops.OpOverload):
        return _mutable(node.target)
    if node.op != "call_function":
        return False
    name = getattr(node.target, "__name__", "")
    return name in ("setitem", "triton_kernel_wrapper_mutation") or is_mutation_op(node)


def written_by(node: Node) -> Iterator[Node]:
    """The arguments that a node writes to: by its schema; all of them where it has none."""
    if not isinstance(node.target, torch._ops.OpOverload):
        yield from node.all_input_nodes
        return
    for i, a in enumerate(node.target._schema.arguments):
        if a.is_write:
            given: Any = node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
            yield from (x for x in (given if isinstance(given, list | tuple) else [given]) if isinstance(x, Node))


def memory(node: Node) -> Node:
    """What a node is a view of, or was written into; a node that lies in memory of its own is itself."""
    source = next(_sources(node), None)
    while source is not None and _is_view(node, source):
        node, source = source, next(_sources(source), None)
    return node


def returned(node: Node) -> bool:
    """Is the node, or a view of it, an output of the graph?"""
    todo, seen = [node], {node}
    while todo:
        n = todo.pop()
        if any(u.op == "output" for u in n.users):
            return True
        views = [u for u in n.users if u not in seen and _is_view(u, n)]
        todo += views
        seen.update(views)
    return False


def _is_view(node: Node, source: Node) -> bool:
    """Does `node` share the memory of `source`, which it reads? An element of a list of views does."""
    return source in _sources(node) and (
        isinstance(node.target, torch._ops.OpOverload)
        or (isinstance(source.target, torch._ops.OpOverload) and shares_memory(source.target))
    )


class Writes:
    """The writes of one graph, in order. `read` follows the reading of values."""

    def __init__(self, graph: Graph):
        self.all: list[Node] = [n for n in graph.nodes if writes(n)]
        self._parent: dict[Node, Node] = {}
        self._members: dict[Node, list[Node]] = {}
        self._at: dict[Node, list[Node]] = {}  # first of a family -> the writes to it
        self._since: dict[Value, Node] = {}
        self._inputs: dict[Any, list[Node]] = {}  # a type -> the inputs that have it
        self._last: Node | None = None  # of what computes
        if self.all:
            self._join_inputs(graph)

    def __bool__(self) -> bool:
        return bool(self.all)

    def read(self, table: Table, node: Node) -> None:
        """Note what `node`, just numbered, shares memory with, and give new values to what it writes."""
        for first in self.note(node):
            for member in self._members.get(first, [first]):
                old = table.of_node.get(member)
                val = member.meta.get("val")
                if old is None or not isinstance(val, torch.Tensor | list | tuple):
                    continue
                tensor = isinstance(val, torch.Tensor)
                value = table.fresh("written", (), (), val.dtype if tensor else None, old.shape if tensor else ())
                value.nodes.append(member)
                self._since[value] = node
                table.of_node[member] = value

    def note(self, node: Node) -> list[Node]:
        """Note what `node` shares memory with and what it writes: the first node of each family that it writes to."""
        if not self.all:
            return []
        for source in _sources(node):
            self._join(source, node)
        firsts = list(dict.fromkeys(map(self._first, written_by(node)))) if writes(node) else []
        if self._last is not None and node < self._last:
            inputs = [n for first in firsts for n in self._members.get(first, [first]) if n.op == "placeholder"]
            for alike in [self._inputs.pop(key, []) for key in dict.fromkeys(map(_type, inputs))]:
                for n in alike:
                    self._join(alike[0], n)
            firsts = list(dict.fromkeys(map(self._first, firsts)))
        for first in firsts:
            self._at.setdefault(first, []).append(node)
        return firsts

    def _join_inputs(self, graph: Graph) -> None:
        """Join inputs and attributes that lie in one memory as far as that is known. One tensor may be given for two
        inputs of a type: these are joined once one is written, but where all writes to inputs stand behind what
        computes, as in a graph that a compiler made functional, nothing depends on it.
        """
        self._last = next((n for n in reversed(graph.nodes) if n.op == "call_function" and not writes(n)), None)
        first: dict[Any, Node] = {}
        for node in (*graph.find_nodes(op="placeholder"), *graph.find_nodes(op="get_attr")):
            self._join(first.setdefault(_place(graph, node), node), node)
            if node.op == "placeholder":
                self._inputs.setdefault(_type(node), []).append(node)

    def _first(self, node: Node) -> Node:
        while node in self._parent:
            node = self._parent[node]
        return node

    def _join(self, a: Node, b: Node) -> None:
        first, other = self._first(a), self._first(b)
        if first is other:
            return
        self._parent[other] = first
        self._members.setdefault(first, [first]).extend(self._members.pop(other, [other]))
        self._at.setdefault(first, []).extend(self._at.pop(other, []))

    # ---- questions

    def to(self, node: Node) -> list[Node]:
        """The writes to the memory of a node."""
        return self._at.get(self._first(node), []) if self.all else []

    def holds(self, node: Node, value: Value, at: Node) -> bool:
        """Does `node` hold `value` when `at` has run?"""
        if not self.all:
            return True
        since = self._since.get(value)
        if since is not None and at < since:
            return False
        later = (w for w in self.to(node) if since is None or since < w)
        return not any(w < at or w is at for w in later)

    def within(self, low: Node, high: Node) -> list[Node]:
        """The writes between two nodes, `high` included."""
        return [w for w in self.all if low < w and not high < w]

    def before(self, node: Node) -> Node | None:
        """The last write before a node."""
        return next((w for w in reversed(self.all) if w < node), None)


def _place(graph: Graph, node: Node) -> Any:
    """What tells the memory of an input or an attribute: two nodes may read one tensor, by one name or by two."""
    held: Any = node.meta.get("val")
    if node.op == "get_attr":
        held = graph.owning_module
        for part in str(node.target).split("."):
            held = getattr(held, part, None)
    known = isinstance(held, torch.Tensor) and torch._C._has_storage(held)
    return held.untyped_storage()._cdata if known else (node.op, node.target)


def _type(node: Node) -> Any:
    """The dtype and shape of an input, None for a size that is not fixed; of what is no tensor the node."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return node
    return val.dtype, tuple(n if isinstance(n, int) else None for n in val.shape)


def _sources(node: Node) -> Iterator[Node]:
    """The arguments whose memory the result of `node` may share."""
    if node.op != "call_function":
        return
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        if getattr(target, "__name__", "") == "getitem":
            yield from node.all_input_nodes
        return
    for i, name in _shared(target):
        given: Any = node.args[i] if i < len(node.args) else node.kwargs.get(name)
        yield from (x for x in (given if isinstance(given, list | tuple) else [given]) if isinstance(x, Node))


@cache
def _shared(target: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """The arguments of an op whose memory its results may share."""
    arguments = target._schema.arguments if shares_memory(target) else ()
    return tuple((i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None)
