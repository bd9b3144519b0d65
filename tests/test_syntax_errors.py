"""Wrong text gets one answer for each broken item, at the right place, and never an exception."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.parse import MAX_BYTES, MAX_DEPTH, parse
from fxrewrite.dsl.reader.tokens import KEYWORDS

CORPUS = Path(__file__).parent / "corpus"
FAIL = [path for path in sorted(CORPUS.glob("fail/RW1*.rw")) if parse(path.read_text(), path.name)[1]]
RIGHT = [path.read_text() for path in sorted(CORPUS.glob("ok/*.rw"))]


@pytest.mark.parametrize("path", FAIL, ids=lambda path: path.stem)
def test_a_broken_item_hides_no_other(path: Path) -> None:
    body = path.read_text().partition("\n")[2]
    file, diagnostics = parse(f"above => x\n\nunrelated => x\n{'' if continues(body) else body}\nbelow => x\n", "x.rw")
    assert len(diagnostics) == (0 if continues(body) else 1)
    names = [
        item.left[0].name
        for item in file.items
        if isinstance(item, syntax.Rule) and isinstance(item.left[0], syntax.Var)
    ]
    assert names[:2] == ["above", "unrelated"]
    assert names[-1] == "below"


def continues(body: str) -> bool:
    """Is this text, below another item, a part of that item?"""
    return body[0] == " " or body.startswith(("where", "//"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("=> y", "RW111"),
        ("requires c", "RW111"),
        ("\trequires c", "RW112"),
        ("  ## doc", "RW121"),
        ("  requires é", "RW129"),
    ],
)
def test_a_broken_continuation_breaks_the_item_above(line: str, code: str) -> None:
    file, diagnostics = parse(f"a => b\n{line}\nc => d\n", "x.rw")
    assert [item.span.line for item in file.items] == [3]
    assert [(found.code, found.span.line) for found in diagnostics] == [(code, 2)]


def test_diagnostics_come_in_order() -> None:
    _, diagnostics = parse("a =>\n\n## doc\n\nb =>\nrequires c\n", "x.rw")
    assert [found.span.line for found in diagnostics] == [1, 3, 6]


def test_what_was_expected_is_said_in_words() -> None:
    for text in ("fusion f(x) = g(x) bitwise", "op f(x: t) t", "pack a level 2", "a => b contract strict", "x =>"):
        _, (found,) = parse(text, "x.rw")
        assert found.code == "RW129"
        assert not re.search(r"[A-Z]{3,}|\$|__", found.message), found.message


LONG = {
    "minuses": "a => " + "-" * 9_000 + "x",
    "nots": "a => " + "not " * 9_000 + "x",
    "attributes": "a => a" + ".b" * 9_000,
    "sums": "a => a" + " + b" * 9_000,
    "conditions": "a => a" + " or b" * 9_000,
    "pipes": "a => a" + " |> f" * 9_000,
    "calls": "a => " + "f(" * 9_000,
    "closed calls": "a => " + "f(" * 300 + "x" + ")" * 300,
    "lists": "a => " + "[" * 9_000,
    "indices": "a => a" + "[0]" * 9_000,
    "sets": "a => b requires " + "x in {" * 300 + "1" + "}" * 300,
    "keywords": "a => " + "f(k=" * 300 + "1" + ")" * 300,
    "a large file": "# comment\n" * (MAX_BYTES // 10 + 1),
}


@pytest.mark.parametrize("name", LONG)
def test_limits(name: str) -> None:
    _, diagnostics = parse(LONG[name], "x.rw")
    assert [found.code for found in diagnostics] == ["RW130"]


@pytest.mark.parametrize("head", ["f(", "-", "not ", "(", "x + (", "[", "x |> f(", "f(k=", "x[:"])
def test_depth_up_to_the_limit_is_read(head: str) -> None:
    counted = 2 if head in ("x + (", "x |> f(", "f(k=", "x[:") else 1
    closing = "".join(")" if mark == "(" else "]" for mark in head if mark in "([")
    times = MAX_DEPTH // counted
    for count, right in ((times, True), (times + 1, False)):
        text = f"a => {head * count}x{closing * count}"
        file, diagnostics = parse(text, "x.rw")
        assert bool(file.items) is right
        assert [found.code for found in diagnostics] == ([] if right else ["RW130"])
        assert file == parse(text, "x.rw")[0]  # comparing recurses into the tree


@pytest.mark.parametrize(
    "text",
    [
        "a => " + "(]" * 9_000,
        "a => " + "()" * 9_000 + " | b",
        "a => b" + "," * 9_000,
        "a => f(" + "x " * 9_000 + ")",
        "a | " * 9_000,
        "a => f" + "()" * 9_000,
        "(" * 199 + "\n" * 9_000 + "x",
        "x" * 99_999,
        "a => " + "9" * 9_000,
        'a => "' + "x" * 9_000,
        "'" * 9_000,
        "#" * 9_000,
        "## x\n" * 9_000,
        "where " * 9_000,
        "a =>\n" * 2_000,
        "\0" * 999,
        "a\rb => x",
        "a => b\x0c",
        "a\u2028b => x",
        "a => \ud800",
        "\ufeffa => b",
        "\N{SNOWMAN} => x",
        "a => x # \N{SNOWMAN}",
        "# \N{SNOWMAN}",
    ],
    ids=range(24),
)
def test_odd_text_gets_answers(text: str) -> None:
    file, diagnostics = parse(text, "x.rw")
    assert diagnostics
    check_answer(text, file, diagnostics)


MARKS = [
    "(", ")", "[", "]", "{", "}", ",", ";", ":", "?", ".", "..", "...", "+", "-", "*", "**", "/", "//", "%", "@", "~",
    "|", "||", "|>", "=", "==", "=>", "->", "<", "<=", "<>", "!=", "!", "&", "&&", "'", '"', "#", "##", "_", "é", "\0",
    "\t", "\r",
]  # fmt: skip
WORDS = [
    *sorted(KEYWORDS),
    *MARKS,
    "\n",
    "\n  ",
    "\n\n",
    " ",
    "x",
    "D",
    "f(",
    "1",
    "1e-6",
    "64KiB",
    '"s"',
    "x'",
    ".a",
    ".0",
]


@settings(deadline=None)  # the first example may have to make the table
@given(st.text(max_size=200))
def test_random_text(text: str) -> None:
    check_answer(text, *parse(text, "x.rw"))


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(["", " "]))
def test_random_words(words: list[str], between: str) -> None:
    text = between.join(words)
    check_answer(text, *parse(text, "x.rw"))


@settings(deadline=None)
@given(
    st.sampled_from(RIGHT),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.sampled_from(["", *WORDS])), max_size=4),
)
def test_damaged_text(text: str, damages: list[tuple[float, int, str]]) -> None:
    for where, length, word in damages:
        at = int(where * len(text))
        text = text[:at] + word + text[at + length :]
    check_answer(text, *parse(text, "x.rw"))


def check_answer(text: str, file: syntax.File, diagnostics: list[Diagnostic]) -> None:
    """Every place lies in the text, and every answer is in one line and can be shown."""
    lines = text.split("\n")
    spans = [found.span for found in diagnostics] + [item.span for item in file.items]
    for span in spans:
        assert 1 <= span.line <= span.end_line <= len(lines)
        assert 1 <= span.column <= len(lines[span.line - 1]) + 1
        assert 1 <= span.end_column <= len(lines[span.end_line - 1]) + 1
        assert (span.line, span.column) <= (span.end_line, span.end_column)
    for found in diagnostics:
        assert re.fullmatch(r"RW1[0-3]\d", found.code)
        assert "\n" not in found.message + found.hint
        assert found.render({"x.rw": text})
    assert [span.line for span in spans[: len(diagnostics)]] == sorted(found.span.line for found in diagnostics)


def test_a_byte_order_mark_is_told_as_that() -> None:
    _, (found,) = parse("\ufeffa => b\n", "x.rw")
    assert (found.code, found.span.column, found.hint) == ("RW129", 1, "save it as UTF-8 without BOM")
    _, (found,) = parse("a => b\ufeff\n", "x.rw")
    assert found.hint == "write it in ASCII letters"
