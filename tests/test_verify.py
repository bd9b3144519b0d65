"""The command `verify`: what it prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fxrewrite.cli import cli

WRONG = """pack wrong_tie level O1

rule tie_by_reciprocal(x: lowp[*B, D], s: f32[1]):
  to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)
  => to(clamp(f32(x) * reciprocal(s), -448.0, 448.0), e4m3fn)
"""
ELSEWHERE = """pack elsewhere level O1

op far_away(x: lowp[*B, D]) -> lowp[*B, D]
  = x * 2.0
  form theirs  nowhere_lib.double(x)
"""


@pytest.fixture
def folder(files_here: Callable[[dict[str, str]], Path]) -> Path:
    return files_here({"wrong.rw": WRONG, "elsewhere.rw": ELSEWHERE})


def verify(*args: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "--jobs", "1", *args], catch_exceptions=False)


def test_a_wrong_rule_fails_with_a_script_that_fails_alone(folder: Path) -> None:
    result = verify("wrong.rw", "--json", "-k", "equal")
    assert result.exit_code == 1
    told = json.loads(result.output)
    (finding,) = told["findings"]
    assert (finding["outcome"], finding["code"], finding["line"]) == ("failed", "RW601", 3)
    assert told["outcomes"] == {"failed": 1}
    script = folder / finding["script"]
    alone = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert "AssertionError: out[0, 0" in alone.stderr
    assert verify("wrong.rw", "--replay", str(script)).exit_code == 1


def test_a_mended_rule_passes_the_replay(folder: Path) -> None:
    script = json.loads(verify("wrong.rw", "--json", "-k", "equal").output)["findings"][0]["script"]
    wrong, _, _ = WRONG.partition("  => ")
    (folder / "wrong.rw").write_text(wrong + "  => quant_fp8_static(x, s)\n")
    result = verify("wrong.rw", "--replay", script)
    assert (result.exit_code, "holds on" in result.output) == (0, True), result.output


def test_what_cannot_be_tried_says_why_and_fails_where_it_must(folder: Path) -> None:
    result = verify("elsewhere.rw")
    assert result.exit_code == 0
    assert "nowhere_lib.double" in result.output
    assert "1 not run" in result.output
    assert verify("elsewhere.rw", "--strict").exit_code == 1


RANKS = """
pack ranks level O1
op leading(x: f32[*B, D]) -> (y: f32[*B, D])
  = neg(x) * rows(x)
  form alt = neg(x) * x.shape[0]
op peak(x: f32[*B, D]) -> (y: f32[*B, 1])
  = amax(x, [-1], true)
  form alt = amax(x, [1], true)
"""


def test_rows_lie_on_several_axes_too(folder: Path) -> None:
    (folder / "ranks.rw").write_text(RANKS)
    findings = json.loads(verify("ranks.rw", "--json", "-k", "/alt").output)["findings"]
    assert [(f["subject"], f["outcome"]) for f in findings] == [("leading/alt", "failed"), ("peak/alt", "failed")]


def test_a_name_that_no_check_has_is_misuse(folder: Path) -> None:
    result = verify("wrong.rw", "-k", "by_recipocal")
    assert (result.exit_code, "`by_recipocal`" in result.output) == (2, True)


@pytest.mark.parametrize("minutes", ["nan", "inf", "-1"])
def test_time_without_an_end_is_misuse(folder: Path, minutes: str) -> None:
    assert verify("wrong.rw", "--fuzz", minutes).exit_code == 2


@pytest.mark.parametrize("how", ["sarif", "github"])
def test_other_formats_name_the_code_and_the_line(folder: Path, how: str) -> None:
    output = verify("wrong.rw", "--format", how, "-k", "equal").output
    assert "RW601" in output
    assert ('"startLine": 3' if how == "sarif" else "line=3") in output


def test_bad_input_is_one_line(folder: Path) -> None:
    assert verify("absent.rw").exit_code == 2
    (folder / "no.py").write_text("x = 1\n")
    result = verify("wrong.rw", "--replay", "no.py")
    assert (result.exit_code, "has no line that begins with" in result.output) == (1, True)
    assert verify("wrong.rw", "--replay", "absent.py").exit_code == 1
    (folder / "broken.rw").write_text("rule x => \n")
    assert verify("broken.rw").exit_code == 1


def test_a_file_of_rules_is_a_file_of_tests(folder: Path) -> None:
    args = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "wrong.rw"]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "error[RW601]" in done.stdout
    assert "wrong_tie.tie_by_reciprocal:equal" in done.stdout
