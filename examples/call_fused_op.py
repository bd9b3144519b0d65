"""Call a fused op from model code: `fxrewrite.ops.<name>`, with the roundings of its definition, and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fxrewrite import ops


def main() -> None:
    """Call three ops."""
    torch.manual_seed(0)
    x = torch.randn(4, 128, dtype=torch.bfloat16)

    codes, scales = ops.fused_silu_quant(x)
    print(f"fused_silu_quant: {tuple(codes.shape)} {codes.dtype}, {tuple(scales.shape)} {scales.dtype}")

    w = torch.rand(128, dtype=torch.bfloat16)
    codes, scales = ops.rms_norm_fp8(x, w, eps=1e-6)  # operands by position, attributes by name
    print(f"rms_norm_fp8: the largest code is {codes.float().abs().amax():.0f}")
    try:
        ops.rms_norm_fp8(x, w, epsilon=1e-6)
    except TypeError as error:
        print(f"a wrong call: {error}")

    ours, theirs = gradient(ops.silu_and_mul, x), gradient(by_hand, x)
    print(f"gradient of silu_and_mul: {'as autograd has it' if torch.equal(ours, theirs) else 'ANOTHER ONE'}")


def by_hand(x: Tensor) -> Tensor:
    """silu_and_mul as its definition has it, step by step."""
    gate, up = x.chunk(2, dim=-1)
    wide = gate.float()
    return (wide / ((-wide).exp() + 1)).to(x.dtype) * up


def gradient(op: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the sum of op(x)."""
    leaf = x.clone().requires_grad_()
    op(leaf).float().sum().backward()
    assert leaf.grad is not None
    return leaf.grad


if __name__ == "__main__":
    main()
