"""The command line: what it prints, its JSON, its exit codes; bad input gets one line and a hint, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import factories
import fxrewrite

REASON_KEYS = {
    "pack", "rule", "site", "fired", "reason", "expected", "found", "span", "source", "hint", "by", "graph", "nodes",
    "nearest", "depth", "matched", "written",
}  # fmt: skip
LOADER = """
import sys, torch, fxrewrite, factories
fxrewrite.register_ops()
program = torch.export.load(sys.argv[1])
got = program.module()(factories.rows())
want = factories.NormQuant()(factories.rows())
print(all(torch.equal(a.float(), b.float()) for a, b in zip(got, want)))
"""


def run(verb: str, *arguments: str) -> Result:
    command = import_module(f"fxrewrite.cli.{verb}").command
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def as_json(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# ---- apply


@pytest.mark.parametrize("program", ["factories:norm_quant", "factories:exported"])
def test_apply_reports_each_site(program: str) -> None:
    result = run("apply", program, "--providers", "op")
    assert result.exit_code == 0
    assert "norm_quant.rms_norm_fp8  1 of 1 sites  (provider: op)" in result.stdout
    assert "eaten by norm_quant.rms_norm_fp8" in result.stdout


def test_apply_keeps_the_sites_of_a_cpu() -> None:
    result = run("apply", "factories:norm_quant")
    assert result.exit_code == 0 and "kept: no faster provider here" in result.stdout
    assert "patterns/norm_quant.rw:" in result.stdout and "^^^" in result.stdout and "factories.py:" in result.stdout


@pytest.mark.slow
def test_apply_writes_a_program_that_loads_and_runs_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "out.pt2"
    result = run("apply", "factories:exported", "--providers", "op", "-o", str(path))
    assert result.exit_code == 0 and "register_ops" in result.stdout
    loaded = subprocess.run(
        [sys.executable, "-c", LOADER, str(path)],
        capture_output=True, text=True, check=True, cwd=Path(factories.__file__).parent,
        env={"PYTHONPATH": f"{Path(fxrewrite.__file__).parents[1]}:.", "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert loaded.stdout.strip() == "True", loaded.stderr
    program = torch.export.load(path)  # the ops are registered in this process
    assert any("fxrewrite.rms_norm_fp8" in str(n.target) for n in program.graph.nodes)
    assert run("apply", str(path), "--providers", "op").exit_code == 0


def test_apply_writes_the_graph_as_text(tmp_path: Path) -> None:
    path = tmp_path / "out.py"
    assert run("apply", "factories:norm_quant", "--providers", "op", "-o", str(path)).exit_code == 0
    assert "torch.ops.fxrewrite.rms_norm_fp8.default" in path.read_text()


def test_apply_as_json(tmp_path: Path) -> None:
    found = as_json(run("apply", "factories:norm_quant", "--providers", "op", "--json"))
    assert found["program"] == "factories:norm_quant" and found["output"] is None
    assert found["fired"]["rms_norm_fp8"] == 1 and found["graphs"] == 1
    assert {"parse", "compile", "read", "match", "rewrite"} <= found["seconds"].keys()
    assert all(event.keys() == REASON_KEYS for event in found["events"])
    (event,) = [e for e in found["events"] if e["rule"] == "rms_norm_fp8" and e["fired"]]
    assert event["span"]["file"] == "patterns/norm_quant.rw" and event["by"] == "op"


def test_apply_with_rules_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.rw"
    path.write_text("use norm_quant (rms_norm_fp8)\nrms_norm(x, w) |> quant_fp8 => rms_norm_fp8(x, w)\n")
    found = as_json(run("apply", "factories:norm_quant", "--packs", str(path), "--providers", "op", "--json"))
    assert set(found["fired"]) == {e["rule"] for e in found["events"] if e["fired"]} and len(found["fired"]) == 1


def test_a_wrong_rule_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "wrong.rw"
    path.write_text("rms_norm(x, w) |> quant_fp9 => rms_norm_fp8(x, w)\n")
    for verb in ("apply", "packs"):
        arguments = ["factories:norm_quant"] if verb == "apply" else []
        result = run(verb, *arguments, "--packs", str(path))
        assert result.exit_code == 1 and "RW205" in result.stderr and "did you mean `quant_fp8`?" in result.stderr
        result = run(verb, *arguments, "--packs", str(path), "--json")
        assert result.exit_code == 1 and json.loads(result.stdout)["errors"][0]["code"] == "RW205"


# ---- explain


def test_explain_shows_every_near_miss() -> None:
    result = run("explain", "add_rms_norm_fp8", "factories:norm_quant", "--providers", "op")
    assert result.exit_code == 0
    assert "norm_quant.add_rms_norm_fp8  0 of 1 sites" in result.stdout
    assert "expected a result of add_rms_norm" in result.stdout and "factories.py:" in result.stdout


def test_explain_as_json() -> None:
    found = as_json(run("explain", "norm_quant.rms_norm_fp8", "factories:norm_quant", "--providers", "op", "--json"))
    assert found["rule"] == "norm_quant.rms_norm_fp8" and found["fired"] == {"rms_norm_fp8": 1}
    assert [e["fired"] for e in found["events"]] == [True]


def test_explain_of_a_rule_that_is_off() -> None:
    result = run("explain", "rms_norm_fp8", "factories:norm_quant", "--flag", "fuse_norm_quant=off")
    assert result.exit_code == 0 and "norm_quant.rms_norm_fp8 is off: flag fuse_norm_quant = false" in result.stdout


# ---- packs


def test_packs_says_what_is_on_and_why(tmp_path: Path) -> None:
    absent = tmp_path / "absent.rw"
    absent.write_text("impl rms_norm_fp8.absent  nowhere.norm_quant(x, w, out qx, out sx, eps)\n")
    packs = ("--packs", "default", "--packs", str(absent))
    result = run("packs", *packs, "--flag", "fuse_act_quant=off", "--providers", "kernel,op")
    assert result.exit_code == 0
    assert "flag fuse_act_quant = false" in result.stdout and "level O2" in result.stdout
    assert "nowhere.norm_quant is not in this build" in result.stdout
    assert "emulate_precision_casts" in result.stdout


def test_packs_tells_of_an_op() -> None:
    text = run("packs", "rms_norm").stdout
    assert "op rms_norm  (patterns/vocab/norm.rw" in text and "Hugging Face Llama" in text
    assert "late  bool = false" in text and "y  lowp[*B, D]" in text and "weigh(rms32(f32(x), eps, vs)" in text
    assert "form ir  " in text and "vllm_ir.rms_norm(x, w, eps, vs)" in text and "form aten(late=true)" in text
    assert "rms_norm_fp8\n" in text and "norm_quant.norm_fans_out\n" in text  # what uses it


def test_packs_tells_of_a_fusion_its_rule_and_its_providers() -> None:
    result = run("packs", "norm_quant.rms_norm_fp8")
    assert "inherited  of quant_fp8" in result.stdout and "norm_quant.rms_norm_fp8 is on: level O2" in result.stdout
    assert "kernel: no, none is registered for" in result.stdout and "\n  vllm" in result.stdout
    found = as_json(run("packs", "rms_norm_fp8", "--flag", "rms_norm_fp8=off", "--json"))
    assert [s["on"] for s in found["status"]] == [False]
    assert found["concluded"][0]["kind"] == "fusion" and found["ops"][0]["op"] == "rms_norm_fp8"
    assert found["ops"][0]["definition"] == ["fusion rms_norm_fp8(x, w, ub) = rms_norm(x, w) |> quant_fp8(ub)"]


def test_packs_tells_what_the_parts_of_a_definition_are() -> None:
    text = run("packs", "quant_int8").stdout
    assert "-128, 127), i8), sx\n  where sx = f32(amax(abs(x), -1, keepdim=true)) / 127\nforms:\n" in text


def test_packs_tells_of_a_rule_that_makes_no_op() -> None:
    text = run("packs", "norm_fans_out").stdout
    assert "rule norm_quant.norm_fans_out" in text and "kept: others may use it" in text and "providers" not in text


def test_packs_of_a_pack_and_a_factory_that_takes_arguments() -> None:
    result = run("packs", "norm_quant")
    assert result.exit_code == 2 and "`fxrewrite packs --packs norm_quant` shows it" in result.stderr
    result = run("explain", "rms_norm_fp8", "textwrap:indent")
    assert result.exit_code == 2 and "textwrap:indent takes text, prefix" in result.stderr


def test_packs_of_a_name_that_nothing_has() -> None:
    result = run("packs", "rms_nrm")
    assert result.exit_code == 2 and "did you mean `rms_norm`?" in result.stderr
    result = run("packs", "silu", "--packs", "absent.rw")
    assert result.exit_code == 2 and "absent.rw" in result.output


def test_packs_as_json() -> None:
    found = as_json(run("packs", "--level", "O0", "--flag", "rms_norm_fp8=on", "--json"))
    rules = {r["rule"]: r for p in found["packs"] for r in p["rules"]}
    assert rules["rms_norm_fp8"]["on"] and rules["rms_norm_fp8"]["by"] == "flag rms_norm_fp8 = true"
    assert not rules["silu_mul_fp8"]["on"] and rules["silu_mul_fp8"]["reason"] == "level"
    assert rules["silu_mul_fp8"].keys() == {"rule", "on", "reason", "by", "level", "flag", "place"}
    assert found["providers"]["order"] == ["kernel", "generated", "definition"]
    assert {"name": "op", "on": True, "reason": ""} in found["providers"]["ops"]["rms_norm_fp8"]
    assert {name for name, default in found["shipped"].items() if default} == {"act_quant", "noop", "norm_quant"}
    off = {p["pack"]: p for p in found["off"]}
    assert off.keys() == found["shipped"].keys() - {"act_quant", "noop", "norm_quant"}
    assert off["mla"]["turn_on"] == 'packs=["default", "mla"]'
    assert off["attn_quant"]["turn_on"] == 'packs=["default", "attn_quant"], flags={"fuse_attn_quant": True}'
    assert off["async_tp"]["turn_on"] == 'packs=["default", "async_tp"], level="O3"'
    assert off["async_tp"]["stays_off"]["all_gather_mm"]["by"] == "pack async_tp: its `when` is false here"
    assert not off["qk_norm_rope"]["stays_off"]
    assert found["keeps_roundings"] is False and found["warnings"] == []


def test_a_group_of_several_ranks_turns_packs_on() -> None:
    found = as_json(run("packs", "--packs", "minimax", "--group", "tp:0=2", "--json"))
    assert [r["on"] for p in found["packs"] for r in p["rules"]] == [True]
    wrong = run("packs", "--group", "tp:0")
    assert wrong.exit_code == 2 and "write tp:0=2" in wrong.stderr


def test_packs_warns_of_names_that_mean_nothing() -> None:
    found = as_json(run("packs", "--flag", "fuse_norm_qant=off", "--providers", "vlm,op", "--json"))
    flag, provider = found["warnings"]
    assert "fuse_norm_quant" in flag and "vllm" in provider


# ---- misuse


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["apply", "nothing.pt2"], "there is no file nothing.pt2", ""),
        (["apply", "factories.py"], "'factories.py' is no program", "module:function"),
        (["apply", "no_such_module:make"], "there is no module no_such_module", "PYTHONPATH"),
        (["apply", "factories:nrm_quant"], "factories has no function 'nrm_quant'", "`norm_quant`"),
        (["apply", "factories:raises"], "factories:raises raised ValueError: no weights here", "factories.py:"),
        (["apply", "factories:a_number"], "factories:a_number returned int", "(model, args)"),
        (["apply", "factories:cannot_be_traced"], "torch.export cannot trace the model", "ExportedProgram"),
        (["apply", "factories:norm_quant", "-o", "no/such/folder/out.pt2"], "cannot be written", ""),
        (["apply", "factories:norm_quant", "--packs", "nrm_quant"], "no pack is called `nrm_quant`", "`norm_quant`"),
        (["packs", "--packs", "nothing.rw"], "cannot read nothing.rw", ""),
        (["apply", "factories:norm_quant", "--level", "O7"], "no level is called 'O7'", ""),
        (["apply", "factories:norm_quant", "--tokens", "9:3"], "tokens=(9, 3) is no range", ""),
        (["apply", "factories:norm_quant", "--tokens", "many"], "'many' is no range of token counts", ""),
        (["apply", "factories:norm_quant", "--flag", "fuse_norm_quant"], "fuse_norm_quant=on", ""),
        (["explain", "rms_nrm_fp8", "factories:norm_quant"], "no rule is called 'rms_nrm_fp8'", "`rms_norm_fp8`"),
        (["apply"], "Missing argument 'PROGRAM'", ""),
    ],
)
def test_misuse_gets_a_line_and_a_hint(arguments: list[str], message: str, hint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr and hint in result.stderr and "Traceback" not in result.output


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "text.pt2"
    path.write_text("not a program")
    result = run("apply", str(path))
    assert result.exit_code == 2 and "is no exported program" in result.stderr


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_factory.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = run("apply", "broken_factory:make")
    assert result.exit_code == 2 and "a_package_that_is_not_there" in result.stderr


# ---- demo


def test_demo_without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("fxrewrite.cli.demo")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "fxrewrite" / "cli" / "demo.py"))
    result = run("demo")
    assert result.exit_code == 2 and "the demo needs a source checkout" in result.stderr


def test_demo_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("fxrewrite.cli.demo")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    result = run("demo")
    assert result.exit_code == 2 and "the demo needs transformers" in result.stderr and "pip install" in result.stderr


def test_demo_gives_the_exit_code_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("fxrewrite.cli.demo")

    class Example:
        @staticmethod
        def run(as_json: bool) -> int:
            return 1 if as_json else 0

    monkeypatch.setattr(module, "load", lambda: Example)
    assert (run("demo").exit_code, run("demo", "--json").exit_code) == (0, 1)
