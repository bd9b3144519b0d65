"""One rewrite as a transaction: the new nodes, every output compared with what it replaces, and only then the edit.

If anything is refused, all that was written is removed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx import Node

from fxrewrite.lowering import fakes
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.plan import Output, Plan, Refusal, idle
from fxrewrite.lowering.relaid import Vals, note, relaid
from fxrewrite.patterns.values import Dims, dims_of
from fxrewrite.patterns.wording import describe
from fxrewrite.patterns.writes import memory, returned

aten = torch.ops.aten
MARK = "fxrewrite"  # node.meta key: the rule and its place


def fire(p: Plan, editor: Editor, emit: Callable[[Editor, Plan], list[Any]], mark: dict[str, Any]) -> None:
    """Carry out a plan. `emit` writes the right side and returns a node (or a list of nodes) for each output.

    Raises Refusal, the graph as it was, where an output would differ in dtype, shape, device or strides; and whatever
    `emit` raises, the graph as it was.
    """
    after_inputs = p.last is None or p.last.op in ("placeholder", "get_attr")
    editor.cursor = min(o.node for o in p.outputs).prev if after_inputs else p.last
    editor.made = []
    try:
        pairs = _pairs(editor, p, emit(editor, p))
        seen = [(o.node, new) for o, new in pairs if not o.node.users.keys() <= p.dead]
        for old, new in seen:
            same_type(old, new, editor.truth)
            _unaliased(old, new, editor)
        vals = _in_strides(seen, p, editor.truth)
    except Exception:
        editor.undo()
        raise
    _move(p, editor)
    _substitute(p, editor, pairs, mark)
    note(vals)


def _in_strides(pairs: list[tuple[Node, Node]], p: Plan, truth: Any) -> Vals:
    """The fake values of what reads outputs in other strides; refuse where one that reads them depends on these."""
    refused: list[Refusal] = []
    other: Vals = {}
    for old, new in pairs:
        try:
            same_strides(old, new, truth)
        except Refusal as refusal:
            refused.append(refusal)
            other[old] = new.meta["val"]
    vals = relaid(other, p.dead) if other else {}
    if vals is None:
        raise refused[0]
    return {n: val for n, val in vals.items() if n not in other}


def _pairs(editor: Editor, p: Plan, results: list[Any]) -> list[tuple[Output, Node]]:
    """Each output with the node that replaces it."""
    pairs: list[tuple[Output, Node]] = []
    owners: dict[Node, Node] = {}  # memory of a new node -> the old memory in whose place it stands
    copies: dict[tuple[Node, Node], Node] = {}
    for o in p.outputs:
        new = results[o.index] if o.element is None else results[o.index][o.element]
        mine, old = memory(new), memory(o.node)
        if mine is not old and returned(o.node) and (_is_taken(mine) or owners.setdefault(mine, old) is not old):
            if (new, old) not in copies:
                copies[new, old] = editor.call(aten.clone.default, new, like=o.node)
            new = copies[new, old]
        pairs.append((o, _back(editor, new, o, p.found.outputs[o.index])))
    return pairs


def _is_taken(owner: Node) -> bool:
    """Is memory the caller's, or returned already? Outputs share none that they did not share before."""
    return owner.op != "call_function" or returned(owner)


def _back(editor: Editor, new: Node, o: Output, value: Any) -> Node:
    """The new node for an output, in the shape of the node that it replaces: that may be another than the shape of
    `value`, which is what the rule gives.
    """
    old, val = o.node.meta["val"], new.meta["val"]
    shape, found = dims_of(old), dims_of(val)
    if found == shape:
        return new
    wanted = (value if o.element is None else value[o.element]).shape
    if not _same_sizes(found, wanted, editor.truth) and {*found, *wanted} != {1}:
        raise Refusal("shape", str(list(found)), str(list(wanted)), o.node)
    made = fakes.view(val, shape)
    if made is None and val.dtype == old.dtype and val.device == old.device:
        made = old if val.is_contiguous() and old.is_contiguous() else None
    return editor.call(editor.dialect.reshape, new, editor.sizes(shape), val=made, like=o.node)


def compatible(old: Node, new: Node, truth: Any = None) -> None:
    """Refuse where `new` differs from `old` in dtype, device, shape, or strides of dims above 1."""
    same_type(old, new, truth)
    same_strides(old, new, truth)


def same_type(old: Node, new: Node, truth: Any = None) -> None:
    """Refuse where `new` differs from `old` in dtype, device or shape."""
    a, b = old.meta["val"], new.meta["val"]
    if a.dtype != b.dtype:
        raise Refusal("dtype", str(b.dtype), str(a.dtype), old)
    if a.device != b.device:
        raise Refusal("shape", f"on {b.device}", f"on {a.device}", old)
    shape = dims_of(a)
    if not _same_sizes(dims_of(b), shape, truth):
        raise Refusal("shape", str(list(dims_of(b))), str(list(shape)), old)


def same_strides(old: Node, new: Node, truth: Any = None) -> None:
    """Refuse where `new` differs from `old`, of the same shape, in the strides of dims above 1."""
    a, b = old.meta["val"], new.meta["val"]
    for size, s, t in zip(dims_of(a), _strides(a), _strides(b), strict=True):
        if size == 1 or size == 0 or s == t:
            continue
        if truth is not None and not isinstance(size, int) and truth(sympy.Eq(s, t)) is True:
            continue
        raise Refusal("strides", str(list(_strides(b))), str(list(_strides(a))), old)


def _same_sizes(found: Dims, wanted: Dims, truth: Any) -> bool:
    """Are two shapes equal for every size in the range? `2 * (T // 2)` is T where T is known to be even."""
    if found == wanted:
        return True
    return len(found) == len(wanted) and all(
        a == b or (truth is not None and truth(sympy.Eq(a, b)) is True) for a, b in zip(found, wanted, strict=True)
    )


def _unaliased(old: Node, new: Node, editor: Editor) -> None:
    """Refuse where `new`, an operand that comes out as it is, lies in memory that is written after `old`."""
    written = editor.table.writes.to(new) if editor.table.writes else ()
    write = next((w for w in written if old < w and w not in editor.made), None)
    if write is not None:
        raise Refusal("mutation between", describe(write), f"nothing writes to {describe(memory(new))}", write)


def _strides(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, int) else s.node.expr for s in t.stride())


def _move(p: Plan, editor: Editor) -> None:
    for user in p.moved:
        assert editor.cursor is not None
        editor.cursor.append(user)
        editor.cursor = user


def _substitute(p: Plan, editor: Editor, pairs: list[tuple[Output, Node]], mark: dict[str, Any]) -> None:
    for node in editor.made:
        if node not in editor.table.of_node:  # what was written for a capture is a value like any other
            node.meta[MARK] = mark
            editor.table.written[node] = mark["rule"]
    for o, new in pairs:
        o.node.replace_all_uses_with(new, delete_user_cb=lambda u: u not in p.dead, propagate_meta=False)
        value = o.value
        value.nodes = [new, *(n for n in value.nodes if n is not o.node)]
        editor.table.of_node.setdefault(new, value)  # an operand that comes out as it is keeps the value that it has
    for n in sorted(p.dead, reverse=True):
        for u in list(n.users):
            if idle(u, editor.table.effects):
                _erase(u)
        if not n.users and not n._erased:
            editor.graph.erase_node(n)
    for n in reversed(editor.made):  # results that nobody reads
        if not (n._erased or n.users) and idle(n, editor.table.effects):
            editor.graph.erase_node(n)
    editor.made = [n for n in editor.made if not n._erased]


def _erase(node: Node) -> None:
    """Erase an idle node, and before it those that read it."""
    gone, todo = {node}, [node]
    while todo:
        users = set(todo.pop().users) - gone
        gone |= users
        todo += users
    for n in sorted(gone, reverse=True):
        n.graph.erase_node(n)
