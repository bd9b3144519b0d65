"""Programs for tests of the command line, as `module:function`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class NormQuant(nn.Module):
    """RMS norm and a per-token FP8 quant, as a model author writes them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.rand(64).bfloat16() + 0.5, requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.float()
        y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.w
        scale = (y.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
        return (y.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def rows() -> Tensor:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()


def norm_quant() -> tuple[nn.Module, tuple[Tensor]]:
    return NormQuant(), (rows(),)


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(NormQuant(), (rows(),)).run_decompositions()


def raises() -> Any:
    raise ValueError("no weights here")


def a_number() -> int:
    return 3


class _Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def cannot_be_traced() -> tuple[nn.Module, tuple[Tensor]]:
    return _Branches(), (rows(),)
