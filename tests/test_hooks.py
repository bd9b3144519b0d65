"""The pre-commit hooks: each entry command passes a right file and stops or mends a wrong one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
}
RIGHT = "silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n"


def run(hook: str, folder: Path, text: str) -> tuple[int, str]:
    """The exit code of a hook's command on a file with this text, and the text after."""
    command, *arguments = HOOKS[hook]["entry"].split()
    assert command == "fxrewrite"
    (folder / "rules.rw").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "fxrewrite", *arguments, "rules.rw"], cwd=folder, capture_output=True, check=False
    )
    return ended.returncode, (folder / "rules.rw").read_text()


def test_what_the_hooks_are() -> None:
    assert sorted(HOOKS) == ["fxrewrite-check", "fxrewrite-fmt"]
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language", "files"} <= hook.keys()
        assert hook["language"] == "python"
        assert re.search(hook["files"], "rules/mine.rw")
        assert not re.search(hook["files"], "rules/mine.rw.txt")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_right_file_passes(hook: str, tmp_path: Path) -> None:
    assert run(hook, tmp_path, RIGHT) == (0, RIGHT)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_wrong_file_stops_the_commit(hook: str, tmp_path: Path) -> None:
    text = "silu_and_mul(x) |> quant_fp8 =>\n"
    assert run(hook, tmp_path, text) == (1, text)


def test_only_fmt_minds_blanks(tmp_path: Path) -> None:
    text = RIGHT.replace(" => ", "=>")
    assert run("fxrewrite-check", tmp_path, text) == (0, text)
    assert run("fxrewrite-fmt", tmp_path, text) == (0, RIGHT), "pre-commit stops where a hook changes a file"


def test_only_check_minds_names(tmp_path: Path) -> None:
    text = RIGHT.replace("silu_and_mul", "silu_and_mull")
    assert run("fxrewrite-check", tmp_path, text) == (1, text)
    assert run("fxrewrite-fmt", tmp_path, text) == (0, text)
