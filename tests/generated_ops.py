"""Generated kernels held against their definitions, op by op: what the interpreter's and the GPU's tests share.

Without a reduction along rows, every bit must be equal. A sum may be added up in any order: then each row must equal
the definition *with its sums moved* by a few units in the last place, in all outputs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from attrs import frozen
from fxrewrite_kernels.emit import DEVICE, INTERPRETER
from fxrewrite_kernels.ir import Builder, Definition, Input, Output, define_kernel
from fxrewrite_kernels.launch import Launcher
from fxrewrite_kernels.schedule import Schedule
from torch import Tensor

from fxrewrite.dsl.core import Dtype, DtypeVar, OpDef, Prim, Program
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.dims import names as dim_names
from fxrewrite.dsl.evaluate import EvaluationError, evaluate
from fxrewrite.dsl.scalars import Env, sizes
from fxrewrite.lowering.codegen import ROWS, Given, lower
from fxrewrite.lowering.eager import DTYPES, Torch
from fxrewrite.lowering.generated import flat, given
from fxrewrite.patterns.dtypes import NAMES

PACKS = ("norm_quant", "act_quant")
ATTRIBUTES: dict[str, Any] = {"eps": 1e-6, "G": 128}  # those that have no default
FINE = tuple(sorted(range(-24, 25), key=abs))  # quarters of such a unit, where what was added up cancels
HOSTILE = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e-30, 3e38, -3e38)
MOVES = (0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8)  # units in the last place


def required(op: OpDef, **chosen: Any) -> dict[str, Any]:
    """Attributes: the chosen ones that the op has, and one for each that has no default."""
    return {a.name: v for a in op.attributes if (v := chosen.get(a.name, ATTRIBUTES.get(a.name))) is not None}


def expressible(program: Program, names: Sequence[str]) -> Iterator[str]:
    """The ops that a kernel can be generated for."""
    for name in names:
        op = program.ops[name]
        try:
            kinds = [Given(NAMES[t], shape if len(shape) < 2 else (ROWS, *shape[1:])) for shape, t in types(op, 512, 2)]
            lower(program, name, [[k, k] if o.star else k for o, k in zip(op.operands, kinds)], required(op))
        except (EvaluationError, KeyError):
            continue
        yield name


def operands(
    op: OpDef, dtype: str, width: int, rows: int, device: str = "cpu", layout: str = "plain", weight: str | None = None,
    bound: bool = False,
) -> list[Any]:  # fmt: skip
    """Normal random operands. `layout`: "plain", "strided" (parts of wider rows) or "odd" (and at an odd address).
    `weight`: dtype of vectors, "none" where they may be absent. `bound`: with bounds of scales.
    """
    generator = torch.Generator(device).manual_seed(width * 31 + rows)

    def one(found: tuple[int, ...], kind: torch.dtype) -> Tensor:
        if found == (1,):
            return (torch.rand(1, device=device, generator=generator) * 0.1 + 0.01).to(kind)
        if len(found) < 2:
            return (1 + 0.1 * torch.randn(found, device=device, generator=generator)).to(kind)
        left = {"plain": 0, "strided": 8, "odd": 3}[layout]
        wide = torch.randn((rows, found[1] + 2 * left), device=device, generator=generator).to(kind)
        return wide[:, left : left + found[1]]

    kinds = types(op, width, rows, dtype, weight)
    absent: dict[tuple[int, ...], bool] = {(1,): not bound, (width,): weight == "none"}
    return [
        None if o.optional and absent.get(k[0], False) else [one(*k), one(*k)] if o.star else one(*k)
        for o, k in zip(op.operands, kinds)
    ]


def types(
    op: OpDef, width: int, rows: int, dtype: str = "bf16", weight: str | None = None
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """The sizes and dtypes of the operands."""
    found: list[tuple[tuple[int, ...], torch.dtype]] = []
    for o in op.operands:
        shape = o.type.shape or ()
        dims = {n: width for d in shape if not isinstance(d, Star) for n in dim_names(d)} | {"T": rows}
        known = sizes(shape, Env(dims=dims, stars={d.name: (rows,) for d in shape if isinstance(d, Star)}))
        found.append((known, _dtype(o.type.dtype, dtype if len(known) > 1 or weight == "none" else weight or dtype)))
    return found


def _dtype(declared: Any, wanted: str) -> torch.dtype:
    if isinstance(declared, DtypeVar):
        return DTYPES[wanted if wanted in declared.members else declared.members[0]]
    return DTYPES[declared.name] if isinstance(declared, Dtype) else torch.int8


class Reference(Torch):
    """Torch op by op, with sums moved by units in the last place: `moves` for the first sum, the second, ...

    `interpreted`: functions as Triton's interpreter computes them, which is numpy's way.
    """

    def __init__(self, moves: Sequence[int] = (), interpreted: bool = False):
        self.moves, self.interpreted = list(moves), interpreted
        self.means: list[tuple[Tensor, Tensor]] = []

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        if op in ("mean", "var") and params[0]:
            mean = self.mean(args[0])
            return mean if op == "mean" else self.mean(torch.square(args[0] - mean))
        if op == "erf" and args[0].is_cuda:  # releases of CUDA differ in its last bit: this is Triton's
            return by_kernel(op, args[0])
        if self.interpreted and op in NUMPY:
            x = args[0]
            return torch.from_numpy(np.asarray(NUMPY[op](x.float().numpy()), np.float32)).to(x.dtype)
        return super().primitive(op, args, params, term)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of rows, from a moved sum. A sum in which much cancels moves by units of what was added up."""
        for known, mean in self.means:  # `var` has the mean that is there already
            if known is x:
                return mean
        k = self.moves[len(self.means)] if len(self.means) < len(self.moves) else 0
        total = x.sum(-1, keepdim=True)
        cancels = (x < 0).any(-1, keepdim=True) & (x > 0).any(-1, keepdim=True)
        unit = torch.where(cancels, torch.maximum(total.abs(), (x * x).sum(-1, keepdim=True).sqrt()), total.abs())
        step = torch.nextafter(unit, torch.full_like(unit, torch.inf)) - unit
        step = torch.where(cancels, step / 4, step)
        total = torch.where(step.isfinite(), total + k * step, total)
        self.means.append((x, total / torch.tensor(float(x.shape[-1]), device=x.device)))
        return self.means[-1][1]


def by_kernel(op: str, x: Tensor) -> Tensor:
    """A function of float32 values as generated kernels call it, which may be 2 ulp from torch's."""
    flat_x = x.float().reshape(-1)
    width = 1024
    padded = torch.nn.functional.pad(flat_x, (0, -len(flat_x) % width)).view(-1, width)
    launcher = Launcher(function_kernel(op, width), DEVICE)
    (found,) = launcher.results(len(padded), x.device)
    launcher([padded], [found], Schedule("tile", width, 4))
    found = found.view(-1)[: len(flat_x)]
    off = (found.view(torch.int32) - getattr(torch, op)(flat_x).view(torch.int32)).abs()
    assert not (off[flat_x.isfinite() & (flat_x.abs() >= 2.0**-126)] > 2).any()  # what is subnormal is flushed
    return found.view(x.shape).to(x.dtype)


@cache
def function_kernel(op: str, width: int) -> Definition:
    build, source = Builder(), Input("x", "rows", "f32", width)
    return define_kernel(op, [source], [Output("y", build.apply(op, build.load(source)))], width)


def _tanh(x: Any) -> Any:
    return np.float32(1) - np.float32(2) / (np.exp(x * np.float32(2)) + np.float32(1))


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[np.float32])(x)


NUMPY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "log2": np.log2, "tanh": _tanh, "erf": _erf,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x), "sigmoid": lambda x: np.float32(1) / (np.exp(-x) + np.float32(1)),
}  # fmt: skip


@frozen
class Outcome:
    """How many rows are not explained, and how many are not equal bit for bit to the plain definition."""

    unexplained: int
    moved: int
    rows: int


def check(
    program: Program, name: str, dtype: str, width: int, rows: int, device: str = "cpu", layout: str = "plain",
    schedule: Schedule | None = None, weight: str | None = None, hostile: bool = False,
    bound: bool = False, **chosen: Any,
) -> Outcome:  # fmt: skip
    """Run a generated kernel and hold it against the definition."""
    op = program.ops[name]
    attributes = required(op, **chosen)
    values = operands(op, dtype, width, rows, device, layout, weight, bound)
    if hostile:
        spoil(values[0])
    lowered = lower(program, name, [given(v) for v in values], attributes)
    launcher = Launcher(lowered.definition, INTERPRETER if device == "cpu" else DEVICE)
    results = launcher.results(rows, torch.device(device))
    for r in results:
        r.view(torch.uint8 if r.element_size() == 1 else r.dtype).fill_(77)
    launcher([flat(v) for v in picked(values, lowered.inputs)], results, schedule)
    if rows == 0:
        return Outcome(0, 0, 0)
    sums = sum(n.op == "row_sum" for n in lowered.definition.nodes)
    by = {0: [], 1: [MOVES], 2: [FINE, MOVES]}[sums]  # the first of two is a mean, of which much cancels
    good = torch.zeros(rows, dtype=torch.bool, device=device)
    moved = 0
    for i, moves in enumerate(product(*by)):
        expected = evaluate(program, name, values, attributes, Reference(moves, device == "cpu"))
        flat_expected = [t for e in expected for t in (e if isinstance(e, list) else [e])]
        good |= same_rows(results, flat_expected)
        if i == 0:
            moved = int((~good).sum())
        if good.all():
            break
    return Outcome(int((~good).sum()), moved, rows)


def spoil(x: Tensor) -> None:
    """Put a hostile value into one column of a row, and into all of another."""
    for i, value in enumerate(HOSTILE):
        x[2 * i, 5] = value
        x[2 * i + 1] = value


def same_rows(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    """Which rows are equal in all outputs, bit for bit; a NaN is a NaN."""
    rows = found[0].shape[0]
    good = torch.ones(rows, dtype=torch.bool, device=found[0].device)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype and f.shape == e.shape, (f.dtype, e.dtype, f.shape, e.shape)
        both_nan = f.isnan() & e.isnan() if f.is_floating_point() else torch.zeros_like(f, dtype=torch.bool)
        good &= ((bits(f) == bits(e)) | both_nan).reshape(rows, -1).all(1)
    return good


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def picked(values: Sequence[Any], sources: Sequence[tuple[int, int | None]]) -> list[Tensor]:
    return [values[i] if j is None else values[i][j] for i, j in sources]
