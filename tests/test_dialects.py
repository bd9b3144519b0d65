"""The zoo in every dialect: the same counts, bit for bit the same results, and what is written is recognised again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

import capture
import fp8_linear
import models
from fxrewrite.patterns.writers import CORE, INDUCTOR, TRAINING, Dialect, detect
from graph_checks import rewrite_checked, rewrite_pass
from test_counts import expected

Capture = Callable[[torch.nn.Module, tuple[Any, ...]], GraphModule]
CAPTURES: dict[str, tuple[Capture, Dialect]] = {
    "inductor": (lambda m, a: capture.post_grad_graphs(m, a)[0], INDUCTOR),
    "core aten": (lambda m, a: capture.export_graph(m, a, decompose=True), CORE),
    "training": (lambda m, a: capture.export_graph(m, a, decompose=False), TRAINING),
    "aot": (capture.aot_graph, CORE),
    "make_fx": (capture.bare_graph, CORE),
}


@cache
def captured(kind: str, quant: str, name: str) -> GraphModule:
    model = fp8_linear.quantize(models.make(kind), quant)
    return CAPTURES[name][0](model, models.inputs(model))


CASES = [("llama", "static"), *((kind, "token") for kind in models.KINDS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CAPTURES if n != "inductor"])  # these are pinned in test_counts
@pytest.mark.parametrize(("kind", "quant"), CASES)
def test_counts_are_the_same(kind: str, quant: str, name: str) -> None:
    gm = copy.deepcopy(captured(kind, quant, name))
    assert detect(gm.graph) is CAPTURES[name][1]
    assert rewrite_checked(gm).fired == expected(kind, quant)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_what_is_written_as_primitives_is_recognised_again(kind: str, name: str) -> None:
    """The fused ops are put in, written out as primitives of the dialect, and found once more."""
    gm = copy.deepcopy(captured(kind, "token", name))
    inputs = gm.meta[capture.INPUTS]
    wanted = expected(kind, "token")
    assert rewrite_checked(gm).fired == wanted
    fused = capture.run(gm, copy.deepcopy(inputs))
    rewrite_pass(providers=("definition",))(gm.graph)
    gm.graph.lint()
    gm.recompile()
    assert not [n for n in gm.graph.nodes if str(n.target).startswith("fxrewrite.")]
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(fused, capture.run(gm, inputs), strict=True))
    assert rewrite_checked(gm, args=inputs).fired == wanted
