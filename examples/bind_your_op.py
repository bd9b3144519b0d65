"""Bind custom ops of your own to shipped fusions: the rules find the sites, your kernels compute them.

The ops are ordinary `torch.library` ops; `bind_your_op.rw` says which fusion each serves, and when. `providers=["mine",
"op"]` tries ours first. Here they are written in torch; a CUDA or Triton kernel is bound in the same way. Each is
proved to be its fusion when it is first met (docs/verify.md).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import fxrewrite

RULES = Path(__file__).with_suffix(".rw")
FP8 = torch.float8_e4m3fn


# ---- the engine: a functional op with two results, and one that fills and overwrites its arguments


@torch.library.custom_op("my_engine::rms_quant", mutates_args=())
def rms_quant(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Rows lowp[..., D], weight lowp[D] -> codes e4m3[..., D], scales f32[..., 1]."""
    return quantize(normalize(x, w, eps), divisor(x))


@rms_quant.register_fake
def _(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, dtype=FP8), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)


@torch.library.custom_op("my_engine::add_rms_quant", mutates_args=("codes", "scales", "residual"))
def add_rms_quant(codes: Tensor, scales: Tensor, x: Tensor, residual: Tensor, w: Tensor, *, eps: float) -> None:
    """Add x to the residual in place, then fill codes and scales with its norm, quantized."""
    residual += x
    for buffer, value in zip((codes, scales), quantize(normalize(residual, w, eps), divisor(x))):
        buffer.copy_(value)


def normalize(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """RMS norm as Llama rounds it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def divisor(x: Tensor) -> Tensor:
    """448 as a tensor: on a GPU, torch divides by a number as a product with its reciprocal, which fails the proof."""
    return torch.full((), 448.0, device=x.device)


def quantize(x: Tensor, largest: Tensor | float = 448) -> tuple[Tensor, Tensor]:
    """One scale for each row."""
    scale = (x.abs().amax(-1, keepdim=True).float() / largest).clamp(min=1e-12)
    return (x.float() / scale).clamp(-448, 448).to(FP8), scale


# ---- a model that knows nothing of it


class Block(nn.Module):
    """A norm and a quant; residual add, norm and quant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.rand(width).bfloat16() + 0.5, requires_grad=False)
        self.second = nn.Parameter(torch.rand(width).bfloat16() + 0.5, requires_grad=False)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        """Rows bf16[T, D] and a residual -> codes, scales, codes, scales, sum."""
        h = residual + x
        return *quantize(normalize(x, self.first, 1e-6)), *quantize(normalize(h, self.second, 1e-6)), h


def run(width: int) -> tuple[fxrewrite.Log, bool]:
    """Compile a block of this width with our ops as providers. The log, and whether every result is what it was."""
    torch.manual_seed(0)
    model, x = Block(width), torch.randn(8, width, dtype=torch.bfloat16)
    residual = torch.randn(8, width, dtype=torch.bfloat16)
    program = torch.export.export(model, (x, residual))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(program, ["default", RULES], providers=["mine", "op"])
    want, got = model(x, residual), program.module()(x, residual)
    return log, all(torch.equal(a.float(), b.float()) for a, b in zip(want, got))


def main() -> None:
    """Show which provider each site got."""
    for width in (64, 40):
        log, equal = run(width)
        chosen = {e.rule: e.by for e in log.events if e.fired and e.by}
        print(f"width {width}: {chosen}, {'the same bytes' if equal else 'OTHER RESULTS'}")
    print(
        "\nAt width 40 `when D % 16 == 0` is false, and the next provider of the list has the site. With ours alone:\n"
    )
    program = torch.export.export(Block(40), (torch.zeros(8, 40).bfloat16(), torch.zeros(8, 40).bfloat16()))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(program, ["default", RULES], providers=["mine"])
    print(log.report("rms_norm_fp8"))


if __name__ == "__main__":
    main()
