"""Every code of the source has a title and a wrong file, and nothing else has one."""

from __future__ import annotations

import re
from pathlib import Path

from fxrewrite.dsl.codes import TITLES

ROOT = Path(__file__).parents[1]
OF_FILES = {"RW001", "RW002", "RW131"}  # of a file that cannot be read: tests/test_check_command.py, test_use.py
OF_PINS = {"RW501", "RW502", "RW503", "RW504"}  # of expect.toml: tests/test_expect.py
FOUND_BY_VERIFY = {"RW408", "RW601", "RW602", "RW603", "RW605", "RW606", "RW607", "RW608", "RW610", "RW611"}
FOUND_BY_BIND = {"RW229", "RW230"}  # of the torch that is installed: tests of `check --bind`


def used() -> set[str]:
    """The codes that the source mentions, the table of titles apart."""
    sources = [p for p in (ROOT / "fxrewrite").rglob("*.py") if p.name != "codes.py"]
    return {code for p in sources for code in re.findall(r"\"(RW\d{3})\"", p.read_text())}


def test_every_code_of_the_source_has_a_title() -> None:
    codes = used() | FOUND_BY_VERIFY
    assert not codes ^ TITLES.keys()
    assert all(title and title[-1] not in ".;" for title in TITLES.values())


def test_every_code_has_a_wrong_file() -> None:
    wanted = TITLES.keys() - OF_FILES - OF_PINS - FOUND_BY_VERIFY - FOUND_BY_BIND
    held = {path.name[:5] for path in (ROOT / "tests" / "corpus" / "fail").glob("*.rw")}
    assert not (held ^ wanted) - FOUND_BY_VERIFY


def test_many_mistakes_of_newcomers_are_held() -> None:
    semantic = list((ROOT / "tests" / "corpus" / "fail").glob("RW[234]*.rw"))
    assert len(semantic) >= 120  # of names, types and choice: what users of Python, MLIR, vLLM and jaxtyping write
