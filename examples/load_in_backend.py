"""Put the rules in front of Inductor: as a `torch.compile` backend, and as options of plain Inductor.

`providers=["op"]` puts the op that interprets the definition where a kernel would stand: without it a CPU, for which no
kernel is registered, keeps every site as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch
from torch._inductor import config as inductor

import fxrewrite
from fp8_linear import TokenLinear


class Mlp(nn.Module):
    """A gated MLP with FP8 linears."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.rand(width).bfloat16() + 0.5, requires_grad=False)
        self.gate_up = TokenLinear(nn.Linear(width, 4 * width, bias=False).bfloat16())
        self.down = TokenLinear(nn.Linear(2 * width, width, bias=False).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        """Rows bf16[T, D] -> bf16[T, D]."""
        wide = x.float()
        y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.norm
        gate, up = self.gate_up(y).chunk(2, dim=-1)
        return self.down(nn.functional.silu(gate) * up)


def main() -> dict[str, Tensor]:
    """Compile the same model in three ways; the outputs by name."""
    torch.manual_seed(0)
    model, x = Mlp(), torch.randn(8, 64, dtype=torch.bfloat16)
    ways = {
        "a backend": dict(backend=fxrewrite.backend(providers=["op"])),
        "options of Inductor": dict(options=fxrewrite.inductor_options(providers=["op"])),
        "a backend, one pack off": dict(backend=fxrewrite.backend(providers=["op"], flags={"fuse_act_quant": False})),
    }
    outputs: dict[str, Tensor] = {}
    with inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False):
        for name, how in ways.items():  # without caches, so that each of these compiles
            torch._dynamo.reset()
            with torch.no_grad(), fxrewrite.record() as log:
                outputs[name] = torch.compile(model, **how)(x)
            print(f"{name}: {dict(log.fired())}")
    return outputs


if __name__ == "__main__":
    main()
