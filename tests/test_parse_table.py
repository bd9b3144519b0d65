"""The parse table is Lark's and agrees with Lark's own parser."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lark import Lark
from lark.exceptions import UnexpectedInput

from fxrewrite.dsl.reader import table
from fxrewrite.dsl.reader.expressions import DEEPENING, EXPRESSIONS
from fxrewrite.dsl.reader.items import ITEMS
from fxrewrite.dsl.reader.lalr import accepted, states_after
from fxrewrite.dsl.reader.make_table import NAMED, make_table
from fxrewrite.dsl.reader.split import split
from fxrewrite.dsl.reader.tokens import END, KEYWORDS, LEVELS, STRANGE, tokenize

CORPUS = Path(__file__).parent / "corpus"
RIGHT = sorted(CORPUS.glob("ok/*.rw"))


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """What Lark makes of the grammar: it takes a while, and many tests below need it."""
    return make_table(table.grammar_text())


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
    program = (
        "import json; from fxrewrite.dsl.reader.make_table import *; from fxrewrite.dsl.reader.table import *\n"
        "print(json.dumps(make_table(grammar_text())))"
    )
    assert json.loads(_run(program, PYTHONHASHSEED="17")) == data


def test_the_stored_table_is_that_of_the_grammar(data: dict[str, Any]) -> None:
    assert json.loads(table.STORED.read_text()) == data, "python tools/parse_table.py"


def test_an_edited_grammar_has_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = table.grammar_text()
    monkeypatch.setattr(table, "grammar_text", lambda: grammar.replace('"fusion"', '"melt"'))
    kinds = {kind for row in table.language_table().actions for kind in row}
    assert "melt" in kinds and "fusion" not in kinds


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
        terminal.name: terminal.name if terminal.name in NAMED else terminal.pattern.value
        for terminal in lark.terminals
    }
    text = "\n".join(_item_texts())
    ours = [(token.kind, token.text, token.line, token.column) for token in tokenize(text, 0, len(text), 1)[:-1]]
    larks = [(shown[token.type], str(token), token.line, token.column) for token in lark.lex(text)]
    assert ours == larks
    assert not {kind for kind, *_ in ours} & STRANGE
    assert LEVELS < KEYWORDS


# ---- start-up

_START = """
import sys, time
begin = time.process_time()
from fxrewrite.dsl.parse import parse
imported = time.process_time()
assert parse("a => b", "x.rw")[0].items
print(imported - begin, time.process_time() - imported)
print(*(name for name in ("torch", "lark", "sympy", "click", "rich") if name in sys.modules))
"""


def _run(program: str, **environment: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=CORPUS.parent.parent, env={**os.environ, **environment}
    )
    return done.stdout


def test_a_start_is_fast_and_imports_little() -> None:
    imports, firsts = list[float](), list[float]()
    for _ in range(3):
        times, modules = _run(_START).split("\n")[:2]
        assert modules == ""
        imported, first = map(float, times.split())
        imports.append(imported)
        firsts.append(first)
    assert min(imports) < 0.25, "seconds; about 0.08 on an idle machine"
    assert min(firsts) < 0.05, "seconds; about 0.005: nothing is computed, the table is read"
