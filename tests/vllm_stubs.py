"""vLLM's custom ops and IR ops as stubs: the schemas of vLLM, and for each the equation that its kernel is held to be.

    vllm_stubs.declare()          # once a process or more often; then torch.ops._C.rms_norm exists

The equations are written in torch by hand, with every rounding, and know nothing of `.rw` files: what a form passes in
which place is thereby checked. Where vLLM's own kernel rounds otherwise is a matter of proof on a machine that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import narrow_stubs

FP8_MIN_SCALE = 1.0 / (448.0 * 512.0)  # vLLM: csrc/quantization/fp8/common.cu, min_scaling_factor


# ---- equations


def silu(x: Tensor) -> Tensor:
    """In float32, not rounded."""
    return x.float() / (torch.exp(-x.float()) + 1)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu is rounded, then the product."""
    gate, up = x.chunk(2, -1)
    return silu(gate).to(x.dtype) * up


def silu_and_mul_once(x: Tensor) -> Tensor:
    """The product is computed in float32 and rounded once."""
    gate, up = x.chunk(2, -1)
    return (silu(gate) * up.float()).to(x.dtype)


def gelu_and_mul(x: Tensor, tanh: bool) -> Tensor:
    """gelu is rounded, then the product."""
    gate, up = x.chunk(2, -1)
    t = gate.float()
    if tanh:
        g = t * 0.5 * (torch.tanh((t + t * t * t * 0.044715) * 0.7978845608028654) + 1)
    else:
        g = t * 0.5 * (torch.erf(t * 0.7071067811865476) + 1)
    return g.to(x.dtype) * up


def normalized(x: Tensor, eps: float, variance_size: int | None = None) -> Tensor:
    """The rows of x (float32) over their root mean square, not rounded."""
    part = x if variance_size is None else x[..., :variance_size]
    return x * torch.rsqrt((part * part).mean(-1, keepdim=True) + eps)


def weighed(n: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Rounded to the dtype of the weight, multiplied, rounded."""
    return n.to(dtype) if weight is None else (n.to(weight.dtype) * weight).to(dtype)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, variance_size: int | None = None) -> Tensor:
    """The norm of x."""
    return weighed(normalized(x.float(), eps, variance_size), weight, x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The sum is rounded, then read by the norm."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def add_rms_norm_wide(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """The norm reads the sum in float32; the sum that is returned is rounded."""
    total = x.float() + residual.float()
    return weighed(normalized(total, eps, variance_size), weight, x.dtype), total.to(x.dtype)


def codes(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Clamped and rounded."""
    limit = torch.finfo(dtype).max
    return scaled.clamp(-limit, limit).to(dtype)


def per_token(x: Tensor, upper: Tensor | None, dtype: torch.dtype, smin: float) -> tuple[Tensor, Tensor]:
    """One scale a row, by division; codes by division."""
    amax = x.abs().amax(-1, keepdim=True).float()
    amax = amax if upper is None else torch.minimum(amax, upper)
    scale = (amax / torch.finfo(dtype).max).clamp_min(smin)
    return codes(x.float() / scale, dtype), scale


def per_tensor(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """One scale, by division; codes by the reciprocal."""
    scale = (x.abs().amax().float() / torch.finfo(dtype).max).reshape(1)
    return codes(x.float() * scale.reciprocal(), dtype), scale


def per_group(
    x: Tensor, size: int, eps: float, dtype: torch.dtype, ue8m0: bool = False, smin: float = 0.0
) -> tuple[Tensor, Tensor]:
    """One scale a group, by division, a power of two if `ue8m0`; codes by division."""
    groups = x.float().reshape(*x.shape[:-1], -1, size)
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(eps) / torch.finfo(dtype).max
    if ue8m0:
        scale = torch.exp2(torch.ceil(torch.log2(scale.clamp_min(1e-10))))
    scale = scale.clamp_min(smin)
    return codes(groups / scale, dtype).reshape(x.shape), scale.squeeze(-1)


# ---- kernels: they write what they are given


def _c_fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> None:
    y, total = add_rms_norm(x, residual, weight, eps)
    x.copy_(y)
    residual.copy_(total)


def _c_static_quant(result: Tensor, x: Tensor, scale: Tensor, group_shape: Any = None) -> None:
    assert group_shape in (None, [-1, -1])
    result.copy_(codes(x.float() * scale.reciprocal(), result.dtype))


def _c_per_token_quant(result: Tensor, x: Tensor, scale: Tensor, scale_ub: Tensor | None = None) -> None:
    _write((result, scale), per_token(x, scale_ub, result.dtype, FP8_MIN_SCALE))


def _c_per_tensor_quant(result: Tensor, x: Tensor, scale: Tensor) -> None:
    _write((result, scale), per_tensor(x, result.dtype))


def _c_group_quant(
    x: Tensor, output_q: Tensor, output_s: Tensor, group_size: int, eps: float, fp8_min: float, fp8_max: float,
    scale_ue8m0: bool, is_scale_transposed: bool, is_tma_aligned: bool,
) -> None:  # fmt: skip
    limit = torch.finfo(output_q.dtype).max
    assert (fp8_min, fp8_max) == (-limit, limit)
    columns = x.shape[0] + (-x.shape[0] % 4 if is_tma_aligned else 0)
    assert output_s.stride() == ((1, columns) if is_scale_transposed else (x.shape[1] // group_size, 1))
    _write((output_q, output_s), per_group(x, group_size, eps, output_q.dtype, scale_ue8m0))


def _c_int8_quant(result: Tensor, x: Tensor, scale: Tensor, azp: Tensor | None = None) -> None:
    assert azp is None
    scale.copy_(x.abs().amax(-1, keepdim=True).float() / 127)
    result.copy_((x.float() / scale).round().clamp(-128, 127).to(torch.int8))


def _c_norm_static_quant(result: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float) -> None:
    _c_static_quant(result, rms_norm(x, weight, eps), scale)


def _c_add_norm_static_quant(
    result: Tensor, x: Tensor, residual: Tensor, weight: Tensor, scale: Tensor, eps: float
) -> None:
    y, total = add_rms_norm(x, residual, weight, eps)
    _c_static_quant(result, y, scale)
    residual.copy_(total)


def _norm_of(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    if residual is None:
        return rms_norm(x, weight, eps)
    y, total = add_rms_norm_wide(x, residual, weight, eps)
    residual.copy_(total)
    return y


def _c_norm_per_token_quant(
    result: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float, scale_ub: Tensor | None = None,
    residual: Tensor | None = None,
) -> None:  # fmt: skip
    _c_per_token_quant(result, _norm_of(x, residual, weight, eps), scale, scale_ub)


def _c_norm_block_quant(
    result: Tensor, x: Tensor, weight: Tensor, scale: Tensor, eps: float, scale_ub: Tensor | None,
    residual: Tensor | None, group_size: int, is_scale_transposed: bool,
) -> None:  # fmt: skip
    y = _norm_of(x, residual, weight, eps)
    assert scale_ub is None
    assert scale.stride(0 if is_scale_transposed else -1) == 1
    _write((result, scale), per_group(y, group_size, 0.0, result.dtype, smin=FP8_MIN_SCALE))


def _c_silu_block_quant(
    out: Tensor, x: Tensor, scales: Tensor, group_size: int, scale_ub: Tensor | None = None,
    is_scale_transposed: bool = False,
) -> None:  # fmt: skip
    assert scale_ub is None
    _write((out, scales), per_group(silu_and_mul_once(x), group_size, 0.0, out.dtype, smin=FP8_MIN_SCALE))


def _write(outs: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> None:
    for out, v in zip(outs, values):
        out.copy_(v)


def _aiter_per_tensor(out: Tensor, x: Tensor, scale: Tensor, is_dynamic: bool = False) -> None:
    assert not is_dynamic
    _c_static_quant(out, x, scale)


def _aiter_group(x: Tensor, group_size: int, transpose_scale: bool = False) -> tuple[Tensor, Tensor]:
    assert not transpose_scale
    return per_group(x, group_size, 1e-10, torch.float8_e4m3fn)


def _aiter_add_norm_group(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, group_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    y, total = add_rms_norm_wide(x, residual, weight, eps)
    quantized, scale = per_group(y, group_size, 1e-10, FP8)
    return quantized, total, scale


# ---- the ops

NORM = "Tensor x, Tensor? weight, float epsilon, int? variance_size=None"
ADD_NORM = "Tensor x, Tensor x_residual, Tensor? weight, float epsilon, int? variance_size=None"
FP8 = torch.float8_e4m3fn

OPS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("_C::silu_and_mul", "(Tensor! result, Tensor input) -> ()", lambda o, x: o.copy_(silu_and_mul(x))),
    ("_C::gelu_and_mul", "(Tensor! out, Tensor input) -> ()", lambda o, x: o.copy_(gelu_and_mul(x, False))),
    ("_C::gelu_tanh_and_mul", "(Tensor! out, Tensor input) -> ()", lambda o, x: o.copy_(gelu_and_mul(x, True))),
    (
        "_C::rms_norm",
        "(Tensor! result, Tensor input, Tensor? weight, float epsilon) -> ()",
        lambda o, x, w, eps: o.copy_(rms_norm(x, w, eps)),
    ),
    (
        "_C::fused_add_rms_norm",
        "(Tensor! input, Tensor! residual, Tensor? weight, float epsilon) -> ()",
        _c_fused_add_rms_norm,
    ),
    (
        "_C::static_scaled_fp8_quant",
        "(Tensor! result, Tensor input, Tensor scale, int[]? group_shape=None) -> ()",
        _c_static_quant,
    ),
    (
        "_C::dynamic_per_token_scaled_fp8_quant",
        "(Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub) -> ()",
        _c_per_token_quant,
    ),
    ("_C::dynamic_scaled_fp8_quant", "(Tensor! result, Tensor input, Tensor! scale) -> ()", _c_per_tensor_quant),
    (
        "_C::per_token_group_fp8_quant",
        "(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float fp8_min, float fp8_max, "
        "bool scale_ue8m0, bool is_scale_transposed, bool is_tma_aligned) -> ()",
        _c_group_quant,
    ),
    (
        "_C::dynamic_scaled_int8_quant",
        "(Tensor! result, Tensor input, Tensor! scale, Tensor(a!)? azp) -> ()",
        _c_int8_quant,
    ),
    (
        "_C::silu_and_mul_quant",
        "(Tensor! result, Tensor input, Tensor scale) -> ()",
        lambda o, x, s: _c_static_quant(o, silu_and_mul(x), s),
    ),
    (
        "_C::silu_and_mul_per_block_quant",
        "(Tensor! out, Tensor input, Tensor! scales, int group_size, Tensor? scale_ub=None, "
        "bool is_scale_transposed=False) -> ()",
        _c_silu_block_quant,
    ),
    (
        "_C::rms_norm_static_fp8_quant",
        "(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon) -> ()",
        _c_norm_static_quant,
    ),
    (
        "_C::fused_add_rms_norm_static_fp8_quant",
        "(Tensor! result, Tensor input, Tensor! residual, Tensor weight, Tensor scale, float epsilon) -> ()",
        _c_add_norm_static_quant,
    ),
    (
        "_C::rms_norm_dynamic_per_token_quant",
        "(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, Tensor? scale_ub, "
        "Tensor(a!)? residual) -> ()",
        _c_norm_per_token_quant,
    ),
    (
        "_C::rms_norm_per_block_quant",
        "(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, Tensor? scale_ub, "
        "Tensor(a!)? residual, int group_size, bool is_scale_transposed) -> ()",
        _c_norm_block_quant,
    ),
    ("vllm_ir::rms_norm", f"({NORM}) -> Tensor", rms_norm),
    ("vllm_ir::fused_add_rms_norm", f"({ADD_NORM}) -> (Tensor, Tensor)", add_rms_norm_wide),
    (
        "vllm_ir::fused_add_rms_norm.maybe_inplace",
        f"({ADD_NORM.replace('Tensor x', 'Tensor! x')}) -> (Tensor, Tensor)",
        add_rms_norm_wide,
    ),
    (
        "vllm::flashinfer_silu_and_mul",
        "(Tensor! out, Tensor input) -> ()",
        lambda o, x: o.copy_(silu_and_mul_once(x)),
    ),
    (
        "vllm::rocm_aiter_per_tensor_quant",
        "(Tensor! out, Tensor x, Tensor! scale, bool is_dynamic=False) -> ()",
        _aiter_per_tensor,
    ),
    (
        "vllm::rocm_aiter_per_token_quant",
        "(Tensor x, ScalarType quant_dtype, Tensor? scale=None) -> (Tensor, Tensor)",
        lambda x, qt, scale=None: per_token(x, scale, qt, FP8_MIN_SCALE),
    ),
    (
        "vllm::rocm_aiter_group_fp8_quant",
        "(Tensor x, int group_size, bool transpose_scale=False) -> (Tensor, Tensor)",
        _aiter_group,
    ),
    (
        "vllm::rocm_aiter_rmsnorm_fused_dynamic_quant",
        "(Tensor x, Tensor weight, float epsilon, ScalarType quant_dtype) -> (Tensor, Tensor)",
        lambda x, w, eps, qt: per_token(rms_norm(x, w, eps), None, qt, FP8_MIN_SCALE),
    ),
    (
        "vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant",
        "(Tensor x, Tensor residual, Tensor weight, float epsilon, int group_size) -> (Tensor, Tensor, Tensor)",
        _aiter_add_norm_group,
    ),
    (
        "vllm::rocm_aiter_act_mul_and_fp8_group_quant",
        "(Tensor x, int group_size) -> (Tensor, Tensor)",
        lambda x, size: per_group(silu_and_mul(x), size, 1e-10, FP8),
    ),
)


@cache
def declare() -> tuple[torch.library.Library, ...]:
    """Register every stub that this process does not have yet. The libraries live as long as the process."""
    libraries: dict[str, torch.library.Library] = {}
    for qualified, schema, kernel in (*OPS, *narrow_stubs.OPS):
        namespace, _, name = qualified.partition("::")
        library = libraries.setdefault(namespace, torch.library.Library(namespace, "FRAGMENT"))
        if _exists(namespace, name):
            continue
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, _returning(schema, kernel), "CompositeExplicitAutograd")
        torch.library.register_fake(qualified, kernel if _returns(schema) else _nothing, lib=library)
    return tuple(libraries.values())


def _exists(namespace: str, name: str) -> bool:
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return found is not None and (overload or "default") in found.overloads()


def _returns(schema: str) -> bool:
    return not schema.endswith("-> ()")


def _nothing(*args: Any, **named: Any) -> None:
    """On fake tensors there is nothing to write."""


def _returning(schema: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel; an op that only writes returns nothing."""
    if _returns(schema):
        return kernel

    def write(*args: Any, **named: Any) -> None:
        kernel(*args, **named)

    return write
