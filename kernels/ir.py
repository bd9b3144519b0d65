"""A row-wise kernel as data: a DAG of nodes over the rows of its inputs.

A node has a value for each row (`rows`), or one for all of them, and along an axis: for each column, for each group of
columns, or one. Arithmetic is float32; `to` is the only rounding. So `a + b` of two bfloat16 values is
`to(add(to(a, f32), to(b, f32)), bf16)`, and nothing else is ever rounded. A cast to FP8 saturates and keeps NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

COLUMNS, GROUPS, ONE = "columns", "groups", "one"
_RANK = {ONE: 0, GROUPS: 1, COLUMNS: 2}

LOW = ("bf16", "f16")
FP8 = ("e4m3fn",)
DTYPES = ("f32", *LOW, *FP8, "i8")  # of inputs (but FP8) and outputs
SIZES = {"f32": 4, "bf16": 2, "f16": 2, "e4m3fn": 1, "i8": 1}  # bytes

UNARY = ("abs", "neg", "exp", "exp2", "log2", "sqrt", "rsqrt", "tanh", "erf", "ceil", "floor", "round")
BINARY = ("add", "sub", "mul", "div", "max", "min")  # `max` and `min` keep NaN
REDUCTIONS = ("row_sum", "row_max", "group_max")
ROW_REDUCTIONS = ("row_sum", "row_max")
OPS = ("load", "const", "to", *UNARY, *BINARY, *REDUCTIONS)


@frozen(eq=False)
class Node:
    """A value. Two nodes of one `Builder` are equal only if they are one object.

    `attr`: of `load` the input, its first column and the step between columns; of `const` the number.
    """

    number: int
    op: str
    args: tuple[Node, ...]
    dtype: str
    rows: bool
    axis: str
    attr: tuple[Any, ...] = ()


@frozen
class Input:
    """A tensor that is read. `kind`: "rows" [T, width], "vector" [width] or "scalar" (one element)."""

    name: str
    kind: str
    dtype: str
    width: int = 1


@frozen
class Output:
    """A tensor that is written. `layout` of one value a group: "row", "col" or "tma" (column-major, rows padded)."""

    name: str
    node: Node
    layout: str = "row"


@frozen(eq=False)
class Definition:
    """What a kernel computes. `width`: columns of a row; `group`: columns of a group, 0 where there are none.

    `nodes`: all of them, each behind its arguments.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    width: int
    group: int
    nodes: tuple[Node, ...]

    def input(self, name: str) -> Input:
        """The input called `name`."""
        return next(i for i in self.inputs if i.name == name)


@define
class Builder:
    """Makes nodes; equal ones are made once."""

    _made: dict[tuple[Any, ...], Node] = field(init=False, factory=dict[tuple[Any, ...], Node])

    def load(self, source: Input, start: int = 0, step: int = 1) -> Node:
        """Columns `start`, `start + step`, ... of an input."""
        axis = ONE if source.kind == "scalar" else COLUMNS
        return self._node("load", (), source.dtype, source.kind == "rows", axis, (source.name, start, step))

    def const(self, value: float) -> Node:
        """A number, rounded to float32."""
        return self._node("const", (), "f32", False, ONE, (rounded(value),))

    def apply(self, op: str, *args: Node) -> Node:
        """An elementwise step on float32 values, with broadcasting along the axes."""
        if any(a.dtype != "f32" for a in args):
            raise TypeError(f"{op} of {', '.join(a.dtype for a in args)}: arithmetic is float32")
        axis = max((a.axis for a in args), key=lambda a: _RANK[a])
        return self._node(op, args, "f32", any(a.rows for a in args), axis)

    def reduce(self, op: str, x: Node) -> Node:
        """A reduction of a float32 value along its columns."""
        return self._node(op, (x,), "f32", x.rows, GROUPS if op == "group_max" else ONE)

    def to(self, x: Node, dtype: str) -> Node:
        """`x` rounded to `dtype`, or widened to float32. What was rounded without a loss is widened for nothing."""
        if x.dtype == dtype:
            return x
        if dtype == "f32" and x.op == "to" and is_exact(x.args[0], x.dtype):
            return x.args[0]
        return self._node("to", (x,), dtype, x.rows, x.axis)

    def _node(
        self, op: str, args: tuple[Node, ...], dtype: str, rows: bool, axis: str, attr: tuple[Any, ...] = ()
    ) -> Node:
        key = (op, tuple(a.number for a in args), dtype, tuple(map(repr, attr)))  # -0.0 is not 0.0
        if key not in self._made:
            self._made[key] = Node(len(self._made), op, args, dtype, rows, axis, attr)
        return self._made[key]


def is_exact(x: Node, dtype: str) -> bool:
    """Does every value of `x`, which is float32, exist in a 16-bit dtype?"""
    if x.op == "to":
        return x.args[0].dtype == dtype
    if x.op == "const":
        return dtype == "bf16" and rounded(x.attr[0]) == x.attr[0] and _bits(x.attr[0]) & 0xFFFF == 0
    return x.op in ("abs", "neg", "max", "min", "row_max", "group_max") and all(is_exact(a, dtype) for a in x.args)


def rounded(value: float) -> float:
    """The nearest float32; what is too large is infinite."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def define_kernel(
    name: str, inputs: Iterable[Input], outputs: Iterable[Output], width: int, group: int = 0
) -> Definition:
    """The definition of these outputs, with what they need: inputs that nothing reads stay arguments."""
    outs = tuple(outputs)
    order: list[Node] = []
    seen: set[int] = set()

    def visit(n: Node) -> None:
        if n.number not in seen:
            seen.add(n.number)
            for a in n.args:
                visit(a)
            order.append(n)

    for o in outs:
        visit(o.node)
    return Definition(name, tuple(inputs), outs, width, group, tuple(order))


__all__ = [
    "BINARY", "COLUMNS", "DTYPES", "FP8", "GROUPS", "LOW", "ONE", "OPS", "REDUCTIONS", "ROW_REDUCTIONS", "SIZES",
    "UNARY", "Builder", "Definition", "Input", "Node", "Output", "define_kernel", "is_exact", "rounded",
]  # fmt: skip
