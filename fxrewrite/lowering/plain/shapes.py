"""Dtypes and sizes of primitives on values whose sizes are free (`sizes.Free`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from attrs import frozen

from fxrewrite.dsl.core import UNARY
from fxrewrite.dsl.scalars import FIT
from fxrewrite.lowering.plain.choices import Dead


@frozen
class Val:
    """What is known of a tensor: the part of a fake tensor that `patterns.writers` asks for."""

    dtype: torch.dtype
    shape: tuple[Any, ...]
    device: str = "cpu"

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)


def val_of(op: str, args: Sequence[Any], params: Sequence[Any]) -> Val:
    """The result of a primitive. `args`: `Val`s, and numbers. Raises Dead where that is not foreseen."""
    if op not in _RESULTS:
        raise Dead(f"the result of `{op}` has no type here")
    return _RESULTS[op](args, params)


def _same(args: Sequence[Any], params: Sequence[Any]) -> Val:
    return args[0]


def _binary(args: Sequence[Any], params: Sequence[Any]) -> Val:
    tensors = [a for a in args if isinstance(a, Val)]
    wide = max(tensors, key=lambda v: v.ndim)
    return Val(wide.dtype, reduce(_broadcast, (v.shape for v in tensors)))


def _broadcast(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(s)) + s for s in (a, b))
    return tuple(m if n == 1 else n for m, n in zip(a, b, strict=True))


def _shaped(args: Sequence[Any], params: Sequence[Any]) -> Val:
    if any(n is FIT for n in params[0]):
        raise Dead("a size that fits is computed from others, which a plain pattern does not do")
    return Val(args[0].dtype, tuple(params[0]))


def _permuted(args: Sequence[Any], params: Sequence[Any]) -> Val:
    return Val(args[0].dtype, tuple(args[0].shape[i] for i in params[0]))


def _sliced(args: Sequence[Any], params: Sequence[Any]) -> Val:
    axis, start, stop, step = params
    shape = list(args[0].shape)
    length = (shape[axis] if stop is None else stop) - start
    shape[axis] = length if step == 1 else -(-length // step)
    return Val(args[0].dtype, tuple(shape))


def _joined(args: Sequence[Any], params: Sequence[Any]) -> Val:
    shape = list(args[0].shape)
    shape[params[0]] = reduce(lambda n, v: n + v.shape[params[0]], args[1:], shape[params[0]])
    return Val(args[0].dtype, tuple(shape))


def _reduced(args: Sequence[Any], params: Sequence[Any]) -> Val:
    axes, keepdim = params
    rank = args[0].ndim
    gone = {a % rank for a in axes or range(rank)}
    kept = [1 if i in gone else n for i, n in enumerate(args[0].shape) if keepdim or i not in gone]
    return Val(args[0].dtype, tuple(kept))


def _product(args: Sequence[Any], params: Sequence[Any]) -> Val:
    return Val(args[0].dtype, (*args[0].shape[:-1], args[1].shape[-1]))


_RESULTS: dict[str, Callable[[Sequence[Any], Sequence[Any]], Val]] = {
    **dict.fromkeys((*UNARY, "clamp", "clone", "slice_scatter"), _same),
    **dict.fromkeys(("add", "sub", "mul", "div", "fdiv", "maximum", "minimum"), _binary),
    **dict.fromkeys(("amax", "mean", "sum", "var"), _reduced),
    "to": lambda args, params: Val(params[0], args[0].shape),
    "reshape": _shaped,
    "expand": _shaped,
    "permute": _permuted,
    "slice": _sliced,
    "cat": _joined,
    "matmul": _product,
}  # fmt: skip
