"""A graph as data: what is left of it once it is rewritten, for drawings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch.fx import Graph, Node

from fxrewrite.patterns.dialect import BOOKKEEPING, called
from fxrewrite.patterns.dtypes import NAMES


@frozen
class Drawn:
    """A node: its name, its op, its type as text (`bf16[4, 64]`), and the nodes that it reads."""

    name: str
    op: str
    type: str
    inputs: tuple[str, ...]


Snapshot = dict[str, Drawn]  # in the order of the graph


def snapshot(graph: Graph) -> Snapshot:
    """The nodes of a graph, by name; those that only check something are left out."""
    return {
        n.name: Drawn(n.name, _op(n), type_text(n.meta.get("val")), _names(n.all_input_nodes))
        for n in graph.nodes
        if n.target not in BOOKKEEPING
    }


def _names(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(n.name for n in nodes)


def _op(node: Node) -> str:
    if node.op == "call_function":
        return called(node)
    return {"placeholder": "input", "get_attr": "constant"}.get(node.op, node.op)


def type_text(val: Any) -> str:
    """The type of a value: dtype and sizes of a tensor, of each tensor of a list; else nothing."""
    if isinstance(val, torch.Tensor):
        return f"{NAMES.get(val.dtype, str(val.dtype).removeprefix('torch.'))}[{', '.join(map(str, val.shape))}]"
    if isinstance(val, tuple | list):
        return ", ".join(filter(None, map(type_text, val)))
    return ""
