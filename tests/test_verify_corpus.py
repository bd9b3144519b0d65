"""The verifier is proved: each wrong file of the corpus is rejected where its first line says, each right one accepted.

Wrong files state the first check that must fail, and its code (`# equal RW601`); right ones say `# accepted`. A `.py`
beside a file registers the ops that it binds. Checks that come later may fail too, but for what comes out of a graph.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from fxrewrite.dsl import packs
from fxrewrite.dsl.parse import parse
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.runner import Plan, finding, make_checks

pytestmark = pytest.mark.slow  # 97 seconds of the processor together, 0.7 each

CORPUS = Path(__file__).parent / "corpus"
DOCS = Path(__file__).parent.parent / "docs/verify.md"
WRONG, RIGHT = (sorted(CORPUS.glob(f"{which}/*.rw")) for which in ("wrong", "right"))
STAGE = re.compile(r"# (check|static|equal|form|provider|property|fires|perturbed|context) (RW\d\d\d)\n# ")
ORDER = ("static", "equal", "form", "provider", "property", "fires", "perturbed", "context")
ON_GRAPHS = ("fires", "perturbed", "context")
OF_RANKS = ("it is about several ranks", "it does not fire on its left side: shape")  # one process is one rank


def stated(path: Path) -> tuple[str, str]:
    """The check and the code that the first line names."""
    found = STAGE.match(path.read_text())
    assert found, "the first line says `# check RWnnn`, the second what is wrong"
    return found[1], found[2]


def errors_of(path: Path) -> list[str]:
    """The codes of `fxrewrite check`."""
    file, syntax_errors = parse(path.read_text(), path.name)
    return [d.code for d in syntax_errors or packs.check_packs([file])[1] if d.severity != "note"]


@cache
def findings(path: Path) -> list[Finding]:
    """What every check of a file comes to."""
    beside = path.with_suffix(".py")
    if beside.exists():
        spec = spec_from_file_location(f"corpus_{path.stem}", beside)
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(module_from_spec(spec))
    return [finding(check) for check in make_checks(Plan((str(path),))).listed]


def told(found: list[Finding]) -> str:
    """Findings for a reader of the test."""
    return "\n".join(f"{f.check} {f.subject}: {f.outcome} {f.code or ''} {f.reason}" for f in found)


MISSED = {  # "Limits" of docs/verify.md
    "dynamic_reciprocal_of_the_tensor": "only `perturbed` sees it: a tensor has one scale, and few ties at it",
    "first_head_only": "not run: the reference is opaque, so that what differs is not called wrong",
}


def marked(path: Path) -> Any:
    """A file, expected to fail where the stage that it states does not reject it."""
    missed = MISSED.get(path.stem)
    marks = () if missed is None else pytest.mark.xfail(reason=missed, strict=True)
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", map(marked, WRONG))
def test_wrong_file(path: Path) -> None:
    check, code = stated(path)
    if check == "check":
        assert errors_of(path) == [code]
        return
    assert errors_of(path) == []
    found = findings(path)
    assert not [f for f in found if f.reason.startswith("the check raised")], told(found)
    failed = sorted((f for f in found if f.outcome == "failed"), key=lambda f: ORDER.index(f.check))
    assert failed and (failed[0].check, failed[0].code) == (check, code), told(found)
    later = [f for f in failed if f.check != check]
    assert len({f.subject for f in failed if f.check != "context"}) == 1, told(failed)
    assert all(f.check in ON_GRAPHS or check == "static" for f in later), told(later)
    assert not [f for f in later if re.search("must not fire|must fire|does not fire", f.reason)], told(later)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_file(path: Path) -> None:
    assert path.read_text().startswith("# accepted\n# ")
    assert errors_of(path) == []
    found = findings(path)
    left = [f for f in found if f.outcome == "not run" and not any(r in f.reason for r in OF_RANKS)]
    assert found and not [f for f in found if f.outcome == "failed"], told(found)
    assert not left, told(left)


def test_most_are_seen_by_numbers_alone() -> None:
    stages = Counter(stated(path)[0] for path in WRONG)
    assert stages.total() >= 40 and len(RIGHT) >= 20
    assert stages["equal"] + stages["form"] + stages["provider"] >= 25


def test_the_page_counts_the_corpus() -> None:
    stages = Counter(stated(path)[0] for path in WRONG)
    rows = dict(re.findall(r"^\| (\w+) \| (\d+) \|", DOCS.read_text(), re.MULTILINE))
    assert {stage: int(rows.get(stage, 0)) for stage in stages} == dict(stages)
    assert int(rows.get("accepted", 0)) == len(RIGHT)


def test_ops_have_names_of_their_own() -> None:
    """Ops are registered a process: two of one name would clash in one worker."""
    names = [n for p in (*WRONG, *RIGHT) for n in re.findall(r"^(?:fusion|op) (\w+)", p.read_text(), re.MULTILINE)]
    assert [n for n, count in Counter(names).items() if count > 1] == []
