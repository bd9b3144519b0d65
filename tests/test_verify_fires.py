"""The checks `static`, `fires` and `perturbed`: what is right passes, and each fault fails a check by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from capture import make_fx_graph
from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.fires import fires
from fxrewrite.verify.profiles import QUICK
from fxrewrite.verify.sites import Subject

SHIPPED = ("norm_quant", "act_quant")


@cache
def program() -> Program:
    return packs.load(["default"])


@cache
def shipped() -> dict[str, Claim]:
    return {c.name: c for c in claims(program()) if c.kind == "rule" and c.name.startswith(SHIPPED)}


@pytest.mark.parametrize("name", ["norm_quant.add_rms_norm_fp8_group", "act_quant.swiglu_clamped_fp8"])
def test_graphs_are_those_of_make_fx(name: str) -> None:
    """Run through `make_fx`, the graph is itself again: the tracer takes apart what Inductor does."""
    site = Subject.of(shipped()[name]).site()

    def fn(*tensors: Tensor) -> Any:
        return torch.fx.Interpreter(torch.nn.Module(), graph=site.graph).run(*tensors)

    def ops(graph: Any) -> list[Any]:
        return [n.target for n in graph.nodes if n.op == "call_function"]

    assert ops(make_fx_graph(fn, site.inputs).graph) == ops(site.graph)


@pytest.mark.parametrize("part", [0, 1])
def test_every_shipped_rule_fires_in_each_of_its_spellings(part: int) -> None:
    found = [fires(c, QUICK) for c in list(shipped().values())[part::2]]
    assert {f.outcome for f in found} == {"passed"}, [f.reason for f in found if f.outcome != "passed"]
    assert sum(f.cases for f in found) >= 3 * len(found)
