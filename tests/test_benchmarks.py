"""The benchmarks run and say what they promise; what they show of literals is right, not only quick."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import graphs, matching, registration, scaling, startup
from benchmarks.__main__ import NAMES, main
from benchmarks.report import Column, Goal, Machine, Table
from benchmarks.settings import SMALL, Settings
from fxrewrite.dsl.parse import parse
from fxrewrite.patterns.forms import Numbered
from fxrewrite.patterns.guards import same


def figures(table: Table, name: str) -> list[Any]:
    """A column of a table."""
    (i,) = (i for i, c in enumerate(table.columns) if c.name == name)
    return [row[i] for row in table.rows]


def well_formed(tables: list[Table]) -> None:
    for table in tables:
        assert table.title and table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        text = "\n".join(table.lines())
        assert all(c.head in text for c in table.columns)
        for i, column in enumerate(table.columns):
            if column.unit:
                assert all(row[i] is None or row[i] >= 0 for row in table.rows)
        json.dumps(table.to_json())


@pytest.mark.slow
def test_matching_finds_what_the_plain_pattern_finds() -> None:
    table, firing = matching.run(attrs.evolve(SMALL, layers=8))
    well_formed([table, firing])
    assert figures(firing, "sites") == [3 * 8]
    plain, _, everything = figures(table, "matches or sites")
    assert plain == 5 * 8  # q, k, v and gate, up each see a norm
    assert everything == 3 * 8
    (goal,) = table.goals
    assert goal.value <= 2.5


def test_registration_fires_every_variant_either_way() -> None:
    (table,) = registration.run(SMALL)
    well_formed([table])
    assert figures(table, "sites fired") == [SMALL.sites] * 2 * len(SMALL.variants)
    assert all(ratio > 1 for ratio in figures(table, "to ours")[1::2])


@pytest.mark.slow
def test_startup_measures_processes() -> None:
    tables = startup.run(SMALL)
    well_formed(tables)
    assert not [note for note in tables[0].notes if note.startswith("failed")]
    walls = dict(zip(figures(tables[0], "process"), figures(tables[0], "wall, best")))
    assert walls[startup.COLD] > walls[startup.SHIPPED] > walls[startup.HELP]


def test_scaling_counts_the_same_matches_with_more_rules() -> None:
    (table,) = scaling.run(SMALL)
    well_formed([table])
    for layers, matches in zip(figures(table, "layers"), figures(table, "matches")):
        assert matches == 2 * layers
    assert table.goals[0].value <= 2


@pytest.mark.parametrize("variants", [1, 2, 6])
def test_each_rule_of_many_literals_finds_its_own_sites_and_no_others(variants: int) -> None:
    rules = graphs.engine([graphs.variants_file(variants)])
    run = rules.run(graphs.norm_graph(6, 4).graph)
    found = Counter(f.rule.name for f, _ in run.fired)
    assert found == {f"v{i}": len(range(i, 6, 4)) for i in range(min(variants, 4))}


def test_a_literal_is_found_as_the_float32_that_a_graph_holds() -> None:
    """Numbers at the border of their first digits, where rounding to float32 goes to either side."""
    numbers = [1.00005e-6, 1.00015e-6, 9.99995e-6, 1e-5, 0.5, 1.0, 3.0]
    lines = [f"fusion v{i}(x, w) = rms_norm(x, w, eps={eps!r}) |> quant_fp8" for i, eps in enumerate(numbers)]
    file, problems = parse("\n".join(["pack borders level O1", *lines]) + "\n", "borders.rw")
    assert not problems
    rules = graphs.engine([file])
    for i, eps in enumerate(numbers):
        for written in (eps, struct.unpack("f", struct.pack("f", eps))[0]):
            run = rules.run(graphs.norm_chain([written]).graph)
            assert [f.rule.name for f, _ in run.fired] == [f"v{i}"], written


def test_no_equal_number_is_lost_among_literals() -> None:
    @attrs.define(eq=False)
    class Rule:
        numbers: tuple[tuple[int, float], ...]

    rng = random.Random(0)
    for _ in range(2000):
        wanted = rng.choice([-1, 1]) * 10 ** rng.uniform(-30, 30)
        if rng.random() < 0.5:
            wanted = float(f"{wanted:.3e}") + rng.choice([-1, 1]) * 5e-5 * 10 ** int(f"{wanted:e}".partition("e")[2])
        rule, index = Rule(((1, wanted),)), Numbered()
        index.add(rule)  # type: ignore[arg-type]
        for have in (
            wanted,
            wanted * (1 + 5.9e-8),
            wanted * (1 - 5.9e-8),
            struct.unpack("f", struct.pack("f", wanted))[0],
        ):
            assert not same(wanted, have) or index.under([(None, have)]) == [rule]
        assert index.under([(None, wanted * 1.001)]) == index.under([(None, None)]) == index.under([(None, True)]) == []


def test_integers_and_floats_are_one_number() -> None:
    @attrs.define(eq=False)
    class Rule:
        numbers: tuple[tuple[int, float], ...]

    rule, index = Rule(((0, 1), (2, 0.0))), Numbered()
    index.add(rule)  # type: ignore[arg-type]
    assert index.under([(1.0, None, 0)]) == [rule]
    assert index.under([(1.0, None, 1)]) == []


def test_every_benchmark_is_listed_and_an_unknown_one_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["nothing"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert all(name in error for name in NAMES)


@pytest.mark.slow
def test_json_holds_the_machine_and_each_figure_with_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "--small", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"cpu", "cores", "torch"} <= found["machine"].keys()
    (table,) = found["benchmarks"]["scaling"]
    assert {"name": "CPU, best", "unit": "ms"} in table["columns"]
    assert len(table["rows"]) == len(SMALL.scale_layers) * len(SMALL.scale_rules)


def test_tables_show_units_and_goals() -> None:
    table = Table(
        "t", (Column("what"), Column("time", "ms")), (("a", 1234.5), ("b", None)), (), (Goal("x", 2.0, 1.5, "x"),)
    )
    text = "\n".join(table.lines())
    assert "time [ms]" in text and "1,234" in text and "MISSED: x: 2.00 x, at most 1.50 x" in text
    assert Machine.here().torch in Machine.here().line()
    assert Settings().layers == 32
