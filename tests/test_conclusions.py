"""`fxrewrite check --explain RULE`: what the checker concluded is told, with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fxrewrite.cli import cli

MINE = """use norm_quant (rms_norm_fp8_static)
op old(x: lowp[T, D]; qt: dtype in fp8 = e4m3fn) -> (qx: qt[T, D], sx: f32[T, D//96])
  ref "p:old"
rule r: old(x) => quant_fp8_group(x, G=96, ue8m0=false, L="row")
fusion inner(x, w) = rms_norm(x, w, late=false) |> silu
  requires D % 16 == 0
## Two ops in one.
fusion outer(x, r, w; twice: bool) level O2 flag mine over other = inner(y, w), t
  where keep y = gelu(x), t = silu_mul(y, r, wide=twice)
fusion other(x) = gelu(x) |> gelu
rule drops: rms_norm(x, w, eps=_, late=false, vs=none) |> quant_fp8_static(s) => rms_norm_fp8_static(x, w, s, eps=1e-6)
  prefer tokens <= 64
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.rw").write_text(MINE)
    return lambda *args: CliRunner().invoke(cli, ["check", "mine.rw", "--explain", *args], prog_name="fxrewrite")


@pytest.fixture
def concluded(told: Callable[..., Result]) -> Callable[[str], dict[str, Any]]:
    def one(name: str) -> dict[str, Any]:
        result = told(name, "--json")
        assert result.exit_code == 0, result.output
        (made,) = json.loads(result.output)["conclusions"]
        return made

    return one


def test_a_guard_is_told_with_what_it_comes_from(concluded: Callable[[str], dict[str, Any]]) -> None:
    guards = concluded("mine.r")["guards"]
    assert [(g["condition"], g["origin"]) for g in guards] == [("D%96 == 0", "`requires` of quant_fp8_group")]
    assert (guards[0]["at"]["line"], guards[0]["at"]["column"]) == (4, 19)
    (inner,) = concluded("inner")["guards"]
    assert (inner["condition"], inner["origin"]) == ("D%16 == 0", "`requires` of this fusion")
    (outer,) = concluded("outer")["guards"]
    assert (outer["condition"], outer["origin"]) == ("D%16 == 0", "`requires` of inner")


def test_attributes_say_what_becomes_of_them(concluded: Callable[[str], dict[str, Any]]) -> None:
    outer = {a["name"]: (a["how"], tuple(a["ops"])) for a in concluded("outer")["attributes"]}
    assert outer["twice"] == ("own", ("silu_mul",))
    assert outer["eps"] == ("inherited", ("rms_norm",))
    assert outer["late"] == ("pinned", ("rms_norm",))
    drops = {a["name"]: (a["how"], a["value"]) for a in concluded("drops")["attributes"]}
    assert drops["eps"] == ("dropped", "")
    assert drops["vs"] == ("pinned", "none")
    assert drops["recip"] == ("inherited", "false")


def test_names_policy_and_rivals(concluded: Callable[[str], dict[str, Any]]) -> None:
    outer = concluded("outer")
    assert outer["policy"] == {"level": "O2", "flag": "mine", "stage": "fuse", "over": "other", "contract": "faithful"}
    assert outer["doc"] == "Two ops in one."
    parts = {p["name"]: p["notes"] for p in outer["parts"]}
    assert parts["y"] == ["kept: others may use it"]
    assert parts["t"] == ["an output"]
    assert [(o["name"], o["type"]) for o in outer["operands"]] == [
        ("x", "lowp[*B, D]"),
        ("r", "lowp[*B, D]"),
        ("w", "real[D]"),
    ]
    assert "fewer ops" in outer["ends"]
    drops = concluded("drops")
    assert drops["prefer"] == ["tokens <= 64"]
    assert drops["kind"] == "rule"


def test_a_rival_is_told_with_who_wins(told: Callable[..., Result]) -> None:
    text = "fusion one(x, w) over two = rms_norm(x, w) |> gelu |> silu\n"
    text += "fusion two(x, w) = rms_norm(x, w) |> gelu |> silu\n"
    Path("rivals.rw").write_text(text + "fusion large(x, w) = rms_norm(x, w) |> gelu |> silu |> quant_fp8\n")
    found = CliRunner().invoke(cli, ["check", "rivals.rw", "--explain", "two", "--json"])
    (made,) = json.loads(found.output)["conclusions"]
    assert [(r["rule"], r["how"], r["wins"].partition(":")[0]) for r in made["rivals"]] == [
        ("rivals.one", "the same left side", "rivals.one"),
        ("rivals.large", "its left side holds this one", "rivals.large"),
    ]


def test_text(told: Callable[..., Result]) -> None:
    result = told("mine.r")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "rule mine.r  (mine.rw:4:1)"
    assert "  D%96 == 0  from `requires` of quant_fp8_group  4:19" in lines
    assert "ends because:" in lines


def test_a_fusion_of_the_vocabulary_declares_only(told: Callable[..., Result]) -> None:
    found = CliRunner().invoke(cli, ["check", "norm_quant", "--explain", "fused_silu_quant"])
    assert "fires no: the vocabulary declares only" in found.output


def test_what_is_not_there_and_what_is_wrong(told: Callable[..., Result]) -> None:
    result = told("outr")
    assert result.exit_code == 2
    assert "did you mean `outer`?" in result.output
    Path("mine.rw").write_text("fusion outer(x) = sillu(x) |> gelu\n")
    result = told("outer")
    assert result.exit_code == 1
    assert "unknown op `sillu`" in result.output
    assert told("r", "--format", "sarif").exit_code == 2
