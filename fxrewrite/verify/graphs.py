"""FX graphs as a compiler makes them, traced from functions on fake tensors, and run op by op.

    traced = trace(fn, tensors)          # with Inductor's decompositions, `meta["val"]` on every node
    outputs = run(traced.graph, tensors, traced.constants)

`make_fx` gives the same graphs (`tests/test_verify_fires.py`) and takes four times as long; here it also matters to
know which node came from which term of a rule (`Tracer.origin`).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor, nn
from torch._inductor.decomposition import select_decomp_table
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
SAME = (aten.alias.default, aten.detach.default)


@frozen(eq=False)
class Traced:
    """A graph, the tensors that it holds itself, and what its nodes came from (node name -> mark)."""

    graph: Graph
    constants: Mapping[str, Tensor]
    origins: Mapping[str, Any]


@define(eq=False)
class Recorder:
    """A graph in the making. `origin`: the mark of the nodes that come now."""

    mode: FakeTensorMode
    graph: Graph = field(factory=lambda: Graph(GraphModule(nn.Module(), Graph())))
    nodes: dict[int, Node] = field(factory=dict[int, Node])  # by the identity of the fake tensor
    alive: list[Any] = field(factory=list)
    constants: dict[str, Tensor] = field(factory=dict[str, Tensor])
    origins: dict[str, Any] = field(factory=dict[str, Any])
    origin: Any = None

    def input(self, tensor: Tensor, name: str) -> Tensor:
        """A placeholder, and the fake tensor that stands for it."""
        fake = self.mode.from_tensor(tensor)
        self._holds(self.graph.placeholder(name), fake)
        return fake

    def call(self, target: Any, args: Any, kwargs: Any, result: Any) -> None:
        """A node, and what it gives."""
        node = self.graph.call_function(target, *self._arguments(args, kwargs))
        self.origins[node.name] = self.origin
        if not isinstance(result, tuple | list):
            self._holds(node, result)
            return
        node.meta["val"] = result
        for i, r in enumerate(result):
            part = self.graph.call_function(operator.getitem, (node, i))
            self.origins[part.name] = self.origin
            self._holds(part, r)

    def same(self, value: Tensor, other: Tensor) -> None:
        """`value` is `other`."""
        self.nodes[id(value)] = self.node_of(other)
        self.alive.append(value)

    def node_of(self, value: Tensor) -> Node:
        """The node that gives a value; a tensor from elsewhere becomes a constant of the graph."""
        found = self.nodes.get(id(value))
        if found is None:
            name = f"constant{len(self.constants)}"
            self.constants[name] = value
            found = self.graph.get_attr(name)
            self._holds(found, value if isinstance(value, FakeTensor) else self.mode.from_tensor(value))
            self.nodes[id(value)] = found
            self.alive.append(value)
        return found

    def _arguments(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return tree_map(lambda a: self.node_of(a) if isinstance(a, Tensor) else a, (tuple(args), dict(kwargs)))

    def _holds(self, node: Node, value: Any) -> None:
        node.meta["val"] = value
        if isinstance(value, Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)
            self.nodes[id(value)] = node
            self.alive.append(value)


class Tracer(TorchDispatchMode):
    """Records every op that is called; those of Inductor's table as their decompositions, unless `whole`."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder, whole: bool = False) -> None:
        super().__init__()
        self.recorder = recorder
        self.table: Mapping[Any, Callable[..., Any]] = {} if whole else select_decomp_table()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            result = func(*args, **kwargs)
            self.recorder.call(func, args, kwargs, result)
            return result
        decomposition = self.table.get(func)
        if decomposition is not None:
            result = self._inside(decomposition, args, kwargs)
            if result is not NotImplemented:
                return result
        if func.namespace == "prim":  # `x.device`
            return func(*args, **kwargs)
        if func._can_decompose():  # composite: it stands for others
            return self._inside(func.decompose, args, kwargs)
        result = func(*args, **kwargs)
        if func in SAME:
            self.recorder.same(result, args[0])
        else:
            self.recorder.call(_functional(func), args, kwargs, result)
        return result

    def _inside(self, decomposition: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self:
            return decomposition(*args, **kwargs)


def _functional(func: Any) -> Any:
    """What makes a new value where `func` writes to its first.

    Definitions and decompositions write to fresh values only, and compilers make them functional.
    """
    name = func._opname
    if func.namespace != "aten" or not func._schema.is_mutable or not name.endswith("_"):
        return func
    return getattr(getattr(aten, name[:-1]), func._overloadname)


def trace(
    fn: Callable[[Recorder, Sequence[Tensor]], Sequence[Tensor]], tensors: Sequence[Tensor], whole: bool = False
) -> Traced:
    """The graph of `fn`, which gets what records it and fake inputs, and returns tensors."""
    recorder = Recorder(FakeTensorMode(allow_non_fake_inputs=True))
    fakes = [recorder.input(t, f"x{i}") for i, t in enumerate(tensors)]
    with torch.no_grad(), quiet(), recorder.mode, Tracer(recorder, whole):
        outputs = fn(recorder, fakes)
    recorder.graph.output(tuple(recorder.node_of(o) for o in outputs))
    recorder.graph.eliminate_dead_code()
    return Traced(recorder.graph, recorder.constants, recorder.origins)


def copied(graph: Graph) -> Graph:
    """A copy whose nodes have the same names and metadata."""
    new = Graph(graph.owning_module)
    nodes: dict[Node, Node] = {}
    outputs = new.graph_copy(graph, nodes)
    new.output(outputs)
    return new


@contextmanager
def quiet() -> Iterator[None]:
    """Torch does not log what raises on fake tensors: that a change makes no graph is one of its answers."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def propagate(graph: Graph, start: Node) -> None:
    """Compute `meta["val"]` anew from a node on. What raises is torch's own: the graph is none."""
    reached = False
    for node in graph.nodes:
        reached = reached or node is start
        if not reached or node.op != "call_function":
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])  # type: ignore[misc]
        mode = next((v.fake_mode for v in tree_leaves((args, kwargs)) if isinstance(v, FakeTensor)), None)
        with torch.no_grad(), quiet(), mode or FakeTensorMode():
            found = node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(found, Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(found)


def run(graph: Graph, inputs: Sequence[Any], constants: Mapping[str, Tensor] | None = None) -> list[Any]:
    """The outputs of a graph, op by op. Inputs that it writes to are written."""
    given = iter(inputs)
    values: dict[Node, Any] = {}

    def value(n: Node) -> Any:
        return values[n]

    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = (constants or {})[str(node.target)]
            elif node.op == "output":
                return list(tree_leaves(torch.fx.map_arg(node.args[0], value), is_leaf=lambda x: x is None))
            else:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)  # type: ignore[misc]
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return []
