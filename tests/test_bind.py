"""`fxrewrite check --bind`: calls of torch ops against the schemas of the torch that is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from fxrewrite.cli import cli
from fxrewrite.dsl.diagnostics import RuleError
from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.lowering.running import Running

ROOT = Path(__file__).parents[1]
MODULE = """
import torch
lib = torch.library.Library("bindtest", "FRAGMENT")
lib.define("gate(Tensor! out, Tensor x) -> ()")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda *args: CliRunner().invoke(cli, ("check", *args), prog_name="fxrewrite")


@pytest.fixture
def lib() -> Iterator[torch.library.Library]:
    made = torch.library.Library("bindtest2", "FRAGMENT")
    yield made
    made._destroy()


def found(result: Result) -> list[dict[str, Any]]:
    return json.loads(result.output)["findings"]


def test_the_shipped_packs_have_notes_only(run: Callable[..., Result]) -> None:
    result = run("--bind", "--json")
    assert result.exit_code == 0, result.output
    for d in found(result):
        op = d["message"].split(" ")[0]
        assert d["severity"] == "note"
        assert d["code"] in ("RW229", "RW230")
        assert op.split(".")[0] in ("_C", "vllm", "vllm_ir"), d
        assert (d["code"] == "RW229") == (not Running().here(op)), d  # tests may have declared stubs


def test_of_files_only_they_are_told(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("form silu.mine  = to(aten.silu(f32(x)), x.dtype)\n")
    result = run("--bind", "mine.rw")
    assert result.exit_code == 0
    assert result.output.endswith("nothing wrong\n")
    assert result.output.count("\n") == 1
    named = found(run("--bind", "--json", str(ROOT / "patterns" / "vocab" / "norm.rw")))
    assert {d["file"] for d in named} <= {"patterns/vocab/norm.rw"}


def test_an_op_that_is_nowhere(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("form silu_and_mul.mine  bindtest0.gate(out, x)\n")
    result = run("--bind", "mine.rw")
    assert result.exit_code == 0
    assert result.output.startswith(
        "mine.rw:1:25: note[RW229]: bindtest0.gate is not in this build of torch, and its schema is not known\n"
        "    1 | form silu_and_mul.mine  bindtest0.gate(out, x)\n"
        "      |                         ^^^^^^^^^^^^^^\n"
        "  hint: `--import MODULE` imports a package that registers it\n"
    )
    unbound = run("mine.rw")
    assert unbound.exit_code == 0
    assert unbound.output.endswith(
        "nothing wrong\nthe schema of 1 torch op is not known here: --notes names them, --bind asks torch\n"
    )


def test_an_import_registers_ops(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "registers_bindtest.py").write_text(MODULE)
    (tmp_path / "wrong.rw").write_text("form silu_and_mul.mine  bindtest.gate(out, x, 3)\n")
    (tmp_path / "unmarked.rw").write_text("form silu_and_mul.mine  bindtest.gate(x, x)\n")
    (tmp_path / "right.rw").write_text("form silu_and_mul.mine  bindtest.gate(out, x)\n")
    wrong = run("--import", "registers_bindtest", "wrong.rw", "--json")
    assert wrong.exit_code == 1
    (only,) = found(wrong)
    assert (only["code"], only["column"]) == ("RW204", 47)
    assert only["hint"].startswith("`bindtest.gate(Tensor")
    (only,) = found(run("--bind", "unmarked.rw", "--json"))
    assert only["code"] == "RW222"
    assert found(run("--bind", "right.rw", "--json")) == []


def test_another_schema_than_the_snapshot(monkeypatch: pytest.MonkeyPatch, lib: torch.library.Library) -> None:
    lib.define("f(Tensor x, SymInt n=1) -> Tensor")
    told = Running().remark("bindtest2.f")
    assert told is None  # the snapshot does not have it
    from fxrewrite.dsl.schemas import snapshot

    for schema, code in (
        ("f(Tensor x, int n=1) -> Tensor", None),
        ("f(Tensor x, int n) -> Tensor", "RW230"),
        ("f(Tensor! x, int n=1) -> Tensor", "RW230"),
        ("f(Tensor x, int m=1) -> Tensor", "RW230"),
        ("f(Tensor x, int n=1) -> (Tensor, Tensor)", "RW230"),
        ("f.other(Tensor y) -> Tensor", None),
    ):
        known = snapshot.Namespace("bindtest2", "a test", False, (schema,))
        monkeypatch.setattr(snapshot, "read", lambda name, known=known: known)
        told = Running().remark("bindtest2.f")
        assert (told.code if told else None) == code, schema


def test_an_op_of_torch_that_this_build_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Running, "here", lambda self, op: ())
    told = Running().remark("aten.silu")
    assert told is not None
    assert (told.code, told.message) == ("RW229", "aten.silu is not in this build of torch")
    assert Running().remark("aten.sillu") is None  # an error, not a note


def test_a_module_that_cannot_be_imported(run: Callable[..., Result]) -> None:
    result = run("--import", "nothing_of_this_name")
    assert result.exit_code == 2
    assert "cannot import nothing_of_this_name" in result.output


def test_what_is_installed_has_the_last_word_when_packs_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.rw").write_text("form silu.mine  vllm.rocm_aiter_triton_add_rmsnorm_pad(x)\n")
    config = make_config([tmp_path / "mine.rw"])
    with pytest.raises(RuleError, match="needs `"):
        load_program(config)
    lib = torch.library.Library("vllm", "FRAGMENT")
    try:
        lib.define("rocm_aiter_triton_add_rmsnorm_pad(Tensor x) -> Tensor")
        assert "mine" in [f.name for f in load_program(config).ops["silu"].forms]
    finally:
        lib._destroy()
