"""Long, wide and bare graphs, many compilations at once, and parts that raise: nothing stops a compilation."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import fxrewrite_kernels as kernels
import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

import fxrewrite
from capture import make_fx_graph, run
from deep_graphs import STEPS, Builder, aten, chain
from explained import explained
from fxrewrite.dsl import registered
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.failures import RuleFailure
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log
from fxrewrite.patterns.report_html import page
from graph_checks import assert_same

DEEP = 3000
RULES = """op size(x: real[*B, D]) -> real[*B, D] = abs(x)
op grow(x: real[*B, D]) -> real[*B, D] = exp(x)
fusion grown(x) = grow(size(x))
rule twice: neg(neg(x)) => x
"""


@cache
def pass_of(text: str = "", strict: bool = True) -> RewritePass:
    """The shipped packs, and a text of rules beside them."""
    file, wrong = parse(text, "robust.rw")
    assert not wrong
    return make_pass(make_config(["default", file], providers=["op"], strict=strict))


def rewritten(gm: GraphModule, text: str = RULES, pass_: RewritePass | None = None) -> Log:
    """The graph goes through the pass twice, with nobody listening and with all that there is to listen to."""
    (pass_ or pass_of(text))(copy_of(gm).graph)
    with fxrewrite.record(graphs=True) as log:
        (pass_ or pass_of(text))(gm.graph)
    gm.graph.lint()
    assert log.report(every=True) and page(log, "robust") and log.to_json()
    return log


def copy_of(gm: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return GraphModule(nn.Module(), graph)


# ---- long and wide


@pytest.mark.parametrize("step", STEPS)
def test_a_chain(step: str) -> None:
    few = {"writes": 300, "clamps": 1500}  # the writes to one buffer cost the square of their number
    rewritten(chain(STEPS[step], few.get(step, DEEP), 8, 8))


@pytest.mark.parametrize("step", ["elementwise", "views", "permutations and negations", "parts written"])
def test_a_site_behind_a_chain(step: str) -> None:
    def site(b: Builder, node: Any, i: int) -> Any:
        viewed = b.call(aten.reshape.default, node, [2, 4, 8])
        return b.call(aten.exp.default, b.call(aten.abs.default, viewed))

    assert rewritten(chain(STEPS[step], DEEP, 8, 8, then=site)).fired()["grown"] == 1


@pytest.mark.parametrize("dead", [True, False])
def test_a_chain_of_views_of_a_value_inside(dead: bool) -> None:
    """Views that nobody reads do not count as users, however many stand behind one another."""
    b = Builder()
    inner = b.call(aten.abs.default, b.input("x", 8, 4))
    outer = b.call(aten.exp.default, inner)
    node = inner
    for i in range(DEEP if not dead else 1200):  # more than Python's stack
        node = b.call(aten.view.default, node, [4, 8] if i % 2 == 0 else [8, 4])
    gm = b.done(outer) if dead else b.done(outer, b.call(aten.neg.default, node))
    log = rewritten(gm, pass_=only(RULES))
    assert log.fired() == ({"grown": 1} if dead else {})
    assert dead or "shared value" in {e.reason for e in log.missed("grown")}


@cache
def only(text: str) -> RewritePass:
    file, _ = parse(text, "robust.rw")
    return make_pass(make_config([file], providers=["op"], strict=True))


def test_five_thousand_operands() -> None:
    b = Builder()
    x = b.input("x", 8, 8)
    parts = [b.call(aten.exp.default, b.call(aten.add.Tensor, x, float(i))) for i in range(50)] * 100
    assert len(parts) == 5000
    rewritten(b.done(b.call(aten.cat.default, parts)))


def test_two_thousand_users() -> None:
    b = Builder()
    inner = b.call(aten.abs.default, b.input("x", 8, 8))
    log = rewritten(b.done(*[b.call(aten.add.Tensor, inner, float(i)) for i in range(2000)]))
    assert not log.fired()


@pytest.mark.slow
def test_a_hundred_thousand_nodes() -> None:
    def layer(b: Builder, node: Any, i: int) -> Any:
        grown = b.call(aten.exp.default, b.call(aten.abs.default, node))
        for _ in range(6):
            grown = b.call(aten.mul.Tensor, b.call(aten.neg.default, grown), 0.5)
        return b.call(aten.add.Tensor, node, grown)

    gm = chain(layer, 6667, 8, 8)
    assert len(gm.graph.nodes) > 100_000
    with fxrewrite.record() as log:
        pass_of(RULES)(gm.graph)
    assert log.fired()["grown"] == 6667


def test_a_definition_of_many_parts() -> None:
    parts = ",\n  ".join(f"a{i} = exp(a{i - 1})" for i in range(1, 60))
    text = RULES + f"fusion deep(x: f32[*B, D]) = a59 where a0 = exp(x),\n  {parts}\n"
    assert explained(text, chain(STEPS["elementwise"], 60, 8, 8, dtype=torch.float32)).fired() == {"deep": 1}


# ---- bare


def bare() -> Iterator[tuple[str, GraphModule, int]]:
    b = Builder()
    yield "no call", b.done(b.input("x", 4, 4)), 0
    b = Builder()
    b.input("x", 4, 4)
    yield "no output", b.done(), 0
    b = Builder()
    x, _ = b.input("x", 4, 8), b.input("unused", 4, 8)
    yield "an input that nobody reads", b.done(b.call(aten.exp.default, b.call(aten.abs.default, x))), 1
    b = Builder()
    x = b.input("x", 4, 8)
    grown = b.call(aten.exp.default, b.call(aten.abs.default, x))
    yield "outputs that are no tensors", b.done(None, 3, grown, 1.5, None), 1
    b = Builder()
    x = b.input("x", 4, 8)
    dead = b.call(aten.exp.default, b.call(aten.abs.default, x))
    b.call(aten.add.Tensor, dead, 1.0)
    yield (
        "a dead part beside a live one",
        b.done(b.call(aten.exp.default, b.call(aten.abs.default, b.call(aten.neg.default, x)))),
        1,
    )
    b = Builder()
    b.call(aten.exp.default, b.call(aten.abs.default, b.input("x", 4, 8)))
    yield "nothing but a dead part", b.done(), 0


BARE = {name: (gm, fired) for name, gm, fired in bare()}


@pytest.mark.parametrize("case", BARE)
def test_a_bare_graph(case: str) -> None:
    gm, fired = BARE[case]
    x = [torch.randn(4, 8).bfloat16() for _ in gm.graph.find_nodes(op="placeholder")]
    gm = copy_of(gm)
    before = run(gm, x)
    log = rewritten(gm, pass_=only(RULES))
    assert log.fired().get("grown", 0) >= fired and all(e.source == "" for e in log.events)
    gm.recompile()
    assert_same(before, run(gm, x))


# ---- no state between compilations

Told = list[tuple[Any, ...]]
MODELS: dict[str, Callable[..., Any]] = {
    "grown": lambda x: torch.exp(torch.abs(x)) + x,
    "shared": lambda x: (lambda a: torch.exp(a) + a)(torch.abs(x)),
    "twice": lambda x: torch.neg(torch.neg(x * 2)) * torch.exp(torch.abs(x)),
}
X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


@cache
def graph_of(name: str) -> GraphModule:
    return make_fx_graph(MODELS[name], (X,))


def told(name: str, pass_: RewritePass | None = None) -> tuple[str, Told]:
    """The graph after, and what was said of it."""
    gm = copy_of(graph_of(name))
    with fxrewrite.record() as log:
        (only(RULES) if pass_ is None else pass_)(gm.graph)
    return str(gm.graph), [(e.rule, e.site, e.fired, e.reason, e.found, e.matched, e.written) for e in log.events]


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[str, Told]]:
    """What is said of each model by a pass that has seen no other."""
    file, _ = parse(RULES, "robust.rw")
    return {name: told(name, make_pass(make_config([file], providers=["op"], strict=True))) for name in MODELS}


def test_the_models_differ(alone: dict[str, tuple[str, Told]]) -> None:
    assert len({str(told) for told in alone.values()}) == 3


@pytest.mark.parametrize("order", [["grown", "shared", "twice"], ["twice", "shared", "grown", "grown", "twice"]])
def test_models_in_any_order(order: list[str], alone: dict[str, tuple[str, Told]]) -> None:
    assert [told(name) for name in order] == [alone[name] for name in order]


def test_threads_at_once(alone: dict[str, tuple[str, Told]]) -> None:
    names = [*MODELS] * 8
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(told, names)) == [alone[name] for name in names]


def test_a_recording_hears_its_own_thread_only() -> None:
    with fxrewrite.record() as log, ThreadPoolExecutor(1) as pool:
        pool.submit(told, "grown").result()
    assert log.events == [] and log.graphs == 0


def test_forked_workers(alone: dict[str, tuple[str, Told]]) -> None:
    """Workers that were forked after a pass was made and used say the same."""
    told("twice")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(told, [*MODELS]).get(timeout=120) == [alone[name] for name in MODELS]


# ---- what raises: a rule, its matcher, a provider or a fake kernel are in `test_bad_input.py`


class Kernel:
    """A kernel that is there and cannot be called: its fake kernel raises, or it has none."""

    @property
    def default(self) -> Any:
        raise ZeroDivisionError("boom")


@pytest.fixture
def broken_kernel() -> Iterator[None]:
    kernels.register("grown", "cpu", Kernel())
    yield
    kernels.unregister("grown", "cpu")


def sites(x: Tensor) -> tuple[Tensor, ...]:
    return torch.exp(torch.abs(x)), torch.exp(torch.abs(x * 2)), torch.neg(torch.neg(x))


def warned(text: str, caplog: pytest.LogCaptureFixture, **settings: Any) -> tuple[Log, list[str]]:
    """What is said of `sites`, and the lines of the log; the graph computes what it did."""
    gm = make_fx_graph(sites, (X,))
    before = run(gm)
    file, _ = parse(text, "robust.rw")
    with caplog.at_level(logging.WARNING, "fxrewrite"), fxrewrite.record() as log:
        fxrewrite.rewrite(gm, [file], **settings)
    assert_same(before, run(gm))
    return log, [r.getMessage() for r in caplog.records if r.name.startswith("fxrewrite")]


@pytest.mark.usefixtures("broken_kernel")
def test_a_kernel_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    log, lines = warned(RULES, caplog, providers=["kernel", "op"])
    assert log.fired() == {"twice": 1}
    assert lines == ["robust.grown (robust.rw:3:1) is off: ZeroDivisionError: boom"]
    with pytest.raises(RuleFailure, match=r"robust\.grown \(robust\.rw:3:1\): ZeroDivisionError: boom"):
        warned(RULES, caplog, providers=["kernel", "op"], strict=True)


def test_an_impl_whose_fake_kernel_raises(caplog: pytest.LogCaptureFixture) -> None:
    text = RULES.replace("grow(size(x))\n", "grow(size(x))\n  impl mine  robust.grown(x)\n")
    with torch.library._scoped_library("robust", "FRAGMENT") as lib:
        lib.define("grown(Tensor x) -> Tensor")
        lib.impl("grown", lambda x: x.abs().exp(), "CPU")
        lib.impl("grown", fails, "Meta")
        log, lines = warned(text, caplog, providers=["mine", "op"])
        assert [e.by for e in log.events if e.fired and e.rule == "grown"] == ["op", "op"], "the next serves"
        assert lines == ["grown.mine (robust.rw:4:3) is off: ZeroDivisionError: boom"]
        caplog.clear()
        log, lines = warned(text, caplog, providers=["mine"])
        assert log.fired() == {"twice": 1} and len(lines) == 1
        assert {e.reason for e in log.missed("grown")} == {"provider missing"}
        assert all("boom" in e.found for e in log.missed("grown"))
        with pytest.raises(RuleFailure, match=r"^grown\.mine \(robust\.rw:4:3\): ZeroDivisionError: boom"):
            warned(text, caplog, providers=["mine", "op"], strict=True)


def fails(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("boom")


class Listed:
    def load(self) -> Any:
        return fails


NATIVE = 'native f(n: int) -> bool from "mylib:f"\n'
RAISED = 'the native "mylib:f" raised ZeroDivisionError: boom'
ASKED = {  # where a native is asked -> a text of rules that does, and the providers
    "a rule": (RULES.replace("(size(x))\n", "(size(x)) requires f(D)\n"), ["op"], "robust.grown"),
    "profit": (RULES.replace("(size(x))\n", "(size(x)) prefer f(D)\n"), ["op"], "robust.grown"),
    "a form": (RULES.replace("= abs(x)\n", "= relu(x)\n  form other = abs(x)  when f(D)\n"), ["op"], "size.other"),
    "a provider": (
        RULES.replace("grow(size(x))\n", "grow(size(x))\n  impl mine  aten.abs(x)  when f(D)\n"),
        ["mine"],
        "grown.mine",
    ),
}


@pytest.fixture
def broken_native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registered, "listed", lambda group: {"mylib:f": Listed()})
    registered._function.cache_clear()
    yield
    registered._function.cache_clear()


@pytest.mark.usefixtures("broken_native")
@pytest.mark.parametrize("where", ASKED)
def test_a_native_that_raises(where: str, caplog: pytest.LogCaptureFixture) -> None:
    text, providers, name = ASKED[where]
    log, lines = warned(NATIVE + text, caplog, providers=providers)
    assert log.fired() == {"twice": 1}
    assert len(lines) == 1 and lines[0].startswith(f"{name} (robust.rw:") and lines[0].endswith(f" is off: {RAISED}")
    if where != "a form":  # without it nothing is a site
        assert {e.found.removeprefix("mine: ") for e in log.missed("grown")} == {RAISED}
    with pytest.raises(RuleFailure, match=rf"^{name} \(robust\.rw:\d+:\d+\): {RAISED}"):
        warned(NATIVE + text, caplog, providers=providers, strict=True)


@pytest.mark.usefixtures("broken_native")
def test_a_native_that_raises_in_a_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    text = NATIVE + "rule same: reshape(x, s) => x requires s == x.shape, f(x.shape[0])\n"
    text = "pack robust level O1 stage canonicalize\n" + text + RULES
    b = Builder()
    gm = b.done(b.call(aten.reshape.default, b.input("x", 4, 4), [4, 4]))
    file, wrong = parse(text, "robust.rw")
    assert not wrong
    with caplog.at_level(logging.WARNING, "fxrewrite"), fxrewrite.record() as log:
        fxrewrite.rewrite(copy_of(gm), [file])
    (event,) = log.missed("same")
    assert (event.reason, event.found) == ("rule failed", RAISED)
    assert [r.getMessage() for r in caplog.records] == [f"robust.same (robust.rw:3:1) is off: {RAISED}"]
    with pytest.raises(RuleFailure, match=r"robust\.same"):
        fxrewrite.rewrite(copy_of(gm), [file], strict=True)
