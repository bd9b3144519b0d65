"""Rows C1 to C5, M1 and M2 of `docs/holes.md`: compilations that fail, and what is lost; and writes in a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    register_graph_pattern,
    stable_topological_sort,
)
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

import fxrewrite
from capture import INPUTS, make_fx_graph, post_grad_graphs
from fxrewrite.lowering.emit import Emitter
from fxrewrite.lowering.failures import RuleFailure
from graph_checks import written_nodes
from inductor_holes import (
    NORM_QUANT,
    applied,
    edited,
    found,
    matched,
    missed,
    norm_quant,
    op,
    ours,
    pass_of,
    quant,
    registered,
    replaced,
    rms,
    rows,
    rules,
    sample,
    without_metadata,
)

aten = torch.ops.aten
X, Y, Z = sample(4, 8), sample(4, 8, seed=1), sample(4, 8, seed=2)
ROWS = rows()
A, B = KeywordArg("a"), KeywordArg("b")


def test_C1() -> None:
    """Several results where an operand is computed from one of them: a cycle."""

    def search(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x + y
        return torch.exp(h), h * z

    def cyclic(x: Tensor, y: Tensor) -> Any:
        h = x + y
        e = torch.exp(h)
        return e, h * (e * 2.0)

    gm = make_fx_graph(cyclic, (X, Y))
    with op("pair(Tensor x, Tensor y, Tensor z) -> (Tensor, Tensor)", search, lambda x, y, z: search(x, y, z)):
        there = replaced(search, torch.ops.holes.pair, [X, Y, Z], gm)
    assert there.count == 1
    with pytest.raises(AssertionError):
        stable_topological_sort(there.gm.graph)
    rule = "fusion f(x: f32[T, D], y: f32[T, D], z: f32[T, D]) = p, q where h = x + y, p = exp(h), q = h * z\n"
    event = missed(ours(rule, gm))
    assert event.reason == "cycle"
    assert "depends on its output" in event.found


def test_C2() -> None:
    """A handler puts in a node without metadata, and a pattern reads it."""

    gm = make_fx_graph(lambda x: torch.rsqrt(torch.exp(torch.abs(x))), (X,))
    there = edited(CallFunction(aten.exp.default, CallFunction(aten.abs.default, A)), gm, without_metadata)
    with pytest.raises(KeyError):
        found(lambda x: torch.rsqrt(x), [X], there.gm)

    text = (
        "op e(x: f32[T, D]) -> f32[T, D]\n  = exp(abs(x))\n"
        "rule f: exp(abs(x)) => e(x)\nfusion g(x: f32[T, D]) = rsqrt(e(x))\n"
    )
    done = ours(text, gm, flags={"holes.g": False})
    assert done.fired == {"f": 1}
    assert found(lambda x: torch.rsqrt(x), [X], done.gm) == 1, "a plain pattern behind ours reads what ours wrote"
    assert ours(text, done.gm).fired == {"g": 1}


def test_C3() -> None:
    """A rule whose right side is met by its left one, run until nothing changes."""

    def swap(match: Any, a: Any, b: Any) -> None:
        root = match.output_node()
        with match.graph.inserting_before(root):
            new = match.graph.call_function(aten.add.Tensor, (b, a))
        new.meta = dict(root.meta)
        root.replace_all_uses_with(new)
        match.erase_nodes()

    patterns = PatternMatcherPass()
    register_graph_pattern(CallFunction(aten.add.Tensor, A, B), pass_dict=patterns)(swap)  # type: ignore[arg-type]
    gm = make_fx_graph(torch.add, (X, Y))
    assert [patterns.apply(gm.graph) for _ in range(8)] == [1] * 8
    there_and_back = (
        "op gate(x: lowp[*B, D]) -> lowp[*B, D]\n  = silu(x)\n"
        "rule there: silu(x) |> gelu => gate(x) |> gelu\nrule back: gate(x) |> gelu => silu(x) |> gelu\n"
    )
    for text in ("rule swap: x + y => y + x\n", "rule turns: silu(gelu(x)) => gelu(silu(x))\n", there_and_back):
        with pytest.raises(fxrewrite.RuleError, match="RW403"):
            pass_of(text)


def test_C4() -> None:
    """What is wrong with a pattern comes to light at a match, and fails the compilation."""

    def search(x: Tensor) -> Tensor:
        return torch.exp(torch.abs(x))

    traced = 0

    def asserts(x: Tensor) -> Tensor:
        nonlocal traced
        traced += 1
        if traced > 1:
            raise ValueError("of other sizes than the example")
        return search(x)

    gm = make_fx_graph(search, (X,))
    with_unused = registered(lambda x, y: search(x), lambda x, y: search(x), [X, Y])
    of_two = registered(search, lambda x, y: search(x) * y, [X])
    for patterns, error in (
        (with_unused, RuntimeError), (of_two, RuntimeError), (registered(asserts, search, [X]), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            applied(patterns, gm)
    for text, code in (
        ("fusion f(x: f32[T, D], y: f32[T, D]) = exp(abs(x))\n", "RW221"),
        ("rule r: silu(x) |> gelu => silu_mul(x)\n", "RW204"),
        ("rule r: silu(x) |> gelu => silu(y)\n", "RW201"),
        ("rule r: silu(x) |> gelu => silu(x), gelu(x)\n", "RW306"),
        ("fusion f(x: f32[T, D]) = reshape(exp(x), [T, D, 2])\n", "RW305"),
    ):
        with pytest.raises(fxrewrite.RuleError, match=code):
            pass_of(text)


def test_C5(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler or a check that raises fails the compilation."""
    gm = make_fx_graph(norm_quant, ROWS)

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("mine")

    pattern = CallFunction(aten.rsqrt.default, A)
    with pytest.raises(ZeroDivisionError):
        edited(pattern, gm, fails)
    with pytest.raises(ZeroDivisionError):
        matched(pattern, gm, fails)

    with op("codes(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)", fails, fails):
        mine = f"{NORM_QUANT}  impl mine(smin=1e-12)  holes.codes(x, w, eps)\n"
        event = missed(ours(mine, gm, providers=["mine"], strict=False))
        assert event.reason == "provider missing"
        assert "mine" in event.found
        assert event.span is not None and event.span.line == 1
        done = ours(mine, gm, providers=["mine", "op"], strict=False)
        assert done.fired == {"norm_quant": 1}, "the next provider serves it"
    monkeypatch.setattr(Emitter, "outputs", fails)
    two = make_fx_graph(lambda x, w: (norm_quant(x, w), norm_quant(x + x, w)), ROWS)
    done = ours(NORM_QUANT, two, strict=False)
    assert done.fired == {}
    assert {e.reason for e in done.log.missed()} == {"rule failed"}
    assert "ZeroDivisionError: mine" in done.log.report()
    with pytest.raises(RuleFailure, match="norm_quant"):
        ours(NORM_QUANT, gm, strict=True)


class Layer(torch.nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Any:
        return norm_quant(x, w)


def test_M1() -> None:
    """What a new node knows of where it comes from."""
    (gm,) = post_grad_graphs(Layer(), ROWS)
    fake = lambda x, w: (torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty((6, 1), dtype=torch.float32))  # noqa: E731
    with op("codes(Tensor x, Tensor w) -> (Tensor, Tensor)", norm_quant, fake):
        there = replaced(norm_quant, torch.ops.holes.codes, ROWS, gm)
        (new,) = there.gm.graph.find_nodes(op="call_function", target=torch.ops.holes.codes.default)
    assert "val" in new.meta
    assert "seq_nr" not in new.meta and "stack_trace" not in new.meta

    done = ours(NORM_QUANT, gm)
    for node in written_nodes(done.gm):
        assert {"val", "stack_trace", "seq_nr", "from_node", "fxrewrite"} <= node.meta.keys()
        assert node.meta["fxrewrite"] == {"rule": "holes.norm_quant", "span": "holes.rw:1:1"}
        assert "norm_quant(x, w)" in node.meta["stack_trace"]
        assert ("tensor_meta" in node.meta) == isinstance(node.meta["val"], Tensor)
    (call, *_) = written_nodes(done.gm)
    assert "eager_input_vals" in call.meta


class Counting(CustomGraphPass):
    """A pass with a stable key."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.seen += 1

    def __deepcopy__(self, memo: Any) -> Counting:
        return self

    def uuid(self) -> str:
        return "counting"


def test_M2() -> None:
    """With a warm cache the pass is not run, so that it cannot say what it did."""
    config = inductor_config.patch(fx_graph_cache=True), functorch_config.patch(enable_autograd_cache=True)
    one, other = (rules(f"fusion {name}(x: f32[T, D]) = exp(abs(x))\n") for name in ("f", "g"))

    def compiled(model: Callable[[Tensor], Tensor], **how: Any) -> None:
        torch._dynamo.reset()
        torch.compile(model, **how)(X)

    def ours_compiled(**how: Any) -> fxrewrite.Log:
        with fxrewrite.record() as log:
            compiled(lambda x: torch.exp(torch.abs(x)), **how)
        return log

    with fresh_cache(), config[0], config[1], torch.no_grad():
        counting = Counting()
        for _ in range(2):  # of ops that Inductor calls, so that no C++ is compiled
            compiled(lambda x: x @ x.T, options={"post_grad_custom_pre_pass": counting})
        assert counting.seen == 1
        for name, how in (
            ("f", {"backend": fxrewrite.backend([one], providers=["op"])}),
            ("g", {"options": fxrewrite.inductor_options([other], providers=["op"])}),
        ):
            cold, warm = ours_compiled(**how), ours_compiled(**how)
            assert (dict(cold.fired()), cold.cached) == ({name: 1}, 0)
            assert (dict(warm.fired()), warm.cached) == ({}, 1)
            assert "cached, not run" in warm.report()


# ---- writes: refused for a value that is written, not for a graph that holds a write


def wide_in_between(x: Tensor, o: Tensor) -> Any:
    n = torch.neg(x)
    o.add_(1.0)
    return torch.neg(n) * 2.0


def operand_in_between(x: Tensor, o: Tensor) -> Any:
    h = x * 1.5
    n = torch.neg(h)
    h.add_(1.0)
    return h * 2.0, torch.neg(n)


def operand_behind(x: Tensor, o: Tensor) -> Any:
    y = torch.neg(torch.neg(x))
    x.add_(1.0)
    return y * 2.0


def result_behind(x: Tensor, o: Tensor) -> Any:
    y = torch.neg(torch.neg(x))
    y.add_(1.0)
    return x * 2.0, y * 3.0


def rows_in_between(x: Tensor, o: Tensor) -> Any:
    n = torch.neg(x)
    x[0].zero_()
    return torch.neg(n) * 2.0


WRITES: dict[Callable[..., Any], str | None] = {
    wide_in_between: None,
    operand_in_between: "mul was written to",
    operand_behind: "add_",
    result_behind: "add_",
    rows_in_between: "x_1 was written to",
}


@pytest.mark.parametrize("fn", WRITES)
def test_a_write_is_held_against_values(fn: Callable[..., Any]) -> None:
    done = ours("rule twice: neg(neg(x)) => x\n", make_fx_graph(fn, (X, torch.zeros(3))))
    if WRITES[fn] is None:
        assert done.fired == {"twice": 1}
    else:
        event = missed(done)
        assert event.reason == "mutation between"
        assert event.found.startswith(WRITES[fn] or "")


def other_between(x: Tensor, o: Tensor) -> Any:
    n = torch.neg(x)
    o.view(-1)[1:].add_(1.0)
    return torch.neg(n) * 2.0


def other_behind(x: Tensor, o: Tensor) -> Any:
    y = torch.neg(torch.neg(x)) * 2.0
    o.add_(1.0)
    return y


@pytest.mark.parametrize(
    ("fn", "args", "fires"),
    [
        (other_between, (X, X.clone()), False),  # the caller may give one tensor for both
        (other_between, (X, X[1:]), False),
        (other_between, (X, X.double()), True),
        (other_behind, (X, X.clone()), True),
    ],
)
def test_a_write_to_what_may_be_the_same_tensor(
    fn: Callable[..., Any], args: tuple[Tensor, Tensor], fires: bool
) -> None:
    done = ours("rule twice: neg(neg(x)) => x\n", make_fx_graph(fn, args))
    assert done.fired == ({"twice": 1} if fires else {})
    assert fires or missed(done).reason == "mutation between"


def test_a_write_to_an_attribute_of_two_names() -> None:
    """Tied weights: what is written by one name is read by the other."""
    root = torch.nn.Module()
    root.a = root.b = torch.nn.Parameter(X.clone(), requires_grad=False)
    graph = torch.fx.Graph()
    read = graph.get_attr("a")
    inner = graph.call_function(torch.ops.aten.neg.default, (read,))
    graph.call_function(torch.ops.aten.add_.Tensor, (graph.get_attr("b"), 1.0))
    outer = graph.call_function(torch.ops.aten.neg.default, (inner,))
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (outer, 2.0)),))
    gm = GraphModule(root, graph)
    gm.meta[INPUTS] = ()
    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate()
    done = ours("rule twice: neg(neg(x)) => x\n", gm)
    assert not done.fired and missed(done).reason == "mutation between"


NORMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "something else, before": (lambda x, w, o: (o.add_(1.0), norm_quant(x, w))[1], True),
    "something else, between": (lambda x, w, o: (n := rms(x, w), o.add_(1.0), quant(n))[2], True),
    "x, before": (lambda x, w, o: (x.add_(1.0), norm_quant(x, w))[1], True),
    "x, behind": (lambda x, w, o: (norm_quant(x, w), x.add_(1.0))[0], True),
    "x, between": (lambda x, w, o: (n := rms(x, w), x.add_(1.0), quant(n))[2], False),
    "the weight, between": (lambda x, w, o: (n := rms(x, w), w.add_(1.0), quant(n))[2], False),
    "the norm": (lambda x, w, o: (n := rms(x, w), n[0].zero_(), quant(n))[2], False),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_write_beside_a_norm(name: str) -> None:
    fn, fires = NORMS[name]
    done = ours(NORM_QUANT, make_fx_graph(fn, (*ROWS, torch.zeros(3))))
    assert done.fired == ({"norm_quant": 1} if fires else {})
    if "between" in name and not fires:
        assert missed(done).reason == "mutation between"
