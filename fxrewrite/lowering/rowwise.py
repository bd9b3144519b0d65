"""Values of a definition as nodes of a row-wise kernel: the algebra that `codegen` evaluates definitions in.

Leading axes are rows, the last axis is a row of columns, and a reshape to [rows, groups, columns of a group] says what
a group is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from attrs import field, frozen
from fxrewrite_kernels.ir import COLUMNS, GROUPS, LOW, ONE, Builder, Input, Node, Output

from fxrewrite.dsl.core import OpDef, Prim
from fxrewrite.dsl.evaluate import UNKNOWN, Algebra
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.given import ROWS, Given, NotExpressible

WIDEST = 65536  # columns: beyond it no schedule was tried


@frozen
class Lanes:
    """A value of the definition: a node, and the sizes that the definition sees."""

    node: Node
    shape: tuple[Any, ...]
    width: int = field(default=0)  # columns of what was loaded


class Kernel(Algebra):
    """The algebra of nodes of a kernel. `width` and `group` are known once a step says them. `steps`: what primitives
    mean; `missing`: why others mean nothing."""

    def __init__(self, steps: Mapping[str, Step], missing: Mapping[str, str]) -> None:
        self.steps, self.missing = steps, missing
        self.build = Builder()
        self.inputs: list[Input] = []
        self.width = 0
        self.group = 0

    # ---- operands and results

    def operand(self, name: str, given: Given | None) -> Lanes | None:
        """An operand as what is loaded."""
        if given is None:
            return None
        if given.dtype not in ("f32", *LOW):
            raise NotExpressible(f"`{name}` is {given.dtype}: kernels read f32, {', '.join(LOW)}")
        width = int(given.shape[-1]) if given.shape else 1
        rows = ROWS in given.shape
        if len(given.shape) > (2 if rows else 1):
            raise NotExpressible(f"`{name}` has {len(given.shape)} axes")
        source = Input(name, "rows" if rows else "scalar" if width == 1 else "vector", given.dtype, width)
        self.inputs.append(source)
        return Lanes(self.build.load(source), given.shape, width)

    def output(self, name: str, value: Any, layout: str, op: OpDef) -> Output:
        """A result as what is stored."""
        if not isinstance(value, Lanes) or not value.node.rows:
            raise NotExpressible(f"the result `{name}` of {op.name} is no value of a row")
        node, shape = value.node, value.shape
        if node.axis == COLUMNS:
            self.columns(value, None)
        expected = {COLUMNS: self.width, GROUPS: self.width // max(self.group, 1), ONE: 1}[node.axis]
        if len(shape) != 2 or shape != (ROWS, expected):
            raise NotExpressible(f"the result `{name}` of {op.name} has the sizes {list(map(str, shape))}")
        if layout != "row" and (layout not in ("col", "tma") or node.axis != GROUPS):
            raise NotExpressible(f"the result `{name}` of {op.name} has the layout {layout!r}")
        return Output(name, node, layout)

    def columns(self, value: Lanes, span: Span | None) -> None:
        """Note how many columns a value has: all of a kernel have as many."""
        sizes: list[Any] = list(value.shape)
        found = sizes[-1] if len(sizes) < 3 else sizes[-1] * sizes[-2]
        if not isinstance(found, int) or (self.width and found != self.width):
            raise NotExpressible(f"rows of {self.width} and of {found} columns in one kernel", span)
        if found > WIDEST:
            raise NotExpressible(f"rows of {found} columns: at most {WIDEST}", span)
        self.width = found

    # ---- what evaluation asks

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Lanes:
        """A primitive as nodes."""
        step = self.steps.get(op)
        if step is None:
            raise NotExpressible(f"{op}: {self.missing[op]}", term.span)
        return step(self, op, list(args), list(params), term.span)

    def dtype(self, value: Any) -> str | None:
        """The short name of the dtype."""
        return value.node.dtype if isinstance(value, Lanes) else None

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes: numbers, and `ROWS`."""
        return value.shape if isinstance(value, Lanes) else None

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of sizes, where the number of rows does not matter."""
        found = sympy.simplify(sympy.sympify(left) - sympy.sympify(right)) if op == "==" else None
        return UNKNOWN if found is None or not found.is_number else bool(found == 0)

    # ---- steps

    def wide(self, value: Any) -> Node:
        """A value or number in float32."""
        return self.build.to(value.node, "f32") if isinstance(value, Lanes) else self.build.const(float(value))

    def elementwise(self, op: str, args: Sequence[Any], span: Span | None) -> Lanes:
        """A step on values and numbers, rounded to the dtype of the result."""
        values = [a for a in args if isinstance(a, Lanes)]
        if not values:
            raise NotExpressible(f"{op} of numbers alone", span)
        dtypes = {v.node.dtype for v in values}
        if not dtypes <= {"f32", *LOW}:
            raise NotExpressible(f"{op} of {', '.join(sorted(dtypes))}", span)
        node = self.build.apply(op, *map(self.wide, args))
        shape = broadcast([v.shape for v in values], op, span)
        made = Lanes(self.build.to(node, dtypes.pop() if len(dtypes) == 1 else "f32"), shape)
        if node.axis == COLUMNS:
            self.columns(made, span)
        return made


def broadcast(shapes: Sequence[tuple[Any, ...]], op: str, span: Span | None) -> tuple[Any, ...]:
    """The sizes of a step on values of these sizes."""
    rank = max(map(len, shapes))
    out: list[Any] = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        found = {s for s in sizes if s != 1}
        if len(found) > 1:
            raise NotExpressible(f"{op} of the sizes {' and '.join(str(list(map(str, s))) for s in shapes)}", span)
        out.append(found.pop() if found else 1)
    return tuple(out)


Step = Callable[[Kernel, str, list[Any], list[Any], "Span | None"], Lanes]

__all__ = ["ROWS", "Given", "Kernel", "Lanes", "NotExpressible", "Step"]
