"""Reading past the writes of a functionalized op, so that it can die where a rule takes what it wrote.

What others see of a base after a call is the base with the written parts in their places. So a slice that no part
touches is a slice of the base as it was, and whoever reads all of it may read parts that are put there one by one. Both
are written before rules are tried, and taken back around every call that is still there afterwards.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define, field
from torch.fx import Node

from fxrewrite.lowering.editor import COPIED, Editor
from fxrewrite.lowering.plan import Refusal, idle
from fxrewrite.lowering.replace import compatible
from fxrewrite.patterns.dialect import LIST_READERS, VIEWS
from fxrewrite.patterns.functionalized import FUNCTIONALIZED, Place, places
from fxrewrite.patterns.values import Value
from fxrewrite.patterns.writes import returned

aten = torch.ops.aten


@define(eq=False)
class Detour:
    """Around one written base: `steps` are (reader, what it read, what it reads now), `made` the new nodes."""

    written: Node
    steps: list[tuple[Node, Node, Node]] = field(factory=list)
    made: list[Node] = field(factory=list)


def make(editor: Editor) -> list[Detour]:
    """The detours of a graph whose values are read."""
    out: list[Detour] = []
    for node in list(editor.graph.nodes):
        value = editor.table.of_node.get(node)
        if node.op == "call_function" and type(value) is Value and value.op == "slice_scatter":
            detour = Detour(node)
            editor.made = detour.made
            for read in list(_reads(node)):
                _around(editor, detour, value, read)
            if node.target is operator.getitem and node.args[0].target in FUNCTIONALIZED:  # type: ignore[union-attr]
                _by_parts(editor, detour, value)
            if detour.steps:
                out.append(detour)
    editor.made = []
    return out


def settle(editor: Editor, detours: list[Detour]) -> None:
    """Take back the detours around what is still there."""
    for detour in detours:
        if not detour.written._erased:
            for reader, old, new in detour.steps:
                if not reader._erased and new in reader.all_input_nodes:
                    reader.replace_input_with(new, old)
                    _instead(editor, new, old)
            editor.made = [n for n in detour.made if not n._erased and not _kept(n, detour)]
            editor.undo()


def _kept(node: Node, detour: Detour) -> bool:
    """Did a rule come to read a new node?"""
    todo = [node]
    while todo:
        users = todo.pop().users
        if any(u not in detour.made for u in users):
            return True
        todo += users
    return False


def _reads(node: Node) -> Iterator[Node]:
    """The slices of a node, through splits."""
    for u in node.users:
        yield from _slices(u)


def _slices(user: Node) -> Iterator[Node]:
    """`user` where it is a slice; of a split what is taken from it."""
    if user.target in (aten.slice.Tensor, aten.select.int):
        yield user
    elif user.target in LIST_READERS:
        yield from (g for g in user.users if g.target is operator.getitem)


def _around(editor: Editor, detour: Detour, written: Value, read: Node) -> None:
    """Let the users of a slice that no written part touches read what it is a slice of."""
    value = editor.table.of_node.get(read)
    below = _contents(written)[-1]
    if type(value) is not Value or not _is_of(value, below):
        return
    if not read.users or returned(read) or _overwritten(editor, below, read):
        return
    count = len(detour.made)
    nodes, value.nodes = value.nodes, []  # a node of its own, so that what reads it is known when it is taken back
    editor.cursor = read
    try:
        new = editor.node(value)
        compatible(read, new, editor.truth)
    except Refusal:
        editor.undo(count)
        return
    finally:
        value.nodes = nodes
    _step(editor, detour, [(u, read) for u in read.users], new)


def _is_of(value: Value, base: Value) -> bool:
    """Is a value a slice of a base, perhaps without an axis of one?"""
    cut = value.args[0] if value.op == "reshape" else value
    return cut.op == "slice" and cut.args[0] is base


def _contents(written: Value) -> list[Value]:
    """What a base holds, with ever fewer parts written; last, what it held before."""
    out = [written]
    while out[-1].op == "slice_scatter":
        out.append(out[-1].args[0])
    return out


def _overwritten(editor: Editor, base: Value, read: Node) -> bool:
    """Is the base written to before the last user of a slice?"""
    writes = editor.table.writes
    if not writes:
        return False
    last = max(_readers(read), default=read)
    return any(w < last for n in base.nodes for w in writes.to(n))


def _readers(node: Node) -> Iterator[Node]:
    todo = [node]
    while todo:
        for u in todo.pop().users:
            yield u
            if u.target in VIEWS or u.target is operator.getitem:
                todo.append(u)


def _by_parts(editor: Editor, detour: Detour, written: Value) -> None:
    """Let those who read all of a base of v2 read its parts put together."""
    node, table = detour.written, editor.table
    contents = _contents(written)
    readers = [u for u in node.users if not idle(u) and not _takes_parts(editor, contents, u)]
    if not readers:
        return
    call: Any = node.args[0]
    count, index = len(detour.made), node.args[1]
    editor.cursor = node
    nodes, written.nodes = written.nodes, []
    try:
        for name, place in (places(call) or {}).items():
            value = _part(table.of_node[node], name)
            if place is not None and value is not None and place.base is _base(call, index):
                _write_part(editor, node, place, value)
        new = editor.node(written)
        compatible(node, new, editor.truth)
    except Refusal:
        editor.undo(count)
        return
    finally:
        written.nodes = nodes
    _step(editor, detour, [(u, node) for u in readers], new)


def _takes_parts(editor: Editor, contents: list[Value], user: Node) -> bool:
    """Does a user read only what one argument of the call became?"""
    reads = [editor.table.of_node[r] for r in _slices(user)]
    return bool(reads) and not any(_is_of(v, x) for v in reads for x in contents)


def _base(call: Any, index: Any) -> Node:
    return call.kwargs["_all_bases"][index - max(len(call.args[0]._schema.returns), 1)]


def _part(written: Value, name: str) -> Value | None:
    """What an argument of the call became, below the places that it was put in."""
    while written.op == "slice_scatter":
        part = written.args[1]
        while part.op in ("reshape", "permute", "slice_scatter"):
            part = part.args[1 if part.op == "slice_scatter" else 0]
        if part.op.endswith(f"#{name}"):
            return part
        written = written.args[0]
    return None


def _write_part(editor: Editor, node: Node, place: Place, value: Value) -> None:
    for axis, start, stop in place.ranges:
        bounds = [s if isinstance(s, int) else editor.written_size(s) for s in (start, stop)]
        node = editor.call(aten.slice.Tensor, node, axis % len(node.meta["val"].shape), *bounds)
    if place.order:
        node = editor.call(aten.permute.default, node, list(place.order))
    if tuple(node.meta["val"].shape) != place.shape:
        node = editor.call(editor.dialect.reshape, node, editor.sizes(place.shape))
    value.nodes.append(node)
    editor.table.of_node[node] = value


def _step(editor: Editor, detour: Detour, reads: list[tuple[Node, Node]], new: Node) -> None:
    for made in editor.made:
        made.meta.update({k: detour.written.meta[k] for k in COPIED if k in detour.written.meta and k not in made.meta})
    for user, old in reads:
        user.replace_input_with(old, new)
        detour.steps.append((user, old, new))
    _instead(editor, reads[0][1], new)


def _instead(editor: Editor, old: Node, new: Node) -> None:
    """Among the nodes of a value, `new` takes the place of `old`."""
    value: Any = editor.table.of_node[old]
    nodes = [n for n in value.nodes if n is not new]
    value.nodes = [new if n is old else n for n in nodes]
    editor.table.of_node[new] = value
