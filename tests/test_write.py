"""Definitions written into graphs: run op by op they are the definition, in every dialect, and they are recognised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

import capture
from fxrewrite import ops
from fxrewrite.dsl.core import BINARY, UNARY, Dtype, OpDef, Prim, TensorType
from fxrewrite.dsl.evaluate import evaluate
from fxrewrite.lowering.eager import PRIMITIVES, TensorNumber, Torch
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.layouts import strides
from fxrewrite.lowering.write import NodeNumber, Primitives, write_definition
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.values import Table
from fxrewrite.patterns.writers import CORE, INDUCTOR, TRAINING, Dialect
from fxrewrite.verify.same import counted_strides, difference
from fxrewrite.verify.written import is_written
from graph_checks import check_metadata
from op_samples import attribute_sets, dtypes_of, operands, plain_attributes

PROGRAM = ops.shipped_program()
DIALECTS = [INDUCTOR, CORE, TRAINING]
Write = Callable[[Editor, list[Any]], Any]


def written(dialect: Dialect, inputs: Sequence[Any], write: Write) -> GraphModule:
    """A graph of what `write` puts behind its placeholders. Inputs are tensors, lists of tensors, None."""
    graph, mode, real = Graph(), FakeTensorMode(), []
    table = Table()

    def placeholder(x: Any) -> Any:
        if isinstance(x, list):
            return [placeholder(i) for i in x]
        if not isinstance(x, Tensor | float):
            return x
        node = graph.placeholder(f"a{len(real)}")
        node.meta["val"] = mode.from_tensor(x) if isinstance(x, Tensor) else x
        real.append(x)
        read_node(table, node)
        return node

    nodes = [placeholder(x) for x in inputs]
    editor = Editor(graph, table, dialect, mode, cursor=next(iter(reversed(graph.nodes))))
    results = write(editor, nodes)
    graph.output(tuple(results) if isinstance(results, list | tuple) else (results,))
    gm = GraphModule(torch.nn.Module(), graph)
    gm.meta[capture.INPUTS] = tuple(real)
    return gm


def like(nodes: Sequence[Any]) -> Node:
    return nodes[0]


def flat(values: Sequence[Any]) -> list[Tensor]:
    return [t for v in values for t in (v if isinstance(v, list | tuple) else [v])]


def check(op: OpDef, dialect: Dialect, given: Sequence[Any], attributes: dict[str, Any], dyn: bool = False) -> None:
    """The written definition is the definition, in the declared layouts."""
    floats = [a.name for a in op.attributes if a.type == "float" and isinstance(attributes.get(a.name), float)] * dyn
    numbers = [torch.tensor(attributes[n], dtype=torch.float64) for n in floats]

    def write(editor: Editor, nodes: list[Any]) -> list[Any]:
        named = {**attributes, **dict(zip(floats, nodes[len(given) :]))}
        return write_definition(editor, PROGRAM, op, nodes[: len(given)], named, like(nodes))

    gm = written(dialect, [*given, *numbers], write)
    gm.graph.lint()
    check_metadata(gm)
    found = capture.run(gm)
    wanted = flat(evaluate(PROGRAM, op, given, {**attributes, **dict(zip(floats, numbers))}, Torch()))
    assert len(found) == len(wanted)
    for a, b in zip(wanted, found, strict=True):
        assert difference(a.contiguous(), b.contiguous()) is None, f"{op.name} {attributes}: {difference(a, b)}"
    for r, value in zip(op.results, found if not op.results[0].star else (), strict=False):
        layout = r.type.layout if isinstance(r.type.layout, str) else attributes.get(r.type.layout.name, "row")
        want = torch.empty_strided(value.shape, strides(value.shape, layout))
        assert counted_strides(value) == counted_strides(want), f"{op.name}.{r.name}: {layout}"


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
@pytest.mark.parametrize("name", sorted(n for n, o in PROGRAM.ops.items() if is_written(PROGRAM, o)))
def test_every_op_in_every_dialect(name: str, dialect: Dialect) -> None:
    op = PROGRAM.ops[name]
    for dtype in dtypes_of(op):
        for optional in (True, False):
            check(op, dialect, operands(op, dtype, optional), plain_attributes(op))
        check(op, dialect, operands(op, dtype), plain_attributes(op), dyn=True)


@pytest.mark.parametrize(
    "name", sorted(n for n, o in PROGRAM.ops.items() if is_written(PROGRAM, o) and not o.is_fusion)
)
def test_every_attribute(name: str) -> None:
    op = PROGRAM.ops[name]
    for i, attributes in enumerate(attribute_sets(op, {})):
        if i < 60:
            given = operands(op, dtypes_of(op)[0], optional=not attributes.get("narrow"))
            check(op, DIALECTS[i % 3], given, attributes)


# ---- primitives


def values(dtype: torch.dtype) -> Tensor:
    """All values of a 16-bit dtype, [256, 256]; as many of others."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32)
    if dtype.itemsize == 2:
        return bits.to(torch.int16).view(dtype).reshape(256, 256)
    return torch.randn(256, 256, generator=torch.Generator().manual_seed(0)).to(dtype)


def check_primitive(op: str, dialect: Dialect, args: Sequence[Any], params: Sequence[Any] = ()) -> None:
    """A primitive written is the primitive evaluated. `NUMBER` among `args` is a number of the graph."""
    term = Prim(op, (), (), type=TensorType(None, None))

    def write(editor: Editor, nodes: list[Any]) -> Node:
        given = [NodeNumber(n) if a is NUMBER else n if isinstance(a, Tensor) else a for a, n in zip(args, nodes)]
        first = next(n for a, n in zip(args, nodes) if isinstance(a, Tensor) and a is not NUMBER)
        return Primitives(editor, first).primitive(op, given, params, term)

    gm = written(dialect, [a if isinstance(a, Tensor) else None for a in args], write)
    want = PRIMITIVES[op](*(TensorNumber(a) if a is NUMBER else a for a in args), *params)
    (found,) = capture.run(gm)
    assert difference(want.contiguous(), found.contiguous()) is None, f"{op}: {difference(want, found)}"


NUMBER = torch.tensor(1.1, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_elementwise_steps_round_as_the_definition_says(dtype: torch.dtype) -> None:
    x, y = values(dtype), values(dtype).flip(0).t()
    others = (y, 0.1, 3, NUMBER, torch.tensor(0.7), y[:1])
    bounds = ((-0.5, 2), (None, 0.1), (0.1, None), (None, None), (NUMBER, None), (0.0, NUMBER), (y, y[:1]))
    steps = [(op, [x]) for op in UNARY] + [("clamp", [x, *b]) for b in bounds]
    steps += [(op, pair) for op in BINARY for other in others for pair in ([x, other], [other, x])]
    for i, (op, args) in enumerate(steps):
        check_primitive(op, DIALECTS[i % 3], args)


def test_tensors_meet_in_the_dtype_that_torch_promotes_them_to() -> None:
    for a, b in ((torch.bfloat16, torch.float32), (torch.bfloat16, torch.float16), (torch.float16, torch.int8)):
        for op in BINARY:
            check_primitive(op, INDUCTOR, [values(a), values(b)])


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_moves_reductions_and_products(dialect: Dialect) -> None:
    x = values(torch.bfloat16)[64:72].nan_to_num(0, 0, 0).reshape(8, 4, 64)
    for op in ("amax", "mean", "sum", "var"):
        for dims in ((-1,), (0, 2), ()):
            check_primitive(op, dialect, [x], [dims, True])
            check_primitive(op, dialect, [x], [dims, False])
    for params in ((8, -1), (4, 8, 64)):
        check_primitive("reshape", dialect, [x], [params])
        check_primitive("reshape", dialect, [x.transpose(0, 1)], [params])
    check_primitive("permute", dialect, [x], [(2, 0, 1)])
    check_primitive("expand", dialect, [x[:, :1]], [(8, 3, 64)])
    check_primitive("slice", dialect, [x], [-1, 0, 32, 1])
    check_primitive("slice", dialect, [x], [1, 1, None, 2])
    check_primitive("slice_scatter", dialect, [x, x[..., 32:]], [-1, 0, 32, 1])
    check_primitive("cat", dialect, [x, x], [-1])
    check_primitive("clone", dialect, [x])
    for name in ("f32", "bf16", "f16", "e4m3fn", "i8"):
        check_primitive("to", dialect, [x], [Dtype(name)])
    for a, b in ((x[0], x[1].t()), (x, x[:, 0].t()), (x, x.transpose(1, 2))):
        check_primitive("matmul", dialect, [a, b])
