"""The shipped library: every file checks, alone and with the others; what is in it; what of it matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import capture
from fxrewrite import ops, ref
from fxrewrite.dsl import packs, sources
from fxrewrite.dsl.evaluate import evaluate
from fxrewrite.lowering.eager import Torch
from graph_checks import rewrite_checked, rewrite_pass

DEFAULT = ("noop", "norm_quant", "act_quant")
RULES = {  # pack -> how many rules it has
    "act_padding": 1,
    "act_quant": 24,
    "allreduce_rms": 7,
    "async_tp": 5,
    "attn_quant": 5,
    "gemm_quant": 2,
    "minimax": 1,
    "mla": 3,
    "noop": 13,
    "norm_quant": 24,
    "qk_norm_rope": 3,
    "rope_kvcache": 7,
    "sequence_parallel": 6,
}
OPS = 37  # of the vocabulary, the fusion of the front page among them
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_pack_checks_alone(name: str) -> None:
    program, diagnostics = packs.check_packs([name])
    assert not diagnostics
    assert {r.pack for r in program.rules} == {name}


def test_all_of_them_check_together() -> None:
    program, diagnostics = packs.check_packs(packs.shipped())
    assert not diagnostics
    assert set(packs.shipped()) == set(RULES)
    assert Counter(r.pack for r in program.rules) == RULES


def test_the_vocabulary_alone() -> None:
    program, diagnostics = packs.check_packs([])
    assert not diagnostics
    assert not program.rules
    assert len(program.ops) == OPS
    declared = {n for s in sources.vocabulary_sources() for n in s.declares("op", "fusion")}
    assert set(program.ops) == declared


def test_three_packs_are_on_from_the_start() -> None:
    assert sources.DEFAULT == DEFAULT


def test_lines_that_nobody_has_confirmed_say_so() -> None:
    text = "".join(s.text for s in (*sources.vocabulary_sources(), *map(sources.shipped_source, packs.shipped())))
    assert text.count("to be confirmed by proof") >= 17
    assert text.count("unverified") >= 9


# ---- what fires


def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    f = x.float()
    return (f * torch.rsqrt((f * f).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def quant(y: Tensor) -> tuple[Tensor, Tensor]:
    s = (y.abs().amax(-1, keepdim=True).float() / 448.0).clamp_min(4.359654017857143e-6)
    return (y.float() / s).clamp(-448.0, 448.0).to(E4M3), s


def static(y: Tensor, s: Tensor) -> Tensor:
    return (y.float() / s).clamp(-448.0, 448.0).to(E4M3)


def swiglu(x: Tensor) -> Tensor:
    gate, up = x[..., 0::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


def turned(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def random(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


S = torch.tensor([0.05])
GS = torch.tensor([100.0])
X, W, B = random(8, 128), random(128), random(128)
FIRES: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...]]] = {
    "layer_norm_fp8": ("norm_quant", lambda x, w, b: quant(F.layer_norm(x, (128,), w, b, 1e-5)), (X, W, B)),
    "layer_norm_fp8_static": (
        "norm_quant",
        lambda x, w, b, s: static(F.layer_norm(x, (128,), w, b, 1e-5), s),
        (X, W, B, S),
    ),
    "rms_norm_nvfp4": ("norm_quant", lambda x, w, g: ops.quant_nvfp4(norm(x, w), g), (X, W, GS)),
    "rms_norm_mxfp8": ("norm_quant", lambda x, w: ops.quant_mxfp8(norm(x, w)), (X, W)),
    "rms_norm_mxfp4": ("norm_quant", lambda x, w: ops.quant_mxfp4(norm(x, w)), (X, W)),
    "add_rms_norm_nvfp4": (
        "norm_quant",
        lambda x, r, w, g: (ops.quant_nvfp4(norm(x + r, w), g), x + r),
        (X, random(8, 128), W, GS),
    ),
    "swiglu_clamped_fp8": ("act_quant", lambda x: quant(swiglu(x)), (X,)),
    "swiglu_clamped_fp8_static": ("act_quant", lambda x, s: static(swiglu(x), s), (X, S)),
    "silu_and_mul_nvfp4": (
        "act_quant",
        lambda x, g: ops.quant_nvfp4(F.silu(x[:, :64]) * x[:, 64:], g),
        (X, GS),
    ),
    "silu_mul_mxfp4": ("act_quant", lambda g, u: ops.quant_mxfp4(F.silu(g) * u), (X, random(8, 128))),
    "rms_norm_rotate": (
        "qk_norm_rope",
        lambda x, w, c, s: turned(norm(x, w), c, s),
        (random(2, 4, 6, 64), random(64), random(6, 32), random(6, 32)),
    ),
    "linear_gelu": (
        "gemm_quant",
        lambda x, w, b: F.gelu(torch.addmm(b, x, w.t()), approximate="tanh"),
        (X, random(32, 128), random(32)),
    ),
    "scaled_mm_fp8_static": (
        "gemm_quant",
        lambda q, w, a, b, s: static(torch._scaled_mm(q, w.t(), a, b, out_dtype=BF16), s),
        (random(16, 128, dtype=E4M3), random(32, 128, dtype=E4M3), S, S, S),
    ),
}


def hf_rotate(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """As Hugging Face has it: cos and sin stand once for each half."""
    a, b = x.chunk(2, -1)
    return x * c + torch.cat([-b, a], -1) * s


@pytest.mark.parametrize(("doubled", "fired"), [(True, {"rms_norm_rotate": 1}), (False, {})])
def test_rotate_with_repeated_cos_and_sin(doubled: bool, fired: dict[str, int]) -> None:
    def fn(x: Tensor, w: Tensor, f: Tensor) -> Tensor:
        angles = torch.cat([f, f], -1) if doubled else f.repeat_interleave(2, -1)
        return hf_rotate(norm(x, w), angles.cos().to(BF16), angles.sin().to(BF16))

    gm = capture.make_fx_graph(fn, (random(2, 4, 6, 64), random(64), random(6, 32, dtype=torch.float32)))
    assert rewrite_checked(gm, rewrite_pass(("qk_norm_rope",))).fired == fired


@pytest.mark.parametrize("rule", FIRES)
def test_a_rule_of_the_library_fires(rule: str) -> None:
    """And what comes out is equal bit for bit."""
    pack, fn, args = FIRES[rule]
    made = rewrite_pass(tuple(dict.fromkeys(("norm_quant", "act_quant", pack))))
    assert rewrite_checked(capture.make_fx_graph(fn, args), made).fired == {rule: 1}


def test_cos_and_sin_that_do_not_broadcast_are_no_rotation() -> None:
    def fn(x: Tensor, w: Tensor, c: Tensor, s: Tensor) -> Tensor:
        return turned(norm(x, w), c, s)

    gm = capture.make_fx_graph(fn, (random(6, 64), random(64), random(4, 6, 32), random(4, 6, 32)))
    assert rewrite_checked(gm, rewrite_pass(("qk_norm_rope",))).fired == {}


# ---- references


def heads(x: Tensor, cos: Tensor, sin: Tensor, neox: bool) -> Tensor:
    h = x.unflatten(-1, (-1, 64))
    a, b = h.chunk(2, -1) if neox else (h[..., 0::2], h[..., 1::2])
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    parts = [a * c - b * s, b * c + a * s]
    return (torch.cat(parts, -1) if neox else torch.stack(parts, -1).flatten(-2)).flatten(-2)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("wide", [True, False])
def test_rope_and_its_reference_are_one_function(neox: bool, wide: bool) -> None:
    pos, q, k, cs = torch.tensor([3, 0, 7]), random(3, 256), random(3, 128), random(16, 64)
    given: dict[str, Any] = dict(Dh=64, neox=neox, off=0, inv=False, wide=wide)
    found = evaluate(packs.load([]), "rope", [pos, q, k, cs], given, Torch())
    for a, b in zip(found, ref.rope(pos, q, k, cs, **given)):
        assert torch.equal(a, b)
    if not wide:
        cos, sin = cs[pos].chunk(2, -1)
        assert torch.equal(found[0], heads(q, cos, sin, neox))


def test_rope_backwards_is_its_reference() -> None:
    pos, q, cs = torch.tensor([1, 2]), random(2, 128), torch.randn(4, 32)
    cs[:, :16], cs[:, 16:] = cs[:, :16].cos(), cs[:, :16].sin()
    there = ops.rope_q(pos, q, cs.bfloat16(), Dh=64, off=16, wide=True)
    back = ops.rope_q(pos, there, cs.bfloat16(), Dh=64, off=16, inv=True, wide=True)
    assert not torch.equal(there, q)
    torch.testing.assert_close(back, q, rtol=2**-5, atol=2**-5)
    channels = there.unflatten(-1, (-1, 64))
    assert torch.equal(channels[..., :16], q.unflatten(-1, (-1, 64))[..., :16])
    assert torch.equal(channels[..., 48:], q.unflatten(-1, (-1, 64))[..., 48:])


@pytest.mark.parametrize("il", [True, False])
def test_mrope_of_one_position_three_times_is_rope(il: bool) -> None:
    pos, q, k, cs = torch.tensor([3, 0, 7]), random(3, 256), random(3, 128), random(16, 48)
    found = ops.mrope(pos.expand(3, 3).contiguous(), q, k, cs, Dh=64, sec=[8, 8, 8], il=il)
    assert torch.equal(found[0], ops.rope(pos, q, k, cs, Dh=64)[0])


@pytest.mark.parametrize("causal", [True, False])
def test_attention(causal: bool) -> None:
    q, k, v = random(2, 4, 6, 32), random(2, 4, 6, 32), random(2, 4, 6, 32)
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    torch.testing.assert_close(ops.attention(q, k, v, causal=causal).float(), expected, rtol=2**-7, atol=2**-7)
    shared = ops.attention(q, k[:, :2], v[:, :2], causal=causal)
    again = ops.attention(q, k[:, :2].repeat_interleave(2, 1), v[:, :2].repeat_interleave(2, 1), causal=causal)
    assert torch.equal(shared, again)


def test_a_scaled_product() -> None:
    q, w = random(16, 64, dtype=E4M3), random(32, 64, dtype=E4M3).t()
    sq, sw = torch.tensor([0.5]), torch.tensor([0.25])
    expected = torch._scaled_mm(q, w, sq, sw, out_dtype=BF16)
    torch.testing.assert_close(ops.scaled_mm(q, w, sq, sw), expected, rtol=2**-7, atol=1e-3)


def test_collectives_of_one_rank_change_nothing() -> None:
    for op in (ops.all_reduce, ops.reduce_scatter, ops.all_gather, ops.shard):
        assert torch.equal(op(X, g=""), X)
