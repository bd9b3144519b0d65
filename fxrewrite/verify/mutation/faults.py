"""Faults of kernels: what a step does instead of what its primitive means.

A fault is a function of the original step, its arguments and its parameters, as `interpret.Mutant` takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor

from fxrewrite.lowering import eager
from fxrewrite.verify.straight import Step

Change = Callable[..., Tensor]
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
FLOATS = ("bf16", "f16", "e4m3fn", "e4m3fnuz", "e5m2")  # that a value is rounded to
ROUGH = 1 + 2.0**-12  # what fast approximations are off by


@frozen
class Fault:
    """`what` a step does instead, or what is done to an output."""

    operator: str
    what: str
    change: Change = field(eq=False, repr=False)


def faults_of(step: Step, args: Sequence[Any]) -> Iterator[Fault]:
    """What may be wrong with a step. `args`: what it got, tensors and numbers."""
    if step.op == "to":
        yield from _roundings(step, args[0])
        return
    rows = step.shape[:1] > (1,)
    yield from (f for f in TABLE.get(step.op, ()) if rows or f.what != ROW_BEFORE)
    if step.op == "clamp":
        yield from _clamps(*args)
    if step.op in ("amax", "mean", "sum", "var") and len(step.shape) > 2 and step.shape[-2] > 1:
        yield Fault("reduction", "of the group before", _after(lambda y: y.roll(1, -2)))
    numbers = [a for a in args if isinstance(a, int | float) and not isinstance(a, bool)]
    if step.op in ("add", "mul", "sub", "div", "fdiv") and numbers:
        yield from _literals(step.op, numbers[0])


# ---- roundings


def _roundings(step: Step, x: Any) -> Iterator[Fault]:
    if step.dtype not in FLOATS or not isinstance(x, Tensor) or x.dtype not in (F32, torch.float64):
        return
    for what, change in ROUNDINGS.items():
        yield Fault("rounding", f"rounding {what}", change)
    if step.dtype not in ("bf16", "f16"):
        for what, change in CODES.items():
            yield Fault("rounding", f"rounding {what}", change)


def _skipped(original: Change, x: Tensor, *_: Any) -> Tensor:
    return x


def _bits(x: Tensor) -> Tensor:
    return x.view(torch.int16 if x.element_size() == 2 else torch.uint8)


def _truncated(original: Change, x: Tensor, *params: Any) -> Tensor:
    """Toward zero: where the nearest is beyond x, the code below it."""
    nearest = original(x, *params)
    beyond = (nearest.float().abs() > x.abs()) & ~x.isnan() & ~x.isinf()
    return torch.where(beyond, _bits(nearest) - 1, _bits(nearest)).view(nearest.dtype)


def _half_away(original: Change, x: Tensor, *params: Any) -> Tensor:
    """Ties away from zero."""
    below = _truncated(original, x, *params)
    above = (_bits(below) + 1).view(below.dtype)
    tie = (x.double().abs() - below.double().abs()) == (above.double().abs() - x.double().abs())
    nearest = original(x, *params)
    there = tie & above.float().isfinite() & x.isfinite()
    return torch.where(there, _bits(above), _bits(nearest)).view(nearest.dtype)


def _twice(original: Change, x: Tensor, *params: Any) -> Tensor:
    """First to two bits more than the dtype has."""
    nearest = original(x, *params)
    lost = 23 - BITS[nearest.dtype] - 2
    bits = x.float().view(torch.int32)
    kept = ((bits + (1 << (lost - 1)) - 1 + ((bits >> lost) & 1)) & -(1 << lost)).view(F32)
    return original(torch.where(x.isfinite(), kept, x), *params)


BITS = {BF16: 7, F16: 10, torch.float8_e4m3fn: 3, torch.float8_e4m3fnuz: 3, torch.float8_e5m2: 2}  # of mantissa
ROUNDINGS: dict[str, Change] = {
    "skipped": _skipped, "truncated": _truncated, "half away from zero": _half_away, "done twice": _twice,
}  # fmt: skip
CODES: dict[str, Change] = {
    "done through bf16": lambda original, x, *p: original(x.to(BF16).to(F32), *p),
    "done through f16": lambda original, x, *p: original(x.to(F16).to(F32), *p),
    "losing the sign of zero": lambda original, x, *p: original(x + 0.0, *p),
}

# ---- arithmetic


def _after(f: Callable[[Tensor], Tensor]) -> Change:
    return lambda original, *args: f(original(*args))


def _before(f: Callable[[Tensor], Tensor]) -> Change:
    return lambda original, x, *args: original(f(x), *args)


def _through(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype).to(x.dtype)


def _up(x: Tensor) -> Tensor:
    return torch.nextafter(x, torch.full_like(x, torch.inf))


def _by_reciprocal(original: Change, x: Any, y: Any) -> Tensor:
    inverse = 1.0 / y if isinstance(y, Tensor) else torch.tensor(1.0 / y, dtype=x.dtype)
    return x * inverse


def _first(original: Change, x: Any, y: Any, *_: Any) -> Tensor:
    like = original(x, y)
    return (x if isinstance(x, Tensor) else torch.full_like(like, x)).expand(like.shape).to(like.dtype)


def _literals(op: str, number: float) -> Iterator[Fault]:
    """The number of a step wrong: times 10 (an eps), a little off (a constant), left out."""
    for what, factor in (("times 10", 10.0), ("off by 2^-8", 1 + 2.0**-8)):
        yield Fault("constant", f"{number:g} in {op} {what}", _with_number(factor))
    if op == "add":
        yield Fault("constant", f"{number:g} in {op} left out", _with_number(0.0))


def _with_number(factor: float) -> Change:
    def change(original: Change, *args: Any) -> Tensor:
        return original(*(a * factor if isinstance(a, int | float) else a for a in args))

    return change


def _ordered(original: Change, x: Any, y: Any) -> Tensor:
    return original(y, x)


# ---- bounds


PAST = {448.0: 464.0, 240.0: 248.0, 57344.0: 61439.0}  # from the largest code to where a cast no longer rounds to it


def _bounds(change: Callable[[Any, Any], tuple[Any, Any]]) -> Change:
    """A clamp between other bounds; what an 8-bit cast behind it cannot hold is NaN, as where no cast saturates."""

    def clamped(original: Change, x: Tensor, lo: Any = None, hi: Any = None) -> Tensor:
        found = original(x, *change(lo, hi))
        past = PAST.get(hi) if isinstance(hi, float) else None
        return found if past is None else torch.where(found.abs() > past, torch.nan, found)

    return clamped


def _times(bound: Any, factor: float) -> Any:
    return None if bound is None else bound * factor


def _nan_to_bound(original: Change, x: Tensor, lo: Any = None, hi: Any = None) -> Tensor:
    bound = lo if lo is not None else hi
    found = original(x, lo, hi)
    return torch.where(x.isnan(), torch.as_tensor(bound, dtype=found.dtype), found)


def _clamps(x: Any, lo: Any, hi: Any) -> Iterator[Fault]:
    if lo is not None:
        yield Fault("bound", "without the lower bound", _bounds(lambda lo, hi: (None, hi)))
        if hi is None:
            yield Fault("bound", "with ten times the lower bound", _bounds(lambda lo, hi: (_times(lo, 10.0), hi)))
    if hi is not None:
        yield Fault("bound", "without the upper bound", _bounds(lambda lo, hi: (lo, None)))
        yield Fault("bound", "with half of the upper bound", _bounds(lambda lo, hi: (lo, _times(hi, 0.5))))
        yield Fault("bound", "with twice the upper bound", _bounds(lambda lo, hi: (lo, _times(hi, 2.0))))
    yield Fault("bound", "that makes NaN its bound", _nan_to_bound)


# ---- reductions


def _over(part: Callable[[Tensor, int], Tensor]) -> Change:
    """A reduction over a part of its last axis."""

    def change(original: Change, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        axes = tuple(dims) or tuple(range(x.ndim))
        axis = max(axes, key=lambda d: d % max(x.ndim, 1))
        return original(part(x, axis) if x.shape[axis] > 1 else x, dims, keepdim)

    return change


def _as_if(count: int) -> Change:
    """A mean by another number of elements."""

    def change(original: Change, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        n = 1
        for d in tuple(dims) or range(x.ndim):
            n *= x.shape[d]
        return original(x, dims, keepdim) * (n / max(n + count, 1))

    return change


ROW_BEFORE = "of the row before"


def _row_before(original: Change, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """The result of the neighbour along the first axis that is left."""
    found = original(x, dims, keepdim)
    return found.roll(1, 0) if found.ndim else found


def _bf16_sum(original: Change, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """Partial sums rounded to bf16."""
    return original(_through(BF16)(x), dims, keepdim).to(BF16).to(x.dtype)


_FIRST_HALF = _over(lambda x, d: x.narrow(d, 0, (x.shape[d] + 1) // 2))
_NOT_FIRST = _over(lambda x, d: x.narrow(d, 1, x.shape[d] - 1))
_NOT_LAST = _over(lambda x, d: x.narrow(d, 0, x.shape[d] - 1))


def _reduction(*more: tuple[str, Change]) -> tuple[Fault, ...]:
    parts = (
        ("over the first half", _FIRST_HALF),
        ("without the first element", _NOT_FIRST),
        ("without the last element", _NOT_LAST),
        (ROW_BEFORE, _row_before),
    )  # fmt: skip
    return tuple(Fault("reduction", what, change) for what, change in (*parts, *more))


# ---- movement


def _shifted(original: Change, x: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    return original(x.roll(-1, dim), dim, start, stop, step)


def _other_half(original: Change, x: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    width = stop - start
    return original(x.roll(-width, dim), dim, start, stop, step)


def _reversed(original: Change, *args: Any) -> Tensor:
    """The parts of a `cat` in another order; the last argument is the axis."""
    *parts, dim = args
    return original(*parts[::-1], dim)


def _nibbles(original: Change, x: Tensor) -> Tensor:
    found = original(x)
    return (found << 4) | (found >> 4)


def _rows_moved(original: Change, *args: Any) -> Tensor:
    found = original(*args)
    return found.roll(1, 0) if found.ndim else found


def _e2m1_truncated(original: Change, x: Tensor) -> Tensor:
    grid = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    at = torch.bucketize(x.abs().nan_to_num(6.0), grid, right=True) - 1
    return torch.copysign(grid[at.clamp(0, 7)], x)


def _e2m1_half_up(original: Change, x: Tensor) -> Tensor:
    return original(torch.nextafter(x, torch.full_like(x, torch.inf).copysign(x)))


def _ranks(change: Callable[[Sequence[Tensor]], Tensor]) -> Change:
    return lambda original, *parts: change(parts).to(parts[0].dtype)


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([p.float() for p in parts]).sum(0)


def _named(operator: str, **changes: Change) -> tuple[Fault, ...]:
    return tuple(Fault(operator, what.replace("_", " "), change) for what, change in changes.items())


_ROUGH = _named(
    "approximation", off_by_2_to_the_minus_12=_after(lambda y: y * ROUGH), rounded_to_bf16=_after(_through(BF16))
)
_FUNCTION = (*_ROUGH, *_named("approximation", of_an_argument_in_bf16=_before(_through(BF16))))
_ARITHMETIC = _named("step", second_operand_ignored=_first)

TABLE: dict[str, tuple[Fault, ...]] = {
    **dict.fromkeys("exp exp2 log log1p log2 sqrt rsqrt sigmoid tanh erf".split(), _FUNCTION),
    "reciprocal": _named("division", one_ulp_up=_after(_up), rounded_to_bf16=_after(_through(BF16))),
    "div": _named(
        "division", by_the_reciprocal=_by_reciprocal, one_ulp_up=_after(_up), rounded_to_bf16=_after(_through(BF16))
    ),
    "fdiv": _ROUGH,
    "add": _ARITHMETIC,
    "sub": (*_ARITHMETIC, *_named("step", operands_exchanged=_ordered)),
    "mul": _ARITHMETIC,
    "maximum": _ARITHMETIC,
    "minimum": _ARITHMETIC,
    "abs": _named("step", left_out=_skipped),
    "neg": _named("step", left_out=_skipped),
    "amax": _reduction(
        ("ignoring NaN", lambda original, x, *p: original(torch.where(x.isnan(), -torch.inf, x), *p)),
        ("rounded to bf16", _after(_through(BF16))),
    ),
    "mean": _reduction(("by n + 1", _as_if(1)), ("by n - 1", _as_if(-1)), ("in bf16", _bf16_sum)),
    "sum": _reduction(("in bf16", _bf16_sum)),
    "var": _reduction(("by n - 1", _as_if(-1)), ("in bf16", _bf16_sum)),
    "matmul": _named(
        "product", without_the_last_term=lambda original, x, y: original(x[..., :-1], y[..., :-1, :]),
        rounded_to_bf16=_after(_through(BF16)),
        of_the_first_half=lambda original, x, y: original(x[..., : x.shape[-1] // 2], y[..., : y.shape[-2] // 2, :]),
    ),
    "ceil": _named("step", by_floor=lambda _, x: x.floor(), by_round=lambda _, x: x.round()),
    "floor": _named("step", by_ceil=lambda _, x: x.ceil(), by_round=lambda _, x: x.round()),
    "round": _named("step", by_truncation=lambda _, x: x.trunc(), half_up=lambda _, x: (x + 0.5).floor()),
    "slice": _named("index", one_element_on=_shifted, of_the_other_part=_other_half),
    "cat": _named("index", in_another_order=_reversed),
    "pack2": _named("packing", nibbles_exchanged=_nibbles),
    "pack4": _named("packing", rows_moved=_rows_moved),
    "swizzle": _named("packing", rows_moved=_rows_moved),
    "round_e2m1": _named("rounding", truncated=_e2m1_truncated, half_away_from_zero=_e2m1_half_up),
    "psum": _named(
        "ranks", by_the_average=_ranks(lambda parts: _total(parts) / len(parts)),
        without_the_last_rank=_ranks(lambda parts: _total(parts[:-1])),
        by_the_largest=_ranks(lambda parts: torch.stack(list(parts)).amax(0)),
    ),
}  # fmt: skip

# ---- what is written

ROWS = ("of the first block only", "of the row before")
FIRST_COLUMNS = "of the first half of the columns only"
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "without the last column": lambda t: _left_out(t, -1, t.shape[-1] - 1),
    "without the last row": lambda t: _left_out(t, 0, t.shape[0] - 1),
    "of the first block only": lambda t: _left_out(t, 0, (t.shape[0] + 1) // 2),
    "of the row before": lambda t: _raw(t).roll(1, 0).view(t.dtype),
    FIRST_COLUMNS: lambda t: _left_out(t, -1, (t.shape[-1] + 1) // 2),
    "one code up in the last element": lambda t: _one_up(t),
}


def _raw(t: Tensor) -> Tensor:
    """The bits, so that every dtype can be moved."""
    return t.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])


def _left_out(t: Tensor, dim: int, start: int) -> Tensor:
    """What is not written holds what was in memory: here NaN, or the largest integer."""
    found = _raw(t).clone()
    found.narrow(dim, start, t.shape[dim] - start).fill_(torch.iinfo(found.dtype).max)
    return found.view(t.dtype)


def _one_up(t: Tensor) -> Tensor:
    found = _raw(t).clone()
    flat = found.view(-1)
    flat[-1:] += 1
    return found.view(t.dtype)


def primitive(op: str) -> Change:
    """What a primitive means."""
    return eager.PRIMITIVES[op]


__all__ = ["FIRST_COLUMNS", "OUTPUTS", "ROWS", "Change", "Fault", "faults_of", "primitive"]
