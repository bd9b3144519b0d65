"""`fxrewrite check`, and how the command line starts."""

from __future__ import annotations

import copy
import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fxrewrite.cli import VERBS, cli
from fxrewrite.dsl import packs, sources
from fxrewrite.dsl.annotations import as_annotations
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.syntax import Span

ROOT = Path(__file__).parents[1]
TWO_FAULTS = (
    "fusion f(x) = quant_fp8_token(x)\nfusion g(x, s) = silu(x) |> quant_fp8_static(s, recip=1)\nfusion h(x) = f(x)\n"
)
# Seconds of the processor for a whole process, with warm caches and with none: twice the limits of an idle machine
# (`python -m benchmarks startup` holds it to 0.3 and 0.9).
START, COLD = 0.6, 1.8


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
    found = sources.read(ROOT).trouble
    assert found is not None and found.code == "RW001"


@pytest.mark.parametrize("args", [["--help"], ["check"], ["check", "--json"]], ids=" ".join)
def test_a_quick_start_without_torch(args: list[str]) -> None:
    code = (
        "import sys; from fxrewrite.cli import cli\n"
        "try: cli(sys.argv[1:], prog_name='fxrewrite')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'rich' not in sys.modules and 'lark' not in sys.modules\n"
    )
    assert min(cpu_seconds(code, *args) for _ in range(3)) < START


def test_a_cold_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path / "none yet"))
    assert cpu_seconds("from fxrewrite.cli import main; main()", "check") < COLD


def cpu_seconds(code: str, *args: str) -> float:
    """What a Python process takes of the processor: other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["check"], ["check", "--json"], ["--help"], ["fmt", "-"]], ids=" ".join)
def test_output_that_cannot_be_written_is_one_line(args: list[str]) -> None:
    command = [sys.executable, "-m", "fxrewrite", *args]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, input="fusion f(x) = silu(x)\n", text=True, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr == "fxrewrite: No space left on device\n"


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "fxrewrite", "check", "nothing_of_this_name"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no pack is called" in ended.stdout


# ---- other formats


def test_sarif(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a b.rw").write_text(TWO_FAULTS + "fusion g(x) = silu(x)\n")
    result = run("check", "--format", "sarif", "a b.rw")
    assert result.exit_code == 1
    log = json.loads(result.output)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (made,) = log["runs"]
    rules = made["tool"]["driver"]["rules"]
    assert {r["id"] for r in rules} == {"RW205", "RW208", "RW310"}
    assert all(r["shortDescription"]["text"] and r["help"]["text"] for r in rules)
    for result_ in made["results"]:
        assert rules[result_["ruleIndex"]]["id"] == result_["ruleId"]
        assert result_["level"] == "error"
        place = result_["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "a%20b.rw"
        assert place["region"].keys() == {"startLine", "startColumn", "endLine", "endColumn"}
    first = made["results"][0]
    assert first["message"]["text"] == "unknown op `quant_fp8_token`; did you mean `quant_fp8_tensor`?"
    region = first["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"], region["endColumn"]) == (1, 15, 30)
    (twice,) = [r for r in made["results"] if r["ruleId"] == "RW208"]
    (related,) = twice["relatedLocations"]
    assert related["physicalLocation"]["region"]["startLine"] == 2
    assert related["message"]["text"] == "g is declared here"


def test_sarif_of_nothing_wrong(run: Callable[..., Result]) -> None:
    (made,) = json.loads(run("check", "--format", "sarif").output)["runs"]
    assert made["results"] == []


def test_workflow_annotations(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "a,b.rw").write_text(TWO_FAULTS)
    result = run("check", "--format", "github", "a,b.rw")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "::error file=a%2Cb.rw,line=1,endLine=1,col=15,endColumn=30,title=RW205::unknown op `quant_fp8_token`"
        "%0Ahint: did you mean `quant_fp8_tensor`?",
        "::error file=a%2Cb.rw,line=2,endLine=2,col=55,endColumn=56,title=RW310::`recip` of quant_fp8_static is a bool,"
        " not `1`%0Ahint: write `true` or `false`",
    ]


def test_what_annotations_may_not_hold_is_escaped() -> None:
    span = Span("c:\\a.rw", 1, 1, 2, 1)
    told = as_annotations([Diagnostic("RW129", "100 % of\r\nit: a,b", span, severity="note")])
    assert told == "::notice file=c%3A\\a.rw,line=1,endLine=2,title=RW129::100 %25 of%0D%0Ait: a,b"


def test_an_error_of_rules_is_pickled_and_copied() -> None:
    with pytest.raises(RuleError) as raised:
        packs.load(["absent.rw"])
    pickled = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 (our own bytes)
    for made in (pickled, copy.deepcopy(raised.value), copy.copy(raised.value)):
        assert type(made) is RuleError
        assert (made.diagnostics, made.sources, str(made)) == (
            raised.value.diagnostics,
            raised.value.sources,
            str(raised.value),
        )


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/bad\xff.rw"
    Path(os.fsdecode(name)).write_text("fusion f(x) = sillu(x) |> gelu\n")
    command = [sys.executable, "-m", "fxrewrite", "check", name]
    ended = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"}, check=False
    )
    assert ended.returncode == 1 and b"\\udcff.rw:1:15: error[RW205]" in ended.stdout, ended.stderr


# ---- standard input


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (b"rule a: neg(neg(x)) => x\n", 0, "1 rule, nothing wrong"),
        (b"rule a: neg(neg(x) => x\n", 1, "<stdin>:1:12: error[RW113]"),
        (b"rule a: neg(neg(x)) => y\n", 1, "    1 | rule a: neg(neg(x)) => y"),
        (b"\xff\n", 1, "<stdin> is not UTF-8 text"),
    ],
)
def test_a_text_on_standard_input(text: bytes, code: int, said: str) -> None:
    result = CliRunner().invoke(cli, ["check", "-"], input=text)
    assert result.exit_code == code and said in result.output


def test_standard_input_is_only_checked() -> None:
    result = CliRunner().invoke(cli, ["check", "-", "--explain", "a"], input=b"rule a: neg(neg(x)) => x\n")
    assert result.exit_code == 2 and "standard input is checked only" in result.output
