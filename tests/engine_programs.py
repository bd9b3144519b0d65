"""Programs as an engine traces them: what the packs about caches, attention and rope look for.

Each program is a function of tensors; its keywords are the ways in which a near twin differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

T, HEADS, DH = 4, 2, 8  # tokens; heads, as many of queries as of keys: they can be taken for each other; their width
WIDE = 64  # the least head that fused norms and ropes take
LATENT, ROPE, WIDTH = 64, 8, 128  # of MLA: the latent, the rotated part, all heads of the output
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
EPS = 1e-6


def inputs(*shapes: Any) -> tuple[Tensor, ...]:
    """Tensors of bf16; a dtype before a shape makes another: positions below 8 for int64, scales for float32."""
    seed = torch.Generator().manual_seed(0)
    out: list[Tensor] = []
    dtype = BF16
    for shape in shapes:
        if isinstance(shape, torch.dtype):
            dtype = shape
        elif dtype == torch.int64:
            out.append(torch.randint(0, 8, shape, generator=seed))
        elif dtype == torch.float32:
            out.append(torch.rand(shape, generator=seed) + 0.5)
        else:
            out.append(torch.randn(shape, generator=seed).to(dtype))
    return tuple(out)


# ---- parts


def by_heads(x: Tensor, width: int = DH) -> Tensor:
    return x.reshape(len(x), -1, width)


def update(k: Tensor, v: Tensor, layer: str) -> Tensor:
    return torch.ops.vllm.unified_kv_cache_update(k, v, layer)


def attend(q: Tensor, k: Tensor, v: Tensor, layer: str, done: Tensor | None) -> Tensor:
    out = torch.empty_like(q)
    torch.ops.vllm.unified_attention_with_output(q, k, v, out, layer, None, None, done)
    return out


def attend_mla(
    q: Tensor, c: Tensor, kpe: Tensor, layer: str, done: Tensor | None, repl: Tensor | None = None
) -> Tensor:
    out = q.new_empty(T, WIDTH)
    torch.ops.vllm.unified_mla_attention_with_output(
        q, c, kpe, out, layer, None, None, done, None, None, None, None, repl
    )
    return out


def turned(pos: Tensor, q: Tensor, k: Tensor, cs: Tensor, width: int = DH) -> tuple[Tensor, Tensor]:
    torch.ops._C.rotary_embedding(pos, q, k, width, cs, True)
    return q, k


def static_quant(x: Tensor, s: Tensor, recip: bool = True) -> Tensor:
    if not recip:
        return (x.float() / s).clamp(-448, 448).to(E4M3)
    out = torch.empty_like(x, dtype=E4M3)
    torch.ops._C.static_scaled_fp8_quant(out, x, s)
    return out


def nvfp4(x: Tensor, gs: Tensor) -> tuple[Tensor, Tensor]:
    codes = x.new_empty(T, x.shape[1] // 2, dtype=torch.uint8)
    scales = x.new_empty(128, -(-x.shape[1] // 64), dtype=torch.int32)
    torch.ops._C.scaled_fp4_quant.out(x, gs, True, output=codes, output_scale=scales)
    return codes, scales.view(E4M3)


def group_quant(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    codes, scales = torch.empty_like(x, dtype=E4M3), x.new_empty(T, x.shape[1] // size, dtype=torch.float32)
    torch.ops._C.per_token_group_fp8_quant(x, codes, scales, size, 1e-10, -448.0, 448.0, False, False, False)
    return codes, scales


def token_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    codes, scales = torch.empty_like(x, dtype=E4M3), x.new_empty(T, 1, dtype=torch.float32)
    torch.ops._C.dynamic_per_token_scaled_fp8_quant(codes, x, scales, None)
    return codes, scales


def norm(x: Tensor, w: Tensor, eps: float = EPS) -> Tensor:
    return torch.ops.vllm_ir.rms_norm(x, w, eps)


def meanwhile(what: str, q: Tensor, k: Tensor, v: Tensor, layer: str) -> tuple[Tensor, ...]:
    """Another effect: `what` is "read" or "write", of the same layer or, with "other", of another."""
    kind, _, other = what.partition(" ")
    layer = "b" if other else layer
    if kind == "read":
        return (attend(q, k, v, layer, None),)
    return (update(k, v, layer),) if kind == "write" else ()


# ---- programs


def rope_cache(
    pos: Tensor, q: Tensor, k: Tensor, v: Tensor, cs: Tensor, *, layer: str = "a", written: str = "k", width: int = DH,
    between: str = "", before: str = "", again: bool = False,
) -> Any:  # fmt: skip
    raw = by_heads(q), by_heads(k), by_heads(v)
    more = meanwhile(before, *raw, layer)
    q2, k2 = turned(pos, q.clone(), k.clone(), cs)
    more += meanwhile(between, *raw, layer)
    content = {"k": (k2, v), "q": (q2, v), "raw": (k, v), "swapped": (v, k2)}[written]
    done = update(by_heads(content[0], width), by_heads(content[1], width), layer)
    more += (update(by_heads(k2), raw[2], layer),) if again else ()
    return attend(by_heads(q2, width), by_heads(k2, width), by_heads(v, width), layer, done), *more


def rope_cache_q8(
    pos: Tensor, q: Tensor, k: Tensor, v: Tensor, cs: Tensor, s: Tensor, *, of: str = "q", scale: str = ""
) -> Any:
    q2, k2 = turned(pos, q.clone(), k.clone(), cs)
    done = update(by_heads(k2), by_heads(v), "a")
    for read in meanwhile(scale, by_heads(q), by_heads(k), by_heads(v), "a"):
        s = read.flatten()[:1].float().abs() + s
    return static_quant({"q": q2, "k": k2, "raw": q}[of], s), k2, done


def mla_rope_cache(
    pos: Tensor, q: Tensor, kpe: Tensor, c: Tensor, full: Tensor, cs: Tensor, s: Tensor, *, between: str = "",
    dtype: str = "auto", written: str = "turned",
) -> Any:  # fmt: skip
    q2, k2 = turned(pos, q.clone(), kpe.clone(), cs, ROPE)
    more = (attend_mla(full, c, kpe.unsqueeze(1), "b" if "other" in between else "a", None),) if between else ()
    part = (k2 if written == "turned" else kpe).unsqueeze(1)
    done = torch.ops.vllm.unified_mla_kv_cache_update(c, part, "a", dtype, s)
    return q2, attend_mla(full, c, part, "a", done), *more


def normed_heads(
    qkv: Tensor, wq: Tensor, wk: Tensor, *, eps: tuple[float, float] = (EPS, EPS), parts: str = "qkv", width: int = WIDE
) -> tuple[Tensor, ...]:
    found = dict(zip(parts, qkv.split([WIDTH, WIDE, WIDE], -1)))
    q = norm(by_heads(found["q"], width), wq, eps[0]).flatten(1)
    k = norm(by_heads(found["k"], width), wk, eps[1]).flatten(1)
    return q, k, found["v"]


def norm_rope(pos: Tensor, qkv: Tensor, wq: Tensor, wk: Tensor, cs: Tensor, *, also: str = "", **how: Any) -> Any:
    q, k, v = normed_heads(qkv, wq, wk, **how)
    more = {"": (), "norm": (q + 1,), "packed": (qkv + 1,)}[also]
    q2, k2 = turned(pos, q, k, cs, WIDE)
    return q2, k2, v, *more


def norm_mrope(pos: Tensor, qkv: Tensor, wq: Tensor, wk: Tensor, cs: Tensor, **how: Any) -> Any:
    q, k, v = normed_heads(qkv, wq, wk, **how)
    torch.ops.vllm.mrope(pos, q, k, cs, WIDE, WIDE, 16, 8, 8, False, True)
    return q, k, v


def norm_rope_cache(
    pos: Tensor, qkv: Tensor, wq: Tensor, wk: Tensor, cs: Tensor, *, turn: Callable[..., Any] = norm_rope,
    layer: str = "a", written: str = "kv", between: str = "", **how: Any,
) -> Any:  # fmt: skip
    q2, k2, v, *more = turn(pos, qkv, wq, wk, cs, **how)
    heads = {name: by_heads(x, WIDE) for name, x in zip("qkv", (q2, k2, v))}
    more += meanwhile(between, heads["q"] * 2, heads["k"] * 2, heads["v"], layer)
    done = update(heads[written[0]], heads[written[1]], layer)
    return attend(heads["q"], heads["k"], heads["v"], layer, done), *more


def norm_mrope_cache(*args: Tensor, **how: Any) -> Any:
    return norm_rope_cache(*args, turn=norm_mrope, **how)


def half_turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rope_scatter(
    x: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor, *, s: Tensor | None = None,
    written: str = "turned", accumulate: bool = False,
) -> Any:  # fmt: skip
    y = half_turned(x, cos, sin)
    rows = {"turned": y, "raw": x}[written]
    rows = rows if s is None else static_quant(rows, s, recip=False)
    return y, torch.ops.aten.index_put(cache, [slots], rows, accumulate)


def rope_scatter_fp8(x: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor, s: Tensor, **how: Any) -> Any:
    return rope_scatter(x, cos, sin, cache, slots, s=s, **how)


def norm_turn(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, *, also: bool = False) -> Any:
    n = norm(x, w)
    return half_turned(n, cos, sin), *([n] if also else [])


def attention_fp8(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor, *, layer: str = "a", recip: bool = True, also: bool = False,
    between: str = "", rows: int = T, done: bool = True,
) -> Any:  # fmt: skip
    o = attend(q, k, v, layer, update(k, v, layer) if done else None)
    more = meanwhile(between, q, k * 2, v, layer)
    return static_quant(o.reshape(rows, -1), s, recip), *more, *([o] if also else [])


def attention_nvfp4(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor, *, layer: str = "a", also: bool = False, between: str = ""
) -> Any:
    o = attend(q, k, v, layer, update(k, v, layer))
    more = meanwhile(between, q, k * 2, v, layer)
    return *nvfp4(o.reshape(T, -1), s), *more, *([o] if also else [])


def latent_attention(
    q: Tensor, c: Tensor, kpe: Tensor, s: Tensor, quant: Callable[..., Any], layer: str, between: str, also: bool,
    repl: bool,
) -> Any:  # fmt: skip
    done = torch.ops.vllm.unified_mla_kv_cache_update(c, kpe, layer, "auto", s)
    o = attend_mla(q, c, kpe, layer, done, q * 2 if repl else None)
    name = "b" if "other" in between else layer
    more = [torch.ops.vllm.unified_mla_kv_cache_update(c * 2, kpe, name, "auto", s)] if between else []
    found = quant(o)
    return *(found if isinstance(found, tuple) else (found,)), *more, *([o] if also else [])


def latent_fp8(
    q: Tensor, c: Tensor, kpe: Tensor, s: Tensor, *, layer: str = "a", between: str = "", also: bool = False,
    repl: bool = False, recip: bool = True,
) -> Any:  # fmt: skip
    return latent_attention(q, c, kpe, s, lambda o: static_quant(o, s, recip), layer, between, also, repl)


def latent_nvfp4(
    q: Tensor, c: Tensor, kpe: Tensor, s: Tensor, *, layer: str = "a", between: str = "", also: bool = False
) -> Any:
    return latent_attention(q, c, kpe, s, lambda o: nvfp4(o, s), layer, between, also, False)


def latent_group(
    q: Tensor, c: Tensor, kpe: Tensor, s: Tensor, *, layer: str = "a", between: str = "", also: bool = False,
    size: int = 64,
) -> Any:  # fmt: skip
    return latent_attention(q, c, kpe, s, lambda o: group_quant(o, size), layer, between, also, False)


def two_norms(
    a: Tensor, other: Tensor, wq: Tensor, wk: Tensor, *, apart: bool = False, also: bool = False,
    quant: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    q, kv, kpe = a.split([LATENT, LATENT, ROPE], -1)
    q2, kv2 = norm(q, wq, 1e-5), norm(other.split([LATENT, LATENT, ROPE], -1)[1] if apart else kv, wk, 1e-6)
    return *((q2,) if quant is None else quant(q2)), kv2, kpe, *([q2 + 1] if also else [])


def two_norms_fp8(*args: Tensor, **how: Any) -> Any:
    return two_norms(*args, quant=token_quant, **how)


def two_norms_fp8_group(*args: Tensor, **how: Any) -> Any:
    return two_norms(*args, quant=lambda x: group_quant(x, 64), **how)


def norm_pad(
    x: Tensor, r: Tensor, w: Tensor, *, pad: tuple[int, int] = (0, 32), value: float = 0.0, of: str = "y",
    router: bool = False,
) -> Any:  # fmt: skip
    y, h = torch.ops.vllm_ir.fused_add_rms_norm(x, r, w, EPS)
    padded = torch.nn.functional.pad({"y": y, "h": h}[of], pad, value=value)
    return padded, h, *([y] if router else [])
