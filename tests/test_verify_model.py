"""`fxrewrite verify --model`: each site of a model on its real inputs, and the model by its distance to float32."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor, nn
from torch.nn import functional as F

import bisected
import models
from fxrewrite.cli import cli
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.verify.captured import Captured, captured
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.float32 import run_wide
from fxrewrite.verify.model import check_model, checked_model
from test_counts import quantized

WRONG_IMPL = "fusion model_shifted(x: real[*B, D]) = tanh(erf(x))\n  impl mine  bisected.shifted(x)\n"


def exported(model: nn.Module, args: tuple[Tensor, ...]) -> Captured:
    with torch.no_grad():
        return captured(torch.export.export(model, args), args, {})


def judged(program: Captured, packs: Any = None, providers: tuple[str, ...] = ("op",)) -> list[Finding]:
    found: list[Finding] = []
    check_model(checked_model(program, make_pass(make_config(packs, providers=providers))), "a model", found.append)
    return found


def file_of(text: str) -> Any:
    file, wrong = parse(text, "model_rules.rw")
    assert not wrong
    return [file]


# ---- the zoo


@pytest.mark.parametrize(
    ("kind", "quant"),
    [
        pytest.param(k, q, marks=() if (k, q) in (("llama", "token"), ("phi3", "group 64")) else pytest.mark.slow)
        for k in models.KINDS
        for q in ("token", "static", "own scales", "group 64")
    ],
)
def test_the_sites_of_the_zoo_are_right(kind: str, quant: str) -> None:
    model, args = quantized(kind, quant)
    program = exported(model, args)
    found = judged(program)
    assert Counter(f.outcome for f in found) == {"passed": len(found)}, [f for f in found if f.outcome != "passed"]
    fused = [f for f in found if f.subject.startswith(("norm_quant.", "act_quant."))]
    assert len(fused) == 6 and all(f.counts and f.site and f.provider == "op" for f in fused)
    exact = run_wide(program)
    assert not exact.kept
    with torch.no_grad():
        assert torch.equal(exact.outputs[0], models.float32_copy(model)(*args)), (
            "the graph in float32 is the model in it"
        )
    assert "(1.000 x)" in found[-1].closest


# ---- wrong ones


class Pair(nn.Module):
    """Two sites of one fusion, the result of the first read by the second."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.erf(torch.tanh(torch.erf(x)) * 2))


def pair() -> tuple[nn.Module, tuple[Tensor]]:
    return Pair(), (bisected.rows()[0].bfloat16(),)


def test_a_wrong_provider_fails_at_its_sites_and_for_the_model() -> None:
    program = exported(*pair())
    found = judged(program, file_of(WRONG_IMPL), ("mine",))
    sites, whole = found[:-1], found[-1]
    assert [(f.check, f.outcome, f.code, f.site, f.provider) for f in sites] == [
        ("site", "failed", "RW607", "tanh", "mine"),
        ("site", "failed", "RW607", "tanh_1", "mine"),
    ]
    assert "at tanh (test_verify_model.py:" in sites[0].reason and "right is" in sites[0].reason
    assert all(f.script is None for f in sites), "the rule is right: no inputs of it are a counterexample"
    assert (whole.outcome, whole.code) == ("failed", "RW608") and "at most 1.1 x" in whole.reason


def test_each_site_is_judged_on_the_values_of_the_unrewritten_model() -> None:
    """With the first site wrong alone, the second gets what the model as it is computes there."""
    program = exported(*pair())
    rules = "rule model_first: tanh(erf(x)) * 2 => erf(x) * 2\nfusion model_pair(x: real[*B, D]) = tanh(erf(x))\n"
    found = judged(program, file_of(rules))
    assert [(f.subject.split(".")[-1], f.outcome) for f in found[:-1]] == [
        ("model_first", "failed"),
        ("model_pair", "passed"),
    ]
    script = found[0].script
    assert script is not None and "def reference(" in script


def test_a_wrong_rule_has_a_counterexample_that_runs_alone(tmp_path: Path) -> None:
    program = exported(*bisected.half())
    found = judged(program, file_of(bisected.rules()))
    failed = [f for f in found if f.outcome == "failed"]
    assert [(f.subject, f.site) for f in failed] == [("model_rules.bisected_wrong", "tanh")]
    assert found[-1].outcome == "not run" and "float32 already" in found[-1].reason
    path = tmp_path / "test_alone.py"
    path.write_text(failed[0].script or "")
    alone = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert alone.returncode == 1 and "AssertionError: out" in alone.stderr


class Heads(nn.Module):
    """Outputs of integers, of floats, and a call that takes no float32."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        bits = torch.tanh(x).view(torch.int16)
        return bits, F.silu(x)


def test_what_takes_no_float32_runs_as_it_is_and_is_named() -> None:
    program = exported(Heads(), (bisected.rows()[0].bfloat16(),))
    exact = run_wide(program)
    assert exact.kept == ("aten.view.dtype",)
    assert [t.dtype for t in exact.outputs] == [torch.int16, torch.float32]
    assert torch.equal(exact.outputs[0], program.run().outputs[0])


# ---- the command


def verify(*args: str) -> Result:
    return CliRunner().invoke(cli, ["verify", *args], catch_exceptions=False)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.rw").write_text(WRONG_IMPL)
    right = verify("mine.rw", "--model", "test_verify_model:pair")
    assert (right.exit_code, "3 checks (model" in right.output) == (0, True), right.output
    assert "test_verify_model:pair: rms distance to float32: " in right.output
    wrong = verify("mine.rw", "--model", "test_verify_model:pair", "--providers", "mine", "--json")
    told = json.loads(wrong.output)
    assert (wrong.exit_code, told["outcomes"]) == (1, {"failed": 3})
    assert [f["site"] for f in told["findings"] if f["check"] == "site"] == ["tanh", "tanh_1"]
    assert verify("norm_quant", "--model", "test_verify_model:pair").exit_code == 0
    assert verify("norm_quant", "--model", "test_verify_model:pair", "--strict").exit_code == 1
    assert verify("mine.rw", "--model", "test_verify_model:absent").exit_code == 2
