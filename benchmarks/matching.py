"""All shipped rules on the graph of a Llama with FP8 linears, beside one plain pattern of Inductor on the same graph.

The plain pattern is one of the shipped fusions (a norm and its quant for each token), written as pattern expressions
with the numbers of users that this graph has, so that it matches; its check rejects, so that the graph stays. Then the
whole pass with its rewrites, beside what `torch.compile` takes for the model from nothing.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch._inductor.pattern_matcher import (
    MULTIPLE,
    Arg,
    CallFunction,
    KeywordArg,
    Match,
    PatternExpr,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch.fx import Graph, GraphModule

from benchmarks.graphs import FP8, engine, llama, llama_graph, sweep
from benchmarks.report import Column, Goal, Table
from benchmarks.settings import Settings
from benchmarks.timing import Times, in_turn, timed
from fxrewrite.lowering.engine import Engine

PLAIN = "one plain pattern, PatternMatcherPass.apply"
MATCHING = "all rules: reading, views, matching"
WHOLE = "everything: clean-up, matching, rewrites"
RATIO = 1.5  # of matching to one plain pattern
SITE = 0.8  # ms of wall time for rewriting a site that Inductor's matcher asks for
SHARE = 1.0  # percent of a cold compile
aten, prims = torch.ops.aten, torch.ops.prims


def plain_pattern() -> PatternExpr:
    """`rms_norm(x, w) |> quant_fp8`, the codes, as the post-grad graph spells it. One norm feeds several linears."""

    def cast(x: Any, dtype: torch.dtype, users: Any = 1) -> PatternExpr:
        return CallFunction(prims.convert_element_type.default, x, dtype, _users=users)

    x, w, eps, shape, smin = KeywordArg("x"), KeywordArg("w"), KeywordArg("eps"), Arg(), KeywordArg("smin")
    wide = cast(x, torch.float32, users=2)
    mean = CallFunction(aten.mean.dim, CallFunction(aten.pow.Tensor_Scalar, wide, 2), [-1], True)
    unit = CallFunction(
        aten.mul.Tensor, wide, CallFunction(aten.rsqrt.default, CallFunction(aten.add.Tensor, mean, eps))
    )
    norm = CallFunction(aten.mul.Tensor, w, cast(unit, torch.bfloat16), _users=MULTIPLE)
    rows = CallFunction(aten.reshape.default, norm, shape, _users=2)
    amax = CallFunction(aten.amax.default, CallFunction(aten.abs.default, rows), [-1], True)
    scale = CallFunction(
        aten.clamp_min.default, CallFunction(aten.div.Tensor, cast(amax, torch.float32), 448), smin, _users=2
    )
    codes = CallFunction(aten.div.Tensor, cast(rows, torch.float32), scale)
    bounded = CallFunction(aten.clamp_max.default, CallFunction(aten.clamp_min.default, codes, -448), 448)
    return cast(bounded, FP8)


class PlainPattern:
    """The pattern in a pass of its own. `matches` counts what it found."""

    def __init__(self) -> None:
        self.matches = 0
        self.passes = PatternMatcherPass(pass_name="plain")

        def rejects(match: Match) -> bool:
            self.matches += 1
            return False

        def never(match: Match, *args: Any, **kwargs: Any) -> None:
            raise AssertionError("the check rejects every match")

        register_graph_pattern(plain_pattern(), extra_check=rejects, pass_dict=self.passes)(never)  # type: ignore[arg-type]

    def apply(self, graph: Graph) -> None:
        """Match everywhere."""
        self.matches = 0
        self.passes.apply(graph)


def run(settings: Settings) -> list[Table]:
    """The table of matching with the whole pass, and its share of a compile where that is asked for."""
    gm = llama_graph(settings.layers)
    rules, plain = engine(), PlainPattern()
    whole = Whole(rules, gm)
    times = in_turn(
        {PLAIN: timed(lambda: plain.apply(gm.graph)), MATCHING: timed(lambda: sweep(rules, gm.graph)), WHOLE: whole},
        settings.runs,
    )
    sites = {PLAIN: plain.matches, MATCHING: len(sweep(rules, gm.graph).found), WHOLE: whole.fired}
    nodes, base = len(gm.graph.nodes), times[PLAIN]
    rows = tuple(
        (name, t.best_ms, t.median_ms, t.wall_ms, 1e3 * t.best_ms / nodes, t.to(base), sites[name])
        for name, t in times.items()
    )
    columns = (
        Column("what"), Column("CPU, best", "ms"), Column("CPU, median", "ms"), Column("wall, best", "ms"),
        Column("CPU a node", "us"), Column("to plain", "x"), Column("matches or sites"),
    )  # fmt: skip
    count = len(rules.library.patterns) + sum(map(len, rules.cleanup.patterns.values()))
    notes = (
        f"{settings.layers} layers, {nodes:,} nodes, {count} rules on; garbage collection is off in all rows",
        "the rules of the clean-up are in the last row; the graph of the others is as it was captured",
        "the quickest whole pass by stage, wall: "
        + ", ".join(f"{k} {1e3 * v:.0f} ms" for k, v in whole.stages().items()),
    )
    goal = Goal("reading, views and matching to one plain pattern", times[MATCHING].to(base), RATIO, "x")
    tables = [Table("matching", columns, rows, notes, (goal,)), _firing(whole)]
    return [*tables, _compiled(settings, times[WHOLE])] if settings.compile else tables


class Whole:
    """The whole pass on a copy of a graph. `fired`: sites of the last run."""

    def __init__(self, rules: Engine, gm: GraphModule):
        self.rules, self.gm = rules, gm
        self.fired = 0
        self.runs: list[dict[str, float]] = []

    def __call__(self, times: Times) -> None:
        """Copy, which does not count, and rewrite."""
        graph = copy.deepcopy(self.gm).graph
        with times.measure():
            made = self.rules.run(graph)
        self.fired = len(made.fired)
        self.runs.append(dict(made.seconds))

    def stages(self) -> dict[str, float]:
        """Seconds of each stage of the quickest run."""
        return min(self.runs, key=lambda stages: sum(stages.values()))


def _firing(whole: Whole) -> Table:
    """What the edits cost: planning, hosting, writing and checking, without clean-up, reading and matching."""
    best = 1e3 * min(stages["rewrite"] for stages in whole.runs)
    each = best / whole.fired
    columns = (Column("what"), Column("wall, best", "ms"), Column("sites"), Column("a site, hosted", "ms"))
    goal = Goal("rewriting a site, hosted", each, SITE, "ms")
    return Table("matching: firing", columns, (("planning and rewrites", best, whole.fired, each),), (), (goal,))


def _compiled(settings: Settings, whole: Times) -> Table:
    """The share of the pass in a compile from nothing, by plain Inductor."""
    from torch._functorch import config as functorch_config
    from torch._inductor import config as inductor_config
    from torch._inductor.utils import fresh_cache

    model, args = llama(settings.layers)
    torch._dynamo.reset()
    with (
        fresh_cache(),
        inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
        torch.no_grad(),
    ):
        start = time.perf_counter()
        torch.compile(model)(*args)
        cold = 1e3 * (time.perf_counter() - start)
    torch._dynamo.reset()
    share = 100 * whole.wall_ms / cold
    columns = (Column("what"), Column("wall", "ms"), Column("share", "%"))
    rows = (
        ("cold torch.compile, first call included", cold, 100.0),
        ("everything that the rules do", whole.wall_ms, share),
    )
    goal = Goal("the rules' share of a cold compile", share, SHARE, "%")
    return Table("matching: share of a cold compile", columns, rows, ("caches off and empty, one compile",), (goal,))
