"""Which implementation an emitted op gets: the first of the user's list that serves it on this device.

`kernel`: a hand-written kernel registered for the device. `generated`: a kernel made from the definition. `definition`: the site
stays as it is. `op`: the registered op that interprets the definition. Any other name is an `impl` of the op.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch.fx import Node

from fxrewrite.dsl.core import (
    Apply, Case, Extern, Fresh, Lit, Number, OneOf, OpDef, Operand, Prim, Program, Ref, Size, Taken, TorchCall, Wild,
)  # fmt: skip
from fxrewrite.dsl.scalars import holds
from fxrewrite.lowering import library
from fxrewrite.lowering.layouts import strides
from fxrewrite.lowering.replace import Editor, Refusal
from fxrewrite.lowering.types import ResultType, SiteEnv, attribute
from fxrewrite.patterns.dialect import WRITERS
from fxrewrite.patterns.forms import MissingOp, torch_op
from fxrewrite.patterns.guards import UNKNOWN, Guards
from fxrewrite.patterns.values import Value

DEFAULT = ("kernel", "generated", "definition")
BUILT_IN = (*DEFAULT, "op")
KEPT = "kept: no faster provider here"


@frozen
class Provider:
    """What serves an op at a site: `target(dyn)` is the op to call, or `case` the `impl` to write."""

    name: str
    target: Callable[[bool], Any] = field(default=lambda dyn: None)
    case: Case | None = None


def kernel_for(name: str, device: str) -> Any:
    """The hand-written kernel of an op for a device type, or None."""
    try:
        import fxrewrite_kernels
    except ImportError:
        return None
    return fxrewrite_kernels.find(name, device)


@define
class Providers:
    """The user's list, resolved against a program. `facts`: `sm`, `rocm`, `world`. `off`: impls that cannot be used, and why."""

    program: Program
    names: Sequence[str] = DEFAULT
    allow_relaxed: bool = False
    facts: Mapping[str, Any] = field(factory=dict)

    def choose(self, op: OpDef, values: list[Any], attributes: dict[str, Any], truth: Any = None) -> Provider:
        """The provider of a call. Raises Refusal: the site stays, or nothing serves it."""
        reasons: list[str] = []
        device = next((n.meta["val"].device.type for v in _flat(values) for n in v.nodes if "val" in n.meta), "cpu")
        for name in self.names:
            if name == "kernel":
                kernel = kernel_for(op.name, device)
                if kernel is not None:
                    return Provider("kernel", lambda dyn, k=kernel: k.dyn if dyn else k.default)
            elif name == "generated":
                continue
            elif name == "definition":
                raise Refusal(KEPT, f"providers: {', '.join(self.names)}", hint="" if reasons else _kept_hint(device))
            elif name == "op":
                return Provider("op", lambda dyn: library.op_for(self.program, op.name, dyn))
            else:
                case = next((c for c in op.impls if c.name == name), None)
                reason = f"{op.name} has no impl `{name}`" if case is None else self.serves(case, op, values, attributes, truth)
                if case is not None and reason is None:
                    return Provider(name, case=case)
                reasons.append(f"{name}: {reason}")
        raise Refusal("provider missing", "; ".join(reasons) or f"none of {', '.join(self.names)} serves {op.name} on {device}")

    def serves(self, case: Case, op: OpDef, values: list[Any], attributes: dict[str, Any], truth: Any) -> str | None:
        """None if an `impl` may stand here, else why not."""
        if case.contract is not None and case.contract.kind == "relaxed" and not self.allow_relaxed:
            return "its contract is relaxed (`allow_relaxed`)"
        try:
            for call in calls_of(case):
                torch_op(call.op)
        except MissingOp as error:
            return f"{error} is not in this build"
        operands = dict(zip((o.name for o in op.operands), values, strict=True))
        for name, want in case.pins:
            have = operands[name] if name in operands else attribute(attributes.get(name))
            if isinstance(have, Value) or have != want or type(have) is not type(want):
                return f"it serves {name}={want} only"
        env = SiteEnv(truth=truth, facts=self.facts)
        env.operands.update(operands)
        env.attributes.update({k: attribute(v) for k, v in attributes.items()})
        bind_names(op, values, env)
        for guard in case.guards:
            held = holds((guard,), env)
            if held is not True:
                from fxrewrite.dsl.wording import text

                return f"`{text(guard)}` is {'unknown' if held is None else 'false'}"
        return None

    def write(
        self, provider: Provider, editor: Editor, op: OpDef, nodes: list[Any], values: list[Any],
        attributes: dict[str, Any], types: list[ResultType], like: Node,
    ) -> list[Node]:  # fmt: skip
        """Write an `impl`: its torch calls, functionalized where they mutate."""
        assert provider.case is not None
        writer = ImplWriter(editor, op, nodes, values, attributes, like)
        return [writer.term(t) for t in provider.case.outputs]


def _kept_hint(device: str) -> str:
    return f'providers=["op"] runs the definition as one op on {device}'


def _flat(values: list[Any]) -> list[Value]:
    return [v for x in values for v in (_flat(x) if isinstance(x, list | tuple) else [x]) if isinstance(v, Value)]


def bind_names(op: OpDef, values: list[Any], env: SiteEnv) -> None:
    """Dims and dtypes of an op from its operands; what does not fit was refused before."""
    from fxrewrite.dsl.binding import EvaluationError, bind_operands

    try:
        bind_operands(op, [list(v) if isinstance(v, tuple) else v for v in values], env)
    except EvaluationError:
        return


def calls_of(case: Case) -> list[TorchCall]:
    """Every torch call in a spelling."""
    found: list[TorchCall] = []

    def walk(t: Any) -> None:
        if isinstance(t, Extern):
            if t.call not in found:
                found.append(t.call)
            for a in (*t.call.args, *(v for _, v in t.call.kwargs)):
                walk(a)
        elif isinstance(t, Prim):
            for a in t.args:
                walk(a)
        elif isinstance(t, Taken):
            walk(t.value)

    for o in case.outputs:
        walk(o)
    return found


class ImplWriter:
    """Writes the spelling of an `impl` with the operands and attributes of a site."""

    def __init__(self, editor: Editor, op: OpDef, nodes: list[Any], values: list[Any], attributes: dict[str, Any], like: Node):
        self.editor, self.like = editor, like
        self.operands = dict(zip((o.name for o in op.operands), nodes, strict=True))
        self.env = SiteEnv(truth=editor.truth)
        self.env.attributes.update({k: attribute(v) for k, v in attributes.items()})
        bind_names(op, values, self.env)
        self.attributes = attributes
        self.guards = Guards(self._name)
        self.calls: dict[TorchCall, Any] = {}

    def _name(self, name: str) -> Any:
        if name.startswith("dim:"):
            return self.env.dims.get(name[4:], UNKNOWN)
        if name.startswith("dtype:"):
            found = self.env.dtypes.get(name[6:])
            from fxrewrite.patterns.guards import DTYPES

            return UNKNOWN if found is None else DTYPES[found.name]
        if name.startswith("star:"):
            return self.env.stars.get(name[5:], UNKNOWN)
        return self.attributes.get(name, UNKNOWN)

    def term(self, t: Any) -> Any:
        """The node of a term of the spelling."""
        if isinstance(t, Operand):
            return self.operands[t.name]
        if isinstance(t, Extern):
            return self.extern(t)
        if isinstance(t, Prim):
            args = [self.term(a) for a in t.args]
            return WRITERS[t.op](self.editor.dialect, self.editor.call, *args, *(self.scalar(p) for p in t.params))
        if isinstance(t, Number):
            return self.scalar(t.value)
        return None

    def scalar(self, s: Any) -> Any:
        if isinstance(s, Apply) and s.op == "shape_list":
            return self.editor.sizes(tuple(self.guards.value(d) for d in s.args))
        found = self.guards.value(s)
        if found is UNKNOWN:
            raise Refusal("rule failed", f"{s} has no value here")
        if isinstance(found, Value):
            raise Refusal("other constant", "a float that is an input of the graph", "a constant",
                          hint="torch._dynamo.config.specialize_float = True makes it one")  # fmt: skip
        return found

    def extern(self, t: Extern) -> Node:
        """A result or a written buffer of a torch call, which is written once."""
        if t.call not in self.calls:
            self.calls[t.call] = self.torch_call(t.call)
        node, written, several = self.calls[t.call]
        if t.written is not None:
            return self.editor.call(operator.getitem, node, written[t.written], like=self.like)
        if written or several:
            return self.editor.call(operator.getitem, node, t.returned, like=self.like)
        return node

    def torch_call(self, call: TorchCall) -> tuple[Node, dict[Any, int], bool]:
        """The node of a call, where its written arguments are among its results, and whether it returns several."""
        target = torch_op(call.op)
        schema = target._schema
        args = [self.argument(a) for a in call.args]
        kwargs = {k: self.argument(v) for k, v in call.kwargs}
        if not schema.is_mutable:
            node = self.editor.call(target, *args, like=self.like, **kwargs)
            return node, {}, len(schema.returns) > 1
        named = {a.name: x for a, x in zip(schema.arguments, args, strict=False)} | kwargs
        for a in schema.arguments:
            named.setdefault(a.name, a.default_value)
        hop = torch.ops.higher_order.auto_functionalized
        node = self.editor.call(hop, target, like=self.like, **named)
        order = [a.name for a in schema.arguments if a.is_write and named[a.name] is not None]
        offset = max(len(schema.returns), 1)
        slots: dict[Any, int] = {}
        for i, a in enumerate(schema.arguments):
            if a.name in order:
                slots[i] = slots[a.name] = offset + order.index(a.name)
        return node, slots, True

    def argument(self, a: Any) -> Any:
        if isinstance(a, Fresh):
            return self.buffer(a)
        if isinstance(a, Taken):
            return self.term(a.value)
        if isinstance(a, OneOf):
            return self.argument(a.choices[0])
        if isinstance(a, Operand | Extern | Prim | Number):
            return self.term(a)
        if isinstance(a, Wild):
            raise Refusal("rule failed", "a provider cannot write `_`")
        if isinstance(a, Lit | Ref | Size | Apply) or hasattr(a, "name"):
            found = self.scalar(a)
            return list(found) if isinstance(found, tuple) else found
        return None

    def buffer(self, a: Fresh) -> Node:
        """A buffer for the call to fill."""
        shape = [self.guards.value(d) for d in a.type.shape or ()]
        flat = [x for s in shape for x in (s if isinstance(s, tuple) else (s,))]
        dtype = self.guards.value(a.type.dtype)
        layout = a.type.layout if isinstance(a.type.layout, str) else self.guards.value(a.type.layout)
        sizes = self.editor.sizes(tuple(flat))
        device = self.like.meta["val"].device
        if layout == "row":
            return self.editor.call(torch.ops.aten.empty.memory_format, sizes, dtype=dtype, device=device, pin_memory=False)
        fixed = list(strides(sizes, layout))
        return self.editor.call(
            torch.ops.aten.empty_strided.default, sizes, fixed, dtype=dtype, device=device, pin_memory=False
        )


__all__ = ["BUILT_IN", "DEFAULT", "Provider", "Providers"]
