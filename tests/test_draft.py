"""`fxrewrite draft`: a Python function as `.rw` text that is right and fires on the graph that it came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor
from torch.nn import functional as F

import fxrewrite
from fxrewrite.cli import cli
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.draft import Undraftable, draft, trace

SIZES = {8: "T", 256: "D"}
BF16 = torch.bfloat16


def norm_quant(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    wide = x.float()
    y = w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    return (y.float() / s).clamp(-448, 448).to(torch.float8_e4m3fn)


def gate(x: Tensor) -> Tensor:
    g, u = x.chunk(2, -1)
    return F.silu(g) * u


def unknown(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    h = x + r
    return torch.tanh(h) * h + h.float().exp().sum(-1, keepdim=True), h


def rotate(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * c + torch.cat([-b, a], -1) * s


def steps(x: Tensor) -> Tensor:
    return -(x[:, ::2] - 2.0) * (x[:, 1::2] / (x[:, ::2].clamp(min=0.5) - x[:, 1::2].clamp(-1, 1)))


def shapes(x: Tensor) -> Tensor:
    return (x.reshape(8, 2, 128).transpose(0, 1).float().amax(-1) - 1).expand(3, 2, 8) + 1


def shared(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    scale = (x.abs().amax(-1, keepdim=True).float() / 448.0).clamp(min=1e-12)
    return (scale * s, (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale)


def composite(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, (256,), w, 1e-6) + F.gelu(x, approximate="tanh")


def several(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return F.silu(x), x * 2, x.float() * 3, y, y


def vector(n: int = 256) -> Tensor:
    return torch.randn(n, dtype=BF16)


def rows() -> Tensor:
    return torch.randn(8, 256, dtype=BF16)


CASES: dict[str, tuple[Callable[..., object], list[Tensor]]] = {
    "norm_quant": (norm_quant, [rows(), vector(), torch.ones(1)]),
    "gate": (gate, [rows()]),
    "unknown": (unknown, [rows(), rows()]),
    "rotate": (rotate, [rows(), rows(), rows()]),
    "steps": (steps, [rows()]),
    "shapes": (shapes, [rows()]),
    "composite": (composite, [rows(), vector()]),
    "several": (several, [rows()]),
    "shared": (shared, [rows(), torch.ones(1)]),
}


def drafted(function: Callable[..., object], args: list[Tensor]) -> str:
    return draft(trace(function, args), "drafted", ["x", "y", "z"][: len(args)], SIZES)


def test_ops_of_the_vocabulary_are_written_as_such() -> None:
    assert drafted(*CASES["norm_quant"]) == "fusion drafted(x, y, z) = rms_norm(x, y) |> quant_fp8_static(z)\n"
    assert drafted(*CASES["gate"]) == "fusion drafted(x) = silu_and_mul(x)\n"


def test_what_has_no_literal_is_said() -> None:
    with pytest.raises(Undraftable, match="inf"):
        drafted(lambda x: x * float("inf"), [rows()])


def test_what_is_too_long_for_a_rule_is_said() -> None:
    def chain(x: Tensor) -> Tensor:
        for i in range(300):
            x = x * 1.5 + i
        return x

    with pytest.raises(Undraftable, match="longer chain"):
        drafted(chain, [rows()])


def test_an_op_of_a_view_alone_is_not_made_of_its_own_result() -> None:
    gm = trace(lambda x: (x + 1).reshape(2048), [rows()])
    file, _ = parse("fusion viewed(x: lowp[T, D]) = reshape(x, [2048])\n", "viewed.rw")
    with fxrewrite.record() as log:
        fxrewrite.rewrite(gm, packs=[file], providers=["op"])
    gm.graph.lint()
    assert [e.reason for e in log.events if e.rule == "viewed"] == ["cycle"]


def test_the_rest_is_written_in_primitives_with_types_and_names() -> None:
    assert drafted(*CASES["unknown"]) == (
        "fusion drafted(x: lowp[T, D], y: lowp[T, D])"
        " = f32(tanh(t) * t) + sum(exp(f32(t)), -1, keepdim=true), t\n"
        "  where t = x + y\n"
    )


@pytest.mark.parametrize("case", CASES)
def test_a_draft_fires_where_it_came_from_and_is_the_function(case: str) -> None:
    function, args = CASES[case]
    gm = trace(function, args)
    text = draft(gm, "drafted", ["x", "y", "z"][: len(args)], SIZES)
    file, wrong = parse(text, "drafted.rw")
    assert wrong == []
    with fxrewrite.record() as log:
        fxrewrite.rewrite(gm, [file], providers=["op"])
    assert [(e.rule, e.fired) for e in log.events if e.fired] == [("drafted", True)], text + log.report()
    with torch.no_grad():
        got, want = gm(*args), function(*args)
    for a, b in zip(_all(got), _all(want), strict=True):
        assert torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _all(results: Any) -> list[Tensor]:
    return list(results) if isinstance(results, tuple) else [results]


# ---- the verb


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The verb, in a folder with a module `mine`."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def gate(x, scale=None):\n"
        "    g, u = x.chunk(2, -1)\n"
        "    y = torch.nn.functional.silu(g) * u\n"
        "    return y if scale is None else y * scale\n"
        "def silu(x): return torch.tanh(x)\n"
        "def sorts(x): return torch.sort(x)[0]\n"
        "def Loud(x): return x + 1\n"
        "def fails(x): raise ValueError('no')\n"
        "value = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda *args: CliRunner().invoke(cli, ["draft", *args], prog_name="fxrewrite")


def test_the_verb_writes_a_file_that_checks(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("mine:gate", "--input", "bf16[T=8, N=256]", "--name", "my_gate")
    assert result.exit_code == 0, result.output
    assert "fusion my_gate(x) = silu_and_mul(x)\n" in result.output
    assert "# checked; it fires on the graph that it came from\n" in result.output
    (tmp_path / "mine.rw").write_text(result.output)
    checked = CliRunner().invoke(cli, ["check", "mine.rw"])
    assert checked.exit_code == 0, checked.output


def test_numbers_are_inputs_too_and_json(run: Callable[..., Result]) -> None:
    result = run("mine:gate", "--input", "bf16[T=8, N=256]", "--input", "2.0", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["findings"] == [] and "silu_and_mul(x) * 2.0" in found["text"]


def test_a_draft_that_is_wrong_says_so(run: Callable[..., Result]) -> None:
    result = run("mine:silu", "--input", "bf16[8, 256]")
    assert result.exit_code == 1
    assert "RW208" in result.output and "choose another name" in result.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["mine:gate"], "takes 1 arguments, and there are 0 inputs"),
        (["mine:absent", "--input", "f32[1]"], "has no function 'absent'"),
        (["absent:gate"], "there is no module absent"),
        (["mine"], "write module:function"),
        (["mine:value"], "has no function 'value'"),
        (["mine:sorts", "--input", "f32[8]"], "aten.sort"),
        (["mine:Loud", "--input", "f32[8]"], "--name"),
        (["mine:fails", "--input", "f32[8]"], "ValueError: no"),
        (["mine:gate", "--input", "bf17[8]"], "bf17 is no dtype"),
        (["mine:gate", "--input", "bf16[T]"], "a size is a number"),
        (["mine:gate", "--input", "bf16[T=8, D=8]"], "8 is T and D"),
        (["mine:gate", "--input", "bf16[T=8, T=16]"], "T has two sizes"),
        (["mine:gate", "--input", "what"], "is no input"),
    ],
)
def test_misuse_is_said(run: Callable[..., Result], args: list[str], said: str) -> None:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert said in result.output + result.stderr
