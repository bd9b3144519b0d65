"""Graphs that failed are scripts: they run with torch alone, are tests, and are replayed against the rule of today."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.check.terms import walk as terms
from fxrewrite.dsl.core import Lit, Number, Program, Wild
from fxrewrite.verify import context, perturb
from fxrewrite.verify.context import in_context
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.profiles import CI, QUICK
from fxrewrite.verify.rebuild import replaced
from fxrewrite.verify.replay import replayed
from fxrewrite.verify.rewriting import pass_of
from test_verify_fires import RULES, found_in, rule, rules, with_rule

EDIT = "2.0 -> 4.0"


@pytest.fixture
def folder(files_here: Callable[[dict[str, str]], Path]) -> Path:
    return files_here({"faults.rw": RULES})


def any_literal() -> Program:
    """An engine that does not look at a literal."""
    left = rule("vf_twice_plus").left
    number = next(t for t in terms(left) if isinstance(t, Number) and t.value == Lit(2.0))
    return with_rule("vf_twice_plus", left=replaced(left, number, Number(Wild())))


def exchanged() -> Program:
    """A rule whose right side has its operands exchanged."""
    call = calls_of(rule("vf_difference_times").right)[0]
    return with_rule(
        "vf_difference_times",
        right=replaced(rule("vf_difference_times").right, call, evolve(call, args=call.args[::-1])),
    )


def alone(found: Finding, path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The script, which asks for nothing but torch."""
    text = str(found.script)
    assert "import fxrewrite" not in text and "from fxrewrite" not in text and "torch.ops.fxrewrite" not in text
    path.write_text(text)
    return subprocess.run([sys.executable, *command, str(path)], capture_output=True, text=True, check=False)


def test_a_graph_next_to_a_left_side(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_in("vf_twice_plus", any_literal(), EDIT)
    assert found.outcome == "failed"
    path = folder / "test_it.py"
    done = alone(found, path)
    assert done.returncode == 1 and "AssertionError: value 0: tensor(" in done.stderr, done.stderr
    assert "def vf_twice_plus_0(x0, x1):" in str(found.script)
    said, holds = replayed(["noop", "faults.rw"], path)
    assert holds and said == f"faults.vf_twice_plus holds on {path}"
    monkeypatch.setattr(perturb, "pass_of", lambda program: pass_of(any_literal()))
    said, holds = replayed(["noop", "faults.rw"], path)
    assert not holds and "still fails: " in said and EDIT in said


def test_a_graph_that_is_right_but_must_not_be_taken(folder: Path) -> None:
    """Both graphs give the same: the script says that this is not what is wrong."""
    found = found_in("vf_sum_of_products", rules(RULES.replace(" requires D % 16 == 0", "")), "outside of")
    done = alone(found, folder / "test_it.py")
    assert (done.returncode, "what is wrong is which graph the rule takes" in done.stdout) == (0, True), done.stderr
    assert alone(found, folder / "test_it.py", "-m", "pytest", "-q").returncode == 0


def test_a_random_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_context(rules(), "faults", CI, pass_of(exchanged()))
    assert found.outcome == "failed"
    path = folder / "test_it.py"
    done = alone(found, path)
    assert done.returncode == 1 and "AssertionError: value " in done.stderr, done.stderr
    assert replayed(["noop", "faults.rw"], path) == (f"faults holds on {path}", True)
    monkeypatch.setattr(context, "pass_of", lambda program: pass_of(exchanged()))
    said, holds = replayed(["noop", "faults.rw"], path)
    assert not holds and said.startswith("faults still fails: output 0: ")
    again = in_context(rules(), "faults", QUICK, pass_of(exchanged()), only=found.case)
    assert again.outcome == "failed" and again.case == found.case, "what is kept is that program alone"


def test_files_that_are_no_scripts_of_graphs(folder: Path) -> None:
    path = folder / "x.py"
    for meta, said in (
        ('{"subject": "faults.vf_total", "graph": {"check": "other"}}', "no check is called `other`"),
        ('{"subject": "faults.vf_totl", "graph": {"check": "fires"}}', "did you mean"),
        ('{"subject": "fault", "graph": {"check": "context", "how": "dynamic"}}', "no pack is called `fault`"),
        ('{"subject": "faults", "graph": {"check": "context", "how": "dynamic"}}', "it has no 'program'"),
        ('{"subject": 3}', "its subject is no name"),
        ("nothing", "cannot be read"),
    ):
        path.write_text(f"# fxrewrite: {meta}\n")
        told, holds = replayed(["noop", "faults.rw"], path)
        assert not holds and said in told, told
