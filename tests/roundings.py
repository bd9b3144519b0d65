"""Two spellings of an op compared rounding by rounding, on the same inputs.

Bit for bit where nothing has a free last bit. Elsewhere what is rounded may differ by 4 ulp of float32, and what comes
out then by one place; what follows a rounding that flipped so is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fxrewrite.dsl.core import Case, OpDef, Program
from fxrewrite.dsl.evaluate import bind, evaluate_bound, evaluate_case
from fxrewrite.lowering.eager import Torch

FACTS = {"sm": 100, "rocm": True}
NOISY = frozenset("exp exp2 log log1p log2 sigmoid tanh erf rsqrt fdiv mean sum var".split())
ULPS = 4
ULP = 2.0**-23  # of float32, relative


@frozen
class Rounding:
    """One rounding to 16 or fewer bits: what went in, what came out."""

    exact: Tensor
    rounded: Tensor


class Recorder(TorchDispatchMode):
    """Notes every rounding to a narrow dtype while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.roundings: list[Rounding] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point() and result.dtype.itemsize <= 2:
            given = [a for a in args if isinstance(a, Tensor)]
            if given and given[0].dtype.itemsize > 2:
                self.roundings.append(Rounding(given[0].float(), result))
            elif torch.Tag.pointwise in func.tags and len(given) == 2:
                wide = [a.float() if isinstance(a, Tensor) else a for a in args]
                self.roundings.append(Rounding(func(*wide, **(kwargs or {})), result))
        return result


class Watched(Torch):
    """The torch algebra; notes whether a primitive with a free last bit was used."""

    def __init__(self) -> None:
        self.noisy = False

    def primitive(self, op: str, args: Any, params: Any, term: Any) -> Tensor:
        self.noisy |= op in NOISY
        return super().primitive(op, args, params, term)


def order(x: Tensor) -> Tensor:
    """The place of each value among all values of its dtype, -0 beside +0."""
    bits = x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.dtype.itemsize]).to(torch.int64)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    magnitude = bits & (sign - 1)
    return torch.where((bits & sign) != 0, -magnitude - 1, magnitude)


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Where the bits differ; a NaN is a NaN."""
    return (order(a) != order(b)) & ~(a.float().isnan() & b.float().isnan())


def near(a: Tensor, b: Tensor, ulps: int = ULPS) -> Tensor:
    """Where two float32 values are within some ulps of each other."""
    same = (a == b) | (a.isnan() & b.isnan())
    return same | ((a - b).abs() <= ulps * ULP * torch.maximum(a.abs(), b.abs()).clamp_min(2**-126))


def difference(op: OpDef, case: Case, program: Program, operands: list[Any], attributes: dict[str, Any]) -> str:
    """How the case differs from the definition on these inputs; nothing if it does not."""
    algebra = Watched()
    with Recorder() as ours:
        expected = evaluate_bound(bind(program, op, operands, attributes, algebra, FACTS))
    with Recorder() as theirs:
        found = evaluate_case(case, bind(program, op, operands, attributes, algebra, FACTS))
    for r, a, b in zip(op.results, expected, found):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{r.name} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
    if not algebra.noisy:
        return next((f"{r.name}: {_first(a, b, differ(a, b))}" for r, a, b in _pairs(op, expected, found)), "")
    return rounding_by_rounding(op, ours.roundings, theirs.roundings, expected, found)


def _pairs(op: OpDef, expected: Any, found: Any) -> Iterator[tuple[Any, Tensor, Tensor]]:
    return ((r, a, b) for r, a, b in zip(op.results, expected, found) if differ(a, b).any())


def _first(a: Tensor, b: Tensor, where: Tensor) -> str:
    i = int(where.flatten().nonzero()[0])
    count = f"{int(where.sum())} of {where.numel()} differ"
    return f"{count}; {b.flatten()[i].item()} instead of {a.flatten()[i].item()}"


def rounding_by_rounding(op: OpDef, ours: list[Rounding], theirs: list[Rounding], expected: Any, found: Any) -> str:
    """How two runs differ beyond noise before a rounding. What follows a rounding that flipped is not judged."""
    if len(ours) != len(theirs):
        if not any(True for _ in _pairs(op, expected, found)):
            return ""  # a rounding more that changes nothing
        return f"{len(theirs)} roundings instead of {len(ours)}"
    flipped: Tensor | None = None
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a.rounded.shape != b.rounded.shape or a.rounded.dtype != b.rounded.dtype:
            return f"rounding {i} is of {b.rounded.dtype}{list(b.rounded.shape)}"
        flips = differ(a.rounded, b.rounded)
        wrong = flips & ~(near(a.exact, b.exact) & ((order(a.rounded) - order(b.rounded)).abs() <= 1))
        if flipped is not None and flipped.any():
            assert flipped.shape == wrong.shape, "a flip that spreads cannot be judged"
            wrong &= ~flipped
        if wrong.any():
            return f"rounding {i}: {_first(a.rounded, b.rounded, wrong)}"
        flipped = flips if flipped is None or flipped.shape != flips.shape else flipped | flips
    for r, a, b in _pairs(op, expected, found):
        if a.dtype == torch.float32 and not near(a, b).all():
            return f"{r.name}: {_first(a, b, ~near(a, b))}"
        if a.dtype != torch.float32 and flipped is not None and (differ(a, b) & ~flipped.reshape(a.shape)).any():
            return f"{r.name}: {_first(a, b, differ(a, b))}"
    return ""
