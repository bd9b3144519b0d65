"""Kernels that are right and differ from op-by-op torch: none of them may be called wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from attrs import define
from torch import Tensor

from fxrewrite.lowering import eager
from fxrewrite.verify.interpret import Change, Eager, Kernel, Simulated
from fxrewrite.verify.origins import written_slots
from fxrewrite.verify.straight import Slot, Step, Straight

Sum = Callable[[Tensor], Tensor]  # over the last axis, which stays with size 1

# ---- orders of a sum


def from_the_end(x: Tensor) -> Tensor:
    """As torch adds, from the other end."""
    return x.flip(-1).sum(-1, keepdim=True)


def pairwise(x: Tensor) -> Tensor:
    """Neighbours first."""
    while x.shape[-1] > 1:
        x = _even(x)
        x = x[..., 0::2] + x[..., 1::2]
    return x


def butterfly(x: Tensor) -> Tensor:
    """The first half and the second, again and again."""
    while x.shape[-1] > 1:
        x = _even(x)
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x


def lanes(count: int) -> Sum:
    """`count` running sums, then those neighbours first."""

    def add(x: Tensor) -> Tensor:
        x = torch.cat([x, x.new_zeros(*x.shape[:-1], -x.shape[-1] % count)], -1).unflatten(-1, (-1, count))
        running = torch.zeros_like(x[..., 0, :])
        for i in range(x.shape[-2]):
            running = running + x[..., i, :]
        return pairwise(running)

    return add


def in_f64(x: Tensor) -> Tensor:
    """One rounding."""
    return x.double().sum(-1, keepdim=True).to(x.dtype)


def _even(x: Tensor) -> Tensor:
    return x if x.shape[-1] % 2 == 0 else torch.cat([x, x.new_zeros(*x.shape[:-1], 1)], -1)


def ordered(add: Sum, by_reciprocal: bool = False) -> dict[str, Change]:
    """The reductions with sums in an order of their own; `by_reciprocal`: means multiply by the rounded 1 / n."""

    def total(original: Any, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return _over(add, x, dims, keepdim)

    def mean(original: Any, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return _over(lambda v: _by_count(add(v), v.shape[-1], by_reciprocal), x, dims, keepdim)

    def var(original: Any, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        def two_passes(v: Tensor) -> Tensor:
            d = v - _by_count(add(v), v.shape[-1], by_reciprocal)
            return _by_count(add(d * d), v.shape[-1], by_reciprocal)

        return _over(two_passes, x, dims, keepdim)

    def matmul(original: Any, x: Tensor, y: Tensor) -> Tensor:
        if x.ndim < 2 or y.ndim < 2:
            return original(x, y)
        columns = [add(x[..., :, None, :] * y.mT[..., None, j : j + 8, :]) for j in range(0, y.shape[-1], 8)]
        return torch.cat([c.squeeze(-1) for c in columns], -1) if columns else original(x, y)

    return {"sum": total, "mean": mean, "var": var, "matmul": matmul}


def _by_count(x: Tensor, count: int, by_reciprocal: bool) -> Tensor:
    return x * torch.tensor(1.0 / count, dtype=x.dtype) if by_reciprocal else x / count


def _over(add: Sum, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """A function of the last axis over any axes."""
    over = sorted({d % x.ndim for d in dims}) if dims else list(range(x.ndim))
    kept = [d for d in range(x.ndim) if d not in over]
    flat = x.permute(*kept, *over).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in over))
    found = add(flat).squeeze(-1)
    return found.reshape([1 if d in over else n for d, n in enumerate(x.shape)]) if keepdim else found


def welford(original: Any, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """A variance in one pass."""

    def one_pass(v: Tensor) -> Tensor:
        mean, squares = torch.zeros_like(v[..., :1]), torch.zeros_like(v[..., :1])
        for i in range(v.shape[-1]):
            d = v[..., i : i + 1] - mean
            mean = mean + d / (i + 1)
            squares = squares + d * (v[..., i : i + 1] - mean)
        return squares / v.shape[-1]

    return _over(one_pass, x, dims, keepdim)


# ---- other ways to compute a function

LOG2_E = 1.4426950408889634


def _exp_by_exp2(original: Any, x: Tensor) -> Tensor:
    found = torch.exp2(x * torch.tensor(LOG2_E, dtype=x.dtype))
    return torch.where(found < 2.0**-126, 0.0, found)


OTHER_FUNCTIONS: dict[str, Change] = {
    "exp": _exp_by_exp2,
    "rsqrt": lambda original, x: 1.0 / torch.sqrt(x),
    "fdiv": lambda original, x, y: x * (1.0 / y),
    "sigmoid": lambda original, x: 1.0 / (1.0 + torch.exp(-x)),
    "tanh": lambda original, x: torch.tanh(x.double()).to(x.dtype),
}


def off_by(ulps: int) -> dict[str, Change]:
    """Every approximated function so many ulps off, where its result is not exact."""

    def change(original: Any, x: Tensor) -> Tensor:
        found, exact = original(x), original(x.double())
        toward = torch.full_like(found, math.copysign(math.inf, ulps))
        moved = found
        for _ in range(abs(ulps)):
            moved = torch.nextafter(moved, toward)
        return torch.where((found.double() == exact) | (found == 0) | ~found.isfinite(), found, moved)

    bounded = {
        op: lambda original, x: change(original, x).clamp(-1, 1) for op in ("tanh", "erf", "sigmoid")
    }  # no kernel leaves the range of the function
    return {**dict.fromkeys("exp exp2 log log1p log2 rsqrt".split(), change), **bounded}


@define
class ByCall(Eager):
    """x * sigmoid(x) where x / (exp(-x) + 1) is declared."""

    gates: frozenset[int]

    def primitive(self, slot: int, step: Step, args: Any) -> Tensor:
        """The tensor of a primitive."""
        if slot in self.gates:
            return args[0] * torch.sigmoid(args[0])
        return eager.PRIMITIVES[step.op](*args, *step.params)


def gates(program: Straight) -> frozenset[int]:
    """The slots that are x / (exp(-x) + 1)."""
    found: set[int] = set()
    for slot in range(len(program.inputs), len(program.inputs) + len(program.steps)):
        step = program.step(slot)
        if step is not None and step.op == "fdiv" and _is_gate(program, *step.args):
            found.add(slot)
    return frozenset(found)


def _is_gate(program: Straight, x: Any, below: Any) -> bool:
    for op in ("add", "exp", "neg"):
        slots = [a for a in ([below] if isinstance(below, Slot) else []) if isinstance(a, Slot)]
        step = program.step(slots[0].index) if slots else None
        if step is None or step.op != op or (op == "add" and 1.0 not in step.args):
            return False
        below = next(a for a in step.args if isinstance(a, Slot))
    return below == x


# ---- the list


def simulated(rounds: Callable[[str], bool]) -> Callable[[Straight], Eager]:
    """Kernels of one rounding policy."""
    return lambda program: Simulated(rounds, written_slots(program))


def by_coin(seed: int) -> Callable[[Straight], Eager]:
    """Each result rounded to f32, or kept wider, by a coin."""

    def make(program: Straight) -> Eager:
        coin = random.Random(seed)
        return Simulated(lambda op: coin.random() < 0.5, written_slots(program))

    return make


def _kernel(changes: dict[str, Change]) -> Callable[[Straight], Eager]:
    return lambda program: Kernel(changes)


RIGHT: dict[str, Callable[[Straight], Eager]] = {
    "eager": lambda program: Eager(),
    "sum from the end": _kernel(ordered(from_the_end)),
    "sum pairwise": _kernel(ordered(pairwise)),
    "sum butterfly": _kernel(ordered(butterfly)),
    "sum in 128 lanes": _kernel(ordered(lanes(128))),
    "sum in 32 lanes": _kernel(ordered(lanes(32))),
    "sum in f64": _kernel(ordered(in_f64)),
    "mean * (1/n)": _kernel(ordered(pairwise, by_reciprocal=True)),
    "var by Welford": _kernel({"var": welford}),
    "exp2, 1/sqrt, a*(1/b)": _kernel(OTHER_FUNCTIONS),
    "x*sigmoid(x)": lambda program: ByCall(gates(program)),
    "+1 ulp": _kernel(off_by(1)),
    "-1 ulp": _kernel(off_by(-1)),
    "fma": simulated(lambda op: op != "mul"),
    "f32": simulated(lambda op: True),
    "all wide": simulated(lambda op: False),
    "by coin": by_coin(0),
}
