"""Matching as graphs and rules grow: linear in nodes, flat in rules that differ in a literal."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from benchmarks.graphs import decoder_graph, engine, sweep, variants_file
from benchmarks.report import Column, Goal, Table
from benchmarks.settings import Settings
from benchmarks.timing import in_turn, timed
from fxrewrite.lowering.engine import Engine

FLAT = 1.2  # of the most rules to one rule, on the largest graph
LINEAR = 1.4  # of the time a node on the largest graph to that on the smallest


def run(settings: Settings) -> list[Table]:
    """The table of nodes by rules."""
    graphs = {layers: decoder_graph(layers).graph for layers in settings.scale_layers}
    engines: dict[int, Engine] = {count: engine([variants_file(count)]) for count in settings.scale_rules}
    grid = list(product(graphs, engines))
    times = in_turn({str(at): timed(partial(sweep, engines[at[1]], graphs[at[0]])) for at in grid}, settings.runs)
    best = {at: times[str(at)].best_ms for at in grid}
    fewest, most, small, large = min(engines), max(engines), min(graphs), max(graphs)
    a_node = {at: 1e3 * best[at] / len(graphs[at[0]].nodes) for at in grid}
    rows: list[tuple[Any, ...]] = []
    for layers, count in grid:
        at, graph = (layers, count), graphs[layers]
        found = len(sweep(engines[count], graph).found)
        rows.append(
            (
                layers,
                len(graph.nodes),
                count,
                best[at],
                a_node[at],
                times[str(at)].to(times[str((layers, fewest))]),
                found,
            )
        )
    columns = (
        Column("layers"), Column("nodes"), Column("rules"), Column("CPU, best", "ms"), Column("CPU a node", "us"),
        Column("to fewest rules", "x"), Column("matches"),
    )  # fmt: skip
    longer = len(graphs[large].nodes) / len(graphs[small].nodes)
    growth = times[str((large, fewest))].to(times[str((small, fewest))]) / longer
    goals = (
        Goal(
            f"{most} rules to {fewest}, {large} layers",
            times[str((large, most))].to(times[str((large, fewest))]),
            FLAT,
            "x",
        ),
        Goal(f"time a node, {large} layers to {small}", growth, LINEAR, "x"),
    )
    return [Table("scaling", columns, tuple(rows), ("rules differ in their eps; reading, views and matching",), goals)]
