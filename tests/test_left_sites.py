"""Graphs and sites that Inductor hands out otherwise: before autograd, of dtypes it has no code for, on streams."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor import lowering, pattern_matcher
from torch.fx import GraphModule

from capture import make_fx_graph
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from graph_checks import rewrite_checked

RULES = """fusion left_exp(x: real[T, D]) = exp(x) |> exp
"""


@pytest.fixture
def pass_() -> RewritePass:
    file, wrong = parse(RULES, "left.rw")
    assert not wrong
    return make_pass(make_config([file], providers=["op"], strict=True))


def dynamo_graph(fn: Callable[[Tensor], Tensor]) -> GraphModule:
    graphs: list[GraphModule] = []
    torch._dynamo.reset()
    torch.compile(fn, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(torch.ones(2, 4))
    return graphs[0]


@pytest.mark.parametrize("hooked", [True, False], ids=["on the hook", "elsewhere"])
def test_a_graph_that_is_not_functional_is_told_of_once(
    hooked: bool, pass_: RewritePass, caplog: pytest.LogCaptureFixture
) -> None:
    def writes(x: Tensor) -> Tensor:
        y = x.exp()
        y[0] = 2
        return y.exp()

    gm = dynamo_graph(writes)
    before = str(gm.graph)
    with inductor_config.patch(pre_grad_custom_pass=pass_ if hooked else None), caplog.at_level(logging.WARNING):
        pass_(gm.graph)
        pass_(gm.graph)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "fxrewrite"]
    assert line.startswith(f"no rule fires on {'`pre_grad_custom_pass`' if hooked else 'this graph'}: ")
    assert line.endswith("put the pass on `post_grad_custom_pre_pass`, where `fxrewrite.inductor_options(...)` has it")
    assert str(gm.graph) == before


def test_a_functional_graph_is_not_told_of(pass_: RewritePass, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert rewrite_checked(make_fx_graph(lambda x: x.exp().exp(), (torch.ones(2, 4),)), pass_).fired
        pass_(torch.fx.Graph())
    assert not [r for r in caplog.records if r.name == "fxrewrite"]


def test_a_site_that_inductor_passes_over_fires(pass_: RewritePass, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node of it is shown to any pattern, as of float8 where Triton lacks it; our op needs no code of Inductor's."""
    for module in (lowering, pattern_matcher):
        monkeypatch.setattr(module, "fallback_node_due_to_unsupported_type", lambda node, allow_cpu_inputs=True: True)
    assert rewrite_checked(make_fx_graph(lambda x: x.exp().exp(), (torch.ones(2, 4),)), pass_).fired == {"left_exp": 1}


def two_streams(gm: GraphModule) -> str:
    first, second = (n for n in gm.graph.nodes if n.op == "call_function")
    first.meta["custom"], second.meta["custom"] = {"stream": 1}, {"stream": 2}
    return "its nodes run on several streams"


def test_the_reason_of_a_site_that_is_not_handed_out(pass_: RewritePass) -> None:
    gm = make_fx_graph(lambda x: x.exp().exp(), (torch.ones(2, 4),))
    said = two_streams(gm)
    found = rewrite_checked(gm, pass_)
    (event,) = found.log.missed("left_exp")
    assert found.fired == {} and (event.reason, event.found) == ("mutation between", said)
