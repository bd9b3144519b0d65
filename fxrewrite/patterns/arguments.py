"""The arguments of a node as parts of a value, and the value of an op that has no reader."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import _side_effectful_functions

from fxrewrite.patterns.values import Dims, Symbol, Table, Value, constant_key, size

aten = torch.ops.aten


def argument(t: Table, a: Any) -> Any:
    """An argument of a node as part of a value: values, symbols, and constants that tell 1 from 1.0 from True."""
    if isinstance(a, Node):
        return t.of_node[a]
    if isinstance(a, list | tuple):
        return tuple(argument(t, x) for x in a)
    if isinstance(a, torch.SymInt):
        return Symbol(size(a))
    return a


def opaque(t: Table, node: Any, dtype: Any, shape: Dims) -> Value:
    """An op without a reader: a function of all its arguments if it is pure, else equal to nothing.

    An op that may draw random numbers, or has an effect, is equal to nothing and has its arguments: a form says which
    of them draw none.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not _functional(target):
        return t.fresh(op_name(target), (), (), dtype, shape)
    args = tuple(argument(t, a) for a in schema_arguments(target, node.args, node.kwargs))
    acts = target in _side_effectful_functions or (t.effects and t.effects.has(node))
    if acts or torch.Tag.nondeterministic_seeded in target.tags:
        return t.fresh(op_name(target), args, (), dtype, shape)
    key = (target, constant_key(args))
    try:
        v = t.by_key.get(key)
        return t.fresh(op_name(target), args, (), dtype, shape, key) if v is None else v
    except TypeError:  # an argument that cannot be hashed
        return t.fresh(op_name(target), args, (), dtype, shape)


@cache
def _functional(target: torch._ops.OpOverload) -> bool:
    return not target._schema.is_mutable


def op_name(target: Any) -> str:
    """How values call what a node calls: a torch op, or any other function."""
    if isinstance(target, torch._ops.OpOverload):
        return overload_name(target)
    return f"function:{getattr(target, '__name__', target)}"


@cache
def overload_name(target: torch._ops.OpOverload) -> str:
    """How values call an op: `aten.silu`, `aten.add.Tensor`."""
    name = target._schema.name.replace("::", ".")
    return name if target._overloadname == "default" else f"{name}.{target._overloadname}"


@cache
def _defaults(target: torch._ops.OpOverload) -> tuple[tuple[str, Any], ...]:
    """The arguments of a schema with their defaults. The schema itself makes new objects each time that it is asked."""
    return tuple((a.name, a.default_value) for a in target._schema.arguments)


def number_of(t: Table, node: Node) -> float | int | None:
    """The number that a 0-d tensor holds, where the graph makes it from a constant that nothing overwrites."""
    if node.target not in (aten.full.default, aten.scalar_tensor.default) or (t.writes and t.writes.to(node)):
        return None
    target: Any = node.target
    args = schema_arguments(target, node.args, node.kwargs)
    number = args[1] if target is aten.full.default else args[0]
    val = node.meta.get("val")
    if not isinstance(number, int | float) or isinstance(number, bool) or val is None or val.dim():
        return None
    return torch.tensor(number, dtype=val.dtype).item()


def schema_arguments(target: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Every argument in the order of the schema, defaults filled in."""
    return [*args, *(kwargs.get(name, default) for name, default in _defaults(target)[len(args) :])]
