"""Calls of declared ops that no rule took, each given its provider. Where only the definition is left, it becomes
primitives of the dialect, which a compiler can fuse with what stands around them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.fx import Node

from fxrewrite.dsl.core import OpDef, Ref
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.impls import Site
from fxrewrite.lowering.impls import write as write_impl
from fxrewrite.lowering.layouts import UnknownLayout
from fxrewrite.lowering.plan import Refusal
from fxrewrite.lowering.providers import Kept, Providers
from fxrewrite.lowering.replace import compatible
from fxrewrite.lowering.types import ResultType
from fxrewrite.lowering.write import write_definition
from fxrewrite.patterns.calls import Declared, arguments_of
from fxrewrite.patterns.dtypes import to_core
from fxrewrite.patterns.events import LOWERED, SERVED, Event, source_line
from fxrewrite.patterns.values import dims_of
from fxrewrite.patterns.wording import describe


def provide(
    calls: Sequence[tuple[Node, Declared]], providers: Providers, editor_of: Callable[[], Editor], written: set[Node]
) -> list[Event]:
    """Give each call that is left its provider; an event for each that changes, and for each that nothing serves.

    `written`: what rules have just written has its provider.
    """
    left = [(n, d) for n, d in calls if not n._erased and n not in written and n.users]
    if not left or providers.names[0] == "op":
        return []
    editor = editor_of()
    events = [_Call(node, declared, providers, editor).provide() for node, declared in left]
    return [e for e in events if e is not None]


@frozen
class _Call:
    """One call. What is written stands where the call stood."""

    node: Node
    declared: Declared
    providers: Providers
    editor: Editor

    def provide(self) -> Event | None:
        self.editor.cursor, self.editor.made = self.node, []
        source = source_line(self.node)
        name = f"fxrewrite::{self.declared.op.name}"
        try:
            by, found = self.write()
        except (Refusal, EvaluationError, UnknownLayout) as error:
            self.editor.undo()
            reason, found = (error.reason, error.found) if isinstance(error, Refusal) else ("guard false", str(error))
            return Event(None, name, self.node.name, False, reason, found=found, source=source)
        except Exception as error:  # noqa: BLE001 (a kernel or an impl may raise anything; the call then stays)
            self.editor.undo()
            said = self.providers.failures.note(name, self.declared.op.span, error)
            return Event(None, name, self.node.name, False, "rule failed", found=said, source=source)
        if by == "op":
            return None
        if by == "definition":
            return Event(None, name, self.node.name, False, LOWERED, found=found, source=source)
        return Event(None, name, self.node.name, False, SERVED, source=source, by=by)

    def write(self) -> tuple[str, str]:
        """The name of the provider, which has taken the place of the call, and why it was this one."""
        operands, attributes = arguments_of(self.node, self.declared.op)
        given = {n: to_core(v) for n, v in attributes.items()}
        try:
            provider = self.providers.choose(
                self.declared.op,
                self.device,
                lambda case: write_impl(case, self.site(operands, given)),
                lambda: (torch.fx.map_arg(operands, lambda n: n.meta["val"]), attributes),
            )
        except Kept:
            d = self.declared
            results = write_definition(self.editor, d.program, d.op, operands, given, self.node, self.providers.facts)
            self.replace(results)
            return "definition", f"no kernel for {self.device}"
        if provider.results is not None:
            self.replace(provider.results)
        elif provider.name != "op":
            target = provider.target(self.declared.dyn)
            self.swap(
                self.editor.call(target, *operands, *attributes.values(), val=self.node.meta["val"], like=self.node)
            )
        return provider.name, ""

    @property
    def device(self) -> str:
        """The device type of the results."""
        return next(_tensors(self.node.meta["val"])).device.type

    def site(self, operands: list[Any], attributes: dict[str, Any]) -> Site:
        """The call as the place of an `impl`."""
        d = self.declared
        types = [*_types(d.op, self.node.meta["val"], attributes)]
        how = self.providers
        return Site(d.program, d.op, operands, attributes, types, self.editor, self.node, how.facts, how.proofs)

    # ---- putting it in

    def replace(self, results: Sequence[Any]) -> None:
        """New nodes in the place of the results. Raises Refusal where one has another dtype, shape or strides."""
        val = self.node.meta["val"]
        whole = isinstance(val, torch.Tensor) or (self.declared.op.results[0].star and len(results) == 1)
        pairs = [*_pairs(self.node, results[0] if whole else results)]
        for old, new in pairs:
            compatible(old, new, self.editor.truth)
        for old, new in pairs:
            old.replace_all_uses_with(new, propagate_meta=False)
        for old in _tree(self.node):
            self.editor.graph.erase_node(old)

    def swap(self, new: Node) -> None:
        """Another op that returns the same in the place of the call."""
        self.node.replace_all_uses_with(new, propagate_meta=False)
        self.editor.graph.erase_node(self.node)


def _types(op: OpDef, val: Any, attributes: dict[str, Any]) -> Iterator[ResultType]:
    vals = val if isinstance(val, tuple) else (val,)
    for result, one in zip(op.results, vals, strict=True):
        layout = result.type.layout
        tensor = one if isinstance(one, torch.Tensor) else one[0]
        named = attributes.get(layout.name, "row") if isinstance(layout, Ref) else layout
        shapes = None if isinstance(one, torch.Tensor) else tuple(map(dims_of, one))
        yield ResultType(tensor.dtype, dims_of(tensor), named, shapes)


def _pairs(node: Node, result: Any) -> Iterator[tuple[Node, Node]]:
    """Each node that holds a result, with the new one. A tuple or a list is taken apart by its users."""
    if isinstance(result, Node):
        yield node, result
        return
    for user in node.users:
        if user.target is not operator.getitem:
            raise Refusal("shape", f"{describe(user)} reads the results of {describe(node)} as one", node=user)
        index: Any = user.args[1]
        yield from _pairs(user, result[index])


def _tree(node: Node) -> list[Node]:
    """The call with what takes its results apart, users first; what replaced them has no getitem of the call."""
    return [*(n for u in list(node.users) for n in _tree(u)), node]


def _tensors(val: Any) -> Iterator[torch.Tensor]:
    if isinstance(val, torch.Tensor):
        yield val
    elif isinstance(val, list | tuple):
        for v in val:
            yield from _tensors(v)
