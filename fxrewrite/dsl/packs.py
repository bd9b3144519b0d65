"""Files and packs: where shipped rules lie, which names a list of packs stands for, and the checked program of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.check.program import check
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.parse import parse

DEFAULT = ("noop", "norm_quant", "act_quant")  # what "default" stands for, in order
SUFFIX = ".rw"


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
def vocabulary() -> tuple[tuple[syntax.File, ...], tuple[Diagnostic, ...]]:
    """The vocabulary, which every file sees."""
    read = [read_file(p, f"patterns/vocab/{p.name}") for p in sorted((shipped_folder() / "vocab").glob("*" + SUFFIX))]
    return tuple(f for f, _ in read), tuple(d for _, ds in read for d in ds)


def read_file(path: Path, shown: str | None = None) -> tuple[syntax.File, list[Diagnostic]]:
    """Parse one file. RW001 where it cannot be read, RW131 where it is no text."""
    name = shown or str(path)
    here = syntax.Span(name, 1, 1, 1, 1)
    if path.exists() and not path.is_file():
        return syntax.File(name, ()), [Diagnostic("RW001", f"cannot read {name}: it is no file", here)]
    try:
        return parse(path.read_text(encoding="utf-8"), name)
    except OSError as error:
        return syntax.File(name, ()), [Diagnostic("RW001", f"cannot read {name}: {error.strerror}", here)]
    except UnicodeDecodeError:
        return syntax.File(name, ()), [Diagnostic("RW131", f"{name} is not UTF-8 text", here)]


@cache
def _shipped_file(name: str) -> tuple[syntax.File, tuple[Diagnostic, ...]]:
    file, diagnostics = read_file(shipped()[name], f"patterns/{name}{SUFFIX}")
    return file, tuple(diagnostics)


def resolve(packs: Iterable[str | Path | syntax.File]) -> tuple[list[syntax.File], list[Diagnostic]]:
    """The files that `packs` names, each once, in order: "default", names of shipped packs, paths, parsed files."""
    files: dict[str, syntax.File] = {}
    diagnostics: list[Diagnostic] = []
    for pack in packs:
        for one in DEFAULT if pack == "default" else (pack,):
            if isinstance(one, syntax.File):
                files.setdefault(one.path, one)
                continue
            text = str(one)
            if text in shipped():
                file, found = _shipped_file(text)
            elif _place_of(Path(text)) == "vocabulary":
                continue  # every file sees it
            elif (name := _place_of(Path(text))) is not None:
                file, found = _shipped_file(name)
            elif text.endswith(SUFFIX) or Path(text).is_file():
                file, found = read_file(Path(text))
            else:
                hint = closest(text, shipped()) or f"shipped packs: {', '.join(shipped())}; a file ends in .rw"
                here = syntax.Span(text, 1, 1, 1, 1)
                diagnostics.append(Diagnostic("RW002", f"no pack is called `{text}`", here, hint))
                continue
            if file.path not in files:
                files[file.path] = file
                diagnostics += found
    return list(files.values()), diagnostics


def _place_of(path: Path) -> str | None:
    """The name of the shipped pack that a path is, or "vocabulary" for a file of that."""
    folder = shipped_folder().resolve()
    whole = path.resolve()
    if whole.suffix != SUFFIX or not whole.is_relative_to(folder):
        return None
    return "vocabulary" if whole.parent == folder / "vocab" else whole.stem if whole.parent == folder else None


def used_files(files: Sequence[syntax.File]) -> tuple[list[syntax.File], list[Diagnostic]]:
    """The files that `files` make visible and that are not among them.

    These are what `use` names, and the packs of the ops for which `impl f.name` and `form f.name` stand.
    """
    have = {Path(f.path).stem for f in files}
    out: list[syntax.File] = []
    diagnostics: list[Diagnostic] = []
    todo = [u for f in files for u in f.items if isinstance(u, syntax.Use)]
    todo += [_use_of(i, pack) for f in files for i in f.items if (pack := _pack_of_owner(i, files)) is not None]
    while todo:
        use = todo.pop(0)
        name = use.path.split(".")[-1]
        if name in have:
            continue
        have.add(name)
        if name not in shipped():
            hint = closest(name, shipped()) or f"shipped packs: {', '.join(shipped())}"
            diagnostics.append(Diagnostic("RW002", f"`use` of an unknown pack `{use.path}`", use.span, hint))
            continue
        file, found = _shipped_file(name)
        out.append(file)
        diagnostics += found
        todo += [u for u in file.items if isinstance(u, syntax.Use)]
    return out, diagnostics


def _use_of(item: syntax.Item, pack: str) -> syntax.Use:
    return syntax.Use(item.span, pack)


def _pack_of_owner(item: syntax.Item, files: Sequence[syntax.File]) -> str | None:
    """The shipped pack of the op that an `impl` or `form` item is for, where no loaded file declares it."""
    if not isinstance(item, syntax.Form | syntax.Impl) or item.owner is None:
        return None
    declared = {getattr(i, "name", None) for f in (*vocabulary()[0], *files) for i in f.items}
    return None if item.owner in declared else _names_elsewhere({f.path for f in files}).get(item.owner)


def _names_elsewhere(loaded: set[str]) -> dict[str, str]:
    """Names that shipped packs declare which are not among the loaded files, with their pack."""
    found: dict[str, str] = {}
    for pack in shipped():
        file, _ = _shipped_file(pack)
        if file.path not in loaded:
            found |= {i.name: pack for i in file.items if isinstance(i, _DECLARING) and i.name is not None}
    return found


_DECLARING = (syntax.Native, syntax.Def, syntax.Op, syntax.Fusion, syntax.Rule)


def check_packs(packs: Iterable[str | Path | syntax.File] = ("default",)) -> tuple[Program, list[Diagnostic]]:
    """The program of `packs` with the vocabulary, and everything that is wrong with them."""
    files, diagnostics = resolve(packs)
    used, more = used_files(files)
    vocab, vocab_diagnostics = vocabulary()
    names = {f.path for f in (*used, *files)}
    program, found = check((*vocab, *used, *files), [f.path for f in files], lambda: _names_elsewhere(names))
    return program, [*vocab_diagnostics, *diagnostics, *more, *found]


def load(packs: Iterable[str | Path | syntax.File] = ("default",)) -> Program:
    """The checked program of `packs`.

    Raises RuleError with every diagnostic where one is an error.
    """
    program, diagnostics = check_packs(packs)
    errors = [d for d in diagnostics if d.severity == "error"]
    if errors:
        raise RuleError(errors, program.sources)
    return program
