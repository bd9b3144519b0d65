"""Stubs of an engine's ops: attention over caches that hide behind a layer's name, and fused norms and ropes.

    with engine_stubs.declared() as caches:      # torch.ops.vllm.unified_attention_with_output exists in here
        caches.reset(); run(gm, args); after = caches.content()

The caches are the engine's: no tensor of a graph shows them, so a test compares them beside the outputs. What a layer
holds at first follows from its name, and a write overwrites its first rows: whoever reads before it sees other content.
Schemas are those of `fxrewrite/dsl/schemas`; equations are torch by hand, as in `vllm_stubs`, whose ops are there too.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import narrow_stubs
import vllm_stubs
from fxrewrite import ref
from fxrewrite.dsl.schemas.snapshot import read

OWN = {  # ops of no engine, for rules that an engine has no op for
    "engine_test.rope_cache_q8": "(Tensor! qx, Tensor q, Tensor! k, Tensor v, Tensor pos, Tensor cs, Tensor s, "
    "bool neox, str layer) -> Tensor",
    "engine_test.norm_mrope_cache": "(Tensor! q, Tensor! k, Tensor qkv, Tensor wq, Tensor wk, Tensor pos, Tensor cs, "
    "float eps, int t, int h, int w, bool il, bool neox, str layer) -> Tensor",
}
SLOTS = 6  # rows of a layer's cache; a step writes the first ones
NOT_ABSORBED = "the queries are as wide as the latent and its rope part"


class Caches:
    """What the layers of an engine hold, by name: keys and values, or for MLA the latent and its rope part."""

    def __init__(self) -> None:
        self.of_layer: dict[str, tuple[Tensor, Tensor]] = {}

    def reset(self) -> None:
        """Every layer holds what it held at first."""
        self.of_layer.clear()

    def content(self) -> dict[str, tuple[Tensor, Tensor]]:
        """A copy of what is held."""
        return {name: (a.clone(), b.clone()) for name, (a, b) in self.of_layer.items()}

    def pair(self, layer: str, rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """What a layer holds, of the type of these rows of one step."""
        if layer not in self.of_layer:
            seed = torch.Generator().manual_seed(zlib.crc32(layer.encode()))
            first, second = (
                torch.randn(SLOTS, *r.shape[1:], generator=seed).to(r.dtype) for r in rows
            )  # not empty: to read too early is to read something else
            self.of_layer[layer] = first, second
        return self.of_layer[layer]

    def write(self, layer: str, rows: tuple[Tensor, Tensor]) -> Tensor:
        """Put the rows of a step in place; what this returns holds nothing."""
        for held, new in zip(self.pair(layer, rows), rows):
            held[: len(new)] = new
        return rows[0].new_empty(0)

    # ---- kernels

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, layer: str, scale: Tensor | None = None,
        block_scale: Tensor | None = None, dep: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Attention of each token over all that the layer holds."""
        keys, values = (
            t.float().repeat_interleave(q.shape[1] // t.shape[1], 1) for t in self.pair(layer, (k, v))
        )  # [slots, heads, width]
        weights = torch.einsum("thd,shd->hts", q.float(), keys).mul(q.shape[-1] ** -0.5).softmax(-1)
        found = torch.einsum("hts,shd->thd", weights, values).to(q.dtype)
        stored(found, out, scale, block_scale)

    def attend_mla(
        self, q: Tensor, c: Tensor, kpe: Tensor, out: Tensor, layer: str, scale: Tensor | None = None,
        block_scale: Tensor | None = None, dep: Tensor | None = None, group: int | None = None,
        ue8m0: bool | None = None, col: bool | None = None, tma: bool | None = None, repl: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Attention in the latent space; the values are the first channels of the latent, as many as fit."""
        latent, rope = (t.float().flatten(1) for t in self.pair(layer, (c, kpe)))
        asked = (q if repl is None else repl).float()
        assert asked.shape[-1] == latent.shape[-1] + rope.shape[-1], NOT_ABSORBED
        weights = (asked @ torch.cat([latent, rope], -1).mT).softmax(-1)
        width = out.shape[-1] * (2 if out.dtype == torch.uint8 else 1) // q.shape[1]
        found = (weights @ latent[:, :width]).flatten(1).to(q.dtype)
        if group is None:
            stored(found, out, scale, block_scale)
            return
        assert scale is None and block_scale is not None and not col and not tma
        codes, scales = vllm_stubs.per_group(found, group, 1e-10, out.dtype, bool(ue8m0))
        out.copy_(codes)
        block_scale.copy_(scales)

    def rope_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, cs: Tensor, neox: bool, layer: str
    ) -> Tensor:
        """`q` and `k` by heads: [T, H, Dh]."""
        assert q.ndim == k.ndim == v.ndim == 3
        turn_in_place(pos, q, cs, neox)
        turn_in_place(pos, k, cs, neox)
        return self.write(layer, (k, v))

    def norm_rope_and_write(
        self, q_out: Tensor, k_out: Tensor, qkv: Tensor, pos: Tensor, wq: Tensor, wk: Tensor, eps: float, cs: Tensor,
        neox: bool, layer: str,
    ) -> Tensor:  # fmt: skip
        """`q_out` and `k_out` by heads: [T, H, Dh]."""
        heads = qkv.unflatten(-1, (-1, q_out.shape[-1]))
        q, k, v = heads.split([q_out.shape[1], k_out.shape[1], k_out.shape[1]], 1)
        q_out.copy_(vllm_stubs.rms_norm(q, wq, eps))
        k_out.copy_(vllm_stubs.rms_norm(k, wk, eps))
        return self.rope_and_write(q_out, k_out, v, pos, cs, neox, layer)

    def rope_and_write_mla(
        self,
        pos: Tensor,
        q: Tensor,
        k: Tensor,
        c: Tensor,
        cs: Tensor,
        neox: bool,
        dtype: str,
        scale: Tensor,
        layer: str,
    ) -> Tensor:
        """`q` by heads, [T, H, R]; `k` is [T, R]."""
        assert (q.ndim, k.ndim) == (3, 2)
        turn_in_place(pos, q, cs, neox)
        k.copy_(ref.rope_q(pos, k, cs, Dh=k.shape[-1], neox=neox, off=0, inv=False, wide=False)[0])
        return self.write_mla(c, k.unsqueeze(1), layer, dtype, scale)

    def rope_and_write_q8(
        self, qx: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, cs: Tensor, s: Tensor, neox: bool, layer: str
    ) -> Tensor:
        """The queries are flat, and only their codes are kept; `k` and `v` by heads."""
        heads = q.unflatten(-1, (-1, k.shape[-1])).clone()
        done = self.rope_and_write(heads, k, v, pos, cs, neox, layer)
        qx.copy_(vllm_stubs.codes(heads.flatten(1).float() * s.reciprocal(), qx.dtype))
        return done

    def norm_mrope_and_write(
        self, q_out: Tensor, k_out: Tensor, qkv: Tensor, wq: Tensor, wk: Tensor, pos: Tensor, cs: Tensor, eps: float,
        t: int, h: int, w: int, il: bool, neox: bool, layer: str,
    ) -> Tensor:  # fmt: skip
        """All is flat; the weights tell the width of a head."""
        q, k, v = qkv.split([q_out.shape[1], k_out.shape[1], k_out.shape[1]], -1)
        flat = [
            vllm_stubs.rms_norm(x.unflatten(-1, (-1, len(weight))), weight, eps).flatten(1)
            for x, weight in ((q, wq), (k, wk))
        ]
        turned = ref.mrope(pos, flat[0], flat[1], cs, Dh=len(wq), sec=[t, h, w], il=il, neox=neox)
        q_out.copy_(turned[0])
        k_out.copy_(turned[1])
        return self.write(layer, (k_out.unflatten(-1, (-1, len(wk))), v.unflatten(-1, (-1, len(wk)))))

    def write_mla(self, c: Tensor, kpe: Tensor, layer: str, dtype: str, scale: Tensor) -> Tensor:
        """The latent, scaled if the cache is narrow, and the rope part."""
        held = c if dtype == "auto" else vllm_stubs.codes(c.float() / scale, torch.float8_e4m3fn).to(c.dtype)
        return self.write(layer, (held, kpe))


def stored(found: Tensor, out: Tensor, scale: Tensor | None, block_scale: Tensor | None) -> None:
    """Into `out`, in its dtype: as it is, FP8 by a static scale, or NVFP4."""
    if scale is None:
        out.copy_(found.reshape(out.shape))
    elif block_scale is None:
        out.copy_(vllm_stubs.codes(found.float() * scale.reciprocal(), out.dtype).reshape(out.shape))
    else:
        codes, scales = narrow_stubs.nvfp4(found.flatten(1), scale)
        out.copy_(codes.reshape(out.shape))
        block_scale.view(torch.uint8).copy_(narrow_stubs.tiles(scales))


def turn_in_place(pos: Tensor, x: Tensor, cs: Tensor, neox: bool) -> None:
    """Rotate each head of `x`, [T, H, Dh]."""
    flat = ref.rope_q(pos, x.flatten(1), cs, Dh=x.shape[-1], neox=neox, off=0, inv=False, wide=False)[0]
    x.copy_(flat.reshape(x.shape))


def norm_rope(
    qkv: Tensor, q_heads: int, k_heads: int, v_heads: int, size: int, eps: float, wq: Tensor, wk: Tensor, cs: Tensor,
    neox: bool, pos: Tensor, warps: int = -1,
) -> None:  # fmt: skip
    heads = qkv.unflatten(-1, (-1, size))
    q, k, _ = heads.split([q_heads, k_heads, v_heads], 1)
    for part, weight in ((q, wq), (k, wk)):
        part.copy_(vllm_stubs.rms_norm(part, weight, eps))
        turn_in_place(pos, part, cs, neox)


def norm_pad(x: Tensor, weight: Tensor, eps: float, residual: Tensor, multiple: int) -> tuple[Tensor, Tensor]:
    y, total = vllm_stubs.add_rms_norm_wide(x, residual, weight, eps)
    return torch.nn.functional.pad(y, (0, -y.shape[-1] % multiple)), total


def dual_norm(x: Tensor, w: Tensor, z: Tensor, u: Tensor, eps: float, other: float) -> tuple[Tensor, Tensor]:
    return vllm_stubs.rms_norm(x, w, eps), vllm_stubs.rms_norm(z, u, other)


# ---- the ops


def nothing_like(at: int) -> Callable[..., Tensor]:
    """A fake kernel: an empty tensor of the dtype of argument `at`."""
    return lambda *args: args[at].new_empty(0)


def ops(caches: Caches) -> tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...]:
    """Name, kernel on these caches, and fake kernel of each op."""
    return (
        ("vllm.unified_kv_cache_update", lambda k, v, layer: caches.write(layer, (k, v)), nothing_like(0)),
        ("vllm.unified_attention_with_output", caches.attend, nothing),
        ("vllm.unified_mla_attention_with_output", caches.attend_mla, nothing),
        ("vllm.unified_mla_kv_cache_update", caches.write_mla, nothing_like(0)),
        ("vllm.fused_rope_and_unified_kv_cache_update", caches.rope_and_write, nothing_like(0)),
        ("vllm.fused_qk_norm_rope_and_unified_kv_cache_update", caches.norm_rope_and_write, nothing_like(0)),
        ("vllm.fused_rope_unified_mla_kv_cache_update", caches.rope_and_write_mla, nothing_like(3)),
        ("vllm.fused_mla_dual_rms_norm", dual_norm, dual_norm),
        ("vllm.rocm_aiter_triton_add_rmsnorm_pad", norm_pad, norm_pad),
        ("_C.fused_qk_norm_rope", norm_rope, nothing),
        ("engine_test.rope_cache_q8", caches.rope_and_write_q8, nothing_like(1)),
        ("engine_test.norm_mrope_cache", caches.norm_mrope_and_write, nothing_like(2)),
    )


def nothing(*args: Any, **named: Any) -> None:
    """The fake kernel of an op that only writes to buffers."""


def pretend(patch: pytest.MonkeyPatch, **facts: Any) -> None:
    """The machine is another one for passes that are made from now on."""
    found = {"sm": 0, "rocm": False, "world": 1, **facts}
    for name, module in list(sys.modules.items()):
        if name.startswith("fxrewrite.") and hasattr(module, "machine_facts"):
            patch.setattr(module, "machine_facts", lambda *_: found)


def schema_of(namespace: str, name: str) -> str:
    """As the snapshot has it."""
    own = OWN.get(f"{namespace}.{name}")
    return read(namespace).find(name)[0].text.partition("::")[2] if own is None else name + own


@contextmanager
def declared() -> Iterator[Caches]:
    """The ops of `vllm_stubs`, and in this block those of an engine; then these are gone again."""
    vllm_stubs.declare()
    caches = Caches()
    libraries = {n: torch.library.Library(n, "FRAGMENT") for n in ("vllm", "_C", "engine_test")}
    try:
        for qualified, kernel, fake in ops(caches):
            namespace, _, name = qualified.partition(".")
            library = libraries[namespace]
            library.define(schema_of(namespace, name), tags=(torch.Tag.pt2_compliant_tag,))
            library.impl(name, kernel, "CompositeExplicitAutograd")
            torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
        yield caches
    finally:
        for library in libraries.values():
            library._destroy()
