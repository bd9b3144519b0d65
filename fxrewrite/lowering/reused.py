"""A buffer that calls fill one after the other: each call reads, as the functional graph has it, what the one before
wrote, and fills it whatever that is.

While rules are tried such a call reads the buffer as it was made, so that nobody counts it as a reader. It reads what
it read before where that is still there afterwards.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from attrs import frozen
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from fxrewrite.lowering.editor import Editor
from fxrewrite.patterns.forms import Library
from fxrewrite.patterns.functionalized import EMPTY, FUNCTIONALIZED, base_of, places, writes_only


@frozen
class Reused:
    """`call` filled `held`, and now `made`, the buffer before anybody wrote to it."""

    call: Node
    held: Node
    made: Node


def detach(editor: Editor, library: Library) -> list[Reused]:
    """Let the calls of a graph that is read fill buffers as they were made."""
    table = editor.table
    if not table.scratch or table.writes:
        return []
    calls = [n for n in editor.graph.nodes if n.target in FUNCTIONALIZED and not writes_only(n)]
    out = [r for call in calls for r in _of(editor, call, library)]
    for r in out:
        r.call.replace_input_with(r.held, r.made)
    return out


def settle(reused: list[Reused]) -> None:
    """Let what is still there read what it read."""
    for r in reused:
        if not r.call._erased and not r.held._erased:
            r.call.replace_input_with(r.made, r.held)


def _of(editor: Editor, call: Node, library: Library) -> Iterator[Reused]:
    leaves = [n for n in tree_leaves(call.kwargs) if isinstance(n, Node)]
    for held in dict.fromkeys(leaves):
        once = leaves.count(held) == 1 and len(held.users) > 1
        if once and held.target is operator.getitem and editor.table.of_node.get(held) in editor.table.scratch:
            at = [(n, p) for n, p in (places(call) or {}).items() if p is not None and p.base is held]
            made = _made(held)
            if made is None or made in leaves or len(at) != 1:
                continue
            name, place = at[0]
            if not place.ranges and (call.args[0], name) in library.filled:
                yield Reused(call, held, made)


def _made(held: Node) -> Node | None:
    """The buffer that holds nothing yet, where calls filled one of the same type."""
    node: Any = held
    while node is not None and node.target is operator.getitem and node.args[0].target in FUNCTIONALIZED:
        node = base_of(node)
    return node if node is not None and node.target in EMPTY else None
