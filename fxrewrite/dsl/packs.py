"""The checked program of a list of packs: files are found, parsed, checked beside the vocabulary, and remembered."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from fxrewrite.dsl import sources, syntax
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.remembered import remembered
from fxrewrite.dsl.sources import DEFAULT, SUFFIX, Source, shipped

if TYPE_CHECKING:
    from fxrewrite.dsl.check.base import Base
    from fxrewrite.dsl.conclusions import Origins
    from fxrewrite.dsl.schemas.snapshot import Schemas

__all__ = ["DEFAULT", "SUFFIX", "check_and_tell", "check_packs", "load", "parsed", "shipped"]
Pack = str | Path | syntax.File
UNREADABLE = {"RW001", "RW002", "RW131"}  # what a file that comes later may mend


@frozen
class Checked:
    """A program and what is wrong with it. `uses`: each `use` by its path and file, and the name of what it found."""

    program: Program
    diagnostics: tuple[Diagnostic, ...]
    uses: tuple[tuple[str, str, str], ...] = ()

    def holds(self) -> bool:
        """Is it still true of the same files? Nothing was unreadable, and each `use` still finds the same text."""
        if any(d.code in UNREADABLE for d in self.diagnostics):
            return False
        found = [(_used(path, file), name) for path, file, name in self.uses]
        return all(s is not None and (s.name, s.text) == (n, self.program.sources.get(n)) for s, n in found)


def check_packs(
    packs: Iterable[Pack] = ("default",), schemas: Schemas | None = None
) -> tuple[Program, list[Diagnostic]]:
    """The program of `packs` with the vocabulary, and everything that is wrong with them.

    `packs`: "default", names of shipped packs, paths of files, parsed files. `schemas`: those of torch ops against
    which all of it, the vocabulary too, is checked (None: the snapshot).
    """
    given = list(packs)
    texts = sources.named(p for p in given if not isinstance(p, syntax.File))
    with _no_collection():
        if schemas is not None or any(isinstance(p, syntax.File) for p in given) or any(s.trouble for s in texts):
            found = _check(given, schemas)
        else:
            every = [*texts, *sources.vocabulary_sources(), *map(sources.shipped_source, shipped())]
            found = remembered(Checked, every, lambda: _check(given), Checked.holds)
    return found.program, list(found.diagnostics)


@contextmanager
def _no_collection() -> Generator[None]:
    """No search for garbage meanwhile: what is made here stays, and each search walks all that the process holds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load(packs: Iterable[Pack] = ("default",), schemas: Schemas | None = None) -> Program:
    """The checked program of `packs`; `schemas` as for `check_packs`.

    Raises RuleError with every diagnostic where one is an error.
    """
    program, diagnostics = check_packs(packs, schemas)
    errors = [d for d in diagnostics if d.severity == "error"]
    if errors:
        raise RuleError(errors, program.sources)
    return program


# ---- what was not remembered


@cache
def vocabulary() -> Base:
    """The vocabulary, checked."""
    from fxrewrite.dsl.check.base import Base
    from fxrewrite.dsl.check.program import check_base

    texts = sources.vocabulary_sources()
    return remembered(Base, texts, lambda: check_base(map(parsed, texts)), _is_whole)


def _is_whole(base: Base) -> bool:
    return all(d.code not in UNREADABLE for d in base.diagnostics)


@lru_cache(maxsize=64)
def parsed(source: Source) -> tuple[syntax.File, tuple[Diagnostic, ...]]:
    """The items of a text, and what is wrong with it."""
    if source.trouble is not None:
        return syntax.File(source.name, ()), (source.trouble,)
    from fxrewrite.dsl.parse import parse

    file, diagnostics = parse(source.text, source.name)
    return file, tuple(diagnostics)


def _check(given: Sequence[Pack], schemas: Schemas | None = None) -> Checked:
    base = vocabulary() if schemas is None else None
    return _checked(given, base, schemas)[0]


def check_and_tell(packs: Iterable[Pack]) -> tuple[Program, list[Diagnostic], Origins]:
    """The program of `packs`, what is wrong with them, and what the derived guards of each item come from."""
    found, origins = _checked(list(packs))
    return found.program, list(found.diagnostics), origins


def _checked(
    given: Sequence[Pack], base: Base | None = None, schemas: Schemas | None = None
) -> tuple[Checked, Origins]:
    """The program of `given` and the origins of guards. The vocabulary is checked with it where it is not `base`."""
    from fxrewrite.dsl.check.program import check

    files, wrong = _files(given)
    used, more, uses = used_files(files)
    names = {f.path for f in (*used, *files)}
    below = () if base else [parsed(s)[0] for s in sources.vocabulary_sources()]
    fires = [f.path for f in files]
    program, found, origins = check((*below, *used, *files), fires, lambda: _names_elsewhere(names), base, schemas)
    return Checked(program, tuple(_in_order(program, (*wrong, *more, *found))), uses), origins


def _in_order(program: Program, diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """By file, those that could not be read first, then by place: whatever stage found them."""
    order = {path: i for i, path in enumerate(program.sources)}
    return sorted(diagnostics, key=lambda d: (order.get(d.span.file, -1), d.span.line, d.span.column))


def _files(given: Sequence[Pack]) -> tuple[list[syntax.File], list[Diagnostic]]:
    """The files that `given` names, each once, in order, and what is wrong with their text."""
    files: dict[str, syntax.File] = {}
    wrong: list[Diagnostic] = []
    for pack in given:
        if isinstance(pack, syntax.File):
            files.setdefault(sources.identity(pack.path), pack)
            continue
        for source in sources.named([pack]):
            if (place := sources.identity(source.name)) not in files:
                files[place], found = parsed(source)
                wrong += found
    return list(files.values()), wrong


def used_files(
    files: Sequence[syntax.File],
) -> tuple[list[syntax.File], list[Diagnostic], tuple[tuple[str, str, str], ...]]:
    """The files that `files` make visible and that are not among them; what is wrong; `Checked.uses`.

    These are what `use` names, and the packs of the ops for which `impl f.name` and `form f.name` stand.
    """
    given = {sources.identity(f.path) for f in files}
    have = set(given)
    out: list[syntax.File] = []
    diagnostics: list[Diagnostic] = []
    uses: list[tuple[str, str, str]] = []
    todo = [u for f in files for u in f.items if isinstance(u, syntax.Use)]
    todo += [_use_of(i, pack) for f in files for i in f.items if (pack := _pack_of_owner(i, files)) is not None]
    while todo:
        use = todo.pop(0)
        source = _used(use.path, use.span.file)
        if source is None:
            hint = closest(use.path, shipped()) or (
                f"shipped packs: {', '.join(shipped())}; a file `{use.path.replace('.', '/')}{SUFFIX}` beside this one"
            )
            diagnostics.append(Diagnostic("RW002", f"`use` of an unknown pack `{use.path}`", use.span, hint))
            continue
        if sources.identity(source.name) in given:
            continue
        uses.append((use.path, use.span.file, source.name))
        if sources.identity(source.name) in have:
            continue
        have.add(sources.identity(source.name))
        file, found = parsed(source)
        out.append(file)
        diagnostics += found
        todo += [u for u in file.items if isinstance(u, syntax.Use)]
    return out, diagnostics, tuple(uses)


def _used(path: str, file: str) -> Source | None:
    """What `use path` in a file names: a file beside that one, or a shipped pack."""
    found = None if sources.of_a_pack(file) else sources.beside(path, file)
    name = path.split(".")[-1]
    return found or (sources.shipped_source(name) if name in shipped() else None)


def _use_of(item: syntax.Item, pack: str) -> syntax.Use:
    return syntax.Use(item.span, pack)


def _pack_of_owner(item: syntax.Item, files: Sequence[syntax.File]) -> str | None:
    """The shipped pack of the op that an `impl` or `form` item is for, where no loaded file declares it."""
    if not isinstance(item, syntax.Form | syntax.Impl) or item.owner is None:
        return None
    declared = {*vocabulary().owners, *(getattr(i, "name", None) for f in files for i in f.items)}
    return None if item.owner in declared else _names_elsewhere({f.path for f in files}).get(item.owner)


def _names_elsewhere(loaded: set[str]) -> dict[str, str]:
    """Names that shipped packs declare which are not among the loaded files, with their pack."""
    others = {p: s for p in shipped() if (s := sources.shipped_source(p)).name not in loaded}
    return {name: pack for pack, source in others.items() for name in source.declares()}
