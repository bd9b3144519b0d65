"""Meanings of ops that the language does not spell, in torch: what `ref "fxrewrite.ref:..."` names.

Each takes the operands by position (None for `none`) and the attributes by name, and returns a tuple of results.
Dense attention and a scaled product are computed in float32 and rounded once; the accumulation order is torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False, scale: float | None = None
) -> tuple[Tensor]:
    """softmax(q k^T * scale + mask) v over [B, H, S, Dh]; heads of k and v are shared where there are fewer of them.

    `scale` None: 1 / sqrt(Dh). `causal`: query i sees keys 0 to i.
    """
    k, v = (x.float().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.float() @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask.float()
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return ((scores.softmax(-1) @ v).to(q.dtype),)


def scaled_mm(q: Tensor, w: Tensor, sq: Tensor, sw: Tensor, b: Tensor | None, dt: Any, fast: bool) -> tuple[Tensor]:
    """q @ w * sq * sw + b in float32, rounded to `dt`. `fast` allows a kernel more; it says nothing here."""
    found = q.float() @ w.float() * sq * sw
    return ((found if b is None else found + b.float()).to(dt),)


# ---- rope


def rope(
    pos: Tensor, q: Tensor, k: Tensor, cs: Tensor, Dh: int, neox: bool, off: int, inv: bool, wide: bool
) -> tuple[Tensor, Tensor]:
    """Channels off to off + R of each head of q and k turned by the rows `pos` of the cache; `inv`: backwards."""
    turned = [rope_q(pos, x, cs, Dh=Dh, neox=neox, off=off, inv=inv, wide=wide)[0] for x in (q, k)]
    return turned[0], turned[1]


def rope_q(pos: Tensor, q: Tensor, cs: Tensor, Dh: int, neox: bool, off: int, inv: bool, wide: bool) -> tuple[Tensor]:
    """The same for q alone."""
    cos, sin = cs[pos].chunk(2, -1)
    return (_turn_heads(q, cos, -sin if inv else sin, Dh, neox, off, wide),)


def mrope(
    pos: Tensor, q: Tensor, k: Tensor, cs: Tensor, Dh: int, sec: Any, il: bool, neox: bool
) -> tuple[Tensor, Tensor]:
    """Three rows of positions (time, height, width), each for its section of the channels: Qwen2-VL.

    `sec`: the sizes of the sections. `il`: the sections are interleaved, every third channel: Qwen3-VL.
    """
    cos, sin = (_sections(x, list(sec), il) for x in cs[pos].chunk(2, -1))
    return _turn_heads(q, cos, sin, Dh, neox, 0, False), _turn_heads(k, cos, sin, Dh, neox, 0, False)


def _sections(rows: Tensor, sizes: list[int], interleaved: bool) -> Tensor:
    """[3, T, R/2] to [T, R/2]: each channel from the row of positions that its section names."""
    if not interleaved:
        return torch.cat([part[i] for i, part in enumerate(rows.split(sizes, -1))], -1)
    out = rows[0].clone()
    for i in (1, 2):
        out[..., i : sizes[i] * 3 : 3] = rows[i, ..., i : sizes[i] * 3 : 3]
    return out


def _turn_heads(x: Tensor, cos: Tensor, sin: Tensor, Dh: int, neox: bool, off: int, wide: bool) -> Tensor:
    heads = x.unflatten(-1, (-1, Dh))
    width = 2 * cos.shape[-1]
    before, part, after = heads.split([off, width, Dh - off - width], -1)
    dtype = torch.float32 if wide else x.dtype
    c, s = (t.to(dtype).unsqueeze(1) for t in (cos, sin))
    a, b = (t.to(dtype) for t in (part.chunk(2, -1) if neox else (part[..., 0::2], part[..., 1::2])))
    parts = [a * c - b * s, b * c + a * s]
    turned = torch.cat(parts, -1) if neox else torch.stack(parts, -1).flatten(-2)
    return torch.cat([before, turned.to(x.dtype), after], -1).flatten(-2)
