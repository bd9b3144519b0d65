"""What the rules about collectives fire on, and what they do not: a program for each rule, and the twins of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor

from engine_programs import BF16, E4M3, EPS, norm
from fxrewrite import ops
from rank_stubs import SIZE

ROWS, D, N = 1024, 128, 32  # sequence parallelism pays from 1024 rows on
F32 = torch.float32
How = dict[str, Any]
Twins = dict[str, tuple[How, How, str]]  # name -> keywords of the program, of the pass, and why the rule does not fire


@frozen
class Site:
    """What one rule of `pack` fires on. `args`: what `engine_programs.inputs` makes its arguments of, with their names.

    `shared`: which of them are equal on all ranks. `by`: the providers that are named, and `machine` what it is.
    """

    pack: str
    run: Callable[..., Any]
    args: dict[str, tuple[Any, ...]]
    shared: str = ""
    by: tuple[str, ...] = ("vllm", "op")
    machine: How = field(factory=dict)
    twins: Twins = field(factory=dict)
    alike: dict[str, How] = field(factory=dict)


# ---- collectives, in both spellings


def reduced(x: Tensor, how: str = "vllm", group: str = "tp", op: str = "sum") -> Tensor:
    if how == "vllm":
        return torch.ops.vllm.all_reduce(x, group)
    c10d = torch.ops._c10d_functional
    return c10d.wait_tensor(c10d.all_reduce(x, op, group))


def gathered(x: Tensor, how: str = "vllm", group: str = "tp", d: int = 0) -> Tensor:
    if how == "vllm":
        return torch.ops.vllm.all_gather(x, d, SIZE, group)
    c10d = torch.ops._c10d_functional
    return c10d.wait_tensor(c10d.all_gather_into_tensor(x, SIZE, group))


def scattered(x: Tensor, how: str = "vllm", group: str = "tp", d: int = 0, op: str = "sum") -> Tensor:
    if how == "vllm":
        return torch.ops.vllm.reduce_scatter(x, d, SIZE, group)
    c10d = torch.ops._c10d_functional
    return c10d.wait_tensor(c10d.reduce_scatter_tensor(x, op, SIZE, group))


def static_quant(x: Tensor, s: Tensor, recip: bool = False) -> Tensor:
    return (x.float() * s.reciprocal() if recip else x.float() / s).clamp(-448, 448).to(E4M3)


def per_token(x: Tensor) -> tuple[Tensor, Tensor]:
    s = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=4.359654017857143e-6)
    return (x.float() / s).clamp(-448, 448).to(E4M3), s


def per_group(x: Tensor, size: int = 128) -> tuple[Tensor, Tensor]:
    groups = x.float().reshape(len(x), -1, size)
    s = groups.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
    return (groups / s).clamp(-448, 448).to(E4M3).reshape(x.shape), s.reshape(len(x), -1)


# ---- programs


def norm_first(x: Tensor, w: Tensor, quant: Callable[..., Any] | None = None, **how: Any) -> Any:
    h = reduced(x, **how)
    y = norm(h, w)
    return *((y,) if quant is None else quant(y)), h


def norm_first_static(x: Tensor, w: Tensor, s: Tensor, **how: Any) -> Any:
    return norm_first(x, w, lambda y: (static_quant(y, s),), **how)


def rounded_add_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = x + r
    return norm(h, w), h


def wide_add_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.vllm_ir.fused_add_rms_norm(x, r, w, EPS)


def block(
    x: Tensor, r: Tensor, w: Tensor, *, add: Callable[..., Any] = rounded_add_norm,
    quant: Callable[..., Any] | None = None, also: bool = False, **how: Any,
) -> Any:  # fmt: skip
    total = reduced(x, **how)
    y, h = add(total, r, w)
    return *((y,) if quant is None else quant(y)), h, *([total] if also else [])


def wide_block(x: Tensor, r: Tensor, w: Tensor, **how: Any) -> Any:
    return block(x, r, w, add=wide_add_norm, **how)


def gemma_block(x: Tensor, r: Tensor, w: Tensor, **how: Any) -> Any:
    return block(x, r, w.float() + 1.0, **how)


def static_block(x: Tensor, r: Tensor, w: Tensor, s: Tensor, **how: Any) -> Any:
    return block(x, r, w, quant=lambda y: (static_quant(y, s, True),), **how)


def group_block(x: Tensor, r: Tensor, w: Tensor, **how: Any) -> Any:
    return wide_block(x, r, w, quant=per_group, **how)


def quant_of_gather(x: Tensor, s: Tensor, **how: Any) -> Any:
    return static_quant(gathered(x, **how), s)


def token_quant_of_gather(x: Tensor, **how: Any) -> Any:
    return per_token(gathered(x, **how))


def group_quant_of_gather(x: Tensor, **how: Any) -> Any:
    return per_group(gathered(x, **how))


def product_scattered(a: Tensor, b: Tensor, *, also: bool = False, **how: Any) -> Any:
    y = a @ b
    return scattered(y, **how), *([y] if also else [])


def scaled(a: Tensor, b: Tensor, sa: Tensor, sb: Tensor) -> Tensor:
    return torch.ops.aten._scaled_mm.default(a, b.t(), sa, sb, None, None, BF16)


def scaled_scattered(a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, **how: Any) -> Any:
    return scattered(scaled(a, b, sa, sb), **how)


def gather_multiplied(a: Tensor, b: Tensor, c: Tensor, *, also: bool = False, one: bool = False, **how: Any) -> Any:
    t = gathered(a, **how)
    return t @ b, *([] if one else [t @ c]), *([t + 1] if also else [])


def gather_scaled(
    a: Tensor, b: Tensor, c: Tensor, sa: Tensor, sb: Tensor, sc: Tensor, *, also: bool = False, **how: Any
) -> Any:
    t = gathered(a, **how)
    return scaled(t, b, sa, sb), scaled(t, c, sa, sc), *([t.float()] if also else [])


def gather_scaled_rows(
    a: Tensor, b: Tensor, c: Tensor, sa: Tensor, sb: Tensor, sc: Tensor, *, scales: str = "tp", **how: Any
) -> Any:
    t, st = gathered(a, **how), gathered(sa, **{**how, "group": scales})
    return scaled(t, b, st, sb), scaled(t, c, st, sc)


def norm_over_ranks(
    q: Tensor, k: Tensor, wq: Tensor, wk: Tensor, *, size: int = SIZE, swapped: bool = False, **how: Any
) -> Any:
    squares = [(x.float() * x.float()).mean(-1, keepdim=True) for x in (q, k)]
    vq, vk = (reduced(torch.cat(squares, -1), **how) / size).chunk(2, -1)
    vq, vk = (vk, vq) if swapped else (vq, vk)
    return tuple((x.float() * torch.rsqrt(v + EPS) * w).to(x.dtype) for x, v, w in ((q, vq, wq), (k, vk, wk)))


def nvfp4_block(x: Tensor, r: Tensor, w: Tensor, s: Tensor, **how: Any) -> Any:
    return block(x, r, w, quant=lambda y: ops.quant_nvfp4(y, s), **how)


def layers(x: Tensor, w: Tensor, u: Tensor, m: Tensor, *, group: str = "tp") -> Any:
    """The first norm, then two blocks: what one block gathers the next one shards."""
    n, h = norm_first(x, w)
    n, h = block(n @ m, h, u, group=group)
    n, h = block(n @ m, h, w)
    return n


# ---- the table

X, W = (BF16, (ROWS, D)), (BF16, (D,))
NORM, ADD = dict(x=X, w=W), dict(x=X, r=X, w=W)
SCALE = (F32, (1,))
UNKNOWN: Twins = {"a group of unknown size": (dict(group="nobody"), {}, "guard unknown")}
AVERAGE: Twins = {"the average": (dict(how="c10d", op="avg"), {}, "other op")}
NO_SITE = ""  # nothing in the graph is the op that the rule begins with
NO_AVERAGE: Twins = {"the average": (dict(how="c10d", op="avg"), {}, NO_SITE)}
READ: Twins = {"it is read too": (dict(also=True), {}, "shared value")}
BY_PARTS: Twins = {
    **UNKNOWN,
    "not as many rows for each": ({}, dict(groups={"tp": 3}), "guard false"),
    "a weight that ranks may differ in": ({}, dict(replicated=()), "guard unknown"),
    **AVERAGE,
}
SERVED: Twins = {
    "a group of unknown size": (dict(group="nobody"), {}, "provider missing"),
    "a larger message": ({}, dict(limit=1000), "provider missing"),
    **AVERAGE,
}
ALIKE: dict[str, How] = {"of torch": dict(how="c10d")}
AXIS: dict[str, How] = {**ALIKE, "along the columns": dict(d=1)}
H100, ROCM = dict(sm=90), dict(rocm=True)
FP8 = dict(a=(E4M3, (N, D)), b=(E4M3, (N, D)))
TWO = dict(**FP8, c=(E4M3, (N, D)))


def parallel(run: Callable[..., Any], args: dict[str, Any], shared: str, twins: Twins, **how: Any) -> Site:
    return Site("sequence_parallel", run, args, shared, twins=twins, alike=ALIKE, **how)


def fused(run: Callable[..., Any], args: dict[str, Any], machine: How, by: str, twins: Twins, **how: Any) -> Site:
    return Site("allreduce_rms", run, args, by=(by,), machine=machine, twins=twins, alike=ALIKE, **how)


SITES: dict[str, Site] = {
    "sp_first": parallel(norm_first, NORM, "w*", BY_PARTS),
    "sp_block": parallel(block, ADD, "[rw]*", {**BY_PARTS, **READ}),
    "gather_quant_static": parallel(
        quant_of_gather, dict(x=X, s=SCALE), "s*",
        {"a scale that ranks may differ in": ({}, dict(replicated=()), "guard unknown"),
         "along the columns": (dict(d=1), {}, "other constant")},
    ),
    "gather_quant_token": parallel(
        token_quant_of_gather, dict(x=X), "", {"along the columns": (dict(d=1), {}, "other constant")}
    ),
    "gather_quant_group": parallel(
        group_quant_of_gather, dict(x=X), "", {"along the columns": (dict(d=1), {}, "other constant")}
    ),
    "mm_reduce_scatter": Site(
        "async_tp", product_scattered, dict(a=X, b=(BF16, (D, N))), by=("symm",), machine=H100,
        twins={**READ, **NO_AVERAGE}, alike=AXIS,
    ),
    "scaled_mm_reduce_scatter": Site(
        "async_tp", scaled_scattered, dict(**FP8, sa=SCALE, sb=SCALE), by=("symm",), machine=H100, twins=AVERAGE,
        alike=ALIKE,
    ),
    "all_gather_mm": Site(
        "async_tp", gather_multiplied, dict(a=X, b=(BF16, (D, N)), c=(BF16, (D, N))), by=("symm",), machine=H100,
        twins={**READ, "one product": (dict(one=True), {}, NO_SITE)}, alike=ALIKE,
    ),
    "all_gather_scaled_mm": Site(
        "async_tp", gather_scaled, dict(**TWO, sa=SCALE, sb=SCALE, sc=SCALE), by=("symm",), machine=H100, twins=READ,
        alike=ALIKE,
    ),
    "all_gather_scaled_mm_rows": Site(
        "async_tp", gather_scaled_rows, dict(**TWO, sa=(F32, (N, 1)), sb=(F32, (1, N)), sc=(F32, (1, N))),
        by=("symm",), machine=H100, twins={"scales of another group": (dict(scales="dp"), {}, "other constant")},
        alike=ALIKE,
    ),
    "allreduce_rms_norm": fused(norm_first, NORM, H100, "flashinfer", SERVED),
    "allreduce_add_rms_norm": fused(block, ADD, H100, "flashinfer", {**SERVED, **READ}),
    "allreduce_add_gemma_rms_norm": fused(gemma_block, ADD, H100, "flashinfer", {**SERVED, **READ}),
    "allreduce_rms_norm_fp8_static": fused(norm_first_static, dict(**NORM, s=SCALE), {}, "op", AVERAGE),
    "allreduce_add_rms_norm_fp8_static": fused(
        static_block, dict(**ADD, s=SCALE), H100, "flashinfer", {**SERVED, **READ}
    ),
    "allreduce_add_rms_norm_nvfp4": fused(nvfp4_block, dict(**ADD, s=SCALE), dict(sm=100), "flashinfer", READ),
    "allreduce_add_rms_norm_fp8_group": fused(group_block, ADD, ROCM, "aiter", READ),
    "minimax_qk_norm": Site(
        "minimax", norm_over_ranks, dict(q=X, k=X, wq=W, wk=W), by=("op",),
        twins={
            **NO_AVERAGE,
            "divided by another number": (dict(size=4), {}, NO_SITE),
            "variances exchanged": (dict(swapped=True), {}, NO_SITE),
        },
        alike=ALIKE,
    ),
}  # fmt: skip
LAYERS = Site("sequence_parallel", layers, dict(x=X, w=W, u=W, m=(BF16, (D, D))), "[wum]*")
