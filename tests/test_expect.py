"""`fxrewrite expect`: counts are held against a file of pins, a lost site says why, a wrong file gets one message."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from fxrewrite.dsl.diagnostics import RuleError
from fxrewrite.patterns.events import Log
from fxrewrite.verify.expect import Compared, chosen, updated
from fxrewrite.verify.pins import Pin, PinFile, read_pins, written

RELEASE = torch.__version__.partition("+")[0]
PINNED = """# The smallest model.
[[model]]
program = "factories:norm_quant"
packs = ["norm_quant"]

[model.fired]
"norm_quant.rms_norm_fp8" = {}

# That is all.
"""


def run(*arguments: str) -> Result:
    command = import_module("fxrewrite.cli.expect").command
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "expect.toml"


# ---- comparing


def test_what_is_as_pinned(file: Path) -> None:
    file.write_text(PINNED.format(1))
    result = run(str(file))
    assert (result.exit_code, result.stdout) == (0, "factories:norm_quant  (norm_quant): as pinned, 1 rule, 1 site\n")


def test_a_lost_site_says_what_came_nearest(file: Path) -> None:
    """The norm of another model has no quant behind it: the reason, the place in the rule, the line of the model."""
    file.write_text(PINNED.format(1).replace("norm_quant.rms_norm_fp8", "norm_quant.add_rms_norm_fp8"))
    result = run(str(file))
    assert result.exit_code == 1
    assert "  norm_quant.add_rms_norm_fp8: 1 pinned, 0 fired\n    patterns/norm_quant.rw:" in result.stdout
    assert "^^^" in result.stdout and "other op: expected a result of add_rms_norm" in result.stdout
    assert "factories.py:" in result.stdout
    assert "  norm_quant.rms_norm_fp8: 0 pinned, 1 fired\n" in result.stdout
    assert f"fxrewrite expect {file} --update" in result.stdout


def test_a_lost_site_of_a_rule_that_is_off(file: Path) -> None:
    file.write_text(PINNED.format(1).replace("[model.fired]", "flags = { fuse_norm_quant = false }\n[model.fired]"))
    result = run(str(file))
    assert result.exit_code == 1
    assert "norm_quant.rms_norm_fp8 is off: flag fuse_norm_quant = false" in result.stdout


def test_as_json(file: Path) -> None:
    file.write_text(PINNED.format(3))
    result = run(str(file), "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["file"], found["torch"], found["updated"]) == (str(file), RELEASE, False)
    (model,) = found["models"]
    assert model["fired"] == {"norm_quant.rms_norm_fp8": 1} and model["settings"] == {"packs": ["norm_quant"]}
    (change,) = model["changes"]
    assert (change["rule"], change["expected"], change["found"]) == ("norm_quant.rms_norm_fp8", 3, 1)


def test_paths_and_modules_are_looked_for_beside_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "pinned_model.py").write_text(
        "import torch\n\n\ndef make():\n"
        "    return torch.nn.Sequential(torch.nn.SiLU(), torch.nn.GELU()), (torch.zeros(4, 8).bfloat16(),)\n"
    )
    (file.parent / "pinned.rw").write_text("fusion pinned_silu_gelu(x) = silu(x) |> gelu\n")
    file.write_text('[[model]]\nprogram = "pinned_model:make"\npacks = ["pinned.rw"]\n')
    monkeypatch.setattr("sys.path", [*import_module("sys").path])
    assert "  pinned.pinned_silu_gelu: 0 pinned, 1 fired\n" in run(str(file)).stdout


# ---- updating


def test_update_writes_counts_and_keeps_comments(file: Path) -> None:
    file.write_text(PINNED.format(3))
    result = run(str(file), "--update")
    assert result.exit_code == 0 and "3 pinned, 1 fired" in result.stdout and "is written" in result.stdout
    wanted = PINNED.format(1).replace('norm_quant"\n', f'norm_quant"\ntorch = "{RELEASE}"\n', 1)
    assert file.read_text() == wanted
    assert run(str(file)).exit_code == 0
    assert "is up to date" in run(str(file), "--update").stdout and file.read_text() == wanted


def test_update_drops_a_rule_that_is_no_more_and_keeps_a_zero(file: Path) -> None:
    gone = '"norm_quant.rms_norm_old" = 2\n"norm_quant.norm_fans_out" = 0\n'
    file.write_text(PINNED.format(1).replace("\n\n# That", f"\n{gone}\n# That"))
    assert run(str(file)).exit_code == 2
    assert "norm_quant.rms_norm_old: 2 pinned, 0 fired" in run(str(file), "--update").stdout
    (pin,) = read_pins(file).pins
    assert pin.fired == {"norm_quant.rms_norm_fp8": 1, "norm_quant.norm_fans_out": 0}


def pin(torch: str | None, count: int = 1, index: int | None = None, **more: Any) -> Pin:
    return Pin("a:b", {"packs": ["x"]}, torch, {"x.y": count}, index=index, **more)


def test_the_pin_of_the_release_is_compared() -> None:
    old, new, other = pin("2.12.1"), pin("2.13"), evolve(pin("2.11.0"), program="c:d")
    assert chosen([old, new, other], "2.13.0") == [
        (new, ""),
        (other, "pinned on torch 2.11.0, compared on 2.13.0"),
    ]
    assert [p for p, _ in chosen([old, new], "2.14.1")] == [new] and "last of several" in chosen([old, new], "2.14")[0][
        1
    ]
    assert chosen([pin(None)], "2.13.0") == [(pin(None), "")]
    assert not pin("2.1").fits("2.13.0") and pin("2.13.0").fits("2.13.0")


def test_update_of_pins_of_other_releases() -> None:
    def after(*pins: Pin) -> list[tuple[str | None, int]]:
        (one, note), *_ = chosen(pins, "2.14.0")
        log = Log()
        found = updated(pins, [evolve(Compared(one, {}, (), log, note), counts={"x.y": 5})], "2.14.0")  # type: ignore[arg-type]
        return [(p.torch, p.fired["x.y"]) for p in found]

    assert after(pin("2.12.1", index=0)) == [("2.14.0", 5)]
    assert after(pin("2.12.1", index=0), pin("2.13", index=1)) == [("2.12.1", 1), ("2.13", 1), ("2.14.0", 5)]
    assert after(pin("2.14", index=0), pin("2.13", index=1)) == [("2.14", 5), ("2.13", 1)]


TEXT = st.text(st.sampled_from("ab .\"'\\\n\t\x00\x7f#=[é\u2028🙂"), max_size=4)
COMMENT = st.text("# ab", max_size=5).map(lambda t: f"# {t}".strip())
PINS = st.builds(
    Pin,
    TEXT,
    st.fixed_dictionaries(
        {},
        optional={
            "packs": st.lists(TEXT, max_size=2),
            "level": TEXT,
            "flags": st.dictionaries(TEXT, st.booleans(), max_size=2),
            "tokens": st.lists(st.integers(0, 9), min_size=1, max_size=2),
            "allow_relaxed": st.booleans(),
            "allow_unproved": st.booleans(),
        },
    ),
    st.none() | TEXT,
    st.dictionaries(TEXT, st.integers(0, 99), max_size=3),
    st.just("") | COMMENT,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PINS, min_size=1, max_size=3), st.just("") | COMMENT)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, pins: list[Pin], below: str) -> None:
    path = tmp_path_factory.getbasetemp() / "written.toml"
    text = written(PinFile(path, "", tuple(pins), below))
    path.write_bytes(text.encode())
    read = read_pins(path)
    assert [evolve(p, index=None) for p in read.pins] == pins and read.below == below
    assert written(read) == text


# ---- wrong files


@pytest.mark.parametrize(
    ("text", "place", "code", "message", "hint"),
    [
        ("[[model]]\nprogram = \n", "2:11", "RW501", "no TOML", "key = value"),
        ("[[model]]\nprogram = 'a'\nprogram = 'b'\n", "3:14", "RW501", "no TOML", ""),
        ("a = " + "[" * 5000, "1:1", "RW501", "nested too deeply", ""),
        ("", "1:1", "RW502", "no model is pinned", "[[model]]"),
        ("model = 3", "1:1", "RW502", "no model is pinned", "[[model]]"),
        ("model = [3]", "1:1", "RW502", "no table", "[[model]]"),
        ("[[modle]]\nprogram = 'a'", "1:3", "RW502", "`modle`", "[[model]]"),
        ("[[model]]\n", "1:1", "RW502", "no `program`", "program ="),
        ("[[model]]\nprogram = 'a:b'\n# packz\npackz = []", "4:1", "RW502", "`packz`", "`packs`"),
        ("[[model]]\nprogram = 'a:b'\n[[model]]\nprogram = 7", "4:1", "RW502", "`program`", "program ="),
        ("[[model]]\nprogram = 'a:b'\npacks = 'default'", "3:1", "RW502", "`packs`", 'packs = ["default"]'),
        ("[[model]]\nprogram = 'a:b'\n[model.fired]\nx = -1", "3:8", "RW502", "`fired`", "= 4"),
        ("[[model]]\nprogram = 'a:b'\nlevel = 'O7'", "3:1", "RW502", "no level is called 'O7'", ""),
        ("[[model]]\nprogram = 'a:b'\ntokens = [9, 3]", "3:1", "RW502", "tokens=(9, 3) is no range", ""),
        ("[[model]]\nprogram = 'a:b'\npacks = ['nrm_quant']", "3:1", "RW002", "`nrm_quant`", "`norm_quant`"),
        ("[[model]]\nprogram = 'a:b'\npacks = ['absent.rw']", "3:1", "RW001", "absent.rw", ""),
        ("[[model]]\nprogram = 'a:b'\n[model.fired]\nrms_nrm = 1", "4:1", "RW504", "rms_nrm", "rms_norm"),
        ("[[model]]\nprogram = 'no_such:b'", "2:12", "RW503", "there is no module no_such", "PYTHONPATH"),
        ("[[model]]\nprogram = 'absent.pt2'", "2:12", "RW503", "there is no file", ""),
        ("[[model]]\nprogram = 'factories:raises'", "2:12", "RW503", "ValueError: no weights here", "factories.py:"),
        ("[[model]]\nprogram = 'factories:cannot_be_traced'", "2:12", "RW503", "cannot trace", "ExportedProgram"),
    ],
)
def test_a_wrong_file_gets_one_message(file: Path, text: str, place: str, code: str, message: str, hint: str) -> None:
    file.write_text(text)
    result = run(str(file))
    assert result.exit_code == 2 and not result.stdout
    (said,) = [line for line in result.stderr.splitlines() if line.startswith(str(file))]  # torch may warn before it
    assert said.startswith(f"{file}:{place}: error[{code}]: ") and message in said
    assert hint in result.stderr and "Traceback" not in result.stderr
    again = run(str(file), "--json")
    assert again.exit_code == 2 and [e["code"] for e in json.loads(again.stdout)["errors"]] == [code]


def test_no_file_and_a_wrong_rule(file: Path) -> None:
    result = run(str(file))
    assert result.exit_code == 2 and "error[RW001]" in result.stderr and "[[model]]" in result.stderr
    (file.parent / "wrong.rw").write_text("rms_norm(x, w) |> quant_fp9 => rms_norm_fp8(x, w)\n")
    file.write_text("[[model]]\nprogram = 'a:b'\npacks = ['wrong.rw']")
    result = run(str(file))
    assert result.exit_code == 2 and "wrong.rw:1:" in result.stderr and "error[RW205]" in result.stderr


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 160), st.text("[]\"'=.#\n\\a1{}", max_size=3))
def test_a_damaged_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, put: str) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    text = PINNED.format(1)
    path.write_text(text[:at] + put + text[at + 1 :])
    try:
        read = read_pins(path)
    except RuleError as error:
        assert len(error.diagnostics) == 1
    else:
        assert written(read)


# ---- the models of this repository


@pytest.mark.slow
def test_the_zoo_is_as_pinned() -> None:
    result = run(str(Path(__file__).parent / "zoo" / "expect.toml"))
    assert result.exit_code == 0, result.stdout
    assert result.stdout.count(": as pinned, 7 rules") == 16 and "compared on" not in result.stdout
