"""Writing the right side of a rule: its calls through their providers, its primitives in the running dialect."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from fxrewrite.dsl.core import (
    Apply,
    Call,
    Case,
    Extern,
    Fresh,
    Lit,
    Nothing,
    Number,
    OneOf,
    OpDef,
    Operand,
    OperandInfo,
    Prim,
    Program,
    Ref,
    Result,
    Taken,
    Term,
    TorchCall,
)
from fxrewrite.dsl.evaluate import Buffer, EvaluationError, Overwritten, evaluate
from fxrewrite.dsl.scalars import UNKNOWN, sizes, value
from fxrewrite.dsl.wording import said
from fxrewrite.lowering import fakes
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.impls import Nodes, NotServed, Site, write
from fxrewrite.lowering.layouts import strides
from fxrewrite.lowering.plan import Plan, Refusal
from fxrewrite.lowering.providers import Provider, Providers
from fxrewrite.lowering.types import ResultType, result_types
from fxrewrite.patterns.dtypes import to_core
from fxrewrite.patterns.forms import MissingOp
from fxrewrite.patterns.groups import Group
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.values import Value, dims_of

aten = torch.ops.aten


class Emitter:
    """Writes the right side of one match. `used` says which provider each call got."""

    def __init__(self, program: Program, providers: Providers, editor: Editor, plan: Plan):
        self.program, self.providers, self.editor, self.plan = program, providers, editor, plan
        self.bindings = plan.found.bindings
        self.calls: dict[Call, list[Any]] = {}
        self.emitted: dict[Value, Node] = {}  # what nested calls gave
        self.externs: dict[TorchCall, Any] = {}
        self.used: list[str] = []
        self.env = SiteEnv(lambda name: self.bindings.get(name, UNKNOWN), providers.facts, editor.truth)
        self.primitives = Nodes(editor, plan.anchor)

    def outputs(self) -> list[Any]:
        """A node, or a list of nodes, for each output of the rule."""
        return [self.term(t) for t in self.plan.found.rule.right]

    def term(self, t: Term) -> Any:
        """The node of a term; the number where it is one, None where it is `none`."""
        if isinstance(t, Result):
            if t.call not in self.calls:
                self.calls[t.call] = self.call(t.call)
            return self.calls[t.call][t.index]
        if isinstance(t, Operand):
            return self.operand(self.bindings.get(t.name))
        if isinstance(t, Number):
            return self.primitives.number(self.operand(self.known(t.value)))
        if isinstance(t, Nothing):
            return None
        if isinstance(t, Prim):
            args = [self.term(a) for a in t.args]
            return self.primitives.primitive(t.op, args, [self.known(p) for p in t.params], t)
        if isinstance(t, Extern):
            return self.extern(t)
        raise Refusal("rule failed", f"cannot write {type(t).__name__}")

    def extern(self, t: Extern) -> Any:
        """What a torch op returns or writes: a node, or a list of nodes."""
        if t.call not in self.externs:
            args = [self.torch_argument(a) for a in t.call.args]
            kwargs = {n: self.torch_argument(a) for n, a in t.call.kwargs}
            try:
                self.externs[t.call] = self.primitives.torch_call(t.call.op, args, kwargs)
            except (MissingOp, NotServed) as error:
                raise Refusal("provider missing", str(error)) from error
        returned, written = self.externs[t.call]
        if t.written is not None:
            return written[t.written]
        return list(returned) if t.returned is None else returned[t.returned]

    def torch_argument(self, a: Any) -> Any:
        """An argument of a torch op."""
        if isinstance(a, tuple):
            return [self.torch_argument(x) for x in a]
        if isinstance(a, OneOf):
            return self.torch_argument(a.choices[0])
        if isinstance(a, Taken):
            return Overwritten(self.term(a.value), a.slot)
        if isinstance(a, Fresh):
            layout = a.type.layout if isinstance(a.type.layout, str) else self.known(a.type.layout)
            return Buffer(self.known(a.type.dtype), sizes(a.type.shape or (), self.env), layout, a.slot)
        if isinstance(a, Apply):
            return [self.torch_argument(x) for x in a.args] if a.op == "list" else self.known(a)
        return self.term(a) if hasattr(a, "type") else self.known(a)

    def known(self, scalar: Any) -> Any:
        """The value of a scalar."""
        found = value(scalar, self.env)
        if found is UNKNOWN:
            raise Refusal("guard unknown", said(scalar))
        return found

    def operand(self, value: Any) -> Any:
        """The node of a bound value, or the constant."""
        if isinstance(value, tuple | list):
            return [self.operand(v) for v in value]
        if not isinstance(value, Value):
            return value
        return self.emitted[value] if value in self.emitted else self.editor.node(value)

    # ---- calls

    def call(self, call: Call) -> list[Any]:
        """The results of a call of a declared op, from the first provider that serves it."""
        op = self.program.ops[call.op]
        values = [self.value(a) for a in call.args]
        attributes = {n: self.attribute(s) for n, s in call.attrs}
        nodes = [self.operand(v) for v in values]
        try:
            types = result_types(
                op, values, attributes, self.editor.truth, lambda: self.evaluated(op, nodes, attributes)
            )
        except EvaluationError as error:
            raise Refusal("guard false", str(error), f"the types of {op.name}") from error
        for info, node in zip(op.operands, nodes, strict=True):
            _has_layout(info, node)
        like = self.plan.anchor
        device = like.meta["val"].device.type
        provider = self.providers.choose(
            op,
            device,
            lambda case: self.impl(case, op, nodes, attributes, types),
            lambda: (torch.fx.map_arg(nodes, lambda n: n.meta["val"]), attributes),
        )
        self.used.append(provider.name)
        if provider.results is not None:
            return provider.results
        return self.registered(op, provider, nodes, attributes, types, like)

    def evaluated(self, op: OpDef, nodes: list[Any], attributes: dict[str, Any]) -> list[torch.Tensor]:
        """The results of an op on fake values: for a type that the declaration leaves open."""
        operands = torch.fx.map_arg(nodes, lambda n: n.meta["val"])
        given = {n: to_core(v) for n, v in attributes.items()}
        with self.editor.fake_mode:
            return list(evaluate(self.program, op.name, list(operands), given, Torch()))

    def impl(
        self, case: Case, op: OpDef, nodes: list[Any], attributes: dict[str, Any], types: list[ResultType]
    ) -> list[Any]:
        """The results of an `impl`. Raises NotServed."""
        given = {n: self.operand(v) if isinstance(v, Value) else to_core(v) for n, v in attributes.items()}
        how = self.providers
        site = Site(self.program, op, nodes, given, types, self.editor, self.plan.anchor, how.facts, how.proofs)
        return write(case, site)

    def value(self, arg: Any) -> Any:
        """An operand of a call as a value: nested calls are written first, and what they give is a value of its own."""
        if isinstance(arg, Operand):
            return self.bindings.get(arg.name)
        if isinstance(arg, tuple):
            return [self.value(a) for a in arg]
        if isinstance(arg, Lit):
            return arg.value
        node = self.term(arg) if hasattr(arg, "type") else None
        if not isinstance(node, Node):
            return node
        val = node.meta["val"]
        value = self.editor.table.of_node.get(node) or Value(-1, "emitted", (), (), val.dtype, dims_of(val))
        self.emitted[value] = node
        return value

    def attribute(self, scalar: Any) -> Any:
        """An attribute: a constant, or a value that holds a number."""
        if isinstance(scalar, Ref) and scalar.name in self.bindings:
            return self.bindings[scalar.name]
        found = self.env.value(scalar)
        if found is UNKNOWN:
            raise Refusal("guard unknown", f"the value of an attribute: {scalar}")
        return found

    def registered(
        self,
        op: OpDef,
        provider: Provider,
        nodes: list[Any],
        attributes: dict[str, Any],
        types: list[ResultType],
        like: Node,
    ) -> list[Any]:
        """The registered op, with float attributes as 0-d tensors where one is a value of the graph."""
        dyn = any(isinstance(v, Value) for v in attributes.values())
        target = provider.target(dyn)
        floats = {a.name for a in op.attributes if a.type == "float"}
        args = [*nodes, *(self.number(v, dyn and n in floats) for n, v in attributes.items())]
        editor = self.editor
        vals = [self.fake(t, r.star, nodes, like, i) for i, (t, r) in enumerate(zip(types, op.results, strict=True))]
        node = editor.call(target, *args, val=vals[0] if len(vals) == 1 else tuple(vals), like=like)
        results = (
            [node]
            if len(vals) == 1
            else [editor.call(operator.getitem, node, i, val=v, like=like) for i, v in enumerate(vals)]
        )
        return [
            [editor.call(operator.getitem, n, j, val=v, like=like) for j, v in enumerate(val)] if r.star else n
            for n, val, r in zip(results, vals, op.results, strict=True)
        ]

    def number(self, value: Any, tensor: bool) -> Any:
        """An attribute as an argument: a node, or a constant; `tensor`: as a 0-d tensor."""
        if isinstance(value, Group):
            return value.name
        if isinstance(value, Value):
            node = self.editor.node(value)
            if value.op == "symfloat":
                return self.editor.call(aten.scalar_tensor.default, node, dtype=torch.float64)
            return node
        if tensor and value is not None:
            return self.editor.call(
                aten.full.default, [], value, dtype=torch.float64, device=torch.device("cpu"), pin_memory=False
            )
        return value

    def fake(self, t: ResultType, star: bool, nodes: list[Any], like: Node, index: int) -> Any:
        """The fake value of a result: that of a node which it replaces where that is of this type, else a new one."""
        if star:
            count = len(next(n for n in nodes if isinstance(n, list)))
            return [self.fake_one(t.of_element(j), like) for j in range(count)]
        if t.layout == "row":
            for o in self.plan.outputs:
                val = o.node.meta["val"]
                if o.index == index and val.dtype == t.dtype and dims_of(val) == t.shape and val.is_contiguous():
                    return val
        return self.fake_one(t, like)

    def fake_one(self, t: ResultType, like: Node) -> torch.Tensor:
        """A new fake tensor of a declared type."""
        sizes = [self.symbolic(s) for s in t.shape]
        device = like.meta["val"].device
        return fakes.empty(self.editor.fake_mode, sizes, strides(sizes, t.layout), t.dtype, device)

    def symbolic(self, s: Any) -> Any:
        """A size as an int or a SymInt of the graph's shape environment."""
        if isinstance(s, int):
            return s
        for node in self.editor.table.size_nodes.get(s, ()):
            return node.meta["val"]
        env = self.editor.fake_mode.shape_env
        return env.create_symintnode(s, hint=None)


def _has_layout(info: OperandInfo, node: Any) -> None:
    """Refuse where an operand has a declared layout, other than the default, and a tensor that is not known to have it.

    The default, "row", asks for nothing: a provider that reads memory in order says `contiguous(x)`.
    """
    layout = info.type.layout
    if layout == "row" or not isinstance(node, Node):
        return
    val = node.meta["val"]
    if isinstance(layout, Ref) or val.stride() != strides(tuple(val.shape), layout):
        raise Refusal("strides", str(list(val.stride())), f"{info.name}: {info.type} in the layout {layout}", node=node)
