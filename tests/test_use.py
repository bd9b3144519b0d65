"""`use`: files beside the one that says it, shipped packs, and nothing outside of the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic

Check = Callable[..., tuple[Program, list[Diagnostic]]]
MINE = "fusion my_norm(x, w, ub) = rms_norm(x, w) |> silu |> quant_fp8(ub)\nfusion hidden(x) = gelu(x) |> gelu\n"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.chdir(tmp_path)

    def write_and_check(*names: str, **texts: str) -> tuple[Program, list[Diagnostic]]:
        for name, text in texts.items():
            path = Path(name.replace("__", "/") + ".rw")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return packs.check_packs(names)

    return write_and_check


def codes(found: list[Diagnostic]) -> list[str]:
    return [d.code for d in found if d.severity == "error"]


def test_a_file_beside_and_one_below(check: Check) -> None:
    text = "use mine (my_norm)\nuse sub.other\nfusion f(x, w, ub) = my_norm(theirs(x), w, ub), y where y = theirs(x)\n"
    made, found = check("a.rw", a=text, mine=MINE, sub__other="fusion theirs(x) = silu(x) |> silu\n")
    assert codes(found) == []
    assert "my_norm" in made.ops
    assert [r.name for r in made.rules] == ["f"]  # a file that is used does not fire by that


def test_only_the_names_that_are_asked_for(check: Check) -> None:
    _, found = check("a.rw", a="use mine (my_norm)\nfusion f(x) = hidden(x) |> silu\n", mine=MINE)
    assert [(d.code, d.hint) for d in found] == [("RW205", "write `use mine (hidden)` above")]
    _, found = check("a.rw", a="use mine (my_nrom)\n", mine=MINE)
    assert [(d.code, d.hint) for d in found] == [("RW205", "did you mean `my_norm`?")]


def test_a_loop_of_use_is_read_once(check: Check) -> None:
    mine = "use a\n" + MINE
    made, found = check("a.rw", a="use mine\nuse a\nfusion f(x) = hidden(x) |> quant_fp8\n", mine=mine)
    assert codes(found) == []
    assert [r.name for r in made.rules] == ["f"]
    assert codes(check("mine.rw", "./a.rw", str(Path("a.rw").resolve()))[1]) == []


def test_what_was_used_and_has_changed_is_read_again(check: Check) -> None:
    text = "use mine\nfusion f(x) = hidden(x) |> quant_fp8\n"
    assert codes(check("a.rw", a=text, mine=MINE)[1]) == []
    assert codes(check("a.rw", mine="fusion other(x) = gelu(x) |> gelu\n")[1]) == ["RW205"]
    assert codes(check("a.rw", mine=MINE)[1]) == []


def test_a_fault_in_a_file_that_is_used_is_told(check: Check) -> None:
    _, (one,) = check("a.rw", a="use mine\n", mine="fusion f(x) = silu(x, x)\n")
    assert (one.code, one.span.file) == ("RW204", "mine.rw")


def test_nothing_outside_of_the_folder(check: Check, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret.rw").write_text(MINE)
    os.symlink(tmp_path / "secret.rw", tmp_path / "inner" / "link.rw")
    _, (one,) = check("inner/a.rw", inner__a="use link\n")
    assert (one.code, one.message) == ("RW002", "`use` of an unknown pack `link`")
    assert one.hint.endswith("a file `link.rw` beside this one")
    for text in ("use ../secret\n", 'use "../secret.rw"\n', "use /secret\n"):
        _, (one,) = check("inner/a.rw", inner__a=text)
        assert (one.code, one.hint) == ("RW129", "write `use secret`")


def test_a_file_in_a_folder_of_the_name_vocab_fires(check: Check) -> None:
    made, _ = check("vocab/a.rw", vocab__a="fusion f(x) = silu(x) |> gelu\n")
    assert [r.full_name for r in made.rules] == ["a.f"]
