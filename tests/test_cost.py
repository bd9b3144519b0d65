"""What matching costs, counted and not timed: attempts and values grow with the graph, and not with the rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch.fx import Graph

from benchmarks.graphs import decoder_graph, engine, sweep, variants_file
from fxrewrite.lowering.engine import Engine
from fxrewrite.patterns.values import Table
from fxrewrite.patterns.views import Sweep


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Attempts to match, and values made, while the context lasts."""
    counts = {"attempts": 0, "values": 0}
    attempt, fresh = Sweep.attempt, Table.fresh

    def counted_attempt(self: Sweep, *args: object) -> None:
        counts["attempts"] += 1
        attempt(self, *args)  # type: ignore[arg-type]

    def counted_fresh(self: Table, *args: object, **named: object) -> object:
        counts["values"] += 1
        return fresh(self, *args, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "attempt", counted_attempt)
        patch.setattr(Table, "fresh", counted_fresh)
        yield counts


def cost(rules: Engine, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    with counting(monkeypatch) as counts:
        assert sweep(rules, graph).found
    return counts


def test_linear_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = engine()
    graphs = [decoder_graph(layers).graph for layers in (4, 8, 16)]
    costs = [cost(rules, graph, monkeypatch) for graph in graphs]
    for what in ("attempts", "values"):
        a, b, c = (found[what] for found in costs)
        assert c - b <= 2 * (b - a) * 1.01, what  # twice the layers, twice the growth
    assert costs[-1]["values"] <= 1.1 * len(graphs[-1].nodes)  # 0.99 when this was written
    assert costs[-1]["attempts"] <= 0.9 * len(graphs[-1].nodes)  # 0.74


def test_flat_in_rules_that_differ_in_a_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = decoder_graph(4).graph
    one, many = (cost(engine([variants_file(count)]), graph, monkeypatch) for count in (1, 300))
    assert many["values"] == one["values"]
    assert many["attempts"] <= 1.2 * one["attempts"]
