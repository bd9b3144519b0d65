"""The graphs and the rules that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from fxrewrite.dsl import syntax
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.engine import Engine, truth_of
from fxrewrite.patterns.views import Sweep

torch.set_num_threads(1)
FP8 = torch.float8_e4m3fn
HIDDEN = 64


def engine(packs: Any = None) -> Engine:
    """The rules of `packs`, compiled, with the registered ops as providers."""
    return make_pass(make_config(packs, providers=["op"])).engine


def sweep(rules: Engine, graph: Graph) -> Sweep:
    """Reading, views and matching."""
    made = Sweep(rules.library)
    made.truth = truth_of(graph)
    made.read(graph)
    made.match_rules()
    return made


def llama(layers: int) -> tuple[torch.nn.Module, tuple[Tensor]]:
    """A tiny Llama whose linears are FP8, quantized for each token, and its input."""
    import fp8_linear
    import models

    model = fp8_linear.quantize(models.make("llama", layers=layers, hidden=HIDDEN), "token")
    return model, models.inputs(model)


@cache
def llama_graph(layers: int) -> GraphModule:
    """What Inductor's post-grad hook sees of it: 32 layers are about 5,900 nodes."""
    import capture

    (graph,) = capture.post_grad_graphs(*llama(layers))
    return graph


def rms_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """As Hugging Face writes it."""
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """FP8 codes and a scale for each token."""
    scale = (x.abs().amax(-1, keepdim=True).float() / 448.0).clamp(min=1e-12)
    return (x.float() / scale).clamp(-448.0, 448.0).to(FP8), scale


def eps_of(variant: int) -> float:
    """The eps of a variant."""
    return (variant + 1) * 1e-6


def norm_graph(sites: int, variants: int) -> GraphModule:
    """A chain of `sites` norms with their quants; site i has the eps of variant i modulo `variants`."""
    return norm_chain([eps_of(i % variants) for i in range(sites)])


def norm_chain(epsilons: Sequence[float]) -> GraphModule:
    """A norm with its quant for each eps, one after the other."""
    import capture

    def chain(x: Tensor, w: Tensor, m: Tensor) -> Tensor:
        for eps in epsilons:
            x = mm(quant(rms_norm(x, w, eps)), m)
        return x

    return capture.make_fx_graph(chain, _tensors((8, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN)))


def mm(q: tuple[Tensor, Tensor], m: Tensor) -> Tensor:
    """A product of what was quantized, widened again."""
    return (q[0].float() * q[1]).to(m.dtype) @ m


def _tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(s, dtype=torch.bfloat16) for s in shapes]


@cache
def decoder_graph(layers: int) -> GraphModule:
    """Decoder layers without their attention: two residual norms, a gated activation, each with its quant."""
    import capture

    def decoder(x: Tensor, r: Tensor, w: Tensor, square: Tensor, up: Tensor, down: Tensor) -> Tensor:
        for _ in range(layers):
            r = x + r
            r = r + mm(quant(rms_norm(r, w, eps_of(0))), square)
            q = quant(rms_norm(r, w, eps_of(0)))
            x = mm(quant(torch.nn.functional.silu(mm(q, up)) * mm(q, up)), down)
        return x + r

    shapes = ((8, HIDDEN), (8, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN, 2 * HIDDEN), (2 * HIDDEN, HIDDEN))
    return capture.make_fx_graph(decoder, _tensors(*shapes))


def variants_file(count: int) -> syntax.File:
    """`count` rules that differ in their eps only."""
    lines = [f"fusion v{i}(x, w, ub) = rms_norm(x, w, eps={eps_of(i):.6g}) |> quant_fp8(ub)" for i in range(count)]
    file, diagnostics = parse("\n".join(["pack variants level O1", *lines]) + "\n", "variants.rw")
    if diagnostics:
        raise RuntimeError("\n".join(f"{d.code} {d.span}: {d.message}" for d in diagnostics))
    return file
