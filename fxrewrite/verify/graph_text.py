"""A graph as a Python function that needs only torch: calls of our own ops are written out as the steps of their
definitions on the values that they meet there."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from fxrewrite.dsl.core import Program
from fxrewrite.dsl.evaluate import EvaluationError, evaluate
from fxrewrite.lowering.library import declared, split_arguments
from fxrewrite.verify.call_text import literal
from fxrewrite.verify.equal import TORCH_ERRORS
from fxrewrite.verify.spelling import function
from fxrewrite.verify.straight import Recording, record

OURS = "fxrewrite"


@define
class Text:
    """Graphs of one file. `definitions`: what their functions call; `recorded`: the steps of these; `missing`: ops that
    are no torch's own and could not be written out."""

    program: Program
    definitions: list[str] = field(factory=list[str])
    recorded: list[Recording] = field(factory=list[Recording])
    missing: list[str] = field(factory=list[str])

    def function(self, name: str, graph: Graph, inputs: Sequence[Any], constants: Mapping[str, Tensor]) -> str:
        """The function of a graph; it takes its inputs and returns a list. `inputs` are those that it will get."""
        names = {n: n.name for n in graph.nodes}
        env = _values(graph, inputs, constants)
        parameters = [n.name for n in graph.nodes if n.op == "placeholder"]
        lines = [f"def {name}({', '.join(parameters)}):"]
        for node in graph.nodes:
            if node.op == "get_attr":
                lines.append(f"    {node.name} = CONSTANTS[{str(node.target)!r}]")
            elif node.op == "output":
                returned = tree_leaves(node.args[0], is_leaf=lambda x: x is None)
                lines.append(f"    return [{', '.join(_text(r, names) for r in returned)}]")
            elif node.op == "call_function":
                lines.append(f"    {node.name} = {self._call(node, names, env)}")
        return "\n".join(lines)

    def _call(self, node: Node, names: Mapping[Node, str], env: Mapping[Node, Any]) -> str:
        target: Any = node.target
        if target is operator.getitem:
            return f"{_text(node.args[0], names)}[{_text(node.args[1], names)}]"
        if isinstance(target, OpOverload) and target.namespace == OURS:
            inline = self._inline(node, names, env)
            if inline is not None:
                return inline
        if isinstance(target, OpOverload) and target.namespace not in ("aten", "prims"):
            self.missing.append(str(target))
        return call_of(node, names)

    def _inline(self, node: Node, names: Mapping[Node, str], env: Mapping[Node, Any]) -> str | None:
        """A call of one of our ops as a function of its steps; None where it cannot be run here."""
        target: Any = node.target
        found = declared(self.program, target)
        if found is None or any(n not in env for n in node.all_input_nodes):
            return None
        op, owner = found.op, found.program
        args: Any = torch.fx.map_arg(node.args, lambda n: env[n])
        operands, attributes = split_arguments(op, args)
        results = [r.name for r in op.results]
        try:
            made = record(
                lambda algebra, given: dict(zip(results, evaluate(owner, op, given, attributes, algebra), strict=True)),
                operands,
            )
        except (EvaluationError, *TORCH_ERRORS):
            return None
        name = f"{op.name}_{len(self.definitions)}"
        self.definitions.append(function(name, made.program))
        self.recorded.append(made)
        texts = {id(env[n]): names[n] for n in node.all_input_nodes}
        call = f"{name}({', '.join(texts[id(t)] for t in made.inputs)})"
        return f"list({call}.values())" if len(results) > 1 else f"{call}[{made.program.outputs[0][0]!r}]"


def _values(graph: Graph, inputs: Sequence[Any], constants: Mapping[str, Tensor]) -> dict[Node, Any]:
    """What each node gives, as far as the graph runs."""
    given = iter([t.clone() if isinstance(t, Tensor) else t for t in inputs])
    env: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            env[node] = next(given)
        elif node.op == "get_attr":
            env[node] = constants.get(str(node.target))
        elif node.op == "call_function" and all(n in env for n in node.all_input_nodes):
            args: Any = torch.fx.map_arg((node.args, node.kwargs), lambda n: env[n])
            try:
                with torch.no_grad():
                    env[node] = node.target(*args[0], **args[1])  # type: ignore[operator]
            except (EvaluationError, *TORCH_ERRORS):
                return env
    return env


def call_of(node: Node, names: Mapping[Node, str]) -> str:
    """A call as Python; `names`: of its arguments."""
    given = [_text(a, names) for a in node.args] + [f"{k}={_text(v, names)}" for k, v in node.kwargs.items()]
    return f"{_name(node.target)}({', '.join(given)})"


def _name(target: Any) -> str:
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    module = getattr(target, "__module__", "")
    return f"operator.{target.__name__}" if module == "_operator" else f"torch.{target.__name__}"


def _text(value: Any, names: Mapping[Node, str]) -> str:
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(v, names) for v in value) + "]"
    if isinstance(value, OpOverload | HigherOrderOperator):
        return _name(value)
    return f"torch.{value!r}" if isinstance(value, torch.device) else literal(value)
