"""Formatting changes no meaning, loses no comment, and does not depend on how the text was laid out before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syntax_trees as trees
from fxrewrite.dsl import format as formatter
from fxrewrite.dsl import syntax
from fxrewrite.dsl.format import Unfaithful, format_file, format_text
from fxrewrite.dsl.format.items import LAYOUTS
from fxrewrite.dsl.format.render import WIDTH
from fxrewrite.dsl.format.same import same
from fxrewrite.dsl.format.trivia import Source, scan
from fxrewrite.dsl.parse import parse
from test_syntax_errors import LONG, WORDS

ROOT = Path(__file__).parents[1]
RIGHT = sorted((ROOT / "tests/corpus/ok").glob("*.rw"))
LIBRARY = sorted([*(ROOT / "patterns").rglob("*.rw"), *(ROOT / "examples").rglob("*.rw")])
NAME = trees.HERE.file
quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def formatted(text: str) -> str:
    done = format_text(text, NAME)
    assert not done.diagnostics, done.diagnostics[0].render({NAME: text})
    return done.text


def comments(text: str) -> list[str]:
    return [one.text for one in scan(text) if one.text]


def check_tree(file: syntax.File) -> None:
    """The text of a tree reads as that tree, and is canonical."""
    text = format_file(file)
    again, diagnostics = parse(text, NAME)
    assert not diagnostics, diagnostics[0].render({NAME: text})
    assert same(again.items, file.items), text
    assert formatted(text) == text


# ---- random trees


@settings(quiet, max_examples=150)
@given(trees.expressions)
def test_expressions_read_as_they_are(expression: Any) -> None:
    left = (syntax.Var(trees.HERE, "x"),)
    check_tree(syntax.File(NAME, (syntax.Rule(trees.HERE, None, left, (expression,)),)))


@settings(quiet, max_examples=25)
@given(trees.files)
def test_files_read_as_they_are(file: syntax.File) -> None:
    check_tree(file)


@pytest.mark.slow
@settings(quiet, max_examples=700)
@given(trees.files)
def test_many_files_read_as_they_are(file: syntax.File) -> None:
    check_tree(file)


def test_every_class_has_a_layout() -> None:
    classes = {c for c in vars(syntax).values() if isinstance(c, type) and issubclass(c, syntax.Node)}
    assert set(LAYOUTS) == classes - {syntax.Node}


@pytest.mark.slow
def test_random_trees_have_every_class_and_every_field() -> None:
    """Else a part of the language would not be tried above."""
    met: set[tuple[type, str]] = set()

    def collect(item: syntax.Item) -> None:
        todo: list[Any] = [item]
        while todo:
            value = todo.pop()
            if isinstance(value, tuple):
                todo += value
            elif isinstance(value, syntax.Node):
                fields = {f.name: getattr(value, f.name) for f in attrs.fields(type(value))}
                met.update((type(value), name) for name, part in fields.items() if part not in (None, (), "", False))
                todo += fields.values()

    for kind in trees.ITEMS:
        settings(quiet, max_examples=100, derandomize=True, database=None)(given(kind)(collect))()
    wanted = {(c, f.name) for c in LAYOUTS for f in attrs.fields(c) if f.name not in ("span", "func_span")}
    assert wanted <= met, wanted - met


# ---- other layouts of the same text


@st.composite
def loose(draw: st.DrawFn, between: st.SearchStrategy[str], around: st.SearchStrategy[str]) -> tuple[str, str]:
    """The canonical text of a random file, and the same tokens with other blanks, and comments, between and around."""
    canonical = format_file(draw(trees.files))
    file, _ = parse(canonical, NAME)
    text = ""
    for item in file.items:
        words = [token.text for token in Source(canonical).tokens_of(item.span)]
        if words[0] in ("form", "impl"):  # on one line, or this could be a clause of the op above
            words[:3] = [f"{words[0]} {words[1]}{words[2]}"]
        text += draw(around)
        text += "".join(f"##{line and ' '}{line}\n" for line in item.doc.split("\n") if item.doc)
        text += words[0] + "".join(draw(between) + word for word in words[1:]) + "\n"
    return canonical, text + draw(around)


blanks = st.sampled_from([" ", "   ", "\n ", "\r\n         "])
remarks = st.sampled_from(["#", "# c", "#x", "# ## d", '# "q', "# it's"])
behind = st.sampled_from([" {}\n ", "\n{}\n ", "\n      {}\n ", " {}\n\n  {}\n\n\n{}\n "])
noise = blanks | blanks | blanks | blanks | st.builds(lambda lines, text: lines.format(*[text] * 3), behind, remarks)
no_items = st.sampled_from(["", "", "\n\n\n", "# alone\n", "  # indented\n", "\n  # one\n\n  # two\n# three\n\n"])


@settings(quiet, max_examples=25)
@given(loose(blanks, st.just("")))
def test_blanks_do_not_matter(texts: tuple[str, str]) -> None:
    canonical, text = texts
    assert formatted(text) == canonical


def check_comments(text: str) -> None:
    """Comments survive in order, at most one empty line stays, and what is formatted is canonical."""
    result = formatted(text)
    assert comments(result) == comments(text)
    assert formatted(result) == result
    assert "\n\n\n" not in result
    assert not any(line != line.rstrip() for line in result.split("\n"))


@settings(quiet, max_examples=25)
@given(loose(noise, no_items))
def test_comments_survive(texts: tuple[str, str]) -> None:
    check_comments(texts[1])


@pytest.mark.slow
@settings(quiet, max_examples=400)
@given(loose(noise, no_items))
def test_comments_survive_in_many_files(texts: tuple[str, str]) -> None:
    check_comments(texts[1])


# ---- files


@pytest.mark.parametrize("path", [*RIGHT, *LIBRARY], ids=lambda path: str(path.relative_to(ROOT)))
def test_right_files(path: Path) -> None:
    text = path.read_text()
    check_comments(text)
    before, after = parse(text, NAME)[0], parse(formatted(text), NAME)[0]
    assert before.items == after.items
    assert formatted(text.replace("\n", "\r\n")) == formatted(text)
    assert all(len(line.partition("#")[0].rstrip()) <= WIDTH for line in formatted(text).split("\n"))


CANONICAL = {
    "blanks and commas": ("rule  r :f( a,b, ) =>[ *x,y ,]\n", "rule r: f(a, b) => [*x, y]\n"),
    "commas of clauses": (
        "pack p after a, b, when c, prefer d,\nuse a (b, c,)\n"
        "op f(x: a[D,],; k: b,) -> (p: a, q: b,) property p(x,),\n",
        "pack p after a, b when c prefer d\nuse a (b, c)\nop f(x: a[D]; k: b) -> (p: a, q: b)\n  property p(x)\n",
    ),
    "brackets": ("((a+(b*c)))=>((a+b)*c) - (d - e)\n", "a + b * c => (a + b) * c - (d - e)\n"),
    "chains": ("(a<b)<c => (a and b) or (c or d)\n", "(a < b) < c => a and b or (c or d)\n"),
    "minus": ("-(-x) - -y => -(a*b) * (-c)\n", "--x - -y => -(a * b) * -c\n"),
    "not": ("not(not x) => (not a) == (not b)\n", "not not x => (not a) == (not b)\n"),
    "pipes": ("(a|>f)|>g() => h(a|>f, (b or c)|>f)\n", "a |> f |> g() => h(a |> f, b or c |> f)\n"),
    "sizes": (
        "x[...,:N // 2] => 2*D - a*b requires D%(4 * G) == 0\n",
        "x[..., :N//2] => 2*D - a * b requires D % (4*G) == 0\n",
    ),
    "facts of numbers": ("(1).x => (1.0).0, 1 [0]\n", "(1).x => (1.0).0, 1[0]\n"),
    "numbers": (
        "x => 1E-06 + 007 + 64KiB + 1.50 contract relaxed rtol 1e-03 atol 0\n",
        "x => 1E-06 + 007 + 64KiB + 1.50 contract relaxed rtol 1e-03 atol 0\n",
    ),
    "one result": ("op f(x:a)->(y:b)\nop g(x:a)->b\n", "op f(x: a) -> (y: b)\nop g(x: a) -> b\n"),
    "arguments behind keywords": ("f(k=1,x) => g(a,k=2,b,...)\n", "f(k=1, x) => g(a, k=2, b, ...)\n"),
    "neighbours of a kind": (
        "fusion f(x) = x requires a requires b prefer c requires d\n",
        "fusion f(x) = x requires a, b prefer c requires d\n",
    ),
    "order of clauses": (
        'op f(x: a) -> b property p ref "k:f" form g h(x) requires c\n',
        'op f(x: a) -> b\n  property p\n  ref "k:f"\n  form g  h(x)\n  requires c\n',
    ),
    "equations in columns": (
        "def f(x) = a when b = a_longer_one when c\n",
        "def f(x)\n  = a              when b\n  = a_longer_one   when c\n",
    ),
    "empty lines": (
        "\n\n# a\n\n\n\nx => y\n\n\nx => y\n# b\n\n\n",
        "# a\n\nx => y\n\nx => y\n# b\n",
    ),
    "groups of clauses": (
        "op f(x: a) -> b\n\n  form g  h(x)\n\n\n  form k  h(x)\n",
        "op f(x: a) -> b\n\n  form g  h(x)\n\n  form k  h(x)\n",
    ),
    "documentation": ("##  one\n##\n##two\n# no doc\nx => y\n", "##  one\n##\n## two\n# no doc\nx => y\n"),
    "comments in lists": (
        "f(a, # first\n  b # last\n  ) => x # end\n",
        "f(a,  # first\n    b  # last\n  )\n  => x  # end\n",
    ),
    "comments at clauses": (
        "fusion f(x) = x # of the line\n  # of the clause\n  requires a, # one\n    b\n  # behind\n# apart\n",
        "fusion f(x) = x  # of the line\n  # of the clause\n  requires a,  # one\n           b\n  # behind\n# apart\n",
    ),
    "a comment where no line may end": ("x => - # why\n  y\n", "x => -y  # why\n"),
    "nothing": ("\n \n", ""),
    "only comments": ("  # a\n\n\n# b", "# a\n\n# b\n"),
}


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical(name: str) -> None:
    text, wanted = CANONICAL[name]
    assert formatted(text) == wanted
    assert formatted(wanted) == wanted


def test_long_lines() -> None:
    a, b, c = ("abcdefghi"[i] * 50 for i in range(3))
    assert formatted(f"rule r: f({a}, {b}) => {c} requires {a}, {b}, {c}\n") == (
        f"rule r:\n  f({a}, {b})\n  => {c}\n  requires {a}, {b},\n           {c}\n"
    )
    assert formatted(f"x => f({a}, g({b}, x), {c}) where y = {a}, z = {b}\n") == (
        f"x\n  => f({a}, g({b}, x),\n       {c})\n  where y = {a}, z = {b}\n"
    )
    assert formatted(f"x => {a} or {b} or {c}\n") == f"x\n  => {a}\n       or {b}\n       or {c}\n"
    assert formatted(f"fusion f({a}; {b}: x, {c}: y) = x where y = {a} |> {b}, {c} = {b} |> f\n") == (
        f"fusion f({a};\n    {b}: x, {c}: y)\n  = x\n  where y = {a} |> {b},\n        {c} = {b} |> f\n"
    )
    assert formatted(f"op f(x: a) -> b\n  impl g(k={a})  {b}.c(x) when {c}\n") == (
        f"op f(x: a) -> b\n  impl g(k={a})  {b}.c(x)\n    when {c}\n"
    )
    assert formatted(f"op f(x: a) -> b\n  impl g(k={a})  {b}.c({c}) when c\n") == (
        f"op f(x: a) -> b\n  impl g(k={a})\n    {b}.c({c})\n    when c\n"
    )


SOURCES = [path.read_text() for path in RIGHT]


@settings(quiet, max_examples=60)
@given(st.sampled_from(SOURCES), st.integers(0, 3000), st.integers(0, 6), st.sampled_from([*WORDS, "", "# c\n "]))
def test_a_text_is_formatted_or_left_alone(text: str, start: int, length: int, word: str) -> None:
    start %= len(text)
    changed = text[:start] + word + text[start + length :]
    if format_text(changed, NAME).diagnostics:
        assert format_text(changed, NAME).text == changed
    else:
        check_comments(changed)


# ---- limits


@pytest.mark.parametrize("name", LONG)
def test_what_is_too_deep_is_left_alone(name: str) -> None:
    done = format_text(LONG[name], NAME)
    assert done.text == LONG[name]
    assert done.diagnostics == tuple(parse(LONG[name], NAME)[1])


@pytest.mark.parametrize(
    "head", ["f(", "-", "not ", "(a + ", "[", "x |> f(", "f(k=", "x[:", "(a < ", "(a in {", "((a | b) | "]
)
def test_depth_up_to_the_limit(head: str) -> None:
    depth = next(n for n in range(200, 0, -1) if not parse(_nested(head, n), NAME)[1])
    assert depth >= 60
    check_comments(_nested(head, depth))


def _nested(head: str, depth: int) -> str:
    closing = "".join({"(": ")", "[": "]", "{": "}"}.get(letter, "") for letter in reversed(head))
    closing = closing.replace(")", "", 1) if head.startswith("((") else closing
    return f"a => {head * depth}x{closing * depth}\n"


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("f(a", ", a"),
        ("[a", ", a"),
        ("a", " < a"),
        ("(a | a", " | a"),
        ("a", ", a"),
        ("x[0", ", 0"),
        ("a in {a", ", a"),
    ],
)
def test_long_chains(first: str, more: str) -> None:
    closing = "".join({"(": ")", "[": "]", "{": "}"}.get(letter, "") for letter in reversed(first))
    check_comments(f"a => {first}{more * 5000}{closing}\n")


# ---- faults of the formatter


def test_another_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYOUTS, syntax.Unary, lambda node, source: [node.operand.name])
    with pytest.raises(Unfaithful, match="another syntax tree"):
        format_text("x => -x\n", NAME)


def test_other_comments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, "behind", lambda trivia, indent: "")
    with pytest.raises(Unfaithful, match="comments"):
        format_text("x => x # why\n", NAME)


def test_trees_that_differ() -> None:
    def right(text: str) -> Any:
        return parse(f"x => {text}\n", NAME)[0].items

    assert same(right("f(a, [1])"), right("f( a, [1 ])"))
    for one, other in (
        ("1", "1.0"),
        ("f(a)", "f(b)"),
        ("f(a)", "f(a, a)"),
        ("a", '"a"'),
        ("true", "1"),
        ("(a,)", "[a]"),
    ):
        assert not same(right(one), right(other))
