"""The examples run, and show what they say they show."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import author_a_rule
import bind_your_op
import call_fused_op
import demo
import fp8_linear
import load_in_backend
import models
from fxrewrite.lowering.proofs import VARIABLE
from fxrewrite.patterns.events import Event, Log


@pytest.fixture(autouse=True)
def as_a_user_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable that lets the stubs of other tests be used: the ops of the examples are proved."""
    monkeypatch.delenv(VARIABLE, raising=False)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_author_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    author_a_rule.main()
    first, second, third = shown(capsys).replace("\n3. ", "\n2. ").split("\n2. ")
    assert "RW205" in first and "did you mean `quant_fp8`?" in first and "^^^^^^^^^" in first
    assert "relu2_fp8  1 of 1 sites  (provider: op)" in second and "the same bytes" in second
    assert "relu2_fp8  0 of 1 sites" in third and "shared value" in third and "author_a_rule.rw:8" in third


def test_author_a_rule_on_hostile_rows() -> None:
    x = torch.tensor([[0.0, -0.0, 1e-30, -1.0] * 16, [448.0, -448.0, 3.0, 1e4] * 16]).bfloat16()
    program, log = author_a_rule.rewrite(author_a_rule.Activation(), x)
    assert log.fired()["relu2_fp8"] == 1
    for a, b in zip(author_a_rule.Activation()(x), program.module()(x), strict=True):
        assert torch.equal(a.float(), b.float())


def test_bind_your_op(capsys: pytest.CaptureFixture[str]) -> None:
    bind_your_op.main()
    text = shown(capsys)
    assert "width 64: {'rms_norm_fp8': 'mine', 'add_rms_norm_fp8': 'mine'}, the same bytes" in text
    assert "width 40: {'rms_norm_fp8': 'op', 'add_rms_norm_fp8': 'op'}, the same bytes" in text
    assert "provider missing: found mine:" in text and "here D = 40 is false" in text


def test_call_fused_op(capsys: pytest.CaptureFixture[str]) -> None:
    call_fused_op.main()
    text = shown(capsys)
    assert "fused_silu_quant: (4, 64) torch.float8_e4m3fn, (4, 1) torch.float32" in text
    assert "did you mean `eps`?" in text and "as autograd has it" in text


@pytest.mark.slow
def test_load_in_backend(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = load_in_backend.main()
    text = shown(capsys)
    assert text.count("'rms_norm_fp8': 1") == 3 and text.count("'fused_silu_quant': 1") == 2
    assert torch.equal(outputs["a backend"], outputs["options of Inductor"])


# ---- the demo: its parts here, the whole by `make demo`


def outcome(fired: dict[str, int], distance: float = 1.0, reasons: tuple[str, ...] = ()) -> demo.Outcome:
    events = [Event("p", rule, f"n{i}", True) for rule, n in fired.items() for i in range(n)]
    events += [Event("p", "r", f"m{i}", False, reason) for i, reason in enumerate(reasons)]
    return demo.Outcome(Log([*events, Event("noop", "reshape_same", "v", True)]), 1.0, 1.0, distance, 1.0)


def test_demo_says_what_is_wrong() -> None:
    case = demo.Case("x", "llama", "token", {"rms_norm_fp8": 1}, why={demo.KEPT: 1}, off=True)
    assert demo.problems(case, outcome({"rms_norm_fp8": 1}, reasons=(demo.KEPT,))) == []
    assert demo.problems(case, outcome({"rms_norm_fp8": 2}, reasons=(demo.KEPT,))) == [
        "rms_norm_fp8: 2 sites, expected 1"
    ]
    assert demo.problems(case, outcome({"rms_norm_fp8": 1, "other": 1}, reasons=(demo.KEPT,))) == [
        "other: 1 sites, expected 0"
    ]
    assert "expected 1" in demo.problems(case, outcome({"rms_norm_fp8": 1}))[0]
    assert "distance" in demo.problems(case, outcome({"rms_norm_fp8": 1}, 1.11, (demo.KEPT,)))[0]
    assert demo.problems(case, outcome({"rms_norm_fp8": 1}, float("nan"), (demo.KEPT,)))


def test_demo_expects_what_the_layers_demand() -> None:
    expected = {c.title: dict(c.expected) for c in demo.cases()}
    token = {"rms_norm_fp8": 1, "add_rms_norm_fp8": 3}
    assert expected["Llama, per token"] == {**token, "silu_mul_fp8": 2}
    assert expected["Gemma 3, per token"] == {**token, "gelu_mul_fp8": 2}
    assert expected["Llama, one line"] == {} and sum(expected["Phi-3, one line"].values()) == 2


@pytest.mark.slow
def test_demo_runs_a_case_and_a_warm_cache_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """One case through the processes, with the numbers and the exit code; the model is compiled twice."""
    (case,) = [c for c in demo.cases() if c.cached]
    assert demo.run(chosen=[case]) == 0
    text = shown(capsys)
    assert "cached, not run" in text and "all as expected" in text and "norm_quant.rms_norm_fp8_static  1 of" in text


# ---- the models of the examples


@pytest.mark.parametrize("kind", ["token", "static", "group"])
def test_fp8_linear_is_close_to_the_linear(kind: str) -> None:
    torch.manual_seed(0)
    model = models.make("llama", layers=1)
    (ids,) = models.inputs(model)
    want: Tensor = model(ids)
    got: Tensor = fp8_linear.quantize(model, kind)(ids)
    assert (got - want).float().norm() < 0.3 * want.float().norm()
