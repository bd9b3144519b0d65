"""The oracle: wherever a plain pattern of Inductor is found, the engine finds the same rule, or refuses it for a hole
of plain patterns that `docs/holes.md` names.

`plain_sites.py` has both sides; `python tests/plain_sites.py` prints what plain patterns miss, by row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

import capture
import fp8_linear
import models
import vllm_stubs
from capture import make_fx_graph
from graph_checks import rewrite_checked
from inductor_holes import norm_quant, quant, rms, rows, sample
from plain_sites import WORDS, Compared, Ours, default_pass, plain_sites, random_graphs_of, registered, row_of_extra

PROGRAMS, BLOCKS = 500, 10  # two graphs each
Graphs = Callable[..., GraphModule]


REFUSED = {"eaten by": "S21", "cycle": "C1", "strides": "U4"}  # a reason of the engine -> the row that it closes
pytestmark = pytest.mark.slow  # all need the file of the default packs: nine seconds of the processor


@pytest.fixture(scope="module", autouse=True)
def patterns() -> None:
    vllm_stubs.declare()
    registered()


# ---- the same sites


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_graphs(block: int) -> None:
    compared = Compared()
    for seed in range(block * PROGRAMS // BLOCKS, (block + 1) * PROGRAMS // BLOCKS):
        for gm in random_graphs_of(seed):
            compared.add(gm)
    assert compared.graphs >= 0.97 * 2 * PROGRAMS // BLOCKS
    assert compared.plain >= 10, "plain patterns are found"
    assert not compared.extra, "what only plain patterns find"
    assert {r for r in compared.lacking if not r.startswith("not said")} <= WORDS.keys()


@pytest.mark.parametrize(
    ("kind", "quant", "row"), [("llama", "token", "S8"), ("phi3", "static", "S8"), ("gemma3", "group", "S8")]
)
def test_models(model_graph: Graphs, kind: str, quant: str, row: str) -> None:
    """A model flattens its tokens before a linear: a view between norm and quant, which ends each plain match."""
    compared = Compared()
    compared.add(model_graph(kind, quant))
    assert (compared.plain, compared.extra) == (0, {})
    assert compared.lacking[row] > 0


def test_a_model_that_quantizes_before_it_flattens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the view plain patterns have sites in models too; the engine fires there, or a larger rule does (S21)."""
    monkeypatch.setattr(fp8_linear.TokenLinear, "forward", _quantize_then_flatten)
    model = fp8_linear.quantize(models.make("phi3"), "token")
    (gm,) = capture.post_grad_graphs(model, models.inputs(model))
    there = plain_sites(gm)
    assert len(there) >= 2
    assert all(Ours.read(gm).has(site) for site in there)
    events = {(e.full_name, e.site): e for e in rewrite_checked(copy.deepcopy(gm), default_pass()).log.events}
    here = [events[rule, nodes[0].name] for rule, nodes in there]
    assert [e for e in here if e.fired]
    assert {REFUSED.get(e.reason) for e in here if not e.fired} <= {"S21"}


def _quantize_then_flatten(self: Any, x: Tensor) -> Tensor:
    scale = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
    codes = (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn).reshape(-1, x.shape[-1])
    scale = scale.reshape(-1, 1)
    y = torch._scaled_mm(codes, self.codes.t(), scale_a=scale, scale_b=self.code_scales.t(), out_dtype=x.dtype)
    return self.finish(y, x)


# ---- sites that only plain patterns have: each names its row


def _doubled_residual(x: Tensor, r: Tensor, w: Tensor) -> Any:
    h = torch.add(x, r, alpha=2)
    return (*quant(rms(h, w)), h)


def _one_is_true(g: Tensor, u: Tensor) -> Any:
    wide = g.float()
    return quant((wide / (torch.ops.aten.add.Scalar(torch.exp(-wide), True))).to(g.dtype) * u)


def _weight_of_the_sum(x: Tensor, r: Tensor) -> Any:
    h = x + r
    return (*quant(rms(h, h[0])), h)


def _columns(x: Tensor, w: Tensor) -> Any:
    return norm_quant(x.t(), w)


def operands(count: int) -> list[Tensor]:
    return [sample(6, 64, dtype=torch.bfloat16, seed=i) for i in range(count)]


def test_an_argument_that_is_not_named_is_row_u1() -> None:
    gm = make_fx_graph(_doubled_residual, [*operands(2), rows()[1]])
    assert any("alpha" in n.kwargs for n in gm.graph.nodes)
    there = plain_sites(gm)
    extra = [m for site, m in there.items() if not Ours.read(gm).has(site)]
    assert [row_of_extra(m) for m in extra] == ["U1"]


def test_a_bool_for_a_number_is_row_u6() -> None:
    gm = make_fx_graph(_one_is_true, operands(2))
    extra = [m for site, m in plain_sites(gm).items() if not Ours.read(gm).has(site)]
    assert [row_of_extra(m) for m in extra] == ["U6"]


@pytest.mark.parametrize(
    ("program", "inputs", "rule", "row"),
    [
        (_weight_of_the_sum, lambda: operands(2), "norm_quant.add_rms_norm_fp8", "C1"),
        (_columns, lambda: [operands(1)[0].t().contiguous(), rows()[1]], "norm_quant.rms_norm_fp8", "U4"),
    ],
    ids=["C1", "U4"],
)
def test_a_site_that_is_refused_has_a_reason(
    program: Callable[..., Any], inputs: Callable[[], list[Tensor]], rule: str, row: str
) -> None:
    """C1: a result feeds an operand. U4: the results would lie in memory in another order."""
    gm = make_fx_graph(program, inputs())
    there = [site for site in plain_sites(gm) if site[0] == rule]
    assert len(there) == 1
    assert Ours.read(gm).has(there[0])
    done = rewrite_checked(copy.deepcopy(gm), default_pass())
    assert row in [REFUSED.get(e.reason) for e in done.log.events if e.full_name == rule and not e.fired]
