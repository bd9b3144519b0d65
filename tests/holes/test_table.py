"""`tools/check_holes.py` holds the rows of `docs/holes.md` against the tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [*(f"U{i}" for i in range(1, 9)), *(f"S{i}" for i in range(1, 23)), *(f"C{i}" for i in range(1, 6)), "M1", "M2"]


def complaints(root: Path) -> list[str]:
    ended = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_holes.py", root], capture_output=True, text=True, check=False
    )
    lines = ended.stderr.splitlines()
    assert ended.returncode == (1 if lines else 0)
    return lines


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The page and the tests, to be changed."""
    for folder in ("docs", "tests/holes"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "holes.md", tmp_path / "docs")
    for path in (ROOT / "tests" / "holes").glob("*.py"):
        shutil.copy(path, tmp_path / "tests" / "holes")
    return tmp_path


def test_every_row_has_its_test() -> None:
    assert complaints(ROOT) == []
    text = (ROOT / "docs" / "holes.md").read_text()
    assert [line.split()[1] for line in text.splitlines() if line.startswith(tuple(f"| {r} |" for r in ROWS))] == ROWS


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("tests/holes/test_U.py", "def test_U3(", "def test_other(", "U3 has no test"),
        ("docs/holes.md", "| S4 |", "| row |", "test_S4 has no row"),
        ("docs/holes.md", "[test_M1](../tests/holes/test_CM.py)", "[test_M1](../tests/holes/test_U.py)", "M1 names"),
        ("docs/holes.md", "[test_M1](../tests/holes/test_CM.py)", "none", "does not name its test: | M1 |"),
        ("tests/holes/test_S.py", "def test_S9(", "@pytest.mark.skip\ndef test_S9(", "test_S9 is not run"),
    ],
)
def test_what_does_not_agree_is_told(copied: Path, file: str, old: str, new: str, said: str) -> None:
    text = (copied / file).read_text()
    assert text.count(old) == 1
    (copied / file).write_text(text.replace(old, new))
    assert any(said in line for line in complaints(copied))
