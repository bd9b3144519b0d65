"""Rules of the stage `canonicalize`, before anything is recognised: no-op views, casts and clones go, chains fold.

Here a value is one node, read without the normal form (which would make most of these rules equations of a thing with
itself). One forward pass: what a node is replaced by is what the nodes behind it see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field
from torch.fx import Graph, Node

from fxrewrite.dsl.core import UNKNOWN as UNKNOWN_TYPE
from fxrewrite.dsl.core import Operand, Prim, RuleDef
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.failures import Failures, failed_event
from fxrewrite.lowering.plan import Allows, Output, Plan, Refusal, dying
from fxrewrite.lowering.replace import fire
from fxrewrite.patterns.dialect import CASTS, READERS, RESHAPES, TRANSPOSES, base
from fxrewrite.patterns.events import Event, source_line
from fxrewrite.patterns.forms import MissingOp, Off, Pattern, compile_pattern
from fxrewrite.patterns.functionalized import EMPTY
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.matcher import SchemaMismatch
from fxrewrite.patterns.state import State, lookup
from fxrewrite.patterns.values import Dims, Table, Value, dims_of, size
from fxrewrite.patterns.views import Found
from fxrewrite.patterns.writers import WRITERS
from fxrewrite.patterns.writes import Writes, memory, returned, shares_memory

aten = torch.ops.aten
PRIMS = ("reshape", "expand", "permute", "slice", "slice_scatter", "to", "clone")  # what clean-up looks at


class RawTable(Table):
    """A value for each node, as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.of_node = _Leaves()

    def cons(self, op: str, args: tuple[Any, ...], attrs: tuple[Any, ...], dtype: Any, shape: Dims) -> Value:
        """A new value, equal to no other."""
        return Value(0, op, args, attrs, dtype, shape)

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        """A cast, also to the own dtype."""
        return self.cons("to", (x,), (dtype,), dtype, x.shape)

    def reshape(self, x: Value, shape: Dims) -> Value:
        """A reshape, also to the own shape."""
        return self.cons("reshape", (x,), shape, x.dtype, shape)

    def permute(self, x: Value, order: tuple[int, ...]) -> Value:
        """A permutation of axes."""
        return self.cons("permute", (x,), order, x.dtype, tuple(x.shape[i] for i in order))

    def slice(self, x: Value, axis: int, start: Any, stop: Any, step: int, shape: Dims) -> Value:
        """A slice; an open end is the size."""
        return self.cons("slice", (x,), (axis, start, x.shape[axis] if stop is None else stop, step), x.dtype, shape)

    def slice_scatter(self, x: Value, part: Value, axis: int, start: Any, stop: Any, step: int) -> Value:
        """A scatter, also of everything."""
        return self.cons("slice_scatter", (x, part), (axis, start, stop, step), x.dtype, x.shape)


class _Leaves(dict[Node, Any]):
    """Nodes that clean-up does not look into."""

    def __missing__(self, node: Node) -> Any:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            leaf: Any = Value(0, "leaf", (), (), val.dtype, dims_of(val))
            leaf.nodes.append(node)
        else:
            leaf = val
        self[node] = leaf
        return leaf


def _read(table: RawTable, node: Any) -> Value | None:
    """The value of a node of one of `PRIMS`."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return None
    if node.target in (aten.clone.default,):
        value: Any = table.cons("clone", (table.of_node[node.args[0]],), (), val.dtype, dims_of(val))
    elif node.target is aten.expand.default:
        value = table.cons("expand", (table.of_node[node.args[0]],), dims_of(val), val.dtype, dims_of(val))
    else:
        value = READERS[node.target](table, node, val)
    if value is None or value.op not in PRIMS:
        return None
    value.nodes = [node]
    return value


TARGETS = frozenset({
    *CASTS, *RESHAPES, *TRANSPOSES, aten.permute.default, aten.expand.default, aten.slice.Tensor,
    aten.slice_scatter.default, aten.clone.default,
})  # fmt: skip


@define(eq=False)
class Cleanup:
    """The canonicalize rules that are on, compiled. `off`: those that cannot be, and why."""

    patterns: dict[str, list[Pattern]] = field(factory=dict)
    off: list[Off] = field(factory=list)

    @classmethod
    def make(cls, rules: tuple[RuleDef, ...]) -> Cleanup:
        """Compile the rules of the stage."""
        out = cls(defaultdict(list))
        for rule in rules:
            problem = _unfit(rule)
            try:
                pattern = None if problem else _compiled(rule)
            except (MissingOp, SchemaMismatch, NotImplementedError) as error:
                problem, pattern = str(error), None
            if pattern is None:
                out.off.append(Off(rule.full_name, "not applied", problem or "", rule.span))
            else:
                out.patterns[rule.left[0].op].append(pattern)  # type: ignore[union-attr]
        return out

    def run(
        self, graph: Graph, editor: Callable[[Table], Editor], truth: Any, listening: bool, failures: Failures,
        allows: Allows | None = None,
    ) -> list[Event]:  # fmt: skip
        """Clean up `graph` in place, where `allows` allows it; events of what fired, and of rules that failed."""
        if not self.patterns:
            return []
        run = _Run(self, graph, editor, truth, listening, failures, allows)
        run.execute()
        return run.events


def _unfit(rule: RuleDef) -> str | None:
    """Why a rule cannot clean up, or None."""
    root = rule.left[0]
    if len(rule.left) != 1 or not isinstance(root, Prim) or root.op not in PRIMS:
        return "a clean-up rule has one output: a view, a cast or a clone"
    if any(o.type != UNKNOWN_TYPE for o in rule.operands):
        return "a clean-up rule states no types of operands"
    return None


def _compiled(rule: RuleDef) -> Pattern:
    pattern = compile_pattern(
        rule.full_name, rule.left, rule.operands, rule.attributes, rule.guards, (), (),
        lambda p, s: s.sweep.solved(p, s), {}, True,
    )  # fmt: skip
    pattern.owner = rule
    return pattern


class _Run:
    """One graph."""

    def __init__(
        self, cleanup: Cleanup, graph: Graph, editor: Callable[[Table], Editor], truth: Any, listening: bool,
        failures: Failures, allows: Allows | None,
    ):  # fmt: skip
        self.cleanup, self.graph, self.truth, self.listening = cleanup, graph, truth, listening
        self.failures, self.allows = failures, allows
        self.table = RawTable()
        self.editor = editor(self.table)
        self.events: list[Event] = []
        self.solution: dict[str, Any] | None = None
        self.anchor: Value
        self.predicates = self._predicates()
        self.writes = Writes(graph)
        for node in graph.nodes if self.writes else ():
            self.writes.note(node)

    def execute(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "call_function" and node.target in TARGETS and not node._erased:
                value = _read(self.table, node)
                if value is not None:
                    self.table.of_node[node] = value
                    self._attempt(node, value)

    def _attempt(self, node: Node, value: Value) -> None:
        for pattern in self.cleanup.patterns.get(value.op, ()):
            if pattern.name in self.failures.off:
                continue
            self.solution = None
            try:
                pattern.anchor(value, State(len(pattern.slots.index), self, value))
                if self.solution is not None and self._fire(pattern, node, value):
                    return
            except Exception as error:  # noqa: BLE001 (whatever a rule raises, the compilation goes on without it)
                found = self.failures.of_pattern(pattern, error)
                self.events.append(failed_event(pattern.owner, node, found))

    def solved(self, pattern: Pattern, s: State) -> bool:
        """A left side matched: keep the bindings if every guard holds."""
        if s.deferred:  # an equation that nothing here solves
            return False
        self.anchor = s.anchor
        find = lookup(pattern.slots, s)
        env = SiteEnv(find, None, self.truth, self.predicates, lambda t: self.anchor)  # the left side is the only term
        if all(env.holds(g) is True for g in pattern.guards):
            names = [n for n in pattern.slots.index if isinstance(n, str)]
            found = {n: find(n) for n in names}
            self.solution = {n: v for n, v in found.items() if v is not UNKNOWN}
            return True
        return False

    def _predicates(self) -> dict[str, Callable[..., Any]]:
        """What only the graph can tell."""
        return {
            "same_layout": lambda a, b: _layout(a) == _layout(b),
            "written": lambda x: bool(self.writes),
            "donated": lambda x: (
                base(x.nodes[0]).op != "call_function" or any(u.op == "output" for u in self.anchor.nodes[0].users)
            ),
            "fresh": lambda x: bool(x.nodes) and x.nodes[0].target in EMPTY,
        }

    def _fire(self, pattern: Pattern, node: Node, value: Value) -> bool:
        rule: RuleDef = pattern.owner
        bindings = self.solution or {}
        found = Found(rule, node, pattern, bindings, (value,), ())
        captures = _nodes(bindings)
        if any(map(self.writes.to, (node, *captures))) or (isinstance(rule.right[0], Operand) and _owned(node)):
            return False
        owner = memory(node)
        if owner is not node and all(memory(c) is not owner for c in captures) and returned(node):
            return False  # outputs that shared memory would no longer
        plan = Plan(found, [Output(0, None, node, value)], dying({node}, set(captures)), captures, None)
        if self.allows is not None and not self.allows(plan):
            return False
        plan.last = node.prev  # the replacement stands where the node stood
        try:
            fire(
                plan,
                self.editor,
                lambda e, p: [self._write(rule.right[0], bindings, node)],
                {"rule": rule.full_name, "span": str(rule.span)},
            )
        except Refusal:
            return False
        if self.listening:
            self.events.append(
                Event(rule.pack, rule.name, node.name, True, span=rule.left_span, source=source_line(node))
            )
        for made in self.editor.made:
            made.meta.pop("fxrewrite", None)
            read = _read(self.table, made) if made.target in TARGETS else None
            if read is not None:
                self.table.of_node[made] = read
                self._attempt(made, read)
        return True

    def _write(self, t: Any, bindings: dict[str, Any], node: Node) -> Any:
        """The right side of a rule: an operand, or one primitive of operands."""
        if isinstance(t, Prim):
            args = [self._write(a, bindings, node) for a in t.args]
            env = SiteEnv(lambda name: bindings.get(name, UNKNOWN))
            params = [env.value(p) for p in t.params]
            if any(p is UNKNOWN for p in params):
                raise Refusal("guard unknown", t.op)
            if t.op == "reshape":
                return self._reshape(args[0], node)
            return WRITERS[t.op](self.editor.dialect, self.editor.call, *args, *params)
        value = bindings[t.name]
        return value.nodes[0]

    def _reshape(self, x: Node, node: Node) -> Node:
        """`x` in the shape of `node`, which it replaces."""
        old = node.meta["val"]
        both = all(v.is_contiguous() for v in (x.meta["val"], old))
        return self.editor.call(self.editor.dialect.reshape, x, self.sizes(old), val=old if both else None, like=node)

    def sizes(self, val: torch.Tensor) -> list[Any]:
        """The shape of `val` as arguments; nodes for symbolic sizes are looked up when one occurs."""
        shape = dims_of(val)
        if not self.table.size_nodes and not all(isinstance(s, int) for s in shape):
            for n in self.graph.nodes:
                if isinstance(n.meta.get("val"), torch.SymInt):
                    self.table.size_nodes.setdefault(size(n.meta["val"]), []).append(n)
        return self.editor.sizes(shape)


def _nodes(bindings: dict[str, Any]) -> list[Node]:
    return [n for v in bindings.values() if isinstance(v, Value) for n in v.nodes]


def _owned(node: Node) -> bool:
    """Is the result a copy that leaves the graph? Then it shares memory with nothing."""
    return isinstance(node.target, torch._ops.OpOverload) and not shares_memory(node.target) and returned(node)


def _layout(value: Value) -> Any:
    val = value.nodes[0].meta["val"]
    return tuple(s for n, s in zip(dims_of(val), val.stride(), strict=True) if n != 1), val.dtype
