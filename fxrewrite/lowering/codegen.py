"""A checked definition as the program of a row-wise kernel (`fxrewrite_kernels.ir`).

    lowered = lower(program, "rms_norm_fp8", [Given("bf16", (ROWS, 4096)), Given("bf16", (4096,)), None], {"eps": 1e-6})
    lowered.definition      # what fxrewrite_kernels.emit writes as Triton source

The definition is evaluated on values that are nodes (`rowwise.py`). What is no such program is refused, by name and
place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import sympy
from attrs import frozen
from fxrewrite_kernels.ir import COLUMNS, FP8, GROUPS, LOW, ONE, Builder, Definition, Node, Output, define_kernel

from fxrewrite.dsl.core import Dtype, Program, Ref
from fxrewrite.dsl.evaluate import bind, evaluate_bound
from fxrewrite.dsl.formats import FLOATS
from fxrewrite.dsl.scalars import FIT
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.given import ROWS, Given, NotExpressible
from fxrewrite.lowering.rowwise import Kernel, Lanes, Step

GROUP_SIZES = (16, 32, 64, 128, 256)  # columns; blocks of a kernel have a power of two
INTEGERS = {"i8": (-128.0, 127.0)}


@frozen
class Lowered:
    """A kernel for an op. `inputs`: for each of its inputs, which operand it is, and which element of a list.

    `results`: how many outputs each result has, None where it is no list.
    """

    definition: Definition
    inputs: tuple[tuple[int, int | None], ...]
    results: tuple[int | None, ...]


def lower(
    program: Program,
    name: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> Lowered:
    """The kernel of an op for operands of these types (`Given`, lists of them, None) and attributes.

    Raises EvaluationError where they do not fit the op, NotExpressible where the definition is no row-wise program.
    """
    algebra = Kernel(PRIMITIVES, NOT_GENERATED)
    op = program.ops[name]
    values: list[Any] = []
    for info, given in zip(op.operands, operands):
        many = isinstance(given, list | tuple)
        made = [
            algebra.operand(f"{info.name}{j}" if many else info.name, g)
            for j, g in enumerate(given if many else [given])
        ]
        values.append(made if many else made[0])
    bindings = bind(program, op, values, attributes, algebra, facts)
    found = evaluate_bound(bindings)
    outputs: list[Output] = []
    for result, value in zip(op.results, found):
        layout = result.type.layout
        layout = bindings.attributes[layout.name] if isinstance(layout, Ref) else layout
        many = isinstance(value, list | tuple)
        for j, v in enumerate(value if many else [value]):
            outputs.append(algebra.output(f"{result.name}{j}" if many else result.name, v, layout, op))
    definition = define_kernel(name, algebra.inputs, outputs, algebra.width, algebra.group)
    return Lowered(
        definition, _sources(operands), tuple(len(v) if isinstance(v, list | tuple) else None for v in found)
    )


def _sources(operands: Sequence[Any]) -> tuple[tuple[int, int | None], ...]:
    out: list[tuple[int, int | None]] = []
    for i, given in enumerate(operands):
        if isinstance(given, list | tuple):
            out += [(i, j) for j in range(len(given))]
        elif given is not None:
            out.append((i, None))
    return tuple(out)


# ---- primitives


def _step(op: str, kernel: Kernel, _: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    return kernel.elementwise(op, args, span)


def _reciprocal(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    return kernel.elementwise("div", [1.0, *args], span)


def _sigmoid(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    """1 / (exp(-x) + 1)."""
    (x,) = args
    build = kernel.build
    below = build.apply("add", build.apply("exp", build.apply("neg", kernel.wide(x))), build.const(1.0))
    made = Lanes(build.to(build.apply("div", build.const(1.0), below), x.node.dtype), x.shape)
    kernel.columns(made, span)
    return made


def _clamp(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    x, lo, hi = args
    if lo is not None:
        x = kernel.elementwise("max", [x, lo], span)
    return x if hi is None else kernel.elementwise("min", [x, hi], span)


def _to(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    """A cast. What becomes FP8 or an integer must be clamped; FP8 saturates by itself: its clamp is not computed."""
    (x,), (dtype,) = args, params
    assert isinstance(dtype, Dtype)
    name, node = dtype.name, x.node
    if name in ("f32", *LOW):
        wide = node if name == node.dtype else kernel.wide(x)
        return Lanes(kernel.build.to(wide, name), x.shape, x.width)
    if name not in (*FP8, *INTEGERS):
        raise NotExpressible(f"a cast to {name}", span)
    lo, hi = INTEGERS.get(name) or (FLOATS[name].min, FLOATS[name].max)
    inner = _clamped(kernel.wide(x), lo, hi)
    if inner is None:
        raise NotExpressible(f"a cast to {name} of what is not clamped to {lo:g} .. {hi:g}", span)
    if name in INTEGERS and inner.op != "round":
        raise NotExpressible(f"a cast to {name} of what is not rounded", span)
    return Lanes(kernel.build.to(inner if name in FP8 else kernel.wide(x), name), x.shape)


def _clamped(n: Node, lo: float, hi: float) -> Node | None:
    """What is clamped to these bounds by the two last steps; None for anything else."""
    for outer, bound, inner, other in (("min", hi, "max", lo), ("max", lo, "min", hi)):
        if (
            n.op == outer
            and _is_const(n.args[1], bound)
            and n.args[0].op == inner
            and _is_const(n.args[0].args[1], other)
        ):
            return n.args[0].args[0]
    return None


def _is_const(n: Node, value: float) -> bool:
    return n.op == "const" and n.attr[0] == value


def _reshape(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    """Columns as groups, groups as columns, one value a group or row with an axis more or less."""
    (x,), (shape,) = args, params
    shape = _fitted(x.shape, tuple(shape))
    node = x.node
    if shape == x.shape:
        return x
    if shape and shape[0] == ROWS and node.axis == COLUMNS:
        kernel.columns(x, span)
        if len(shape) == 3 and shape[1] * shape[2] == kernel.width:
            _set_group(kernel, shape[2], span)
            return Lanes(node, shape)
        if shape == (ROWS, kernel.width):
            return Lanes(node, shape)
    groups = kernel.width // kernel.group if kernel.group else 0
    if node.axis == GROUPS and shape in ((ROWS, groups), (ROWS, groups, 1)):
        return Lanes(node, shape)
    if node.axis == ONE and all(s in (1, ROWS) for s in shape) and shape.count(ROWS) == x.shape.count(ROWS):
        return Lanes(node, shape)
    raise NotExpressible(f"reshape of {list(map(str, x.shape))} to {list(map(str, shape))}", span)


def _set_group(kernel: Kernel, group: Any, span: Span | None) -> None:
    if group not in GROUP_SIZES:
        raise NotExpressible(f"groups of {group} columns, not one of {', '.join(map(str, GROUP_SIZES))}", span)
    if kernel.group not in (0, group):
        raise NotExpressible(f"groups of {kernel.group} and of {group} columns in one kernel", span)
    kernel.group = group


def _fitted(old: tuple[Any, ...], shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """A shape without its open size."""
    if FIT not in shape:
        return shape
    total, known = sympy.Integer(1), sympy.Integer(1)
    for n in old:
        total *= n
    for n in shape:
        known *= 1 if n == FIT else n
    open_ = sympy.simplify(total / known)
    return tuple((int(open_) if open_.is_number else open_) if n == FIT else n for n in shape)


def _slice(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    """A half of what is loaded, or every second column."""
    (x,), (dim, start, stop, step) = args, params
    node = x.node
    if dim not in (-1, len(x.shape) - 1):
        raise NotExpressible("a slice along rows", span)
    end = x.shape[-1] if stop is None else min(stop, x.shape[-1])
    if (start or 0, end, step or 1) == (0, x.shape[-1], 1):
        return x
    wide = node.op == "to" and node.dtype == "f32"
    load = node.args[0] if wide else node
    if load.op != "load" or load.attr[1:] != (0, 1) or step not in (None, 1, 2) or not x.width:
        raise NotExpressible("a slice of what is computed", span)
    first, step = start or 0, step or 1
    count = -(-(end - first) // step)
    if count * 2 != x.width or (step == 2 and first > 1):
        raise NotExpressible(f"columns {first}:{end}:{step} of {x.width}: neither a half nor every second", span)
    source = next(i for i in kernel.inputs if i.name == load.attr[0])
    if step == 2 and source.dtype not in LOW:
        raise NotExpressible(f"every second column of {source.dtype}", span)
    part = kernel.build.load(source, first, step)
    made = Lanes(kernel.build.to(part, "f32") if wide else part, (*x.shape[:-1], count))
    kernel.columns(made, span)
    return made


def _reduction(kernel: Kernel, op: str, args: list[Any], params: list[Any], span: Span | None) -> Lanes:
    (x,), (dims, keepdim) = args, params
    if tuple(d % len(x.shape) for d in dims) != (len(x.shape) - 1,) or x.node.axis != COLUMNS:
        raise NotExpressible(f"{op} over more than the columns of a row or group", span)
    kernel.columns(x, span)
    grouped = len(x.shape) == 3
    if grouped and op != "amax":
        raise NotExpressible(f"{op} over a group", span)
    node = _REDUCED[op](kernel.build, kernel.wide(x), kernel.width, grouped)
    shape = (*x.shape[:-1], 1) if keepdim else x.shape[:-1]
    return Lanes(kernel.build.to(node, x.node.dtype), shape)


def _amax(build: Builder, x: Node, width: int, grouped: bool) -> Node:
    return build.reduce("group_max" if grouped else "row_max", x)


def _mean(build: Builder, x: Node, width: int, grouped: bool) -> Node:
    return build.apply("div", build.reduce("row_sum", x), build.const(width))


def _var(build: Builder, x: Node, width: int, grouped: bool) -> Node:
    """The mean of the squares of what is left without the mean."""
    rest = build.apply("sub", x, _mean(build, x, width, grouped))
    return _mean(build, build.apply("mul", rest, rest), width, grouped)


def _sum(build: Builder, x: Node, width: int, grouped: bool) -> Node:
    return build.reduce("row_sum", x)


_REDUCED: dict[str, Callable[[Builder, Node, int, bool], Node]] = {
    "amax": _amax,
    "mean": _mean,
    "var": _var,
    "sum": _sum,
}

PRIMITIVES: dict[str, Step] = {
    **{op: partial(_step, op) for op in "abs neg exp exp2 log2 sqrt rsqrt tanh erf ceil floor round".split()},
    **{op: partial(_step, op) for op in "add sub mul div".split()},
    "fdiv": partial(_step, "div"),
    "maximum": partial(_step, "max"),
    "minimum": partial(_step, "min"),
    "reciprocal": _reciprocal,
    "sigmoid": _sigmoid,
    "clamp": _clamp,
    "to": _to,
    "reshape": _reshape,
    "slice": _slice,
    "clone": lambda kernel, op, args, params, span: args[0],
    **dict.fromkeys(_REDUCED, _reduction),
}
NOT_GENERATED: dict[str, str] = {
    "log": "no definition of a kernel uses it",
    "log1p": "no definition of a kernel uses it",
    "permute": "it moves what lies in other rows",
    "expand": "a value of a row is broadcast where it is used",
    "slice_scatter": "rows have one width",
    "cat": "rows have one width",
    "matmul": "not row-wise",
    "round_e2m1": "4-bit codes are not generated yet",
    "pack2": "codes that lie in one byte are not generated yet",
    "pack4": "exponents that lie in one word are not generated yet",
    "swizzle": "tiles of scales mix rows",
    "psum": "it talks to other ranks",
    "pshard": "it talks to other ranks",
    "pconcat": "it talks to other ranks",
}

__all__ = ["NOT_GENERATED", "PRIMITIVES", "ROWS", "Given", "Lowered", "NotExpressible", "lower"]
