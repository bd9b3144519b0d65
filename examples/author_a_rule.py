"""Write a fusion from nothing: check the text, see it fire, and read why it does not fire elsewhere.

The text is `author_a_rule.rw`. Nothing else is needed: matcher, types, fake kernel, reference implementation and
gradient follow from it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import fxrewrite

RULES = Path(__file__).with_suffix(".rw")
FP8 = torch.float8_e4m3fn


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """One scale for each row: lowp[T, D] -> codes e4m3[T, D], scales f32[T, 1]."""
    scale = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
    return (x.float() / scale).clamp(-448, 448).to(FP8), scale


class Activation(nn.Module):
    """Squared relu and quant, as a model author writes them."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Rows lowp[T, D] -> codes, scales."""
        return quantize(torch.relu(x).square())


class Shared(nn.Module):
    """The same, where the activation is also returned: fusing would compute it twice."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Rows lowp[T, D] -> codes, scales, activation lowp[T, D]."""
        y = torch.relu(x).square()
        return *quantize(y), y


def rewrite(model: nn.Module, x: Tensor) -> tuple[torch.export.ExportedProgram, fxrewrite.Log]:
    """Export a model, rewrite it with our rules, and record what happened."""
    program = torch.export.export(model, (x,))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(program, [RULES], providers=["op"])
    return program, log


def main() -> None:
    """Show each step."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.rw"
        draft.write_text("fusion my_gelu_fp8(x, ub) = gelu(x) |> quant_fp9(ub)\n")
        try:
            fxrewrite.backend([draft])
        except fxrewrite.RuleError as error:
            print("1. A first draft has a mistake, and the message says where and what:\n")
            print(str(error).replace(folder + "/", ""), "\n")

    x = torch.randn(4, 64, dtype=torch.bfloat16)
    program, log = rewrite(Activation(), x)
    print("2. The text of author_a_rule.rw fires:\n")
    print(log.report("relu2_fp8"), "\n")
    want, got = Activation()(x), program.module()(x)
    equal = all(torch.equal(a.float(), b.float()) for a, b in zip(want, got))
    print("   and the rewritten program gives", "the same bytes\n" if equal else "OTHER RESULTS\n")

    _, log = rewrite(Shared(), x)
    print("3. Where it does not fire, the report says why:\n")
    print(log.report("relu2_fp8"))


if __name__ == "__main__":
    main()
