"""Each wrong file of the corpus gets one error, which its first line states; the right ones get none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fxrewrite.dsl import packs
from fxrewrite.dsl.parse import parse

CORPUS = Path(__file__).parent / "corpus"
FAIL = sorted(CORPUS.glob("fail/*.rw"))
CHECKED = sorted(path for path in CORPUS.glob("ok/*.rw") if path.read_text().startswith("# checks"))
HEADER = re.compile(r"# (RW\d\d\d) at (\d+):(\d+): (.+)")


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_wrong_file(path: Path) -> None:
    text = path.read_text()
    header = HEADER.match(text)
    assert header, "the first line says `# RWnnn at line:column: message; hint`"
    file, syntax_errors = parse(text, path.name)
    found = syntax_errors or packs.check_packs([file])[1]
    diagnostics = [d for d in found if d.severity != "note" or path.name.startswith(d.code)]
    assert len(diagnostics) == 1, "\n".join(d.render({path.name: text}) for d in diagnostics)
    one = diagnostics[0]
    told = "; ".join(part for part in (one.message, one.hint) if part)
    assert (one.code, str(one.span.line), str(one.span.column), told) == header.groups(), one.render({path.name: text})
    assert path.name.startswith(one.code)
    assert one.span.line == one.span.end_line
    assert one.hint or one.code < "RW2"


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.stem)
def test_right_file(path: Path) -> None:
    file, syntax_errors = parse(path.read_text(), path.name)
    assert not syntax_errors
    assert not [d for d in packs.check_packs([file])[1] if d.severity != "note"]
