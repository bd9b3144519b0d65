"""Who wins where two want one thing: two rules a site, two packs a name, two passes a graph, two backends a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

import fxrewrite
from capture import make_fx_graph
from explained import explained, miss
from fxrewrite.dsl.diagnostics import RuleError
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import chained, make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
PARTS = """op size(x: f32[*B, D]) -> f32[*B, D] = abs(x)
op grow(x: f32[*B, D]) -> f32[*B, D] = exp(x)
op flip(x: f32[*B, D]) -> f32[*B, D] = neg(x)
"""
aten = torch.ops.aten


def file_of(text: str, name: str = "mine.rw") -> Any:
    file, wrong = parse(text, name)
    assert not wrong
    return file


def pass_of(text: str, name: str = "mine.rw") -> RewritePass:
    return make_pass(make_config([file_of(text, name)], providers=["op"], strict=True))


def all_three(x: Tensor) -> Tensor:
    return torch.neg(torch.exp(torch.abs(x)))


# ---- two rules

TWO = PARTS + "fusion small(x) = grow(size(x))\nfusion large(x) = flip(grow(size(x)))\n"


def test_the_larger_wins() -> None:
    log = explained(TWO, all_three, (X,))
    assert log.fired() == {"large": 1}
    event = miss(log, "small")
    assert (event.reason, event.by) == ("eaten by", "my.large") and 'flags={"my.large": False}' in event.hint
    assert explained(TWO, all_three, (X,), flags={"my.large": False}).fired() == {"small": 1}


SAME = PARTS + "fusion one(x) = grow(size(x))\nfusion two(x) = grow(size(x))\n"
OVER = """fusion one(x) = grow(size(x))
fusion two(x) over one = grow(size(x))
  prefer D >= 8
"""


@pytest.mark.parametrize(("width", "winner"), [(8, "two"), (4, "one")])
def test_over_wins_among_equals_where_its_preference_holds(width: int, winner: str) -> None:
    log = explained(PARTS + OVER, all_three, (X[:, :width].contiguous(),))
    assert log.fired() == {winner: 1}
    assert winner == "one" or miss(log, "one").by == "my.two"


def test_one_left_side_twice_is_an_error_without_over() -> None:
    with pytest.raises(RuleError) as error:
        loaded([file_of(SAME)])
    assert [d.code for d in error.value.diagnostics] == ["RW401"]
    assert "one" in str(error.value) and "two" in str(error.value) and "over" in str(error.value)


def loaded(files: list[Any]) -> RewritePass:
    return make_pass(make_config(files))


def test_the_order_of_the_pack_decides_the_rest() -> None:
    """Two of one size that overlap: what comes first in the graph's order of sites and the pack's order of rules."""
    both = "fusion first(x) = grow(size(x))\nfusion second(x) = flip(grow(x))\n"
    log = explained(PARTS + both, all_three, (X,))
    assert log.fired() == {"first": 1} and miss(log, "second").by == "my.first"
    swapped = "fusion second(x) = flip(grow(x))\nfusion first(x) = grow(size(x))\n"
    log = explained(PARTS + swapped, all_three, (X,))
    assert log.fired() == {"second": 1} and miss(log, "first").by == "my.second"


# ---- two packs


def test_one_name_in_two_packs_is_an_error_when_they_are_loaded() -> None:
    files = [
        file_of(PARTS + "fusion f(x) = grow(size(x))\n", "a.rw"),
        file_of("fusion f(x: f32[*B, D]) = neg(abs(x))\n", "b.rw"),
    ]
    with pytest.raises(RuleError) as error:
        loaded(files)
    assert {d.code for d in error.value.diagnostics} == {"RW208"}
    assert "a.rw" in str(error.value) and "b.rw" in str(error.value)


def test_one_left_side_in_two_packs_is_an_error_when_they_are_loaded() -> None:
    """Each alone is right."""
    files = [file_of(f"fusion {n}(x: f32[*B, D]) = exp(abs(x))\n", f"{n}.rw") for n in ("a", "b")]
    for file in files:
        loaded([file])
    with pytest.raises(RuleError) as error:
        loaded(files)
    assert [d.code for d in error.value.diagnostics] == ["RW401"]


# ---- two passes


class Noted(CustomGraphPass):
    """A user's own pass: it notes what it sees, and may flip `exp` into `sigmoid`."""

    def __init__(self, edits: bool = False, uuid: Any = "noted") -> None:
        self.edits, self.seen, self._uuid = edits, list[set[str]](), uuid

    def __call__(self, graph: Graph) -> None:
        self.seen.append({str(n.target) for n in graph.nodes if n.op == "call_function"})
        for node in graph.nodes if self.edits else ():
            if node.target is aten.exp.default:
                node.target = aten.sigmoid.default

    def uuid(self) -> Any:
        return self._uuid


ONE = "fusion grown(x: f32[*B, D]) = exp(abs(x))\n"


def grown(x: Tensor) -> Tensor:
    return torch.exp(torch.abs(x))


def after(*passes: Callable[[Graph], None], fn: Callable[..., Any] = grown) -> tuple[Log, set[str]]:
    """What passes in their order make of a graph."""
    gm = make_fx_graph(fn, (X,))
    with record() as log:
        for one in passes:
            one(gm.graph)
    gm.graph.lint()
    return log, {str(n.target) for n in gm.graph.nodes if n.op == "call_function"}


def test_a_pass_before_ours_decides_what_ours_sees() -> None:
    log, ops = after(chained(pass_of(ONE), Noted(edits=True)))
    assert log.fired() == {} and "aten.sigmoid.default" in ops


def test_a_pass_after_ours_sees_our_ops() -> None:
    noted = Noted(edits=True)
    log, ops = after(pass_of(ONE), noted)
    assert log.fired() == {"grown": 1} and ops == {"fxrewrite.grown.default"} == noted.seen[0]


def test_the_key_of_a_chain_holds_both() -> None:
    ours = pass_of(ONE)
    one, two = chained(ours, Noted(uuid="one")), chained(ours, Noted(uuid="two"))
    assert one.uuid() != two.uuid() and one.uuid() == chained(ours, Noted(uuid="one")).uuid()
    assert chained(ours, Noted(uuid=None)).uuid() is None, "nothing is cached then"
    assert chained(ours, lambda graph: None).uuid() is None
    assert chained(ours, None) is ours and chained(ours, ours) is ours


class Manager(CustomGraphPass):
    """As vLLM has it: one object on the hook, which runs passes in flip and hashes what each of them is."""

    def __init__(self, *passes: Any) -> None:
        self.passes = passes

    def __call__(self, graph: Graph) -> None:
        for one in self.passes:
            one(graph)

    def uuid(self) -> Any:
        return str([one.uuid() for one in self.passes])


def test_a_pass_manager() -> None:
    before, behind, ours = Noted(), Noted(), pass_of(ONE)
    log, _ = after(Manager(before, ours, behind))
    assert log.fired() == {"grown": 1} and log.graphs == 1
    assert "aten.exp.default" in before.seen[0] and behind.seen == [{"fxrewrite.grown.default"}]
    assert Manager(before, ours).uuid() != Manager(before, pass_of(ONE.replace("exp", "neg"))).uuid()


def test_two_of_our_passes_on_one_graph() -> None:
    """The first takes what it can; the second sees its ops as what they are, and says what it did in the same log."""
    first, second = pass_of(ONE, "a.rw"), pass_of(PARTS + "fusion turned(x) = flip(grow(size(x)))\n", "b.rw")
    log, ops = after(second, first, fn=all_three)
    assert log.fired() == {"turned": 1} and ops == {"fxrewrite.turned.default"}
    assert log.graphs == 2 and {(e.pack, e.graph) for e in log.events if e.fired} == {("b", 0)}
    log, ops = after(first, second, fn=all_three)
    assert log.fired() == {"grown": 1} and ops == {"fxrewrite.grown.default", "aten.neg.default"}


# ---- two backends


@pytest.fixture
def anew() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def backend(text: str, name: str) -> Any:
    return fxrewrite.backend([file_of(text, name)], providers=["op"])


TURNED = "fusion turned(x: f32[*B, D]) = neg(abs(x))\n"


class Inner(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(torch.abs(x))


class Outer(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return torch.neg(torch.abs(self.inner(x)))


@pytest.mark.slow
@pytest.mark.usefixtures("anew")
def test_the_backend_around_a_compiled_module_takes_all_of_it() -> None:
    inner = torch.compile(Inner(), backend=backend(ONE, "a.rw"))
    outer = torch.compile(Outer(inner), backend=backend(TURNED, "b.rw"))
    with record() as log:
        found = outer(X)
    assert torch.allclose(found, Outer(Inner())(X))
    assert log.fired() == {"turned": 1} and log.graphs == 1
    with record() as log:
        inner(X)
    assert log.fired() == {"grown": 1}, "called by itself it has its own"


@pytest.mark.slow
@pytest.mark.usefixtures("anew")
def test_a_compiled_model_that_is_compiled_again() -> None:
    once = torch.compile(Inner(), backend=backend(TURNED, "b.rw"))
    twice = torch.compile(once, backend=backend(ONE, "a.rw"))
    with record() as log:
        twice(X)
    assert log.fired() == {"grown": 1} and log.graphs == 1


@pytest.mark.slow
@pytest.mark.usefixtures("anew")
def test_options_and_a_backend_both_run_the_options_first() -> None:
    """Rules that the configuration has on the hook run before those of the backend."""
    configured = fxrewrite.inductor_options([file_of(ONE, "a.rw")], providers=["op"])
    ours = backend(ONE.replace("grown", "grown_too"), "b.rw")
    with inductor_config.patch(configured), record() as log:
        torch.compile(Inner(), backend=ours)(X)
    assert log.fired() == {"grown": 1} and log.graphs == 2
