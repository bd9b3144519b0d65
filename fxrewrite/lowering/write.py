"""Definitions written into a graph: the primitives of an op, in the dialect of the graph, step by step.

    editor.cursor = call                                # the next node goes behind it
    results = write_definition(editor, program, "rms_norm_fp8", [x, w, None], {"eps": 1e-6}, like=call)

What is written, run op by op, is the definition bit for bit: every promotion is a cast of its own, and where eager
torch rounds a 16-bit step differently than the definition says (`eager.py`), the step is written in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.fx import Node

from fxrewrite.dsl import registered
from fxrewrite.dsl.core import BINARY, Dtype, OpDef, Prim, Program, Ref, ResultInfo
from fxrewrite.dsl.evaluate import UNKNOWN, Algebra, Bindings, EvaluationError, bind, evaluate_bound
from fxrewrite.dsl.scalars import FIT
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.layouts import TMA_ROWS, strides
from fxrewrite.patterns.arguments import number_of
from fxrewrite.patterns.dialect import base
from fxrewrite.patterns.dtypes import DTYPES, NAMES, to_core
from fxrewrite.patterns.guards import decide_symbolic
from fxrewrite.patterns.values import LOW, dims_of, size
from fxrewrite.patterns.writers import NOT_WRITTEN, WRITERS

aten = torch.ops.aten
SIZES = ("reshape", "expand", "slice", "slice_scatter")  # primitives with sizes among their parameters


def write_definition(
    editor: Editor,
    program: Program,
    op: str | OpDef,
    nodes: Sequence[Any],
    attributes: Mapping[str, Any],
    like: Node,
    facts: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Write the definition of `op` behind the cursor: a node (a list of nodes) for each result.

    `nodes`: operands in order, None for `none`, lists for list operands. `attributes`: by name; a float may be a node
    (a 0-d tensor, a symbolic float), a dtype torch's or the core's. The new nodes have the metadata of `like`. Results
    lie in the declared layouts, in memory of their own. Raises EvaluationError or Refusal, the graph as it was.
    """
    made, cursor = len(editor.made), editor.cursor
    algebra = Primitives(editor, like)
    given = {name: _attribute(editor, value) for name, value in attributes.items()}
    try:
        bindings = bind(program, op, nodes, given, algebra, facts)
        values = evaluate_bound(bindings)
        return _Results(algebra, bindings, nodes).stored(values)
    except Exception:
        editor.undo(made, cursor)
        raise


def _attribute(editor: Editor, value: Any) -> Any:
    """An attribute as the core has it; a node that holds a constant is the constant."""
    constant = number_of(editor.table, value) if isinstance(value, Node) else None
    return to_core(value) if constant is None else constant


# ---- the algebra


@frozen
class NodeNumber:
    """A number that is a node (a 0-d tensor, a symbolic float): it takes the dtype of the step that it is used in."""

    node: Node


class Primitives(Algebra):
    """The algebra of nodes: each step is written behind the cursor of `editor`, in the dialect of the graph."""

    def __init__(self, editor: Editor, like: Node):
        self.editor, self.like = editor, like

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node with the metadata of the site."""
        return self.editor.call(target, *args, like=self.like, **kwargs)

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Node:
        """A primitive in the running dialect."""
        step = _STEPS.get(op)
        if step is not None:
            return step(self, op, *args)
        given = [self.parameter(p, op in SIZES) for p in params]
        if op == "to" and args[0].meta["val"].dtype == given[0]:
            return args[0]
        return self.write(op, *args, *given)

    def write(self, op: str, *args: Any) -> Node:
        """The nodes of a primitive; the last of them. Raises EvaluationError for one that graphs do not have."""
        if op in NOT_WRITTEN:
            raise EvaluationError(f"{op} is not written into graphs: {NOT_WRITTEN[op]}")
        return WRITERS[op](self.editor.dialect, self.call, *args)

    def cast(self, x: Node, dtype: torch.dtype) -> Node:
        """`x` in another dtype."""
        return x if x.meta["val"].dtype == dtype else self.write("to", x, dtype)

    def dtype(self, value: Any) -> str | None:
        """The short name of the dtype of a node."""
        val = _val(value)
        return NAMES.get(val.dtype, str(val.dtype)) if isinstance(val, torch.Tensor) else None

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes of a node: ints and expressions."""
        val = _val(value)
        return dims_of(val) if isinstance(val, torch.Tensor) else None

    def number(self, value: Any) -> Any:
        """A number; one that is a node of the graph as a `NodeNumber`."""
        return NodeNumber(value) if isinstance(value, Node) else value

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of sizes; what a number of the graph is, nobody knows."""
        if isinstance(left, Node) or isinstance(right, Node):
            return UNKNOWN
        return decide_symbolic(op, left, right, self.editor.truth)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """`contiguous(x)`, or a native, which is given values of the graph."""
        if name.startswith(registered.MARK):
            of_node = self.editor.table.of_node
            if any(isinstance(a, Node) and a not in of_node for a in args):
                return UNKNOWN
            return registered.call(name, tuple(of_node[a] if isinstance(a, Node) else a for a in args))
        val = _val(args[0]) if name == "contiguous" else None
        return self.has_layout(val, "row") if isinstance(val, torch.Tensor) else UNKNOWN

    def has_layout(self, val: torch.Tensor, layout: str) -> Any:
        """Has a tensor the strides of a layout, up to axes of size 1? UNKNOWN where sizes at run time decide."""
        wanted = strides(tuple(val.shape), layout)
        pairs = [(size(a), size(b)) for n, a, b in zip(dims_of(val), wanted, val.stride(), strict=True) if n != 1]
        answers = [True if a == b else self.decide("==", a, b) for a, b in pairs]
        return False if any(a is False for a in answers) else UNKNOWN if any(a is UNKNOWN for a in answers) else True

    # ---- arguments

    def parameter(self, value: Any, sizes: bool) -> Any:
        """A parameter as torch has it; sizes that are expressions become nodes."""
        if isinstance(value, Dtype):
            return DTYPES[value.name]
        if isinstance(value, tuple):
            return [self.parameter(v, sizes) for v in value]
        return self.size(value) if sizes and not isinstance(value, int | None) else value

    def size(self, s: Any) -> Any:
        """A size as an argument of a node."""
        return s if isinstance(s, int) or s == FIT else self.editor.written_size(s)

    def sizes(self, shape: Sequence[Any]) -> list[Any]:
        """Sizes as arguments of a node."""
        return [self.size(s) for s in shape]

    def operand(self, x: Any, dtype: torch.dtype) -> Any:
        """An operand of a step that computes in `dtype`: a node, or a Python number."""
        if not isinstance(x, NodeNumber):
            return self.cast(x, dtype) if isinstance(x, Node) else x
        node = x.node
        if not isinstance(node.meta["val"], torch.Tensor):
            node = self.call(aten.scalar_tensor.default, node, dtype=torch.float64)
        return self.cast(node, dtype)

    def tensor(self, x: Any, dtype: torch.dtype) -> Node:
        """An operand as a node: a Python number as a 0-d tensor."""
        found = self.operand(x, dtype)
        if isinstance(found, Node):
            return found
        return self.call(aten.full.default, [], found, dtype=dtype, device=self.device, pin_memory=False)

    @property
    def device(self) -> torch.device:
        """The device of the site."""
        val = self.like.meta["val"]
        while isinstance(val, list | tuple):
            val = val[0]
        return val.device


def _val(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, Node) else None


# ---- steps that are not one op of the table


def _binary(algebra: Primitives, op: str, x: Any, y: Any) -> Node:
    """A step with two operands: two tensors meet in the dtype that torch promotes them to; a number takes theirs."""
    tensors = [a for a in (x, y) if isinstance(a, Node)]
    dtype = tensors[0].meta["val"].dtype
    if len(tensors) == 2:
        ranked = [t.meta["val"] for t in tensors]
        if all(v.ndim for v in ranked) or not any(v.ndim for v in ranked):
            dtype = torch.promote_types(ranked[0].dtype, ranked[1].dtype)
            x, y = (algebra.cast(t, dtype) for t in tensors)
        return algebra.write(op, x, y)
    if op in ("maximum", "minimum"):
        return algebra.write(op, algebra.tensor(x, dtype), algebra.tensor(y, dtype))
    plain = op == "mul" or (op in ("div", "fdiv") and isinstance(x, Node))  # others round their number to 16 bits first
    plain = plain and not any(isinstance(a, NodeNumber) for a in (x, y))
    wide = torch.float32 if dtype in LOW and not plain else dtype
    return algebra.cast(algebra.write(op, algebra.operand(x, wide), algebra.operand(y, wide)), dtype)


def _erf(algebra: Primitives, op: str, x: Node) -> Node:
    dtype = x.meta["val"].dtype
    wide = torch.float32 if dtype in LOW else dtype
    return algebra.cast(algebra.write(op, algebra.cast(x, wide)), dtype)


def _clamp(algebra: Primitives, op: str, x: Node, lo: Any, hi: Any) -> Node:
    """A clamp; a bound that is a node is a maximum or a minimum."""
    if not any(isinstance(b, Node | NodeNumber) for b in (lo, hi)):
        return x if lo is None and hi is None else algebra.write(op, x, lo, hi)
    x = x if lo is None else _binary(algebra, "maximum", x, lo)
    return x if hi is None else _binary(algebra, "minimum", x, hi)


def _matmul(algebra: Primitives, op: str, x: Node, y: Node) -> Node:
    """A product; leading axes beside one matrix are rows, as torch has it."""
    left, right = dims_of(x.meta["val"]), dims_of(y.meta["val"])
    if len(left) < 3 or len(right) != 2:
        return algebra.write(op, x, y)
    rows = algebra.write("reshape", x, [-1, algebra.size(left[-1])])
    return algebra.write("reshape", algebra.write(op, rows, y), algebra.sizes((*left[:-1], right[-1])))


_STEPS: dict[str, Callable[..., Node]] = {
    **dict.fromkeys(BINARY, _binary),
    "erf": _erf,
    "clamp": _clamp,
    "matmul": _matmul,
}

# ---- results


class _Results:
    """Values as an op returns them: in the declared layout, none in the memory of an operand or of another result."""

    def __init__(self, algebra: Primitives, bindings: Bindings, operands: Sequence[Any]):
        self.algebra, self.bindings = algebra, bindings
        flat = [x for o in operands for x in (o if isinstance(o, list | tuple) else [o])]
        self.taken = {base(x) for x in flat if isinstance(x, Node)}

    def stored(self, values: Sequence[Any]) -> list[Any]:
        """A node, or a list of nodes, for each result."""
        out: list[Any] = []
        for result, found in zip(self.bindings.op.results, values, strict=True):
            out.append([self.one(result, v) for v in found] if result.star else self.one(result, found))
        return out

    def one(self, result: ResultInfo, node: Node) -> Node:
        layout = result.type.layout
        layout = self.bindings.attributes[layout.name] if isinstance(layout, Ref) else layout
        if self.algebra.has_layout(node.meta["val"], layout) is not True:
            node = _LAYOUTS[layout](self.algebra, node)
        elif base(node) in self.taken:
            node = self.algebra.call(aten.clone.default, node)
        self.taken.add(base(node))
        return node


def _row(algebra: Primitives, node: Node) -> Node:
    return algebra.call(aten.clone.default, node, memory_format=torch.contiguous_format)


def _col(algebra: Primitives, node: Node) -> Node:
    """The last two axes column-major: stored with the two exchanged."""
    order = _exchanged(node)
    return algebra.write("permute", _row(algebra, algebra.write("permute", node, order)), order)


def _tma(algebra: Primitives, node: Node) -> Node:
    """Column-major, with the rows padded to a multiple of 4."""
    order = _exchanged(node)
    rows = dims_of(node.meta["val"])[-2]
    pad = -rows % TMA_ROWS
    padded = algebra.call(aten.constant_pad_nd.default, algebra.write("permute", node, order), [0, algebra.size(pad)])
    cut = algebra.write("slice", _row(algebra, padded), len(order) - 1, 0, algebra.size(rows))
    return algebra.write("permute", cut, order)


def _exchanged(node: Node) -> list[int]:
    rank = len(node.meta["val"].shape)
    return [*range(rank - 2), rank - 1, rank - 2]


_LAYOUTS: dict[str, Callable[[Primitives, Node], Node]] = {"row": _row, "swizzled": _row, "col": _col, "tma": _tma}
