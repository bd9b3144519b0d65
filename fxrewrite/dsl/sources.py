"""Files of rules as text: where the shipped ones lie, what they declare, and the texts that a list of packs means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen

from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.syntax import Span

DEFAULT = ("noop", "norm_quant", "act_quant")  # what "default" stands for, in order
SUFFIX = ".rw"
MAX_BYTES = 128 * 1024
_DECLARED = re.compile(r"^(op|fusion|def|native|rule)[ ]+([A-Za-z_]\w*)", re.M)  # an item starts at column 0


@frozen
class Source:
    """A text, the name that its places carry, and what was wrong with reading it."""

    name: str
    text: str = ""
    trouble: Diagnostic | None = None

    def declares(self, *kinds: str) -> list[str]:
        """The names of its items (of these kinds), read off the text: nothing is parsed for it."""
        return [name for kind, name in _DECLARED.findall(self.text) if not kinds or kind in kinds]


@cache
def shipped_folder() -> Path:
    """The folder of the shipped `.rw` files."""
    spec = find_spec("fxrewrite_patterns")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(__file__).parents[2] / "patterns"


@cache
def shipped() -> dict[str, Path]:
    """The shipped packs by name."""
    return {p.stem: p for p in sorted(shipped_folder().glob("*" + SUFFIX))}


@cache
def shipped_source(name: str) -> Source:
    """The text of a shipped pack."""
    return read(shipped()[name], f"patterns/{name}{SUFFIX}")


def identity(name: str) -> str:
    """A file, however it is called: a shipped one by the name that it has here, another by where it is."""
    try:
        return name if of_a_pack(name) else os.path.realpath(name)
    except ValueError:  # a NUL in the name
        return name


def of_a_pack(name: str) -> bool:
    """Is it the name that a shipped file carries here?"""
    return name.startswith("patterns/") and name.removeprefix("patterns/").removesuffix(SUFFIX) in shipped()


@cache
def vocabulary_sources() -> tuple[Source, ...]:
    """The texts of the vocabulary, which every file sees."""
    paths = sorted((shipped_folder() / "vocab").glob("*" + SUFFIX))
    return tuple(read(p, f"patterns/vocab/{p.name}") for p in paths)


def read(path: Path, shown: str | None = None) -> Source:
    """Read one file. RW001 where it cannot be read, RW131 where it is no text."""
    name = shown or str(path)
    try:
        if path.exists() and not path.is_file():  # a folder, a pipe: reading one may never end
            what = "a folder: give its files" if path.is_dir() else "no file"
            return Source(name, "", _trouble("RW001", name, f"cannot read {name}: it is {what}"))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return Source(name, "", _trouble("RW130", name, "a file has at most 128 KB", "split it"))
        return Source(name, data.decode("utf-8").replace("\r\n", "\n"))
    except OSError as error:
        return Source(name, "", _trouble("RW001", name, f"cannot read {name}: {error.strerror}"))
    except UnicodeDecodeError:
        return Source(name, "", _trouble("RW131", name, f"{name} is not UTF-8 text"))
    except ValueError:  # a NUL in the name
        return Source(name, "", _trouble("RW001", name, "cannot read a file of such a name"))


def place_beside(path: str, file: str) -> Path:
    """Where `use path` in `file` looks first."""
    return Path(file).parent.joinpath(*path.split(".")).with_suffix(SUFFIX)


def beside(path: str, file: str) -> Source | None:
    """The file that `use path` means beside (or below) the file that says it; None where there is none.

    Nothing outside of the folder of that file is read, links followed.
    """
    folder, found = Path(file).parent, place_beside(path, file)
    try:
        inside = found.is_file() and found.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return None
    return read(found, _shown(str(found))) if inside else None


def _trouble(code: str, name: str, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(code, message, Span(name, 1, 1, 1, 1), hint)


def named(packs: Iterable[str | Path]) -> list[Source]:
    """The texts that `packs` names, each once, in order: "default", names of shipped packs, paths.

    A file of the vocabulary is nothing to add. RW002 for a name that is none of these.
    """
    found: dict[str, Source] = {}
    for pack in packs:
        for one in DEFAULT if pack == "default" else (str(pack),):
            source = _source(one)
            if source is not None:
                found.setdefault(identity(source.name), source)
    return list(found.values())


def _source(name: str) -> Source | None:
    if name in shipped():
        return shipped_source(name)
    place = _place_of(Path(name))
    if place is not None:
        return None if place == "vocabulary" else shipped_source(place)
    if name.endswith(SUFFIX) or os.path.isfile(name):
        return read(Path(name), _shown(name))
    hint = closest(name, shipped()) or f"shipped packs: {', '.join(shipped())}; a file ends in .rw"
    return Source(name, "", _trouble("RW002", name, f"no pack is called `{name}`", hint))


def _shown(name: str) -> str:
    """The name that places in a file carry. Those of shipped files are `patterns/...`: that of another gets a `./`."""
    return "./" + name if name.startswith("patterns/") else name


def _place_of(path: Path) -> str | None:
    """The name of the shipped pack that a path is, or "vocabulary" for a file of that."""
    try:
        folder, whole = shipped_folder().resolve(), path.resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links
        return None
    if whole.suffix != SUFFIX or not whole.is_relative_to(folder):
        return None
    return "vocabulary" if whole.parent == folder / "vocab" else whole.stem if whole.parent == folder else None
