"""What every rewritten graph owes: equal outputs bit for bit, right metadata, and nothing changed where nothing fired.

rewritten = rewrite_checked(gm)     # every check below; `rewritten.fired` counts the rules
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from attrs import frozen
from torch.fx import GraphModule, Node

import vllm_stubs
from capture import INPUTS, run
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record
from fxrewrite.verify.same import moved, wrong_metadata

PACKS = ("norm_quant", "act_quant")


@frozen
class Rewritten:
    """A graph after the pass, what it computes on its captured inputs, and what the pass said."""

    gm: GraphModule
    log: Log
    before: list[Any]
    after: list[Any]

    @property
    def fired(self) -> dict[str, int]:
        """Rule name -> how often it fired."""
        return dict(self.log.fired())


@cache
def rewrite_pass(
    packs: tuple[str, ...] = PACKS, providers: tuple[str, ...] = ("op",), strict: bool = True
) -> RewritePass:
    """The pass of these packs, made once; forms on vLLM's ops take part."""
    vllm_stubs.declare()
    return make_pass(make_config(packs, providers=providers, strict=strict))


def rewrite_checked(gm: GraphModule, pass_: RewritePass | None = None, args: Sequence[Any] | None = None) -> Rewritten:
    """Rewrite `gm` in place and check it. Each run has inputs of its own: the graph may write to them."""
    args = gm.meta[INPUTS] if args is None else args
    text, nodes = str(gm.graph), list(gm.graph.nodes)
    before = run(gm, copy.deepcopy(args))
    with record() as log:
        (pass_ or rewrite_pass())(gm.graph)
    gm.graph.lint()
    gm.recompile()
    if not log.fired():
        assert str(gm.graph) == text
        assert all(a is b for a, b in zip(gm.graph.nodes, nodes, strict=True))
        return Rewritten(gm, log, before, before)
    check_metadata(gm)
    after = run(gm, copy.deepcopy(args))
    assert_same(before, after)
    return Rewritten(gm, log, before, after)


def assert_same(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Outputs are equal bit for bit, in dtype, shape and strides, and share memory with one another where they did."""
    problem = moved(before, after)
    assert problem is None, problem


def check_metadata(gm: GraphModule) -> None:
    """Every `meta["val"]` is what the node gives for the `val` of its arguments; op calls have `eager_input_vals`."""
    problem = wrong_metadata(gm.graph)
    assert problem is None, problem


def written_nodes(gm: GraphModule) -> list[Node]:
    """The nodes that rules wrote."""
    return [n for n in gm.graph.nodes if "fxrewrite" in n.meta]


def targets(gm: GraphModule) -> Counter[str]:
    """How often each op occurs."""
    return Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
