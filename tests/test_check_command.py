"""`fxrewrite check`, and how the command line starts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fxrewrite.cli import VERBS, cli
from fxrewrite.dsl import packs

ROOT = Path(__file__).parents[1]
TWO_FAULTS = (
    "fusion f(x) = quant_fp8_token(x)\nfusion g(x, s) = silu(x) |> quant_fp8_static(s, recip=1)\nfusion h(x) = f(x)\n"
)
START = 2.0  # seconds of a whole process; about 0.2 on an idle machine with warm caches


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(cli, args, prog_name="fxrewrite")


def test_the_shipped_packs_are_right(run: Callable[..., Result]) -> None:
    result = run("check")
    assert result.exit_code == 0
    assert result.output.endswith("rules, nothing wrong\n")
    assert result.output.count("\n") == 1


def test_findings_have_carets_and_a_summary(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "two.rw").write_text(TWO_FAULTS)
    result = run("check", "two.rw")
    assert result.exit_code == 1
    assert result.output == (
        "two.rw:1:15: error[RW205]: unknown op `quant_fp8_token`\n"
        "    1 | fusion f(x) = quant_fp8_token(x)\n"
        "      |               ^^^^^^^^^^^^^^^\n"
        "  hint: did you mean `quant_fp8_tensor`?\n\n"
        "two.rw:2:55: error[RW310]: `recip` of quant_fp8_static is a bool, not `1`\n"
        "    2 | fusion g(x, s) = silu(x) |> quant_fp8_static(s, recip=1)\n"
        "      |                                                       ^\n"
        "  hint: write `true` or `false`\n\n"
        "1 file: 2 errors\n"
    )


def test_json(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "two.rw").write_text(TWO_FAULTS)
    (tmp_path / "right.rw").write_text("silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n")
    result = run("check", "--json", "two.rw", "right.rw")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert found.keys() == {"schema", "files", "ops", "rules", "findings"}
    assert found["files"] == ["two.rw", "right.rw"]
    assert found["rules"] == ["right.fused_silu_quant"]
    first = found["findings"][0]
    assert first == {
        "code": "RW205",
        "severity": "error",
        "message": "unknown op `quant_fp8_token`",
        "hint": "did you mean `quant_fp8_tensor`?",
        "file": "two.rw",
        "line": 1,
        "column": 15,
        "end_line": 1,
        "end_column": 30,
        "related": [],
    }
    assert json.loads(run("check", "--json", "right.rw").output)["findings"] == []


def test_a_folder_and_the_library_by_its_paths(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "rules" / "inner").mkdir(parents=True)
    (tmp_path / "rules" / "a.rw").write_text("fusion a_one(x) = silu(x) |> gelu\n")
    (tmp_path / "rules" / "inner" / "b.rw").write_text("fusion b_one(x) = silu(x, x)\n")
    assert run("check", "rules").output.endswith("2 files: 1 error in 1 of them\n")
    assert run("check", str(ROOT / "patterns")).exit_code == 0
    assert run("check", str(ROOT / "patterns" / "vocab" / "quant.rw"), "norm_quant").exit_code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("check", "absent.rw"), "cannot read absent.rw"),
        (("check", "norm_quan"), "did you mean `norm_quant`?"),
        (("check", "--what"), "No such option"),
        (("check", "empty"), "holds no .rw file"),
        (("chek",), "did you mean `check`?"),
        (("nothing",), "one of check"),
    ],
)
def test_misuse(run: Callable[..., Result], tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"fusion f(x) = silu(x)\x00", b"a" * 200_000, b""], ids=range(4))
def test_any_bytes(run: Callable[..., Result], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.rw").write_bytes(content)
    result = run("check", "odd.rw")
    assert result.exit_code == (0 if content == b"" else 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_every_verb_is_there(run: Callable[..., Result]) -> None:
    help_ = run("--help").output
    for verb in VERBS:
        assert verb in help_
        assert run(verb, "--help").exit_code == 0


def test_what_is_no_file_is_said() -> None:
    _, (found,) = packs.read_file(ROOT)
    assert found.code == "RW001"


@pytest.mark.parametrize("args", [["--help"], ["check"], ["check", "--json"]], ids=" ".join)
def test_a_quick_start_without_torch(args: list[str]) -> None:
    code = (
        "import sys; from fxrewrite.cli import cli\n"
        "try: cli(sys.argv[1:], prog_name='fxrewrite')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'rich' not in sys.modules and 'lark' not in sys.modules\n"
    )
    times: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    assert min(times) < START


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "fxrewrite", "check", "nothing_of_this_name"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no pack is called" in ended.stdout
