"""Natives and refs: only what an installed package lists is called; a file of rules cannot name anything else."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import capture
from fxrewrite.dsl import packs, registered
from fxrewrite.dsl.core import Apply, Dtype, Lit
from fxrewrite.dsl.evaluate import EvaluationError, evaluate
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.facts import doubled
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config, rule_status
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.library import op_for
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.events import record
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.values import Table

X = torch.randn(4, 64).bfloat16()


def file_of(text: str) -> Any:
    file, diagnostics = parse(text, "hostile.rw")
    assert not diagnostics
    return file


def hostile(tmp_path: Path) -> tuple[Any, Path]:
    """A module that leaves a mark when it is imported, and a pack whose native, ref and impl name it and os.system."""
    mark = tmp_path / "ran"
    (tmp_path / "hostile_module.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef f(*a, **k): return True\n")
    return file_of(
        f"""native run(command: str) -> bool from "os:system"
native mine(n: int) -> bool from "hostile_module:f"
op evil(x: lowp[*B, D]) -> lowp[*B, D]
  ref "hostile_module:f"
fusion one(x) = silu(silu(x))
  requires run("touch {mark}")
fusion two(x) = silu(gelu(x))
  requires mine(D)
"""
    ), mark


def test_a_hostile_pack_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, mark = hostile(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program = packs.load([file])
    rewrite = make_pass(make_config([file], providers=["op"]))
    silu = torch.nn.functional.silu
    gm = capture.make_fx_graph(lambda x: (silu(silu(x)), silu(torch.nn.functional.gelu(x))), (X,))
    with record() as log:
        rewrite(gm.graph)
    assert not log.fired()
    with pytest.raises(EvaluationError, match='no package registers its ref "hostile_module:f"'):
        evaluate(program, "evil", [X], {}, Torch())
    with pytest.raises(EvaluationError):
        op_for(program, "evil")(X)
    assert not mark.exists()
    assert "hostile_module" not in sys.modules


def test_a_rule_with_an_unknown_native_is_off_with_one_line(tmp_path: Path) -> None:
    file, _ = hostile(tmp_path)
    program = packs.load([file])
    statuses = {r.name: rule_status(program, r, make_config([file])) for r in program.rules}
    assert {n: (s.on, s.reason) for n, s in statuses.items()} == dict.fromkeys(
        ("one", "two"), (False, "missing native")
    )
    assert statuses["one"].by == 'no installed package registers the native "os:system"'


def test_checking_a_file_imports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hostile.rw"
    mark = tmp_path / "ran"
    path.write_text(
        'native f(n: int) -> bool from "hostile_module:f"\nop g(x: lowp[*B, D]) -> lowp[*B, D]\n  ref "a.b:c"\n'
    )
    (tmp_path / "hostile_module.py").write_text(f"open({str(mark)!r}, 'w').close()")
    run = subprocess.run(
        [sys.executable, "-m", "fxrewrite", "check", str(path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not mark.exists()


def test_our_own_are_listed() -> None:
    assert registered.function(registered.NATIVES, "fxrewrite.facts:doubled") is doubled
    refs = {v.removeprefix("fxrewrite.ref:") for v in registered.listed(registered.REFS)}
    assert {"attention", "scaled_mm", "rope", "rope_q", "mrope"} <= refs
    assert registered.function(registered.NATIVES, "fxrewrite.ref:rope") is None  # a ref is no native
    assert registered.function(registered.NATIVES, "os:system") is None


class Listed:
    """An entry point of a package that is not installed here."""

    def __init__(self, value: str, found: Any):
        self.value, self.group, self.found = value, registered.NATIVES, found

    def load(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    monkeypatch.setattr(registered, "listed", lambda group: found if group == registered.NATIVES else {})
    registered._function.cache_clear()
    monkeypatch.setattr(registered, "_function", registered._function.__wrapped__)
    return found


def test_a_listed_native_answers_conditions(listing: dict[str, Any]) -> None:
    given: list[Any] = []

    def f(*args: Any) -> bool:
        given.append(args)
        return True

    listing["mylib:f"] = Listed("mylib:f", f)
    asked = Apply("native:mylib:f", (Lit(3), Lit("a"), Dtype("bf16")))
    assert SiteEnv(lambda name: None).holds(asked) is True
    assert given == [(3, "a", Dtype("bf16"))]


def broken(n: int) -> bool:
    raise ValueError(n)


def test_what_raises_passes(listing: dict[str, Any]) -> None:
    listing["mylib:f"] = Listed("mylib:f", broken)
    with pytest.raises(registered.NativeFailed, match=r'^the native "mylib:f" raised ValueError: 3$'):
        SiteEnv(lambda name: None).holds(Apply("native:mylib:f", (Lit(3),)))


@pytest.mark.parametrize(
    ("found", "warns"),
    [(ImportError("no such module"), True), (lambda n: None, False), ("no function", False)],
)
def test_what_fails_is_unknown(
    listing: dict[str, Any], found: Any, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listing["mylib:f"] = Listed("mylib:f", found)
    with caplog.at_level(logging.WARNING, "fxrewrite.dsl.registered"):
        held = SiteEnv(lambda name: None).holds(Apply("native:mylib:f", (Lit(3),)))
    assert held is UNKNOWN
    assert bool(caplog.records) == warns


# ---- doubled


def value_of(fn: Any, *args: torch.Tensor) -> Any:
    gm = capture.make_fx_graph(fn, args)
    table = Table()
    for node in gm.graph.nodes:
        read_node(table, node)
    return table.of_node[next(iter(reversed(gm.graph.nodes))).args[0]]


def test_doubled() -> None:
    freqs = torch.randn(6, 32)
    assert doubled(value_of(lambda f: (torch.cat([f, f], -1).cos() * 1.5).bfloat16().unsqueeze(1), freqs)) is True
    assert doubled(value_of(lambda f: torch.cat([f, f + 1], -1).cos(), freqs)) is None
    assert doubled(value_of(lambda f: torch.cat([f, f], 0).cos(), freqs)) is None
    assert doubled(value_of(lambda f: torch.cat([f, f], -1) * torch.cat([f, f + 1], -1), freqs)) is None  # two operands
    assert doubled(value_of(lambda f: f.cos(), freqs)) is None
    assert doubled(torch.cat([freqs, freqs], -1)) is True
    assert doubled(freqs) is False


def test_a_native_is_asked_at_each_site(listing: dict[str, Any]) -> None:
    """Two operands of one type are two questions: a native may look at the value itself."""
    listing["mylib:gain"] = Listed("mylib:gain", lambda x: {"x": 2.0, "y": 3.0}.get(str(x.attrs[0]), 0.0))
    file = file_of(
        'native gain(x: lowp[*B, D]) -> float from "mylib:gain"\n'
        "fusion amplified(x: lowp[*B, D]) = exp(abs(x) * gain(x))\n"
    )

    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.exp(x.abs() * 2.0), torch.exp(y.abs() * 2.0)

    gm = capture.make_fx_graph(model, (X, X.clone()))
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), "xy", strict=True):
        node.target = name
    with record() as log:
        make_pass(make_config([file], providers=["op"]))(gm.graph)
    assert [e.fired for e in log.events if e.rule == "amplified" and e.fired] == [True]


def test_a_native_in_the_requirements_of_a_fusion_lets_it_fire(listing: dict[str, Any]) -> None:
    file = file_of(
        'native large(n: int) -> bool from "mylib:large"\n'
        "fusion asked(x: lowp[*B, D]) = exp(abs(x) * 2.0) requires large(rows(x))\n"
    )

    def fired(answer: bool) -> bool:
        listing["mylib:large"] = Listed("mylib:large", lambda n: answer)
        gm = capture.make_fx_graph(lambda x: torch.exp(x.abs() * 2.0), (X,))
        with record() as log:
            make_pass(make_config([file], providers=["op"]))(gm.graph)
        return any(e.fired for e in log.events)

    assert fired(True) and not fired(False)
