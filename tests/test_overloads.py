"""A torch op without its overload is every overload that takes the arguments as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

import fxrewrite
from capture import make_fx_graph, run
from deep_graphs import Builder
from explained import off
from fxrewrite.dsl.parse import parse
from fxrewrite.patterns.events import record
from graph_checks import assert_same

aten = torch.ops.aten
X, Y = (torch.rand(3, 4, generator=torch.Generator().manual_seed(i)) for i in (1, 2))


def rewritten(text: str, gm: GraphModule) -> tuple[list[str], fxrewrite.Log]:
    """The ops of a graph after the rules of a text, and what is said."""
    file, wrong = parse(text, "overloads.rw")
    assert not wrong
    with record() as log:
        fxrewrite.rewrite(gm, [file], providers=["op"], strict=True)
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)], log


def scalar_overload() -> GraphModule:
    b = Builder()
    return b.done(b.call(aten.neg.default, b.call(aten.add.Scalar, b.input("x", 3, 4), 3.0, 2)))


CASES: dict[str, tuple[str, Callable[..., Any] | GraphModule, list[str]]] = {
    "of tensors": (
        "neg(aten.add(x, y, alpha=2)) => aten.sub(x, y)", lambda x, y: -torch.add(x, y, alpha=2), ["aten.sub.Tensor"],
    ),
    "of a number": ("neg(aten.add(x, 3, alpha=2)) => aten.exp(x)", scalar_overload(), ["aten.exp.default"]),
    "of an exponent that is a tensor": (
        "neg(aten.pow(x, y)) => aten.pow(y, x)", lambda x, y: -torch.pow(x, y), ["aten.pow.Tensor_Tensor"],
    ),
    "a name of a tensor is no number": (
        "neg(aten.pow(x, y)) => aten.pow(y, x)", lambda x, y: -torch.pow(x, 3.5),
        ["aten.pow.Tensor_Scalar", "aten.neg.default"],
    ),
    "with several results": (
        "neg(aten.max(x, 1).0) => aten.min(x, 1).0", lambda x, y: -torch.max(x, 1)[0], ["aten.min.dim"],
    ),
    "an argument that it must have and is not written": (
        "neg(aten.div(x, y)) => aten.atan2(x, y)", lambda x, y: -torch.div(x, y, rounding_mode="floor"),
        ["aten.div.Tensor_mode", "aten.neg.default"],
    ),
    "an overload that is named is no other": (
        "neg(aten.pow.Tensor_Scalar(x, 3.5)) => aten.exp(x)", lambda x, y: -torch.pow(x, y),
        ["aten.pow.Tensor_Tensor", "aten.neg.default"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_op_without_its_overload(case: str) -> None:
    rule, fn, targets = CASES[case]
    gm = fn if isinstance(fn, GraphModule) else make_fx_graph(fn, (X, Y))
    assert rewritten(f"rule r: {rule}\n", gm)[0] == targets


def test_two_results_of_one_call() -> None:
    text = "rule r: neg(v), i => neg(aten.sort(x, 1, true).0), aten.sort(x, 1, true).1 where (v, i) = aten.max(x, 1)\n"
    gm = make_fx_graph(lambda x, y: (lambda m: (-m[0], m[1]))(torch.max(x, 1)), (X, Y))
    file, wrong = parse(text, "overloads.rw")
    assert not wrong
    with record() as log:
        fxrewrite.rewrite(gm, [file], providers=["op"])
    assert [e.reason for e in log.missed("r")] == ["shape"], "found, and what stands there is another shape"


def test_a_form_of_every_overload() -> None:
    text = """op raised(x: f32[*B, D], y: f32[*B, D]) -> f32[*B, D]
  ref "overloads:raised"
  form aten  aten.pow(x, y)
rule r: raised(neg(x), y) => raised(x, y)
"""
    gm = make_fx_graph(lambda x, y: torch.pow(-x, y), (X, Y))
    _, log = rewritten(text, gm)
    (event,) = log.events
    assert event.reason == "provider missing", "found, and nothing here evaluates it"


def test_an_op_that_no_overload_fits() -> None:
    text = "rule r: neg(mylib.nothing(x)) => x\n"
    _, log = rewritten(text, make_fx_graph(lambda x, y: -x, (X, Y)))
    assert off(log, "r").reason == "missing op"


def test_what_is_written_computes_what_torch_does() -> None:
    def twice(x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y, alpha=3) * 2.0

    gm = make_fx_graph(twice, (X, Y))
    before = run(gm)
    text = "rule r: a * 2.0 => a + aten.add(x, y, alpha=3) where a = aten.add(x, y, alpha=3)\n  decreasing 1\n"
    targets, _ = rewritten(text, gm)
    gm.recompile()
    assert_same(before, run(gm))
    assert targets.count("aten.add.Tensor") >= 2
