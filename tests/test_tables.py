"""Every consumer of the core has every primitive; where one has it under another name or not at all, it is said why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from fxrewrite.dsl.check.builtins import BUILTINS
from fxrewrite.dsl.core import PRIMITIVES, UNARY
from fxrewrite.lowering import codegen, eager
from fxrewrite.lowering.editor import Editor
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.values import Table, Value
from fxrewrite.patterns.writers import CORE, INDUCTOR, NOT_WRITTEN, TRAINING, WRITERS, Dialect

READ_AS = {"fdiv": "div"}  # the normal form has one division: what it may be off by is the contract's business
NOT_READ = {
    "clone": "a copy has memory of its own; clean-up takes it away where that is nobody's concern",
}
SAMPLES: dict[str, tuple[int, tuple[Any, ...]]] = {  # primitive -> tensor arguments, then parameters as torch has them
    **dict.fromkeys(UNARY, (1, ())),
    "clamp": (1, (0.5, None)),
    "to": (1, (torch.bfloat16,)),
    "reshape": (1, ([8, 2],)),
    "permute": (1, ([1, 0],)),
    "expand": (1, ([3, 4, 4],)),
    "slice": (1, (-1, 0, 2, 1)),
    "slice_scatter": (2, (-1, 1, 3, 1)),
    "cat": (2, (-1,)),
    "clone": (1, ()),
    **dict.fromkeys(("amax", "mean", "sum", "var"), (1, ((-1,), True))),
}


def test_tables_have_every_primitive_and_nothing_else() -> None:
    assert set(eager.PRIMITIVES) == set(PRIMITIVES)
    assert set(WRITERS) | set(NOT_WRITTEN) == set(PRIMITIVES)
    assert not set(WRITERS) & set(NOT_WRITTEN)
    assert all(NOT_WRITTEN.values())
    assert {b.prim for b in BUILTINS.values()} >= set(PRIMITIVES)
    assert set(codegen.PRIMITIVES) | set(codegen.NOT_GENERATED) == set(PRIMITIVES)
    assert not set(codegen.PRIMITIVES) & set(codegen.NOT_GENERATED) and all(codegen.NOT_GENERATED.values())
    assert set(READ_AS) | set(NOT_READ) <= set(PRIMITIVES)


def placeholders(count: int, last_width: int = 4) -> tuple[Editor, list[Node]]:
    graph, mode = Graph(), FakeTensorMode()
    nodes = [graph.placeholder(f"x{i}") for i in range(count)]
    for i, node in enumerate(nodes):
        node.meta["val"] = mode.from_tensor(torch.ones(4, last_width if i == count - 1 else 4))
    return Editor(graph, Table(), INDUCTOR, mode, cursor=nodes[-1]), nodes


@pytest.mark.parametrize("dialect", [INDUCTOR, CORE, TRAINING], ids=str)
@pytest.mark.parametrize("op", WRITERS)
def test_what_is_written_is_read(op: str, dialect: Dialect) -> None:
    count, params = SAMPLES.get(op, (2, ()))
    editor, nodes = placeholders(count, 2 if op == "slice_scatter" else 4)
    last = WRITERS[op](dialect, editor.call, *nodes, *params)
    for node in editor.graph.nodes:
        read_node(editor.table, node)
    value = editor.table.of_node[last]
    assert isinstance(value, Value)
    known = value.op in PRIMITIVES
    assert known != (op in NOT_READ), value.op
    if known:
        assert value.op == READ_AS.get(op, op)
        assert [a for a in value.args if isinstance(a, Value)] == [editor.table.of_node[n] for n in nodes]
