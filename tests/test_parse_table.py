"""The table is Lark's, agrees with Lark's own parser, and is kept where only the user can write."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lark import Lark
from lark.exceptions import UnexpectedInput

from fxrewrite.dsl import private_cache
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.reader import table
from fxrewrite.dsl.reader.expressions import DEEPENING, EXPRESSIONS
from fxrewrite.dsl.reader.items import ITEMS
from fxrewrite.dsl.reader.lalr import accepted, states_after
from fxrewrite.dsl.reader.split import split
from fxrewrite.dsl.reader.tokens import END, KEYWORDS, LEVELS, STRANGE, tokenize

CORPUS = Path(__file__).parent / "corpus"
RIGHT = sorted(CORPUS.glob("ok/*.rw"))


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """What Lark makes of the grammar: it takes a while, and many tests below need it."""
    return table.make_table(table.grammar_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> Path:
    """The cache folder, not yet made."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(folder))
    monkeypatch.setattr(table, "make_table", lambda grammar: data)
    return folder


@pytest.fixture(scope="module")
def lark() -> Lark:
    return Lark(table.grammar_text(), parser="lalr", maybe_placeholders=True)


# ---- the grammar


def test_the_grammar_has_no_conflicts() -> None:
    Lark(table.grammar_text(), parser="lalr", strict=True)


def test_reserved_words_are_those_of_the_grammar(lark: Lark) -> None:
    pattern = next(terminal.pattern.value for terminal in lark.terminals if terminal.name == "NAME")
    name = re.compile(pattern)
    assert not [word for word in KEYWORDS if name.fullmatch(word)]
    texts = {terminal.pattern.value for terminal in lark.terminals if terminal.pattern.type == "str"}
    assert {text for text in texts if text[0].isalpha()} <= KEYWORDS
    assert all(name.fullmatch(f"{word}s_") for word in KEYWORDS)


def test_every_rule_of_the_grammar_makes_a_node(data: dict[str, Any]) -> None:
    reductions = table.load_table(data).reductions
    built = {reduction.build for reduction in reductions if reduction.build}
    assert built == {*EXPRESSIONS, *ITEMS}
    assert built >= DEEPENING
    assert all(reduction.length for reduction in reductions), "a place needs a first token"


def test_the_table_is_the_same_in_every_run(data: dict[str, Any]) -> None:
    program = "import json; from fxrewrite.dsl.reader.table import *; print(json.dumps(make_table(grammar_text())))"
    made = _run(program, PYTHONHASHSEED="17")
    assert json.loads(made) == json.loads(json.dumps(data))


def _reads_in_two(words: list[str]) -> bool:
    """Lark's contextual lexer takes `x inside` for `x in side`: a name cannot stand there, so it cuts a keyword off."""
    longer = re.compile(rf"({'|'.join(KEYWORDS)})\w+")
    return any(a.isidentifier() and longer.fullmatch(b) for a, b in pairwise(words))


def test_agrees_with_larks_parser(lark: Lark, data: dict[str, Any]) -> None:
    """Items and items with a token left out, doubled or exchanged are read by both or refused by both."""
    found = table.load_table(data)
    shuffle = random.Random(7)
    compared = refused = 0
    for text in _item_texts():
        words = [token.text for token in tokenize(text, 0, len(text), 1)[:-1]]
        for variant in (words, *(_damaged(words, shuffle) for _ in range(8))):
            accepts = _accepts(found, " ".join(variant))
            text = " ".join(variant)
            assert accepts == _lark_accepts(lark, text) or _reads_in_two(variant), text
            compared += 1
            refused += not accepts
    assert refused > 100 and compared - refused > 100, "both outcomes are compared"


def _item_texts() -> list[str]:
    texts: list[str] = []
    for path in RIGHT:
        source = path.read_text()
        texts += [source[chunk.start : chunk.end] for chunk in split(source, path.name)[0]]
    return texts


def _damaged(words: list[str], shuffle: random.Random) -> list[str]:
    words, at = list(words), shuffle.randrange(len(words))
    return shuffle.choice(
        [
            words[:at] + words[at + 1 :],
            words[: at + 1] + words[at:],
            [*words[:at], shuffle.choice(words), *words[at + 1 :]],
        ]
    )


def _accepts(found: table.Table, text: str) -> bool:
    """Does the table accept the text? What only the language refuses (a keyword twice) counts as accepted."""
    words = tokenize(text, 0, len(text), 1)
    try:
        states = states_after(found, words[:-1])
    except KeyError:
        return False
    return END in accepted(found, states)


def _lark_accepts(lark: Lark, text: str) -> bool:
    try:
        lark.parse(text)
    except UnexpectedInput:
        return False
    return True


def test_tokens_are_those_of_the_grammar(lark: Lark) -> None:
    shown = {
        terminal.name: terminal.name if terminal.name in table.NAMED else terminal.pattern.value
        for terminal in lark.terminals
    }
    text = "\n".join(_item_texts())
    ours = [(token.kind, token.text, token.line, token.column) for token in tokenize(text, 0, len(text), 1)[:-1]]
    larks = [(shown[token.type], str(token), token.line, token.column) for token in lark.lex(text)]
    assert ours == larks
    assert not {kind for kind, *_ in ours} & STRANGE
    assert LEVELS < KEYWORDS


# ---- the cache


def test_the_table_is_stored_once_and_read_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table.language_table()
    (stored,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600

    def refuse(grammar: str) -> Any:
        raise AssertionError("made again")

    monkeypatch.setattr(table, "make_table", refuse)
    assert table.language_table() == made


def test_another_grammar_has_another_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table.language_table()
    grammar = table.grammar_text()
    monkeypatch.setattr(table, "grammar_text", lambda: grammar + "\n// one more comment\n")
    table.language_table()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "zeros", "other json", "one digit", "a link", "a folder", "writable by all"]
)
def test_a_damaged_table_is_made_again(folder: Path, damage: str) -> None:
    made = table.language_table()
    (stored,) = folder.iterdir()
    content = stored.read_bytes()
    if damage == "a link":
        other = folder.parent / "planted"
        other.write_bytes(content)
        stored.unlink()
        stored.symlink_to(other)
    elif damage == "a folder":
        stored.unlink()
        stored.mkdir()
    elif damage == "writable by all":
        stored.chmod(0o666)
    else:
        digit = content.rindex(b"1")
        changed = {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "zeros": b"\0" * 999,
            "other json": b'{"actions": []}',
            "one digit": content[:digit] + b"2" + content[digit + 1 :],
        }
        stored.write_bytes(changed[damage])
    assert table.language_table() == made
    if damage != "a folder":
        assert stored.read_bytes() == content
        assert stat.S_IMODE(os.lstat(stored).st_mode) == 0o600


def test_a_value_of_another_shape_is_made_again(folder: Path) -> None:
    made = table.language_table()
    (stored,) = folder.iterdir()
    for value in (
        {"actions": []},
        [1, 2],
        "text",
        7,
        {"actions": [], "gotos": [], "reductions": [], "first": 0, "last": 0},
    ):
        private_cache.store(stored.name, value)
        assert table.language_table() == made


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert table.language_table()
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_cache.store("value", 1)
    assert private_cache.load("value") == 1
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert private_cache.load("value") is None
    private_cache.store("value", 2)
    monkeypatch.undo()
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(folder))
    assert private_cache.load("value") == 1


def test_a_linked_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    private_cache.store("value", 1)
    assert private_cache.load("value") is None
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_as_good_as_none(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    private_cache.store("value", 1)
    assert private_cache.load("value") is None
    assert table.language_table()


def test_a_folder_that_cannot_be_made_is_as_good_as_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").write_text("")
    for place in (folder.parent / "file" / "below", "/proc/self/nothing", "\0"):
        monkeypatch.setattr(private_cache, "_wanted_folder", lambda place=place: Path(place))
        private_cache.store("value", 1)
        assert private_cache.load("value") is None


def test_a_failed_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: str) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    private_cache.store("value", 1)
    assert not list(folder.iterdir())


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FXREWRITE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    private_cache.store("value", 1)
    assert (tmp_path / "shared/fxrewrite/value").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    private_cache.store("value", 1)
    assert (tmp_path / "home/.cache/fxrewrite/value").exists()


def test_many_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: table.language_table(), range(4)))
    assert all(found == tables[0] for found in tables)
    assert len(list(folder.iterdir())) == 1

    def value(number: int) -> bool:
        private_cache.store("value", [number] * 9_000)
        read = private_cache.load("value")
        return read is not None and len({*read}) == 1

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(value, range(64)))


# ---- start-up

_START = """
import sys, time
begin = time.perf_counter()
from fxrewrite.dsl.parse import parse
imported = time.perf_counter()
parse("a => b", "x.rw")
print(imported - begin, time.perf_counter() - imported)
print(*(name for name in ("torch", "lark", "sympy", "click", "rich") if name in sys.modules))
"""


def _run(program: str, **environment: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=CORPUS.parent.parent, env={**os.environ, **environment}
    )
    return done.stdout


def _started() -> tuple[float, float, str]:
    times, modules = _run(_START).split("\n")[:2]
    imported, first = map(float, times.split())
    return imported, first, modules


def test_a_warm_start_is_fast_and_imports_little(folder: Path) -> None:
    _, cold, modules = _started()
    assert modules == "lark"
    starts = [_started() for _ in range(3)]
    assert {modules for *_, modules in starts} == {""}
    imported, warm = min(s[0] for s in starts), min(s[1] for s in starts)
    assert imported < 0.25, "seconds; about 0.08 on an idle machine"
    assert warm < cold / 4


def test_parse_uses_the_cached_table(folder: Path) -> None:
    assert parse("a => b", "x.rw")[0].items
