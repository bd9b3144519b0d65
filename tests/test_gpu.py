"""The engine on graphs of a GPU: the same counts, the same bits, and code that Inductor compiles."""

from __future__ import annotations

import copy

import pytest
import torch

import fxrewrite

pytestmark = pytest.mark.gpu
LAYERS = 2
PACKS = ("noop", "norm_quant", "act_quant")


def _on_gpu(kind: str, quant: str):
    import fp8_linear
    import models

    model = fp8_linear.quantize(models.make(kind, LAYERS, 256), quant)
    args = tuple(x.cuda() for x in models.inputs(model))
    return model.cuda(), args


COUNTS = {
    ("llama", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "silu_mul_fp8": LAYERS},
    ("phi3", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "fused_silu_quant": LAYERS},
    ("qwen3", "static"): {  # moving a model to a GPU gives each linear a scale of its own
        "rms_norm_fp8_static_each": 1, "add_rms_norm_fp8_static_each": 2 * LAYERS - 1, "silu_mul_fp8_static": LAYERS,
    },
    ("gemma3", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "gelu_mul_fp8": LAYERS},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "quant"), COUNTS)
def test_counts_and_bits(kind: str, quant: str) -> None:
    """Rewritten and not, op by op on the GPU: equal bit for bit, and the rules fire as often as on a CPU."""
    import capture

    model, args = _on_gpu(kind, quant)
    graph = capture.post_grad_graphs(model, args)[0]
    before = capture.run(copy.deepcopy(graph))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(graph, PACKS, providers=["op"], strict=True)
    after = capture.run(graph)
    fired = {rule: n for rule, n in log.fired().items() if rule in COUNTS[kind, quant] or "fp8" in rule}
    assert fired == COUNTS[kind, quant]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


def test_compiled_whole() -> None:
    """`torch.compile` with the rules in it runs on the GPU and is as near to float32 as without them."""
    model, args = _on_gpu("llama", "token")
    torch._dynamo.reset()
    with torch.no_grad():
        plain = torch.compile(model)(*args)
        torch._dynamo.reset()
        with fxrewrite.record() as log:
            fused = torch.compile(model, backend=fxrewrite.backend(providers=["op"], strict=True))(*args)
        eager = model(*args)
    assert log.fired()["add_rms_norm_fp8"] == 2 * LAYERS - 1 or log.cached
    error = [(out.float() - eager.float()).pow(2).mean().sqrt() for out in (plain, fused)]
    assert error[1] <= 1.1 * error[0] + 1e-3


def test_defaults_keep_the_sites() -> None:
    """Without a kernel for the device the default providers leave the graph alone and say so."""
    import capture

    model, args = _on_gpu("llama", "token")
    graph = capture.post_grad_graphs(model, args)[0]
    with fxrewrite.record() as log:
        fxrewrite.rewrite(graph, ("norm_quant", "act_quant"))
    assert not log.fired()
    assert "kept: no faster provider here" in {e.reason for e in log.events}
