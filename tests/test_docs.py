"""The documentation is true: rules check, messages are the real ones, commands print what is shown, links lead on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch

import fxrewrite
from doc_blocks import DOCS, NAME, ROOT, Block, agrees, blocks, findings, replay, told, working_in
from fxrewrite.cli import cli
from fxrewrite.dsl.check import builtins
from fxrewrite.dsl.check.properties import PROPERTIES
from fxrewrite.dsl.check.samples import DISTRIBUTIONS
from fxrewrite.dsl.check.signatures import ATTRIBUTE_TYPES, LAYOUTS
from fxrewrite.dsl.codes import TITLES
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.sources import shipped

ERRORS = DOCS / "errors"
NO_EXAMPLE = "<!-- no example file: "  # the page of a code that no single file of rules can show
OF_PINS = {"RW501", "RW502", "RW503", "RW504"}  # they are about expect.toml
OF_VERIFY = {"RW408", *(c for c in TITLES if c.startswith("RW6"))}  # docs/verify.md shows what it prints
OF_NO_FILE = {"RW001", "RW002", "RW131", "RW229", "RW230", *OF_PINS, *OF_VERIFY}
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
# their commands import torch
SLOW = {
    "plain-patterns.md", "tutorial.md", "verify.md", "bisect.md", "explain.md", "expect.md",
    "from-register-replacement.md",
    "RW229.md", "RW230.md", "RW503.md", "RW504.md",
}  # fmt: skip
RUN = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.name in SLOW else [])
    for page in PAGES
    if page.is_relative_to(DOCS) and any(b.language in ("console", "output") for b in blocks(page.read_text()))
]


def every(language: str) -> Iterator[tuple[Path, Block]]:
    return ((page, b) for page in PAGES for b in blocks(page.read_text()) if b.language == language)


# ---- pages of error codes


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {p.stem for p in ERRORS.glob("*.md")} - {"README"} == set(TITLES)
    index = (ERRORS / "README.md").read_text()
    listed = dict(re.findall(r"^\| \[(RW\d{3})\]\(\1\.md\) \| (.+) \|$", index, re.M))
    assert {code: title.replace("\\|", "|") for code, title in listed.items()} == TITLES


@pytest.mark.parametrize("code", TITLES)
def test_page_of_a_code(code: str) -> None:
    page = (ERRORS / f"{code}.md").read_text()
    assert page.startswith(f"# {code}: {TITLES[code]}\n\n")
    assert (NO_EXAMPLE in page) == (code in OF_NO_FILE)
    if code in OF_NO_FILE:
        assert code in OF_VERIFY or f"[{code}]" in "".join(b.text for b in blocks(page) if b.language == "console")
        return
    wrong, message, right = blocks(page)
    assert (wrong.language, message.language, right.language) == ("rw", "", "rw")
    assert message.text == told(wrong.text, code), "python tests/doc_blocks.py writes the messages"
    assert [d for d in findings(right.text) if d.code != "RW228"] == []


# ---- blocks of all pages


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != ERRORS], ids=lambda p: p.stem)
def test_rules_check(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language == "rw" and "wrong" not in block.info:
            beside = ["default"] if page.name == "README.md" and page.parent == ROOT else []  # as its Python loads them
            wrong = [d for d in findings(block.text, *beside) if d.severity != "note"]
            assert wrong == [], f"{page.name}:{block.line}: {wrong[0].code} {wrong[0].message}"


def test_python_compiles() -> None:
    for page, block in every("python"):
        compile(block.text, f"{page.name}:{block.line}", "exec")


def test_every_block_says_what_it_is() -> None:
    known = {"rw", "python", "console", "output", "sh", "yaml", "toml"}
    for page in PAGES:
        for block in blocks(page.read_text()):
            drawing = block.language == "" and (page.parent == ERRORS or page.name == "ARCHITECTURE.md")
            assert block.language in known or drawing, f"{page.name}:{block.line}"


@pytest.mark.parametrize("page", RUN)
def test_what_is_printed_is_shown(page: Path, tmp_path: Path) -> None:
    for shown, got in replay(page.read_text(), tmp_path):
        assert agrees(shown.text, got), f"{page.name}:{shown.line}: shown\n{shown.text}\nprinted\n{got}"


@pytest.mark.slow
def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    found = blocks((ROOT / "README.md").read_text())
    rules = next(b for b in found if b.text.startswith("# my.rw\n"))
    (tmp_path / "my.rw").write_text(rules.text)
    model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
    namespace = {"model": model, "x": x, "exported_program": torch.export.export(model, (x,))}
    with working_in(tmp_path), torch.no_grad():
        for block in found:
            if block.language == "python":
                exec(compile(block.text, "README.md", "exec"), namespace)


def command_lines() -> Iterator[tuple[str, str]]:
    """Each command of fxrewrite in a block, or in backticks within the text, and where it stands."""
    for page in PAGES:
        text = page.read_text()
        for block in blocks(text):
            if block.language in ("sh", "console"):
                for line in block.text.splitlines():
                    found = re.match(r"(?:\$ )?(fxrewrite .*)", line)
                    if found:
                        yield f"{page.name}:{block.line}", found[1]
        for found in re.finditer(r"(?<!`)`(fxrewrite [a-z][^`]*)`(?!`)", text):
            yield page.name, found[1].replace("\n", " ")


@pytest.mark.parametrize(("place", "line"), sorted(set(command_lines())))
def test_commands_exist(place: str, line: str) -> None:
    _, verb, *words = shlex.split(line, comments=True)
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None, f"{place}: no verb {verb}"
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    given = {w.partition("=")[0] for w in words if re.match(r"-{1,2}\w", w)}
    assert given <= options, place


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            there = page.parent / path if path else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", there.read_text(), re.M)
                anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in anchors, f"{page.name}: {target}"


# ---- the reference


LANGUAGE = DOCS / "language.md"
GRAMMAR = re.sub(r"^//.*$", "", (ROOT / "fxrewrite" / "dsl" / "grammar.lark").read_text(), flags=re.M)


def code_of(page: str) -> str:
    """What stands in backticks and in blocks."""
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S))
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    return "\n".join([*spans, *(b.text for b in blocks(page))])


def keywords() -> set[str]:
    """Every word of the grammar: those of its rules, and those that no name may be."""
    quoted = re.findall(r'"([A-Za-z]\w*)"', GRAMMAR)
    return {*quoted, *reserved(), "O0", "O1", "O2", "O3", "KiB", "MiB", "GiB"}


def reserved() -> set[str]:
    """The words that no name may be."""
    found = re.search(r"^NAME: /\(\?!\(\?:(.+?)\)", GRAMMAR, re.M)
    assert found
    return set(found[1].split("|"))


def signs() -> set[str]:
    """Every operator and mark of the grammar."""
    return set(re.findall(r'"([^"\w\s]+)"', re.sub(r"/.+/", "", GRAMMAR)))


def test_the_reference_holds_every_word_and_sign_of_the_grammar() -> None:
    code = code_of(LANGUAGE.read_text())
    words = set(re.findall(r"\w+", code))
    assert len(keywords()) > 50 and len(signs()) > 25
    assert keywords() - words == set()
    assert {s for s in signs() if s not in code} == set()


def test_the_reference_lists_the_reserved_words() -> None:
    page = LANGUAGE.read_text()
    section = page.partition("## Reserved words")[2].partition("\n## ")[0]
    assert set(re.findall(r"\w+", code_of(section))) >= reserved()


def test_the_reference_holds_every_name_that_is_built_in() -> None:
    words = set(re.findall(r"\w+", code_of(LANGUAGE.read_text())))
    names = {*builtins.RESERVED, *ATTRIBUTE_TYPES, *LAYOUTS, *PROPERTIES, *DISTRIBUTIONS, *shipped()}
    assert names - words == set()


def test_the_reference_calls_each_function_as_the_checker_does() -> None:
    code = code_of(LANGUAGE.read_text())
    made = {f"{name}({', '.join(a.name for a in spec.arguments)})" for name, spec in builtins.BUILTINS.items()}
    assert {call for call in made if call not in code} == set()
    for name, count in builtins.PREDICATES.items():
        found = re.findall(rf"(?<![\w.]){name}\(([^()\n]*)\)", code)
        assert count in {a.count(",") + 1 for a in found}, name


def test_the_tables_of_functions_hold_nothing_else() -> None:
    page = LANGUAGE.read_text()
    section = page.partition("## Functions")[2].partition("\n## ")[0]
    named = set(re.findall(r"(\w+)\(", "\n".join(re.findall(r"^\| (`.+?) \|", section, re.M))))
    assert named == {*builtins.BUILTINS, *builtins.PREDICATES, "finfo"}


@pytest.mark.parametrize(
    ("condition", "answered"),
    {
        "rows(x) == 4": True, "bytes(x) == 512": True, "broadcasts(x, x)": True, "contiguous(x)": True,
        "same_layout(x, x)": False, "not written(x)": False,
    }.items(),
)  # fmt: skip
def test_what_a_graph_answers_is_as_the_reference_says(condition: str, answered: bool) -> None:
    name = re.search(r"(\w+)\(", condition)
    assert name
    row = next(r for r in LANGUAGE.read_text().splitlines() if r.startswith("| ") and f"`{name[1]}(" in r)
    assert ("not answered" not in row and "`canonicalize`" not in row) == answered
    file, _ = parse(f"fusion twice(x) = silu(x) |> silu\n  requires {condition}\n", NAME)
    model = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.SiLU())
    program = torch.export.export(model, (torch.randn(4, 64).bfloat16(),))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(program, [file], providers=["op"])
    assert log.fired()["twice"] == answered, log.report()


def test_the_reference_knows_the_limits() -> None:
    section = LANGUAGE.read_text().partition("## Limits")[2].partition("\n## ")[0]
    sources = [p.read_text() for p in (ROOT / "fxrewrite" / "dsl").rglob("*.py")]
    for name in ("MAX_DEPTH", "MAX_EQUATIONS", "MAX_NESTING", "MAX_EXPANSIONS"):  # wherever they are
        (limit,) = [n for text in sources for n in re.findall(rf"^{name} = ([\d_]+)", text, re.M)]
        assert f"{int(limit):,}" in section, name


def test_the_reference_holds_every_code() -> None:
    page = LANGUAGE.read_text()
    assert {c for c in TITLES if f"(errors/{c}.md)" not in page} == set()
