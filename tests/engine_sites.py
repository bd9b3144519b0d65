"""What the rules about caches, attention and rope fire on, and what they do not: a program for each rule, with the ways
in which its twins differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import field, frozen

import engine_programs as p
from engine_programs import BF16, DH, HEADS, LATENT, ROPE, WIDE, WIDTH, T

How = dict[str, Any]  # keywords of a program


@frozen
class Program:
    """What one rule of `pack` fires on. `args`: what `engine_programs.inputs` makes its arguments of.

    `by`: the provider; "mine" is a stub of the tests. `machine`: facts that it needs. `twins`: name -> how, and why it
    does not fire. `alike`: how it is when it fires all the same.
    """

    pack: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    by: str = "vllm"
    machine: How = field(factory=dict)
    twins: dict[str, tuple[How, str]] = field(factory=dict)
    alike: dict[str, How] = field(factory=dict)


I64, F32 = torch.int64, torch.float32
Q, QKV, HALVES, WEIGHT = (T, HEADS * DH), (T, WIDTH + 2 * WIDE), (8, WIDE), (WIDE,)
ROTATE = ((T, HEADS, DH), (T, 1, DH // 2), (T, 1, DH // 2))
TWO_NORMS = (BF16, (T, 2 * LATENT + ROPE), (T, 2 * LATENT + ROPE), (LATENT,), (LATENT,))
WRITE: dict[str, tuple[How, str]] = {"a write in between": (dict(between="write"), "effect order")}
ORDER = {**WRITE, "a read in between": (dict(between="read"), "effect order")}
OTHERS: dict[str, How] = {
    "a read of another layer": dict(between="read other"),
    "a write to another": dict(between="write other"),
}
ASKED: dict[str, tuple[How, str]] = {
    "a layer that cannot": (dict(layer="weak"), "guard false"),
    "a layer that is not known": (dict(layer="none"), "guard unknown"),
    "the content is read too": (dict(also=True), "shared value"),
    **WRITE,
}
OF_PROVIDER: dict[str, tuple[How, str]] = {
    "a layer that cannot": (dict(layer="weak"), "provider missing"),
    "a layer that is not known": (dict(layer="none"), "provider missing"),
}
NORMS: dict[str, tuple[How, str]] = {
    "two eps": (dict(eps=(1e-6, 1e-5)), "other constant"),
    "keys and values exchanged": (dict(parts="qvk"), "other constant"),
}
INDEX_PUT: dict[str, tuple[How, str]] = {
    "another content": (dict(written="raw"), "other op"),
    "added to what is there": (dict(accumulate=True), "other constant"),
}
BEFORE_A_QUANT: dict[str, tuple[How, str]] = {
    "parts of two tensors": (dict(apart=True), "other op"),
    "the norm is read too": (dict(also=True), "shared value"),
}


def latent(run: Callable[..., Any], twins: dict[str, tuple[How, str]], alike: dict[str, How]) -> Program:
    return Program(
        "attn_quant", run, (BF16, (T, HEADS, LATENT + ROPE), (T, LATENT), (T, 1, ROPE), F32, (1,)),
        twins={**ASKED, **twins}, alike={"a write to another": dict(between="write other"), **alike},
    )  # fmt: skip


PROGRAMS: dict[str, Program] = {
    "rope_kv_cache": Program(
        "rope_kvcache", p.rope_cache, (I64, (T,), BF16, Q, Q, Q, (8, DH)),
        twins={
            **ORDER, **OF_PROVIDER,
            "queries are written": (dict(written="q"), "other op"),
            "keys as they were are written": (dict(written="raw"), "other op"),
            "keys and values exchanged": (dict(written="swapped"), "other op"),
            "heads of another width": (dict(width=DH // 2), "shape"),
        },
        alike={**OTHERS, "a read before": dict(before="read"), "written again": dict(again=True)},
    ),
    "rope_kv_cache_q8": Program(
        "rope_kvcache", p.rope_cache_q8, (I64, (T,), BF16, Q, Q, Q, (8, DH), F32, (1,)), by="mine",
        twins={
            "the keys": (dict(of="k"), "other op"),
            "the queries as they were": (dict(of="raw"), "other op"),
            "the scale is of what was written": (dict(scale="read"), "effect order"),
        },
        alike={"the scale is of another layer": dict(scale="read other")},
    ),
    "rope_index_put": Program(
        "rope_kvcache", p.rope_scatter, (BF16, *ROTATE, (8, HEADS, DH), I64, (T,)), by="op", twins=INDEX_PUT
    ),
    "rope_index_put_fp8": Program(
        "rope_kvcache", p.rope_scatter_fp8, (BF16, *ROTATE, p.E4M3, (8, HEADS, DH), I64, (T,), F32, (1,)), by="op",
        twins=INDEX_PUT,
    ),
    "qk_norm_rope_kv_cache": Program(
        "rope_kvcache", p.norm_rope_cache, (I64, (T,), BF16, QKV, WEIGHT, WEIGHT, HALVES),
        twins={
            **ORDER, **NORMS, **OF_PROVIDER,
            "queries are written": (dict(written="qv"), "other op"),
            "a normed value is read too": (dict(also="norm"), "shared value"),
        },
        alike={**OTHERS, "the packed projection is read too": dict(also="packed")},
    ),
    "qk_norm_mrope_kv_cache": Program(
        "rope_kvcache", p.norm_mrope_cache, (I64, (3, T), BF16, QKV, WEIGHT, WEIGHT, HALVES), by="mine",
        twins={**ORDER, **NORMS}, alike=OTHERS,
    ),
    "mla_rope_kv_cache": Program(
        "rope_kvcache", p.mla_rope_cache,
        (I64, (T,), BF16, (T, HEADS * ROPE), (T, ROPE), (T, LATENT), (T, HEADS, LATENT + ROPE), (8, ROPE), F32, (1,)),
        twins={
            "a read in between": (dict(between="read"), "effect order"),
            "the rope part as it was": (dict(written="raw"), "other op"),
        },
        alike={"a read of another layer": dict(between="read other"), "a narrow cache": dict(dtype="fp8")},
    ),
    "attn_fp8": Program(
        "attn_quant", p.attention_fp8, (BF16, (T, HEADS, DH), (T, HEADS, DH), (T, HEADS, DH), F32, (1,)),
        twins={
            **ASKED,
            "a row for each head": (dict(rows=T * HEADS), "shape"),
            "divided by the scale": (dict(recip=False), "provider missing"),
        },
        alike={**OTHERS, "a read in between": dict(between="read"), "no write before": dict(done=False)},
    ),
    "attn_nvfp4": Program(
        "attn_quant", p.attention_nvfp4, (BF16, (T, HEADS, 16), (T, HEADS, 16), (T, HEADS, 16), F32, (1,)),
        machine=dict(sm=100), twins=ASKED, alike=OTHERS,
    ),
    "mla_fp8": latent(
        p.latent_fp8, {"divided by the scale": (dict(recip=False), "provider missing")},
        {"replicated queries": dict(repl=True)},
    ),
    "mla_nvfp4": latent(p.latent_nvfp4, {}, {}),
    "mla_fp8_group": latent(
        p.latent_group, {"groups of 32": (dict(size=32), "guard false")}, {"groups of 128": dict(size=128)}
    ),
    "qk_norm_rope": Program(
        "qk_norm_rope", p.norm_rope, (I64, (1,), BF16, (1, QKV[1]), WEIGHT, WEIGHT, HALVES),
        twins={**NORMS, "a normed value is read too": (dict(also="norm"), "shared value")},
        alike={"the packed projection is read too": dict(also="packed")},
    ),
    "qk_norm_mrope": Program(
        "qk_norm_rope", p.norm_mrope, (I64, (3, T), BF16, QKV, WEIGHT, WEIGHT, HALVES), by="op", twins=NORMS
    ),
    "rms_norm_rotate": Program(
        "qk_norm_rope", p.norm_turn, (BF16, (T, HEADS, DH), (DH,), *ROTATE[1:]), by="op",
        twins={"the norm is read too": (dict(also=True), "shared value")},
    ),
    "mla_dual_rms_norm": Program(
        "mla", p.two_norms, TWO_NORMS, by="aiter", machine=dict(rocm=True),
        twins={"parts of two tensors": (dict(apart=True), "other op")}, alike={"a norm is read too": dict(also=True)},
    ),
    "mla_dual_rms_norm_fp8": Program(
        "mla", p.two_norms_fp8, TWO_NORMS, by="op",
        twins=BEFORE_A_QUANT,
    ),
    "mla_dual_rms_norm_fp8_group": Program(
        "mla", p.two_norms_fp8_group, TWO_NORMS, by="op",
        twins=BEFORE_A_QUANT,
    ),
    "add_rms_norm_pad": Program(
        "act_padding", p.norm_pad, (BF16, (T, 96), (T, 96), (96,)), by="aiter", machine=dict(rocm=True),
        twins={
            "in front": (dict(pad=(32, 0)), "other op"),
            "another number": (dict(value=1.0), "other op"),
            "no multiple of 128": (dict(pad=(0, 16)), "guard false"),
            "the norm is read in its own strides": (dict(router=True), "strides"),
        },
    ),
}  # fmt: skip
