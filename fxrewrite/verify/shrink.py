"""Smaller counterexamples: fewer rows, narrower dims, plainer numbers, as long as the claim still fails on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from fxrewrite.dsl.binding import bind_operands
from fxrewrite.dsl.core import OperandInfo
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.dsl.scalars import UNKNOWN, Env, sizes
from fxrewrite.verify.claims import NotThisCase
from fxrewrite.verify.device import DeviceLost
from fxrewrite.verify.equal import CannotTry, Failure, Raises, attempt
from fxrewrite.verify.strategies import Given

PLAIN = (0.0, 1.0)  # numbers that say least


def shrink(failure: Failure, budget: int = 150) -> Failure:
    """A smaller case on which the same claim fails: at most `budget` cases are tried."""
    found = failure
    for smaller in (_dims, _values):
        progress = True
        while progress and budget > 0:
            progress = False
            for given in smaller(found):
                budget -= 1
                trial = _still(found, given)
                if trial is not None:
                    found, progress = trial, True
                    break
                if budget <= 0:
                    break
    return found


def _still(failure: Failure, given: Given) -> Failure | None:
    """The failure on `given`, where the claim fails there too."""
    try:
        trial = attempt(failure.claim, given)
    except (NotThisCase, CannotTry, Raises, DeviceLost):
        return None
    return Failure(failure.claim, trial) if trial.wrong else None


# ---- dims


def _dims(failure: Failure) -> Iterator[Given]:
    """Cases with one dim smaller: cut at the end, or at the beginning."""
    given, op = failure.trial.given, failure.claim.op
    bound = _Tensors(attributes=dict(given.attributes))
    try:
        bind_operands(op, given.operands, bound)
    except EvaluationError:
        return
    for name, size in bound.dims.items():
        for n in _smaller(size):
            yield from _cut(given, op.operands, {**bound.dims, name: n}, bound.stars)
    for name, star in bound.stars.items():
        for axis, size in enumerate(star):
            for n in _smaller(size):
                changed = (*star[:axis], n, *star[axis + 1 :])
                yield from _cut(given, op.operands, bound.dims, {**bound.stars, name: changed})


class _Tensors(Env):
    """What binding asks of tensors."""

    def dtype_of(self, value: Any) -> Any:
        """Not asked for: dtypes stay."""
        return UNKNOWN

    def shape_of(self, value: Any) -> Any:
        """The sizes of a tensor."""
        return tuple(value.shape) if isinstance(value, Tensor) else UNKNOWN


def _smaller(size: Any) -> list[int]:
    if not isinstance(size, int):
        return []
    return sorted({n for n in (1, 2, size // 4, size // 2, size - 1) if 0 < n < size})


def _cut(
    given: Given, infos: Sequence[OperandInfo], dims: Mapping[str, Any], stars: Mapping[str, Any]
) -> Iterator[Given]:
    env = Env(attributes=dict(given.attributes), dims=dict(dims), stars=dict(stars))
    for last in (False, True):
        try:
            operands = [_fitted(o, info, env, last) for o, info in zip(given.operands, infos)]
        except (EvaluationError, TypeError, KeyError):
            return
        yield evolve(given, operands=operands)


def _fitted(operand: Any, info: OperandInfo, env: Env, last: bool) -> Any:
    """A tensor cut to the sizes that its type has now."""
    if isinstance(operand, list | tuple):
        return [_fitted(o, info, env, last) for o in operand]
    if not isinstance(operand, Tensor) or info.type.shape is None:
        return operand
    found = operand
    for axis, size in enumerate(sizes(info.type.shape, env)):
        if isinstance(size, int) and size < found.shape[axis]:
            found = found.narrow(axis, found.shape[axis] - size if last else 0, size)
    return found


# ---- values


def _values(failure: Failure) -> Iterator[Given]:
    """Cases with a part of one floating operand made plain."""
    given = failure.trial.given
    for i, operand in enumerate(given.operands):
        if isinstance(operand, Tensor) and operand.dtype.is_floating_point and operand.numel():
            for changed in _plainer(operand):
                yield evolve(given, operands=[*given.operands[:i], changed, *given.operands[i + 1 :]])


def _plainer(x: Tensor) -> Iterator[Tensor]:
    flat = x.detach().reshape(-1)
    length = flat.numel()
    while length:
        for start in range(0, flat.numel(), length):
            part = flat[start : start + length].float()
            for number in PLAIN:
                if not bool((part == number).all()):
                    changed = flat.clone()
                    changed[start : start + length] = torch.tensor(number).to(x.dtype)
                    yield changed.reshape(x.shape)
        length //= 2
        if flat.numel() // max(length, 1) > 16:
            return
