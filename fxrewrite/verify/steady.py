"""Torch, with every element computed in one way wherever it stands: what a proof about rows can compare bit for bit.

Kernels of torch take the last elements of a tensor on another path, and add in an order that the shape decides. Here a
function is evaluated on whole vectors, and a sum halves its terms until one is left, in float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define
from torch import Tensor

from fxrewrite.dsl.core import OpDef, Prim
from fxrewrite.lowering.eager import ROUNDING, Torch
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.values import LOW

LANES = 128  # a multiple of what any path of a kernel takes at once
MOST = 1 << 24  # products of a matmul that are added by halves


@define
class Steady(Torch):
    """The algebra of torch tensors, whose elements do not depend on their place.

    `opaque`: did a `ref` or a torch op take part, of which that is not known?
    """

    opaque: bool = False

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        """The tensor of a primitive."""
        if op in STEADY:
            return STEADY[op](*args, *params)
        if op == "to" and not DTYPES[params[0].name].is_floating_point and args[0].dtype.is_floating_point:
            return _to_integer(args[0], DTYPES[params[0].name])
        if op in ROUNDING and args[0].numel() % LANES:
            x: Tensor = args[0]
            filled = torch.cat([x.flatten(), x.new_ones(-x.numel() % LANES)])
            return super().primitive(op, [filled], params, term)[: x.numel()].reshape(x.shape)
        given = [a.contiguous() if isinstance(a, Tensor) and op in ROUNDING else a for a in args]
        return super().primitive(op, given, params, term)

    def torch_call(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A torch op, as it is; `addmm` without its kernel, which on a CPU (torch 2.13, bf16, 100 columns) lets a NaN
        of one row into the next."""
        if op == "aten.addmm.default" and not kwargs and len(args) == 3:
            b, x, w = args
            return [_rounded(_product(x, w) + b.double(), x.dtype)], {}
        self.opaque = True
        return super().torch_call(op, args, kwargs)

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """A `ref`, as it is."""
        self.opaque = True
        return super().reference(op, operands, attributes)


def total(x: Tensor) -> Tensor:
    """The sum of a float64 tensor over its last axis, by halves."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = torch.nn.functional.pad(x, (0, 1))
        x = x[..., ::2] + x[..., 1::2]
    return x.sum(-1)  # of one term, or none


def _terms(x: Tensor, dims: Sequence[int]) -> Tensor:
    """The axes that are reduced, as one last axis, in float64."""
    axes = sorted(d % x.ndim for d in dims) if dims else list(range(x.ndim))
    kept = [d for d in range(x.ndim) if d not in axes]
    return x.double().permute(*kept, *axes).reshape(*(x.shape[d] for d in kept), -1)


def _reduced(value: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Sequence[int], bool], Tensor]:
    def step(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        axes = {d % x.ndim for d in dims} if dims else set(range(x.ndim))
        found = _rounded(value(_terms(x, dims)), x.dtype)
        return found.reshape([1 if d in axes else n for d, n in enumerate(x.shape)]) if keepdim else found

    return step


def _mean(terms: Tensor) -> Tensor:
    return total(terms) / terms.shape[-1]


def _var(terms: Tensor) -> Tensor:
    off = terms - _mean(terms).unsqueeze(-1)
    return _mean(off * off)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return _rounded(_product(a, b), a.dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float64."""
    if a.ndim < 2 or b.ndim != 2 or a.numel() * b.shape[1] > MOST:
        return torch.matmul(a.double(), b.double())
    return total(a.double().unsqueeze(-2) * b.double().mT)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.float().to(dtype) if dtype in LOW else x.to(dtype)


def _to_integer(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A cast; what no integer is near to gives any of them in torch, one of them here."""
    limits = torch.iinfo(dtype)
    return x.double().nan_to_num(0.0).clamp(limits.min, limits.max).to(dtype)


def _extreme(op: Callable[[Tensor, Tensor], Tensor], x: Any, y: Any) -> Tensor:
    """The larger or smaller; of two zeros the one that is not negative, whichever comes first."""
    like = x if isinstance(x, Tensor) else y
    found = op(*(v if isinstance(v, Tensor) else torch.full((), v, dtype=like.dtype) for v in (x, y)))
    return torch.where(found == 0, found.abs(), found)


STEADY: dict[str, Callable[..., Tensor]] = {
    "sum": _reduced(total),
    "mean": _reduced(_mean),
    "var": _reduced(_var),
    "matmul": _matmul,
    "maximum": lambda x, y: _extreme(torch.maximum, x, y),
    "minimum": lambda x, y: _extreme(torch.minimum, x, y),
}
