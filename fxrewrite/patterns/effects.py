"""Hidden effects: calls that write or read something which no tensor of the graph shows, such as a layer's cache.

Which torch ops have one, and where its key stands, is read off the declared ops that have a `property writes(key)` or
`reads(key)`: their own torch op, and the calls in their forms and impls that hold a key. Such a call equals no other.
A call under `with_effects`, which torch keeps in order by tokens, has the effects of its op; where none is known, it
may have that of any key.
"""

from __future__ import annotations

import operator
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from attrs import frozen
from torch.fx import GraphModule, Node
from torch.fx.node import _side_effectful_functions

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Case, OpDef, Operand, Program, Ref, TorchCall
from fxrewrite.patterns.calls import Declared
from fxrewrite.patterns.dialect import BOOKKEEPING
from fxrewrite.patterns.writes import writes

WRITES, READS = "writes", "reads"
ORDERED = (WRITES, READS)
WITH_EFFECTS: Any = getattr(torch.ops.higher_order, "with_effects", None)  # (token, op, arguments of the op)
Declaration = tuple[tuple[str, str | None], ...]  # (kind, the argument of the schema that is its key)


def ordered(op: OpDef) -> bool:
    """Has a declared op an effect that has its place in an order?"""
    return any(kind in ORDERED for kind, _ in op.effects)


def declarations(program: Program, torch_op: Callable[[str], Any]) -> dict[Any, Declaration]:
    """The torch ops that spell a declared op with an effect. `torch_op(name)`: the overload, or None."""
    found: dict[Any, Declaration] = {}
    for op in program.ops.values():
        if ordered(op):
            for case in (*op.forms, *op.impls):
                for target, call in _holders(case, op, torch_op):
                    found.setdefault(target, tuple((k, _key(call, target, n)) for k, n in op.effects if k in ORDERED))
    return found


def _holders(case: Case, op: OpDef, torch_op: Callable[[str], Any]) -> list[tuple[Any, TorchCall]]:
    """The calls of a spelling that have its effects: those that hold a key; all of them where none does."""
    calls = [(torch_op(c.op), c) for c in walk(case.outputs) if isinstance(c, TorchCall)]
    known = [(target, c) for target, c in calls if target is not None]
    keys = [name for kind, name in op.effects if kind in ORDERED]
    return [(target, c) for target, c in known if any(_key(c, target, n) for n in keys)] or known


def arguments_by_name(call: TorchCall, target: Any) -> list[tuple[str, Any]]:
    """The arguments that a call of a torch op writes down, each with its name in the schema."""
    return [*zip([a.name for a in target._schema.arguments], call.args, strict=False), *call.kwargs]


def _key(call: TorchCall, target: Any, name: str) -> str | None:
    """The argument that holds the operand or attribute `name`."""
    for argument, given in arguments_by_name(call, target):
        if isinstance(given, Operand | Ref) and given.name == name:
            return argument
    return None


@frozen(order=False)
class Effect:
    """What one node does. `key` None: it is not a constant, and may be that of any other."""

    node: Node
    kind: str
    key: str | None

    def clashes(self, other: Effect) -> bool:
        """Must the two keep their order?"""
        return WRITES in (self.kind, other.kind) and (self.key == other.key or None in (self.key, other.key))


@frozen
class Kind:
    """What calls of a torch op do beside giving results. `kept`: they write, draw or have an effect, so none may be
    lost. `declared`: the op of the language that it is.
    """

    effects: Declaration
    kept: bool
    declared: Declared | None


class Kinds:
    """The kind of each torch op, asked once.

    `spelled`: what `declarations` found; `declared(target)`: the declared op that a torch op is.
    """

    def __init__(self, spelled: dict[Any, Declaration], declared: Callable[[Any], Declared | None]):
        self.spelled, self.declared = spelled, declared
        self._known: dict[torch._ops.OpOverload, Kind] = {}

    def of(self, target: torch._ops.OpOverload) -> Kind:
        """The kind of an op."""
        found = self._known.get(target)
        if found is None:
            known = self.declared(target)
            effects = self.spelled.get(target)
            if effects is None:
                effects = tuple((k, n) for k, n in (known.op.effects if known else ()) if k in ORDERED)
            kept = bool(effects) or target._schema.is_mutable or (target not in MOVABLE and _draws_or_acts(target))
            found = self._known[target] = Kind(effects, kept, known)
        return found


def stays(node: Node) -> bool:
    """Has a node an effect, or does it draw random numbers? Then it stays where it is. What checks a value moves."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target not in MOVABLE and _draws_or_acts(node.target)
    return node.is_impure()


MOVABLE = BOOKKEEPING | {torch.ops._c10d_functional.wait_tensor.default}


@cache
def _draws_or_acts(target: torch._ops.OpOverload) -> bool:
    seeded = torch.Tag.nondeterministic_seeded in target.tags
    return seeded or target._schema.is_mutable or target in _side_effectful_functions


class Effects:
    """The effects of one graph, in order. `kept`: its nodes that may not be lost. `calls`: of declared ops."""

    def __init__(self, kinds: Kinds, nodes: Iterable[Node]):
        self.kinds = kinds
        self.by_key: dict[str | None, list[Effect]] = {}
        self.kept: set[Node] = set()
        self.calls: dict[Node, Declared] = {}
        for node in nodes:
            self.note(node)

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def has(self, node: Node) -> bool:
        """Has a call an effect?"""
        if isinstance(node.target, torch._ops.OpOverload):
            return bool(self.kinds.of(node.target).effects)
        return any(True for _ in self.of(node))

    def of(self, node: Node) -> Iterator[Effect]:
        """The effects of a node."""
        target, args, kwargs = node.target, node.args, node.kwargs
        if node.op != "call_function":
            return
        if target is WITH_EFFECTS:
            target, args = args[1], args[2:]
            if not isinstance(target, torch._ops.OpOverload) or not self.kinds.of(target).effects:
                yield Effect(node, WRITES, None)  # torch keeps its order with others, and no form says of what
                return
        elif getattr(target, "namespace", "") == "higher_order" and args:
            yield from self._inside(node)
            target, args = args[0], ()
        if not isinstance(target, torch._ops.OpOverload):
            return
        named = None
        for kind, argument in self.kinds.of(target).effects:
            if named is None:
                names = [a.name for a in target._schema.arguments]
                named = {**dict(zip(names, args, strict=False)), **kwargs}
            key = None if argument is None else named.get(argument)
            yield Effect(node, kind, key if isinstance(key, str) else None)

    def _inside(self, node: Node) -> Iterator[Effect]:
        """The effects of the graphs that a node runs: branches of a `cond`, the body of a loop."""
        for a in node.all_input_nodes:
            graph = getattr(node.graph.owning_module, str(a.target), None) if a.op == "get_attr" else None
            for inner in graph.graph.nodes if isinstance(graph, GraphModule) else ():
                yield from (Effect(node, e.kind, e.key) for e in self.of(inner))

    def note(self, node: Node) -> None:
        """Take up a node of the graph."""
        target = node.target
        if node.op != "call_function" or target is operator.getitem:
            if node.op == "placeholder":
                self.kept.add(node)
            return
        if isinstance(target, torch._ops.OpOverload):
            kind = self.kinds.of(target)
            if kind.declared is not None:
                self.calls[node] = kind.declared
            if not kind.kept:
                return
            self.kept.add(node)
        elif writes(node) or stays(node):
            self.kept.add(node)
        for effect in self.of(node):
            self.kept.add(node)
            insort(self.by_key.setdefault(effect.key, []), effect, key=lambda e: e.node)

    def between(self, node: Node, low: Node, high: Node, without: Iterable[Node] = ()) -> Node | None:
        """The first node from `low` to `high` whose effect must keep its order with those of `node`."""
        ignored = {node, *without}
        for mine in self.of(node):
            keys = self.by_key if mine.key is None else {mine.key, None}
            for other in (e for k in keys for e in self.by_key.get(k, ())):
                n = other.node
                if not n._erased and n not in ignored and mine.clashes(other) and not n < low and not high < n:
                    return n
        return None


def call_of(node: Node) -> Node:
    """The call that a node takes a result of."""
    while getattr(node.target, "__name__", "") == "getitem" and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


__all__ = ["Effect", "Effects", "call_of", "declarations", "ordered"]
