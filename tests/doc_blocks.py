"""Blocks of code in the documentation: read, checked, run, and brought up to date.

A fence has a language and may have `file=NAME`: its text is also a file of that name, for the commands below it. A
`console` block holds commands behind `$ ` and what they print; `...` there stands for what varies. An `output` block is
what the python block above it prints. On pages of error codes the block without a language is what `fxrewrite check`
prints for the rules above it.

`python tests/doc_blocks.py [PAGES]` writes what these blocks must hold into the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import frozen

from fxrewrite.dsl import packs
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.proofs import VARIABLE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NAME = "my.rw"  # of the rules on pages of error codes
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)
_FILE = re.compile(r"\bfile=(\S+)")


@frozen
class Block:
    """A fenced block: its language and what else its fence says, its text, its file, and where its text lies."""

    language: str
    info: str
    text: str
    file: str | None
    start: int
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    for m in _FENCE.finditer(page):
        words, file = m["info"].split(), _FILE.search(m["info"])
        line = page.count("\n", 0, m.start()) + 1
        found.append(
            Block(words[0] if words else "", m["info"], m["text"], file[1] if file else None, m.start("text"), line)
        )
    return found


# ---- rules


def findings(text: str, *beside: str) -> list[Diagnostic]:
    """What is wrong with a file of rules (`beside` other packs), notes too."""
    file, wrong = parse(text, NAME)
    return [*wrong, *packs.check_packs([*beside, file])[1]]


def told(text: str, code: str) -> str:
    """The one finding of a text that is not a note of another code, as `fxrewrite check` prints it."""
    found = [d for d in findings(text) if d.severity != "note" or d.code == code]
    assert [d.code for d in found] == [code], "\n".join(d.render({NAME: text}) for d in found)
    sources = {NAME: text, **packs.check_packs(packs.shipped())[0].sources}
    return found[0].render(sources) + "\n"


# ---- commands


@frozen
class Shown:
    """What a block shows as the output of a command or of Python, and where that stands in the page."""

    text: str
    start: int
    line: int


def commands(block: Block) -> Iterator[tuple[str, Shown]]:
    """Each command of a console block, and the output that the block shows."""
    for m in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.M):
        yield m[1], Shown(m[2], block.start + m.start(2), block.line)


def printed(command: str, folder: Path) -> str:
    """What a command prints in a folder, errors too."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return ended.stdout.decode()


def agrees(shown: str, got: str) -> bool:
    """Is it the output that is shown, but for what `...` stands for?"""
    pattern = re.escape(shown.rstrip()).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, got.rstrip(), re.S) is not None


# ---- pages that are run


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """The folder is the working directory and importable; what was imported from it is forgotten after. Other packages'
    ops need proofs there, as they do for a reader."""
    before, allowed = Path.cwd(), os.environ.pop(VARIABLE, None)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        if allowed is not None:
            os.environ[VARIABLE] = allowed
        sys.path.remove(str(folder))
        for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(f"{folder}/")]:
            del sys.modules[name]


def replay(page: str, folder: Path) -> Iterator[tuple[Shown, str]]:
    """Run a page in a folder: its files, commands and Python, in order; each output that it shows, and the real one.

    Python blocks share a namespace.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    got = ""
    with working_in(folder):
        for block in blocks(page):
            if block.file is not None:
                (folder / block.file).write_text(block.text)
            elif block.language == "python":
                with redirect_stdout(StringIO()) as out:
                    exec(compile("\n" * block.line + block.text, "page.md", "exec"), namespace)
                got = out.getvalue()
            elif block.language == "output":
                yield Shown(block.text, block.start, block.line), got
            elif block.language == "console":
                for command, shown in commands(block):
                    yield shown, printed(command, folder)


# ---- up to date


def refreshed(path: Path) -> str:
    """The text of a page with the messages and outputs that it must show; what agrees already stays."""
    page = path.read_text()
    if path.parent.name == "errors" and path.stem != "README":
        found = blocks(page)
        for wrong, message in pairwise(found):
            if wrong.language == "rw" and message.language == "":
                page = page.replace(message.text, told(wrong.text, path.stem))
    if any(b.language in ("console", "output") for b in blocks(page)):
        with tempfile.TemporaryDirectory() as folder:
            made = [(shown, got) for shown, got in replay(page, Path(folder)) if not agrees(shown.text, got)]
        for shown, got in reversed(made):  # from the end, so that the places of the others stay
            page = page[: shown.start] + got.rstrip() + "\n" + page[shown.start + len(shown.text) :]
    return page


def main() -> None:
    """Bring pages up to date: those that are named, or all of docs/."""
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(DOCS.rglob("*.md")):
        new = refreshed(path)
        if new != path.read_text():
            path.write_text(new)
            print(path)


if __name__ == "__main__":
    main()
