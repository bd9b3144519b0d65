"""Effects that a rewrite may not lose or move: where a rule has `_`, in the branches of a `cond`, on one rank only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.effects import with_effects
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import capture
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record
from fxrewrite.patterns.groups import Group
from fxrewrite.patterns.views import Sweep

X = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
Y = X.flip(0)
OPS = """op put(k: lowp[T, D], layer: str) -> (d: lowp[T, D])
  ref "x:y"
  form e = lost_effects.put(k, layer)
  property writes(layer)
op get(k: lowp[T, D], layer: str) -> (d: lowp[T, D])
  ref "x:y"
  form e = lost_effects.get(k, layer)
  property reads(layer)
op put_times(k: lowp[T, D], s: lowp[T, D], layer: str) -> (d: lowp[T, D])
  ref "x:y"
  impl mine = lost_effects.put_times(k, s, layer)
  property writes(layer)
"""
DROPS = OPS + "rule drops(q: lowp[T, D]): sigmoid(lost_effects.first(q, {})) => sigmoid(q)\n"
MOVES = OPS + "rule moves: put(k, layer) * s => put_times(k, s, layer)\n"


@pytest.fixture(scope="module", autouse=True)
def stubs() -> Iterator[None]:
    library = torch.library.Library("lost_effects", "DEF")
    for schema, kernel in {
        "put(Tensor k, str layer) -> Tensor": lambda k, layer: k.clone(),
        "get(Tensor k, str layer) -> Tensor": lambda k, layer: k.clone(),
        "put_times(Tensor k, Tensor s, str layer) -> Tensor": lambda k, s, layer: k * s,
        "unnamed(Tensor k, str layer) -> Tensor": lambda k, layer: k.clone(),
        "two(Tensor x) -> Tensor": lambda x: x.exp().exp(),
        "first(Tensor a, Tensor? b) -> Tensor": lambda a, b: a.clone(),
    }.items():
        library.define(schema)
        for key in ("CompositeExplicitAutograd", "Meta"):
            library.impl(schema.split("(")[0], kernel, key)
    yield
    library._destroy()


@pytest.fixture
def rules(tmp_path: Path) -> Callable[..., RewritePass]:
    def make(text: str, **settings: Any) -> RewritePass:
        path = tmp_path / "rules.rw"
        path.write_text(text)
        return make_pass(make_config([path], providers=["mine"], strict=True, **settings))

    return make


def rewritten(gm: GraphModule, pass_: RewritePass) -> Log:
    with record() as log:
        pass_(gm.graph)
    gm.graph.lint()
    return log


def reasons(log: Log) -> list[str]:
    return [e.reason for e in log.events if not e.fired]


# ---- what stands where a rule has `_`


@pytest.mark.parametrize("hole", ["_", "..."])
@pytest.mark.parametrize(
    ("other", "stays"),
    [
        (lambda x: torch.ops.lost_effects.put(x, "a"), "put would go"),
        (lambda x: x.add_(1), "add_ would go"),
        (lambda x: torch.rand_like(x), "rand would go"),
    ],
    ids=["a hidden effect", "a write", "random numbers"],
)
def test_an_effect_that_no_rule_names_stays(rules: Any, hole: str, other: Any, stays: str) -> None:
    gm = capture.make_fx_graph(lambda x, y: torch.sigmoid(torch.ops.lost_effects.first(x, other(y))), (X, Y))
    text = str(gm.graph)
    log = rewritten(gm, rules(DROPS.format(hole)))
    assert reasons(log) == ["effect order"]
    assert stays in next(e.found for e in log.events if not e.fired)
    assert str(gm.graph) == text


def test_what_has_none_goes(rules: Any) -> None:
    gm = capture.make_fx_graph(lambda x, y: torch.sigmoid(torch.ops.lost_effects.first(x, y.exp())), (X, Y))
    assert dict(rewritten(gm, rules(DROPS.format("_"))).fired()) == {"drops": 1}
    assert "exp" not in str(gm.graph)


# ---- graphs inside graphs


class Between(torch.nn.Module):
    """A branch reads a layer between a write and what a rule makes one op with it."""

    def __init__(self, layer: str):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        put = torch.ops.lost_effects.put(x, "a")
        read = torch.cond(y.sum() > 0, lambda y: torch.ops.lost_effects.get(y, self.layer), lambda y: y.clone(), (y,))
        return put * read


@pytest.mark.parametrize(("layer", "fires"), [("a", False), ("b", True)])
def test_no_effect_moves_past_a_branch_that_reads(rules: Any, layer: str, fires: bool) -> None:
    gm = torch.export.export(Between(layer), (X, Y), strict=False).run_decompositions().graph_module
    log = rewritten(gm, rules(MOVES))
    assert dict(log.fired()) == ({"moves": 1} if fires else {})
    assert reasons(log) == ([] if fires else ["effect order"])


# ---- operands of type str


@pytest.mark.parametrize("head", ["moves", "moves(k: lowp[T, D], s: lowp[T, D], layer: str)"])
def test_a_rule_binds_a_name_of_a_layer(rules: Any, head: str) -> None:
    gm = capture.make_fx_graph(lambda x, y: torch.ops.lost_effects.put(x, "a") * y, (X, Y))
    assert dict(rewritten(gm, rules(MOVES.replace("moves", head))).fired()) == {"moves": 1}
    assert "put_times" in str(gm.graph)


# ---- equal on all ranks


def test_a_number_of_one_rank_is_not_equal_on_all(rules: Any) -> None:
    """`x` is of this rank, `w` the same on all: what an index into `x` says is of this rank, too."""

    def fn(w: Tensor, x: Tensor) -> Any:
        mine: Any = x.argmax().item()
        ours = w.argmax()
        return (
            w + w,
            w[:1].expand(4, 64),
            w * mine,
            w.roll(mine),
            torch.arange(mine),
            torch.arange(x.shape[0]),
            w * ours,
        )

    gm = make_fx(fn, tracing_mode="symbolic")(X, torch.ones(9, 8))
    for node, name in zip(gm.graph.nodes, ("w", "x"), strict=False):
        node.name = node.target = name
    sweep = Sweep(rules(MOVES, replicated=["w"]).engine.library)
    sweep.read(gm.graph)
    asked = sweep._predicates["replicated"]
    outputs: Any = gm.graph.output_node().args[0]
    found = [asked(sweep.table.of_node[n], Group("tp", 2)) is True for n in outputs]
    assert found == [True, True, False, False, False, False, True]


# ---- calls that torch keeps in order by tokens


BEHIND = "fusion behind_a_token(x: lowp[T, D]) = exp(x) |> exp\n  impl mine = lost_effects.two(x)\n"
with_token: Any = with_effects


def behind_tokens(op: str, layer: str) -> GraphModule:
    """`put` of layer a, a call under `with_effects`, and then what the rule takes `put` with."""

    def fn(k: Tensor, s: Tensor, token: Tensor) -> Any:
        put = torch.ops.lost_effects.put(k, "a")
        token, other = with_token(token, getattr(torch.ops.lost_effects, op).default, k, layer)
        return put * (s + other), token

    gm = capture.make_fx_graph(fn, (X, Y, torch.tensor([])))
    assert "higher_order.with_effects" in str(gm.graph)
    return gm


@pytest.mark.parametrize(
    ("op", "layer", "fires"),
    [("get", "a", False), ("put", "a", False), ("get", "b", True), ("put", "b", True), ("unnamed", "b", False)],
)
def test_no_effect_moves_past_one_under_a_token(
    op: str, layer: str, fires: bool, rules: Callable[..., RewritePass]
) -> None:
    """Where a form says what the op does, its key tells; where none does, it may be that of any."""
    log = rewritten(behind_tokens(op, layer), rules(MOVES))
    assert dict(log.fired()) == ({"moves": 1} if fires else {})
    assert reasons(log) == ([] if fires else ["effect order"])


def test_a_rule_behind_a_call_with_a_token(rules: Callable[..., RewritePass]) -> None:
    """What such a call gives is a value like any other, and the call stays."""

    def fn(k: Tensor, token: Tensor) -> Any:
        token, y = with_token(token, torch.ops.lost_effects.unnamed.default, k, "a")
        return y.exp().exp(), token

    gm = capture.make_fx_graph(fn, (X, torch.tensor([])))
    log = rewritten(
        gm, rules("fusion behind_a_token(x: lowp[T, D]) = exp(x) |> exp\n  impl mine = lost_effects.two(x)\n")
    )
    assert dict(log.fired()) == {"behind_a_token": 1}
    assert str(gm.graph).count("higher_order.with_effects") == 1
