"""Norms, activations and quants as people write them in PyTorch, right and slightly wrong: name -> (function, meaning).

A norm or activation takes `(x, r, w)` with x, r `[..., D]` and w `[D]`; its meaning is the op of the vocabulary, or
None where it is another function. A quant takes `(x, s)` with s f32[1]; its meaning is the suffix of the fusions that
hold it. Where both are known, `rule(norm, quant)` is the rule that fires on the quant of the norm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FP8 = torch.float8_e4m3fn
EPS = 1e-6


def rms(x: Tensor, w: Tensor, eps: Any = EPS) -> Tensor:
    """Hugging Face's LlamaRMSNorm."""
    c = x.float()
    return w * (c * torch.rsqrt(c.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def scaled(x: Tensor, variance: Callable[[Tensor], Tensor]) -> Tensor:
    """x32 / sqrt(variance(x32) + eps)."""
    c = x.float()
    return c * torch.rsqrt(variance(c) + EPS)


def mean_square(c: Tensor) -> Tensor:
    """The mean of the squares of each row."""
    return c.pow(2).mean(-1, keepdim=True)


def swish(x: Tensor) -> Tensor:
    """silu, by sigmoid in f32."""
    return (x.float() * torch.sigmoid(x.float())).to(x.dtype)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The left and the right half of the last axis."""
    d = x.shape[-1] // 2
    return x[..., :d], x[..., d:]


def gelu_by_hand(x: Tensor, constant: float) -> Tensor:
    c = x.float()
    return (c * 0.5 * (torch.erf(c * constant) + 1)).to(x.dtype)


def _gated(g: Tensor, u: Tensor) -> Tensor:
    return F.silu(g) * u


Norm = Callable[[Tensor, Tensor, Tensor], Tensor]
NORMS: dict[str, tuple[Norm, str | None]] = {
    "llama": (lambda x, r, w: rms(x, w), "rms_norm"),
    "x*x": (lambda x, r, w: w * scaled(x, lambda c: (c * c).mean(-1, keepdim=True)).to(x.dtype), "rms_norm"),
    "square": (lambda x, r, w: w * scaled(x, lambda c: c.square().mean(-1, keepdim=True)).to(x.dtype), "rms_norm"),
    "swapped": (lambda x, r, w: (torch.rsqrt(EPS + mean_square(x.float())) * x.float()).to(x.dtype) * w, "rms_norm"),
    "eps 1e-5": (lambda x, r, w: rms(x, w, 1e-5), "rms_norm"),
    "eps 1": (lambda x, r, w: rms(x, w, 1), "rms_norm"),
    "eps 0": (lambda x, r, w: rms(x, w, 0.0), "rms_norm"),
    "eps tensor": (lambda x, r, w: rms(x, w, torch.full((), EPS)), "rms_norm"),
    "eps f64 tensor": (lambda x, r, w: rms(x, w, torch.full((), EPS, dtype=torch.float64)), "rms_norm"),
    "eps [1]": (lambda x, r, w: rms(x, w, torch.full((1,), EPS)), None),
    "no weight": (lambda x, r, w: scaled(x, mean_square).to(x.dtype), "rms_norm"),
    "late": (lambda x, r, w: (scaled(x, mean_square) * w.float()).to(x.dtype), "rms_norm"),
    "gemma": (lambda x, r, w: (scaled(x, mean_square) * (1.0 + w.float())).type_as(x), "rms_norm"),
    "f32 weight": (lambda x, r, w: ((w.float() + 0.25) * scaled(x, mean_square)).to(x.dtype), "rms_norm"),
    "vs": (lambda x, r, w: w * scaled(x, lambda c: mean_square(c[..., :32])).to(x.dtype), "rms_norm"),
    "vs step": (lambda x, r, w: w * scaled(x, lambda c: mean_square(c[..., ::2])).to(x.dtype), None),
    "vs last": (lambda x, r, w: w * scaled(x, lambda c: mean_square(c[..., 32:])).to(x.dtype), None),
    "last dim by number": (
        lambda x, r, w: w * scaled(x, lambda c: c.pow(2).mean(c.dim() - 1, keepdim=True)).to(x.dtype),
        "rms_norm",
    ),
    "dim 0": (lambda x, r, w: w * scaled(x, lambda c: c.pow(2).mean(0, keepdim=True)).to(x.dtype), None),
    "two dims": (lambda x, r, w: w * scaled(x, lambda c: c.pow(2).mean((0, -1), keepdim=True)).to(x.dtype), None),
    "pow 3": (lambda x, r, w: w * scaled(x, lambda c: c.pow(3).abs().mean(-1, keepdim=True)).to(x.dtype), None),
    "abs squared": (lambda x, r, w: w * scaled(x, lambda c: mean_square(c.abs())).to(x.dtype), None),
    "sum": (lambda x, r, w: w * scaled(x, lambda c: c.pow(2).sum(-1, keepdim=True)).to(x.dtype), None),
    "mean in f64": (
        lambda x, r, w: w * scaled(x, lambda c: c.pow(2).mean(-1, keepdim=True, dtype=torch.float64)).to(x.dtype),
        None,
    ),
    "eps alpha": (
        lambda x, r, w: (
            w
            * (lambda c: c * torch.rsqrt(torch.add(mean_square(c), torch.full((), EPS), alpha=2)))(x.float()).to(
                x.dtype
            )
        ),
        None,
    ),
    "square alpha": (lambda x, r, w: w * torch.mul(scaled(x, mean_square), 2).to(x.dtype), None),
    "max eps": (
        lambda x, r, w: w * (lambda c: c * torch.rsqrt(mean_square(c).clamp(min=EPS)))(x.float()).to(x.dtype),
        None,
    ),
    "sqrt": (lambda x, r, w: w * (lambda c: c / torch.sqrt(mean_square(c) + EPS))(x.float()).to(x.dtype), None),
    "floor": (
        lambda x, r, w: (
            w * torch.div(x.float(), torch.sqrt(mean_square(x.float()) + EPS), rounding_mode="floor").to(x.dtype)
        ),
        None,
    ),
    "not widened": (lambda x, r, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)), None),
    "half widened": (lambda x, r, w: w * (x * torch.rsqrt(mean_square(x.float()) + EPS).to(x.dtype)), None),
    "weight of rows": (lambda x, r, w: w.expand(*x.shape[:-1], -1).sin() * scaled(x, mean_square).to(x.dtype), None),
    "weight of one": (lambda x, r, w: w[:1] * scaled(x, mean_square).to(x.dtype), None),
    "weight twice": (lambda x, r, w: w * rms(x, w), None),
    "rounded twice": (lambda x, r, w: (w.float() * scaled(x, mean_square).to(x.dtype)).to(x.dtype), None),
    "x of another": (lambda x, r, w: w * (x.float() * torch.rsqrt(mean_square(r.float()) + EPS)).to(x.dtype), None),
    "add": (lambda x, r, w: rms(x + r, w), "add_rms_norm"),
    "add swapped": (lambda x, r, w: rms(r + x, w), "add_rms_norm"),
    "add wide": (
        lambda x, r, w: (lambda c: w * (c * torch.rsqrt(mean_square(c) + EPS)).to(x.dtype))(x.float() + r.float()),
        "add_rms_norm",
    ),
    "add late": (lambda x, r, w: (scaled(x + r, mean_square) * w.float()).to(x.dtype), "add_rms_norm"),
    "add self": (lambda x, r, w: rms(x + x, w), "add_rms_norm"),
    "add alpha": (lambda x, r, w: rms(torch.add(x, r, alpha=2), w), "rms_norm"),
    "add row": (lambda x, r, w: rms(x + r[:1, :1], w), "rms_norm"),
    "add number": (lambda x, r, w: rms(x + 1, w), "rms_norm"),
    "sub": (lambda x, r, w: rms(x - r, w), "rms_norm"),
    "add f32": (
        lambda x, r, w: (lambda c: w * (c * torch.rsqrt(mean_square(c) + EPS)).to(x.dtype))(x + r.float().sin()),
        None,
    ),
    "silu": (lambda x, r, w: F.silu(x) * r, "silu_mul"),
    "silu swapped": (lambda x, r, w: r * F.silu(x), "silu_mul"),
    "silu of both": (lambda x, r, w: F.silu(x) * F.silu(r), "silu_mul"),
    "silu self": (lambda x, r, w: F.silu(x) * x, "silu_mul"),
    "silu wide": (lambda x, r, w: (F.silu(x.float()) * r.float()).to(x.dtype), "silu_mul"),
    "silu half wide": (lambda x, r, w: (F.silu(x).float() * r.float()).to(x.dtype), None),
    "swish": (lambda x, r, w: swish(x) * r, "silu_mul"),
    "swish 1.702": (lambda x, r, w: (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype) * r, None),
    "swish narrow": (lambda x, r, w: x * torch.sigmoid(x) * r, None),
    "silu row": (lambda x, r, w: F.silu(x) * r[:1, :1], None),
    "silu div": (lambda x, r, w: F.silu(x) / r, None),
    "halves": (lambda x, r, w: F.silu(halves(x)[0]) * halves(x)[1], "silu_and_mul"),
    "chunk": (lambda x, r, w: _gated(*x.chunk(2, -1)), "silu_and_mul"),
    "split": (lambda x, r, w: _gated(*x.split(x.shape[-1] // 2, x.dim() - 1)), "silu_and_mul"),
    "halves swapped": (lambda x, r, w: F.silu(halves(x)[1]) * halves(x)[0], "silu_mul"),
    "quarters": (lambda x, r, w: F.silu(x[..., :16]) * x[..., 16:32], "silu_mul"),
    "overlap": (lambda x, r, w: F.silu(x[..., :32]) * x[..., 16:48], "silu_mul"),
    "halves of two": (lambda x, r, w: F.silu(halves(x)[0]) * halves(r)[1], "silu_mul"),
    "gelu": (lambda x, r, w: F.gelu(x), "gelu"),
    "gelu tanh": (lambda x, r, w: F.gelu(x, approximate="tanh"), "gelu"),
    "gelu_mul": (lambda x, r, w: F.gelu(x) * r, "gelu_mul"),
    "gelu_mul tanh": (lambda x, r, w: F.gelu(x, approximate="tanh") * r, "gelu_mul"),
    "gelu 0.7": (lambda x, r, w: gelu_by_hand(x, 0.7), None),
    "relu": (lambda x, r, w: F.relu(x) * r, None),
}


def rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def codes(y: Tensor, dtype: torch.dtype = FP8) -> Tensor:
    """f32 -> codes, saturated."""
    bound = torch.finfo(dtype).max
    return y.clamp(-bound, bound).to(dtype)


def amax(x: Tensor) -> Tensor:
    return x.abs().amax(-1, keepdim=True).float()


def token(
    x: Tensor, scale: Callable[[Tensor], Tensor], divide: Any = lambda x, s: x.float() / s, dtype: torch.dtype = FP8
) -> tuple[Tensor, ...]:
    """Codes of the rows of x, and the scales."""
    x = rows(x)
    s = scale(x)
    return codes(divide(x, s), dtype), s


def group(x: Tensor, scale: Callable[[Tensor], Tensor], size: int = 16) -> tuple[Tensor, ...]:
    x = rows(x)
    y = x.reshape(x.shape[0], -1, size)
    s = scale(y)
    return codes(y.float() / s).reshape(x.shape), s.reshape(x.shape[0], -1)


def int8(x: Tensor, bound: float = 127, lowest: int = -128) -> tuple[Tensor, ...]:
    x = rows(x)
    s = amax(x) / bound
    return torch.round(x.float() / s).clamp(lowest, 127).to(torch.int8), s


Quant = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
QUANTS: dict[str, tuple[Quant, str | None]] = {
    "token": (lambda x, s: token(x, lambda x: amax(x) / 448), "fp8"),
    "token min": (lambda x, s: token(x, lambda x: (amax(x) / 448).clamp(min=1e-12)), "fp8"),
    "token f32 amax": (lambda x, s: token(x, lambda x: x.float().abs().amax(-1, keepdim=True) / 448.0), "fp8"),
    "token dim 1": (lambda x, s: token(x, lambda x: x.abs().amax(1, keepdim=True).float() / 448), "fp8"),
    "token recip": (lambda x, s: token(x, lambda x: amax(x) / 448, lambda x, s: x.float() * s.reciprocal()), "fp8"),
    "token narrow": (lambda x, s: token(x, lambda x: (x.abs().amax(-1, keepdim=True) / 448).float()), "fp8"),
    "token narrow min": (
        lambda x, s: token(x, lambda x: (x.abs().amax(-1, keepdim=True) / 448).float().clamp(min=1e-12)),
        "fp8",
    ),
    "token bound": (lambda x, s: token(x, lambda x: (torch.minimum(amax(x), s) / 448).clamp(min=1e-12)), "fp8"),
    "token two clamps": (
        lambda x, s: (lambda x, t: ((x.float() / t).clamp(max=448).clamp(min=-448).to(FP8), t))(
            rows(x), amax(rows(x)) / 448
        ),
        "fp8",
    ),
    "token fnuz": (lambda x, s: token(x, lambda x: amax(x) / 240, dtype=torch.float8_e4m3fnuz), "fp8"),
    "token min first": (lambda x, s: token(x, lambda x: amax(x).clamp(min=1e-5) / 448), None),
    "token plus": (lambda x, s: token(x, lambda x: amax(x) / 448 + 1e-9), None),
    "token alpha": (lambda x, s: token(x, lambda x: torch.sub(amax(x), torch.ones(()), alpha=0.5) / 448), None),
    "token max": (lambda x, s: token(x, lambda x: x.amax(-1, keepdim=True).float() / 448), None),
    "token 447": (
        lambda x, s: (lambda x, t: ((x.float() / t).clamp(-447, 447).to(FP8), t))(rows(x), amax(rows(x)) / 448),
        None,
    ),
    "token /447": (lambda x, s: token(x, lambda x: amax(x) / 447), None),
    "token floor": (lambda x, s: token(x, lambda x: torch.div(amax(x), 448, rounding_mode="floor") + 1), None),
    "token e5m2": (lambda x, s: token(x, lambda x: amax(x) / 57344, dtype=torch.float8_e5m2), None),
    "token low scale": (lambda x, s: token(x, lambda x: amax(x) / 448, lambda x, s: (x / s.to(x.dtype)).float()), None),
    "token columns": (lambda x, s: token(x, lambda x: x.abs().amax(0, keepdim=True).float() / 448), None),
    "token no clamp": (lambda x, s: (lambda x, t: ((x.float() / t).to(FP8), t))(rows(x), amax(rows(x)) / 448), None),
    "token of two": (lambda x, s: (lambda x, t: (codes(x.float() / t), t))(rows(x), amax(rows(x).sin()) / 448), None),
    "static": (lambda x, s: (codes(x / s),), "fp8_static"),
    "static widened": (lambda x, s: (codes(x.float() / s),), "fp8_static"),
    "static 0-d widened": (lambda x, s: (codes(x.float() / s[0]),), "fp8_static"),
    "static [1, 1]": (lambda x, s: (codes(x.float() / s.view(1, 1)),), "fp8_static"),
    "static recip": (lambda x, s: (codes(x.float() * s.reciprocal()),), "fp8_static"),
    "static fnuz": (lambda x, s: (codes(x / s, torch.float8_e4m3fnuz),), "fp8_static"),
    "static rows": (lambda x, s: (codes(rows(x) / s),), "fp8_static"),
    "static clamped in low": (lambda x, s: (codes((x / s).to(x.dtype)),), None),
    "static 0-d": (lambda x, s: (codes(x / s[0]),), None),
    "static low scale": (lambda x, s: (codes(x / s.to(x.dtype)),), None),
    "static f64 scale": (lambda x, s: (codes(x / s.double()),), None),
    "static python": (lambda x, s: (codes(x.float() / 0.05),), None),
    "static times": (lambda x, s: (codes(x.float() * s),), None),
    "static columns": (lambda x, s: (codes(x.float() / s.expand(x.shape[-1]).contiguous().cos()),), None),
    "static 1/s": (lambda x, s: (codes(x.float() * (1.0 / s)),), None),
    "tensor": (
        lambda x, s: (lambda t: (codes(x.float() / t), t))((x.abs().amax().float() / 448).clamp(min=1e-6).reshape(1)),
        "fp8_tensor",
    ),
    "tensor free": (lambda x, s: token(x, lambda x: (x.abs().amax().float() / 448).reshape(1)), "fp8_tensor"),
    "tensor rows": (
        lambda x, s: token(x, lambda x: (x.abs().max().float() / 448).clamp(min=1e-6).reshape(1)),
        "fp8_tensor",
    ),
    "group 16": (lambda x, s: group(x, lambda y: (amax(y) / 448).clamp(min=1e-12)), "fp8_group"),
    "group 32": (lambda x, s: group(x, lambda y: amax(y).clamp(min=1e-10) / 448, 32), "fp8_group"),
    "group both": (lambda x, s: group(x, lambda y: (amax(y).clamp(min=1e-10) / 448).clamp(min=1e-9)), "fp8_group"),
    "group pow2": (
        lambda x, s: group(
            x, lambda y: torch.exp2(torch.ceil(torch.log2((amax(y).clamp(min=1e-10) / 448).clamp(min=1e-10))))
        ),
        "fp8_group",
    ),
    "group columns": (
        lambda x, s: (
            lambda x: (lambda y, t: (codes(y / t).reshape(x.shape), t.reshape(x.shape[0], -1)))(
                x.reshape(x.shape[0], -1, 16).float(),
                x.reshape(x.shape[0], -1, 16).abs().amax(1, keepdim=True).float() / 448 + 1e-3,
            )
        )(rows(x)),
        None,
    ),
    "group floor": (
        lambda x, s: group(x, lambda y: torch.exp2(torch.floor(torch.log2(amax(y).clamp(min=1e-10) / 448)))),
        None,
    ),
    "int8": (lambda x, s: int8(x), "int8"),
    "int8 symmetric": (lambda x, s: int8(x, lowest=-127), None),
    "int8 /128": (lambda x, s: int8(x, 128), None),
    "int8 truncated": (
        lambda x, s: (lambda x, t: (torch.trunc(x.float() / t).clamp(-128, 127).to(torch.int8), t))(
            rows(x), amax(rows(x)) / 127
        ),
        None,
    ),
    "bf16": (lambda x, s: (x.to(torch.bfloat16),), None),
}

PACKED = {
    "fp8": "fused_silu_quant",
    "fp8_static": "silu_and_mul_fp8_static",
    "fp8_group": "silu_and_mul_fp8_group",
}
ABSENT = {
    ("gelu", "fp8_tensor"),
    ("gelu", "fp8_group"),
    ("gelu", "int8"),
    ("gelu_mul", "fp8_tensor"),
    ("gelu_mul", "int8"),
}


def rule(norm: str, quant: str) -> str | None:
    """The rule that fires on the quant of the norm, or None."""
    op, suffix = NORMS[norm][1], QUANTS[quant][1]
    if op is None or suffix is None or (op, suffix) in ABSENT:
        return None
    if op == "silu_and_mul":
        return PACKED.get(suffix, f"silu_mul_{suffix}") if quant != "token bound" else "silu_mul_fp8"
    return f"{op}_{suffix}"
