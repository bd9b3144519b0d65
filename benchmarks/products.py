"""How near products come to what the contract allows behind long sums (clause 11 of `docs/contract.md`).

A product of [64, K] and [K, 64] is computed by right kernels (torch's own, other orders, tensor cores simulated) and by
wrong ones. Of each: the share of elements that differ from the centre, by the share that may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from attrs import frozen
from torch import Generator, Tensor

from benchmarks.report import Column, Goal, Table
from benchmarks.settings import Settings
from fxrewrite.dsl.core import Dtype, Prim
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.inputs import rounded, values
from fxrewrite.verify.judge import judge
from fxrewrite.verify.right_kernels import Sum, from_the_end, lanes, pairwise
from fxrewrite.verify.straight import Recorder, Recording, record

SIDE = 64  # rows and columns of a product
ROUNDED = (("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "f16"), ("e4m3fn", "bf16"))  # operands, result
NEAREST = 0.75  # of what is allowed, that a right kernel may come to
Kernel = Callable[[Tensor, Tensor, torch.dtype], Tensor]


# ---- operands


def _cancelling(x: Tensor, y: Tensor, g: Generator) -> tuple[Tensor, Tensor]:
    """The second half of each sum takes away most of the first."""
    half = x.shape[1] // 2
    near = 1 + 2.0**-6 * torch.randn(half, SIDE, generator=g)
    return torch.cat([x[:, :half], -x[:, :half]], 1), torch.cat([y[:half], y[:half] * near])


def _outlier(x: Tensor, y: Tensor, g: Generator) -> tuple[Tensor, Tensor]:
    """One column is 1000 times the others."""
    x = x.clone()
    x[:, x.shape[1] // 3] *= 1000
    return x, y


KINDS: dict[str, Callable[[Tensor, Tensor, Generator], tuple[Tensor, Tensor]]] = {
    "normal": lambda x, y, g: (x, y),
    "positive": lambda x, y, g: (x.abs(), y.abs()),
    "cancelling": _cancelling,
    "large and small": lambda x, y, g: (x * torch.exp2(torch.randint(-10, 11, x.shape, generator=g).float()), y),
    "offset": lambda x, y, g: (x + 30, y),
    "outlier": _outlier,
}


@cache
def operands(kind: str, width: int, dtype: str) -> tuple[Tensor, Tensor]:
    """[64, K] and [K, 64] of a dtype."""
    g = Generator().manual_seed(width)
    x, y = (values("normal", shape, torch.float32, g) for shape in ((SIDE, width), (width, SIDE)))
    x, y = KINDS[kind](x, y, g)
    return rounded(x / 8, DTYPES[dtype]), rounded(y, DTYPES[dtype])


def defined(x: Tensor, y: Tensor, out: str) -> Recording:
    """The definition: the product in f32, rounded once."""

    def definition(algebra: Recorder, given: Any) -> dict[str, Any]:
        wide = [algebra.primitive("to", [v], [Dtype("f32")], Prim("to", ())) for v in given]
        summed = algebra.primitive("matmul", wide, [], Prim("matmul", ()))
        return {"y": algebra.primitive("to", [summed], [Dtype(out)], Prim("to", ()))}

    return record(definition, [x, y])


# ---- kernels


def _native(x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """Torch's own for the dtype."""
    if x.dtype == torch.float8_e4m3fn:
        one = torch.ones(())
        return torch._scaled_mm(x, y.T.contiguous().T, scale_a=one, scale_b=one, out_dtype=out)
    return (x @ y).to(out)


def _without_onednn(x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    with torch.backends.mkldnn.flags(enabled=False):
        return (x @ y).to(out) if x.dtype.itemsize > 1 else _native(x, y, out)


def _wide(x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    return (x.double() @ y.double()).float().to(out)


def _ordered(add: Sum, x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """f32 products, added in an order."""
    x, y = x.float(), y.float()
    parts = [add(x[:, None, :] * y.T[None, j : j + 8, :]).squeeze(-1) for j in range(0, SIDE, 8)]
    return torch.cat(parts, -1).to(out)


def _in_parts(parts: int, x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """K in parts, each summed alone."""
    size = max(1, x.shape[1] // parts)
    cut = range(0, x.shape[1], size)
    return torch.stack([x[:, i : i + size].float() @ y[i : i + size].float() for i in cut]).sum(0).to(out)


def _tensor_core(truncates: bool, x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """16 products at a time, exact, added to an f32 accumulator by rounding or by truncating."""
    total = torch.zeros(SIDE, SIDE)
    for i in range(0, x.shape[1], 16):
        exact = total.double() + x[:, i : i + 16].double() @ y[i : i + 16].double()
        total = exact.float()
        if truncates:
            total = torch.where(total.double().abs() > exact.abs(), torch.nextafter(total, 0 * total), total)
    return total.to(out)


RIGHT: dict[str, Kernel] = {
    "torch": _native,
    "torch without oneDNN": _without_onednn,
    "in f64": _wide,
    "from the end": partial(_ordered, from_the_end),
    "pairwise": partial(_ordered, pairwise),
    "8 running sums": partial(_ordered, lanes(8)),
    "32 running sums": partial(_ordered, lanes(32)),
    "K in 8 parts": partial(_in_parts, 8),
    "16 at a time": partial(_tensor_core, False),
    "16 at a time, truncated": partial(_tensor_core, True),
}


def _rounded_sums(part: int, every: bool, x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """The sum rounded to the dtype of the result after one part of K, or after each."""
    size = max(1, x.shape[1] // part)
    total = torch.zeros(SIDE, SIDE)
    for i in range(0, x.shape[1], size):
        total = total + x[:, i : i + size].float() @ y[i : i + size].float()
        total = total.to(out).float() if every or i == 0 else total
    return total.to(out)


def _short(terms: Callable[[int], int], x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """Without the last terms."""
    kept = x.shape[1] - terms(x.shape[1])
    return (x[:, :kept].float() @ y[:kept].float()).to(out)


def _truncated(x: Tensor, y: Tensor, out: torch.dtype) -> Tensor:
    """Rounded toward zero."""
    exact = x.float() @ y.float()
    found = exact.to(out)
    return torch.where(found.float().abs() > exact.abs(), torch.nextafter(found, 0 * found), found)


WRONG: dict[str, Kernel] = {
    "rounded after each 32nd part": partial(_rounded_sums, 32, True),
    "rounded after the first half": partial(_rounded_sums, 2, False),
    "rounded after the first 32nd part": partial(_rounded_sums, 32, False),
    "without the last term": partial(_short, lambda width: 1),
    "without the last 64th part": partial(_short, lambda width: width // 64),
    "truncated": _truncated,
}


# ---- what the judge says


@frozen
class Case:
    """A kernel on operands. `used`: what differs from the centre by what may, where clause 11 is asked; `slack`: the
    part of the slack of a sum that the worst element of an f32 result used."""

    kernel: str
    at: str
    caught: bool
    used: float | None
    slack: float | None


def cases(kernels: dict[str, Kernel], dtypes: Sequence[tuple[str, str]], widths: Sequence[int]) -> Iterator[Case]:
    """Every kernel on every kind of operands."""
    for (dtype, out), kind, width in product(dtypes, KINDS, widths):
        x, y = operands(kind, width, dtype)
        definition = defined(x, y, out)
        for name, kernel in kernels.items():
            found = judge(definition.program, definition.inputs, {"y": kernel(x, y, DTYPES[out])})["y"]
            used = None if found.off_centre is None or not found.allowed else found.off_centre / found.allowed
            slack = found.closest if out == "f32" else None
            yield Case(name, f"{dtype} to {out}, {kind}, K = {width}", not found.ok, used, slack)


def run(settings: Settings) -> list[Table]:
    """Right kernels, and how near they come to what is allowed; wrong ones, and how many of their cases are caught."""
    right = _by_kernel(cases(RIGHT, (*ROUNDED, ("f32", "f32")), settings.product_widths))
    wrong = _by_kernel(cases(WRONG, ROUNDED, settings.product_widths))
    nearest = max(c.used or 0.0 for found in right.values() for c in found)
    alarms = sum(c.caught for found in right.values() for c in found)
    return [
        Table(
            "right products",
            (Column("kernel"), Column("cases"), Column("called wrong"), Column("most off centre", "of allowed"),
             Column("most slack", "of allowed"), Column("at")),
            tuple((name, len(found), sum(c.caught for c in found), *_most(found)) for name, found in right.items()),
            (f"[{SIDE}, K] @ [K, {SIDE}], K in {settings.product_widths}; slack: of f32 results",),
            (Goal("right kernels called wrong", float(alarms), 0.0),
             Goal("nearest right kernel", nearest, NEAREST, "of what may differ from the centre")),
        ),
        Table(
            "wrong products",
            (Column("kernel"), Column("cases"), Column("caught"), Column("caught on"), Column("passes on")),
            tuple(_row(name, found) for name, found in wrong.items()),
        ),
    ]  # fmt: skip


def _by_kernel(found: Iterator[Case]) -> dict[str, list[Case]]:
    by_kernel: dict[str, list[Case]] = {}
    for c in found:
        by_kernel.setdefault(c.kernel, []).append(c)
    return by_kernel


def _most(found: list[Case]) -> tuple[float, float, str]:
    worst = max(found, key=lambda c: c.used or 0.0)
    return worst.used or 0.0, max(c.slack or 0.0 for c in found), worst.at


def _row(name: str, found: list[Case]) -> tuple[str, int, int, str, str]:
    return name, len(found), sum(c.caught for c in found), _kinds(found, True), _kinds(found, False)


def _kinds(found: list[Case], caught: bool) -> str:
    """The kinds of operands on which a kernel is caught, or passes, with how many cases."""
    kinds = Counter(c.at.split(", ")[1] for c in found if c.caught == caught)
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items())
