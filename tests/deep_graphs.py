"""Graphs that are long, wide or bare, built node by node: a chain of 3,000 steps takes 50 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

aten, prims = torch.ops.aten, torch.ops.prims
Step = Callable[["Builder", Node, int], Node]


@define
class Builder:
    """A graph with a fake value on each node; the values of calls of one type are made once."""

    graph: Graph = field(factory=Graph)
    mode: FakeTensorMode = field(factory=FakeTensorMode)
    made: dict[Any, Any] = field(factory=dict)

    def input(self, name: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Node:
        """A placeholder."""
        node = self.graph.placeholder(name)
        with self.mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype)
        return node

    def call(self, target: Any, *args: Any) -> Node:
        """A call, without a stack trace."""
        node = self.graph.call_function(target, args)
        key = (target, torch.fx.map_arg(args, lambda n: _type(n.meta["val"])))
        if str(key) not in self.made:
            with self.mode:
                self.made[str(key)] = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]))
        node.meta["val"] = self.made[str(key)]
        return node

    def done(self, *outputs: Any) -> GraphModule:
        """The graph with these outputs."""
        self.graph.output(outputs)
        return GraphModule(nn.Module(), self.graph)


def _type(val: torch.Tensor) -> str:
    return f"{val.dtype} {tuple(val.shape)} {val.stride()}"


def chain(
    step: Step, length: int, *shape: int, then: Step | None = None, dtype: torch.dtype = torch.bfloat16
) -> GraphModule:
    """`length` times a step from an input of `shape`, then another step once."""
    b = Builder()
    node = b.input("x", *shape, dtype=dtype)
    for i in range(length):
        node = step(b, node, i)
    return b.done(node if then is None else then(b, node, length))


STEPS: dict[str, Step] = {
    "adds": lambda b, n, i: b.call(aten.add.Tensor, n, n),
    "sums with a number": lambda b, n, i: b.call(aten.add.Tensor, n, 1.0),
    "elementwise": lambda b, n, i: b.call(aten.exp.default, n),
    "silus": lambda b, n, i: b.call(aten.mul.Tensor, n, b.call(aten.sigmoid.default, n)),
    "clamps": lambda b, n, i: b.call(aten.clamp_min.default, n, float(i)),
    "casts": lambda b, n, i: b.call(
        prims.convert_element_type.default, n, (torch.float32, torch.float16, torch.bfloat16)[i % 3]
    ),
    "casts and sums": lambda b, n, i: b.call(
        aten.add.Tensor, b.call(prims.convert_element_type.default, n, (torch.float32, torch.bfloat16)[i % 2]), 1.0
    ),
    "slices": lambda b, n, i: b.call(aten.slice.Tensor, n, 0, 1, 2**62),
    "views": lambda b, n, i: b.call(aten.view.default, n, [n.meta["val"].shape[1], n.meta["val"].shape[0]]),
    "reshapes of sums": lambda b, n, i: b.call(
        aten.exp.default, b.call(aten.reshape.default, n, [n.meta["val"].shape[1], n.meta["val"].shape[0]])
    ),
    "permutations": lambda b, n, i: b.call(aten.permute.default, n, [1, 0]),
    "permutations and negations": lambda b, n, i: b.call(aten.neg.default, b.call(aten.permute.default, n, [1, 0])),
    "expansions": lambda b, n, i: b.call(aten.expand.default, n, list(n.meta["val"].shape)),
    "clones": lambda b, n, i: b.call(aten.clone.default, n),
    "parts written": lambda b, n, i: b.call(
        aten.slice_scatter.default, n, b.call(aten.slice.Tensor, n, 1, 0, 4), 1, i % 4, i % 4 + 4
    ),
    "writes": lambda b, n, i: b.call(aten.add_.Tensor, n, 1.0),
}
