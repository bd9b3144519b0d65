"""`fxrewrite check --bind`: the same checks, against the schemas of the torch that is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import click

from fxrewrite.dsl import packs, sources
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.lowering.running import Running


def check_bound(named: Sequence[str], modules: Iterable[str], everything: bool) -> tuple[Program, list[Diagnostic]]:
    """The program of `named` and what is wrong with it, torch asked.

    `modules` are imported before: they register ops. Notes are on the files that are named; with `everything`, on the
    whole vocabulary too. Raises click.UsageError where a module cannot be imported.
    """
    imported(modules)
    program, found = packs.check_packs(named, Running())
    mine = {s.name for s in sources.named(named)}
    vocabulary = {s.name for s in sources.vocabulary_sources() if everything or _is_among(s.name, named)}
    return program, [d for d in found if d.severity != "note" or d.span.file in mine | vocabulary]


def imported(modules: Iterable[str]) -> None:
    """Import what registers ops. Raises click.UsageError where a module cannot be imported."""
    for module in modules:
        try:
            import_module(module)
        except Exception as error:
            raise click.UsageError(f"cannot import {module}: {error}") from error


def _is_among(name: str, named: Iterable[str]) -> bool:
    """Is a file of the vocabulary, by its shown name, among paths?"""
    whole = (sources.shipped_folder() / "vocab" / Path(name).name).resolve()
    return any(Path(path).resolve() == whole for path in named)
