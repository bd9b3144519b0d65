"""Stubs of vLLM's ops for narrow formats, rope, linear layers and clamped SwiGLU, beside those of `vllm_stubs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fxrewrite import ref

MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between the values of E2M1; a tie goes to the even code
SIXTH = torch.tensor(1 / 6, dtype=torch.float32)


def e2m1(x: Tensor) -> Tensor:
    """4-bit codes, two to a byte, the even one low."""
    size = x.abs()
    code = sum((size >= m if i % 2 else size > m).to(torch.uint8) for i, m in enumerate(MIDDLES))
    assert isinstance(code, Tensor)
    code = torch.where(x.isnan(), 7, code + 8 * torch.signbit(x).to(torch.uint8)).to(torch.uint8)
    return code[..., 0::2] | (code[..., 1::2] << 4)


def tiles(scales: Tensor) -> Tensor:
    """Bytes of scales by the formula of the cuBLAS documentation."""
    rows, columns = scales.shape
    height, width = -(-rows // 128) * 128, -(-columns // 4) * 4
    r, c = torch.arange(rows)[:, None], torch.arange(columns)
    at = (r // 128 * (width // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
    out = torch.zeros(height * width, dtype=torch.uint8)
    out[at.flatten()] = scales.contiguous().view(torch.uint8).flatten()
    return out.reshape(height, width)


def nvfp4(x: Tensor, gs: Tensor) -> tuple[Tensor, Tensor]:
    blocks = x.float().unflatten(-1, (-1, 16))
    scales = (gs * (blocks.abs().amax(-1) * SIXTH)).clamp(max=448.0).to(torch.float8_e4m3fn)
    s = scales.float()
    factor = torch.where(s == 0, 0.0, 1 / (s * (1 / gs)))
    return e2m1((blocks * factor[..., None]).flatten(-2)), scales


def _fp4_out(x: Tensor, gs: Tensor, swizzled: bool, *, output: Tensor, output_scale: Tensor) -> None:
    codes, scales = nvfp4(x, gs)
    output.copy_(codes)
    output_scale.view(torch.uint8).copy_(tiles(scales) if swizzled else scales.view(torch.uint8))


def _silu_fp4(result: Tensor, scale: Tensor, x: Tensor, gs: Tensor) -> None:
    gate, up = x.chunk(2, -1)
    silu = (gate.float() / (torch.exp(-gate.float()) + 1)).to(x.dtype)
    _fp4_out(silu * up, gs, True, output=result, output_scale=scale)


def _add_norm_fp4(
    result: Tensor, scale: Tensor, residual: Tensor, x: Tensor, w: Tensor, gs: Tensor, flat: Tensor, swizzled: bool,
    eps: float,
) -> None:  # fmt: skip
    total = x + residual
    t = total.float()
    y = (t * torch.rsqrt((t * t).mean(-1, keepdim=True) + eps)).to(x.dtype) * w
    _fp4_out(y, gs, swizzled, output=result, output_scale=scale)
    residual.copy_(total)


def _packed(x: Tensor, q: Tensor, s: Tensor, group: int, eps: float, low: float, high: float) -> None:
    groups = x.float().unflatten(-1, (-1, group))
    scale = groups.abs().amax(-1).clamp(min=eps) / high
    exponent = torch.ceil(torch.log2(scale.clamp(min=1e-10))).to(torch.int32)
    q.copy_((groups / torch.exp2(exponent.float())[..., None]).clamp(low, high).flatten(-2).to(q.dtype))
    parts = (exponent + 127).unflatten(-1, (-1, 4))
    s.copy_(parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16 | parts[..., 3] << 24)


def _swiglu(out: Tensor, x: Tensor, a: float = 1.702, lim: float = 7.0) -> None:
    gate, up = x[..., 0::2].clamp(max=lim), x[..., 1::2].clamp(-lim, lim)
    inner = torch.sigmoid((gate.float() * a).to(x.dtype).float()).to(x.dtype)
    out.copy_((up.float() + 1).to(x.dtype) * (gate * inner))


def _rope(wide: bool) -> Callable[..., None]:
    def turn(pos: Tensor, q: Tensor, k: Tensor | None, size: int, cache: Tensor, neox: bool, *rest: Any) -> None:
        off, inverse = rest if len(rest) == 2 else (0, False)
        for x in (q, k):
            if x is not None:
                x.copy_(ref.rope_q(pos, x, cache, Dh=size, neox=neox, off=off, inv=inverse, wide=wide)[0])

    return turn


def _mrope(
    pos: Tensor, q: Tensor, k: Tensor, cache: Tensor, size: int, rotary: int, t: int, h: int, w: int, il: bool,
    neox: bool,
) -> None:  # fmt: skip
    assert rotary == cache.shape[-1]
    for x, turned in zip((q, k), ref.mrope(pos, q, k, cache, Dh=size, sec=[t, h, w], il=il, neox=neox)):
        x.copy_(turned)


def _cutlass(out: Tensor, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, bias: Tensor | None) -> None:
    found = (a.float() @ b.float()) * sa * sb
    out.copy_(found if bias is None else found + bias.float())


ROPE = "Tensor positions, Tensor! query, Tensor{} key, int head_size, Tensor cos_sin_cache, bool is_neox"
OPS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    (
        "_C::scaled_fp4_quant.out",
        "(Tensor input, Tensor input_scale, bool is_sf_swizzled_layout, *, Tensor(a!) output, Tensor(b!) output_scale)"
        " -> ()",
        _fp4_out,
    ),
    (
        "_C::silu_and_mul_nvfp4_quant",
        "(Tensor! result, Tensor! result_block_scale, Tensor input, Tensor input_global_scale) -> ()",
        _silu_fp4,
    ),
    (
        "vllm::flashinfer_fused_add_rms_norm_nvfp4_quant",
        "(Tensor(a0!) result, Tensor(a1!) result_block_scale, Tensor(a2!) residual, Tensor input, Tensor weight, "
        "Tensor input_global_scale, Tensor block_scale_unswizzled, bool is_sf_swizzled_layout, float epsilon) -> ()",
        _add_norm_fp4,
    ),
    (
        "_C::per_token_group_fp8_quant_packed",
        "(Tensor input, Tensor! output_q, Tensor! output_s_packed, int group_size, float eps, float fp8_min, "
        "float fp8_max) -> ()",
        _packed,
    ),
    ("_C::swigluoai_and_mul", "(Tensor! out, Tensor input, float alpha=1.702, float limit=7.0) -> ()", _swiglu),
    (
        "_C::rotary_embedding",
        f"({ROPE.format('(a!)?')}, int rope_dim_offset=0, bool inverse=False) -> ()",
        _rope(wide=False),
    ),
    ("vllm::flashinfer_rotary_embedding", f"({ROPE.format('!')}) -> ()", _rope(wide=True)),
    (
        "vllm::rocm_aiter_triton_rotary_embedding",
        f"({ROPE.format('!')}, Tensor? offsets=None) -> ()",
        lambda pos, q, k, size, cache, neox, offsets=None: _rope(wide=False)(pos, q, k, size, cache, neox),
    ),
    (
        "vllm::mrope",
        "(Tensor positions, Tensor! query, Tensor! key, Tensor cos_sin_cache, SymInt head_size, SymInt rotary_dim, "
        "SymInt mrope_section_t, SymInt mrope_section_h, SymInt mrope_section_w, bool mrope_interleaved, "
        "bool is_neox_style) -> ()",
        _mrope,
    ),
    (
        "_C::cutlass_scaled_mm",
        "(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias) -> ()",
        _cutlass,
    ),
    ("vllm::rocm_unquantized_gemm", "(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor", F.linear),
)
