"""A small FP8 linear layer, written as a model author would write it.

Three ways to quantize an activation, each with its own class:

* `TokenLinear`: dynamic, one scale for each token (row);
* `StaticLinear`: one scale known beforehand, `f32[1]`, shared by several linears or own;
* `GroupLinear`: dynamic, one scale for each group of 64 or 128 values along a row.

Weights are stored as e4m3 codes with float32 scales, one per output channel (per tensor for `StaticLinear`). The result
has the dtype of the activation. `quantize` puts these in the place of the linears of a Hugging Face model.

The rounding that matters is in the text: a dynamic quant divides in float32, because the activation is widened first; a
static one divides in float32 because its scale has one dimension, which promotes a bfloat16 operand.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FP8 = torch.float8_e4m3fn
STATIC_SCALE = (
    0.02  # calibrated by nobody: right for activations up to 448 * 0.02 = 8.96, which covers a normalised row
)

SHARED_INPUT = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


@torch.library.custom_op("fp8_linear::group_mm", mutates_args=())
def group_mm(codes: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype) -> Tensor:
    """Multiply group-scaled rows with a channel-scaled weight (no block-scaled matmul exists for a CPU).

    codes e4m3[T, D], scales f32[T, D // G], weight e4m3[N, D], weight_scales f32[N, 1]; returns out_dtype[T, N],
    accumulated in float32.
    """
    tokens, width = codes.shape
    rows = (codes.float().view(tokens, scales.shape[1], -1) * scales.unsqueeze(-1)).view(tokens, width)
    return (rows @ (weight.float() * weight_scales).t()).to(out_dtype)


@group_mm.register_fake
def _(codes: Tensor, scales: Tensor, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype) -> Tensor:
    return codes.new_empty(codes.shape[0], weight.shape[0], dtype=out_dtype)


class Fp8Linear(nn.Module):
    """What all three store: `codes` e4m3[N, D], `code_scales` f32[N, 1], and the bias of the linear they replace."""

    codes: Tensor
    code_scales: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        codes, scales = quantize_weight(linear.weight.detach().float(), self.weight_dims())
        self.register_buffer("codes", codes)
        self.register_buffer("code_scales", scales)
        self.bias = linear.bias

    @staticmethod
    def weight_dims() -> tuple[int, ...]:
        """Dims of the weight `[N, D]` that share a scale."""
        return (1,)

    def finish(self, y: Tensor, x: Tensor) -> Tensor:
        """Add the bias to y `[T, N]` and give it the leading axes of x `[..., D]`."""
        if self.bias is not None:
            y = y + self.bias
        return y.reshape(*x.shape[:-1], -1)


def quantize_weight(weight: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Split weight f32[N, D] into e4m3 codes of the same shape and f32 scales, with `dims` reduced to 1."""
    scales = (weight.abs().amax(dims, keepdim=True) / 448).clamp(min=1e-12)
    return (weight / scales).clamp(-448, 448).to(FP8), scales


class TokenLinear(Fp8Linear):
    """Dynamic quantization, one float32 scale for each token."""

    def forward(self, x: Tensor) -> Tensor:
        """x lowp[..., D] -> lowp[..., N]."""
        rows = x.reshape(-1, x.shape[-1])
        scale = (rows.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
        codes = (rows.float() / scale).clamp(-448, 448).to(FP8)
        y = torch._scaled_mm(codes, self.codes.t(), scale_a=scale, scale_b=self.code_scales.t(), out_dtype=x.dtype)
        return self.finish(y, x)


class StaticLinear(Fp8Linear):
    """Static quantization: `scale` f32[1] was fixed before the model runs."""

    scale: Tensor

    def __init__(self, linear: nn.Linear, scale: Tensor) -> None:
        super().__init__(linear)
        self.code_scales = self.code_scales.reshape(1)
        self.register_buffer("scale", scale)

    @staticmethod
    def weight_dims() -> tuple[int, ...]:
        """A per-tensor product wants one scale on either side."""
        return (0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """x lowp[..., D] -> lowp[..., N]."""
        rows = x.reshape(-1, x.shape[-1])
        codes = (rows / self.scale).clamp(-448, 448).to(FP8)
        y = torch._scaled_mm(codes, self.codes.t(), scale_a=self.scale, scale_b=self.code_scales, out_dtype=x.dtype)
        return self.finish(y, x)


class GroupLinear(Fp8Linear):
    """Dynamic quantization, one float32 scale for each `group` neighbouring values of a row."""

    def __init__(self, linear: nn.Linear, group: int = 64) -> None:
        if linear.in_features % group:
            raise ValueError(f"{linear.in_features} input features are not a multiple of the group size {group}")
        super().__init__(linear)
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """x lowp[..., D] -> lowp[..., N]."""
        rows = x.reshape(-1, x.shape[-1])
        tokens, width = rows.shape
        groups = rows.reshape(tokens, width // self.group, self.group)
        scale = (groups.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
        codes = (groups.float() / scale).clamp(-448, 448).to(FP8).reshape(tokens, width)
        y = torch.ops.fp8_linear.group_mm(codes, scale.squeeze(-1), self.codes, self.code_scales, x.dtype)
        return self.finish(y, x)


def quantize(model: nn.Module, kind: str, shared_scale: bool = True, group: int = 64) -> nn.Module:
    """Replace, in place, every `nn.Linear` of the decoder layers by an FP8 linear, and return the model.

    kind is "token", "static" or "group" (of `group` values). With `shared_scale` the static scale of q/k/v is one
    tensor, and so is that of gate/up; without it each linear has its own. What stands outside the decoder layers
    (`lm_head`) stays as it is. Raises ValueError for another kind, or a width that `group` does not divide.
    """
    if kind not in ("token", "static", "group"):
        raise ValueError(f'kind is "token", "static" or "group", not {kind!r}')
    for name, parent in list(model.named_modules()):
        if ".layers." not in f".{name}.":
            continue
        scales: dict[str, Tensor] = {}
        for child, linear in list(parent.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(parent, child, _replacement(linear, child, kind, shared_scale, group, scales))
    return model


def _replacement(
    linear: nn.Linear, name: str, kind: str, shared_scale: bool, group: int, scales: dict[str, Tensor]
) -> Fp8Linear:
    """The FP8 linear for one linear; `scales` holds the static scales that its siblings got."""
    if kind == "token":
        return TokenLinear(linear)
    if kind == "group":
        return GroupLinear(linear, group)
    if shared_scale:
        return StaticLinear(linear, scales.setdefault(SHARED_INPUT.get(name, name), torch.tensor([STATIC_SCALE])))
    # Own scales differ in value, so that a mix-up shows in the result.
    scales[name] = torch.tensor([STATIC_SCALE * (1 + len(scales) / 8)])
    return StaticLinear(linear, scales[name])
