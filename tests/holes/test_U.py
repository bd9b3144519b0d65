"""Rows U1 to U8 of `docs/holes.md`: where a plain pattern gives a wrong result, or one of the wrong type."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, PatternExpr, fwd_only, gen_pattern
from torch.fx.experimental.proxy_tensor import make_fx

import fxrewrite
from capture import INPUTS, export_graph, make_fx_graph, no_caches
from inductor_holes import (
    NORM_QUANT,
    found,
    matched,
    missed,
    norm_quant,
    op,
    ours,
    pass_of,
    quant,
    replaced,
    rms,
    rows,
    rules,
    sample,
)

aten = torch.ops.aten
X, Y = sample(4, 8), sample(4, 8, seed=1)
A, B = KeywordArg("a"), KeywordArg("b")


class Gelu(nn.Module):
    def __init__(self, approximate: str):
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x, approximate=self.approximate) * x


# pattern, rule, the function that the rule is for, and one with another argument
KWARGS: dict[str, tuple[PatternExpr, str, Callable[..., Any], Callable[..., Any]]] = {
    "alpha": (
        CallFunction(aten.add.Tensor, A, B),
        "fusion f(x: f32[T, D], y: f32[T, D]) = relu(x + y)\n",
        lambda x, y: torch.relu(x + y),
        lambda x, y: torch.relu(torch.add(x, y, alpha=2)),
    ),
    "dtype": (
        CallFunction(aten.sum.dim_IntList, A, [-1]),
        "fusion f(x: f32[T, D]) = sum(x, -1) * 2.0\n",
        lambda x: x.sum(-1) * 2.0,
        lambda x: x.sum(-1, dtype=torch.float64) * 2.0,
    ),
    "correction": (
        CallFunction(aten.var_mean.correction, A, [-1], keepdim=True),
        "fusion f(x: f32[T, D]) = rsqrt(var(x, -1, keepdim=true))\n",
        lambda x: torch.rsqrt(torch.var_mean(x, -1, keepdim=True, correction=0)[0]),
        lambda x: torch.rsqrt(torch.var_mean(x, -1, keepdim=True, correction=1)[0]),
    ),
    "rounding_mode": (
        CallFunction(aten.div, A, B),
        "fusion f(x: f32[T, D], y: f32[T, D]) = relu(x / y)\n",
        lambda x, y: torch.relu(torch.div(x, y, rounding_mode=None)),
        lambda x, y: torch.relu(torch.div(x, y, rounding_mode="floor")),
    ),
}


def test_U1() -> None:
    """An argument that the pattern does not mention may be anything."""
    for pattern, rule, plain, other in KWARGS.values():
        for fn, fires in ((plain, True), (other, False)):
            gm = make_fx_graph(fn, (X, Y)[: fn.__code__.co_argcount])
            assert matched(pattern, gm) == 1
            assert ours(rule, gm).fired == ({"f": 1} if fires else {})
    for approximate in ("none", "tanh"):
        gm = export_graph(Gelu(approximate), (X.bfloat16(),), decompose=True)
        assert matched(CallFunction(aten.gelu.default, A), gm) == 1
        assert len(ours('fusion f(x) = gelu(x, approximate="none") * x\n', gm).fired) == (approximate == "none")

    gm = make_fx_graph(KWARGS["alpha"][3], (X, Y))
    there = replaced(lambda x, y: x + y, lambda x, y: y + x * 1, [X, Y], gm)
    assert there.count == 1
    assert (there.outputs[0] - torch.relu(X + 2 * Y)).abs().max() > 1


def test_U2() -> None:
    """A pattern that was traced beforehand (`search_fn_pattern`) ignores constants."""
    x, w = rows()
    other = make_fx_graph(lambda x, w: quant(rms(x, w, 0.1)), (x, w))
    pattern = gen_pattern(norm_quant, [x, w], fwd_only)
    assert found(norm_quant, [x, w], other) == 0
    there = replaced(norm_quant, norm_quant, [x, w], other, search_fn_pattern=pattern)
    assert there.count == 1
    assert (there.outputs[1] - quant(rms(x, w, 0.1))[1]).abs().max() > 1e-4

    pinned = "fusion norm_quant(x, w) = rms_norm(x, w, eps=1e-6) |> quant_fp8\n"
    assert ours(pinned, make_fx_graph(norm_quant, (x, w))).fired == {"norm_quant": 1}
    event = missed(ours(pinned, other))
    assert event.reason == "other constant"
    assert event.expected.startswith("rms_norm: eps = 1e-")
    assert ours(NORM_QUANT, other).fired == {"norm_quant": 1}, "not mentioned, eps is captured, whatever it is"


def test_U3() -> None:
    """Nothing compares the replacement with what it replaces."""
    gm = make_fx_graph(lambda x, y: torch.relu(x + y), (X, Y))
    rule = "fusion f(x: f32[T, D], y: f32[T, D]) = relu(x + y)\n  impl mine  holes.wide(x, y)\n"
    for change in (Tensor.double, lambda t: t.unsqueeze(0)):
        with op("wide(Tensor x, Tensor y) -> Tensor", lambda x, y, change=change: change(torch.relu(x + y))):
            there = replaced(lambda x, y: torch.relu(x + y), torch.ops.holes.wide, [X, Y], gm)
            assert there.count == 1
            after = there.outputs[0]
            assert (after.dtype, after.shape) != (X.dtype, X.shape)
            event = missed(ours(rule, gm, providers=["mine"]))
            assert event.reason == "provider missing"
            assert "`y` is f64[4, 8], not f32[4, 8]" in event.found or "`y` is f32[1, 4, 8], not" in event.found
    with pytest.raises(fxrewrite.RuleError, match="RW306"):
        pass_of("op cut(x: lowp[T, D]) -> lowp[T]\n  = amax(x, -1)\nrule r: silu(x) |> gelu => cut(x)\n")


class ByHand(CustomGraphPass):
    """A pass that puts `holes::dense` in the place of each multiplication, as one writes it by hand."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            with graph.inserting_before(node):
                new = graph.call_function(torch.ops.holes.dense.default, (node.args[0],))
            new.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(new)
            graph.erase_node(node)

    def uuid(self) -> None:
        return None


@pytest.mark.slow
def test_U4() -> None:
    """An op that a pass puts in by hand is given whatever strides Inductor likes."""
    seen: list[tuple[int, ...]] = []
    conv = nn.Conv2d(3, 8, 3, padding=1).eval().requires_grad_(False)
    x = sample(2, 3, 6, 6)

    def dense(x: Tensor) -> Tensor:
        """Twice `x`, which it takes for contiguous."""
        seen.append(x.stride())
        return x.as_strided(x.shape, torch.empty(x.shape).stride()) * 2.0

    def compiled(pass_options: dict[str, Any]) -> Tensor:
        torch._dynamo.reset()
        with no_caches(), torch.no_grad():
            return torch.compile(lambda x: conv(x) * 2.0, options=pass_options)(x)

    with op("dense(Tensor x) -> Tensor", dense, lambda x: x.new_empty(x.shape)):
        wrong = compiled({"post_grad_custom_pre_pass": ByHand()})
        assert seen.pop() == (288, 1, 48, 8)
        assert (wrong - conv(x) * 2.0).abs().max() > 0.1
        rule = rules("fusion twice(x: f32[A, B, C, D]) = x * 2.0\n  impl mine  holes.dense(x)\n")
        right = compiled(fxrewrite.inductor_options([rule], providers=["mine"]))
        assert seen == [(288, 36, 6, 1)]
        assert torch.equal(right, conv(x) * 2.0)


def set_a_row(x: Tensor) -> Tensor:
    v = torch.exp(x)
    x[0] = 5
    return torch.relu(v + x)


def add_in_place(x: Tensor) -> Tensor:
    v = torch.exp(x)
    w = x.view(-1)
    w += 1.0
    return torch.relu(v + x)


@pytest.mark.parametrize("model", [set_a_row, add_in_place])
def test_U5(model: Callable[[Tensor], Tensor]) -> None:
    """Before autograd a graph holds `x[0] = ..` and `x += ..`, which Inductor does not take for writes."""
    graphs: list[torch.fx.GraphModule] = []
    torch._dynamo.reset()
    torch.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(X.clone())
    gm = graphs[0]
    pattern = CallFunction(operator.add, CallFunction(torch.exp, A), A)
    assert matched(pattern, gm) == 1, "exp(x) of the x from before the write, + the x from behind it"

    text = "fusion f(x: f32[T, D]) = exp(x) + x\n"
    with pytest.raises(ValueError, match="trace with fake tensors"):
        fxrewrite.rewrite(gm, [rules(text)])
    before = str(gm.graph)
    pass_of(text)(gm.graph)
    assert str(gm.graph) == before
    traced = make_fx_graph(model, (X,))
    assert ours(text, traced).fired == {}, "traced, the writes are known"
    assert ours(text, make_fx_graph(lambda x: torch.relu(torch.exp(x) + x), (X,))).fired == {"f": 1}


def test_U6() -> None:
    """Constants are compared as Python compares them: 2 == 2.0, True == 1."""
    n = torch.arange(8, dtype=torch.int32)

    def times(constant: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: aten.mul.Tensor(x, constant) + x

    for constant, other in ((2, 2.0), (1, True)):
        rule, pattern = f"fusion f(x: i32[T]) = x * {constant} + x\n", CallFunction(aten.mul.Tensor, A, constant)
        for c, fires in ((constant, True), (other, False)):
            gm = make_fx_graph(times(c), (n,))
            assert matched(pattern, gm) == 1
            assert len(ours(rule, gm).fired) == fires


def test_U7() -> None:
    """One tensor as the example of two arguments: the pattern asks that they be equal, silently."""

    def search(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x + y)

    gm = make_fx_graph(search, (X, Y))
    assert found(search, [X, Y], gm) == 1
    assert found(search, [X, X], gm) == 0
    rule = "fusion f(x: f32[T, D], y: f32[T, D]) = relu(x + y)\n"
    assert ours(rule, gm).fired == {"f": 1}
    assert ours(rule, make_fx_graph(lambda x: torch.relu(x + x), (X,))).fired == {"f": 1}


def test_U8() -> None:
    """A check that computes on a symbolic size installs a guard: one more compilation for each class of sizes."""
    x, w = rows()
    gm = make_fx(norm_quant, tracing_mode="symbolic")(x, w)
    gm.meta[INPUTS] = (x, w)
    env = next(iter(gm.graph.nodes)).meta["val"].fake_mode.shape_env
    rule = f"{NORM_QUANT}  requires T % 2 == 0\n".replace("(x, w)", "(x: bf16[T, D], w)", 1)
    before = len(env.guards)
    event = missed(ours(rule, gm))
    assert event.reason == "guard unknown"
    assert len(env.guards) == before
    pattern = CallFunction(aten.pow.Tensor_Scalar, A, 2)
    assert matched(pattern, gm, lambda match: match.kwargs["a"].meta["val"].shape[0] % 2 == 0) == 1
    assert len(env.guards) == before + 1
    assert ours(rule, make_fx_graph(norm_quant, (x, w))).fired == {"norm_quant": 1}
