"""Counterexamples in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.kept import Kept


def kept(found: Finding, folder: Path) -> Finding:
    """The finding with its counterexample in a file: `script` is then the path. Beside the folder it is kept as data,
    and the next run begins with it."""
    from fxrewrite.verify.kept import keep

    path = folder / (re.sub(r"\W+", "_", f"{found.subject}_{found.check}") + ".py")
    try:
        keep(found, failures(folder))
        if found.script is None:
            return found
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(found.script)
    except OSError as error:
        click.echo(f"cannot write {error.filename}: {error.strerror}", err=True)
        return evolve(found, script=None)
    return evolve(found, script=str(path))


def failures(folder: Path) -> Path:
    """Where failures are kept, beside the folder of counterexamples."""
    return folder.parent / "failures"


def earlier(folder: Path) -> tuple[Kept, ...]:
    """The failures of earlier runs. A line for each file that is damaged."""
    from fxrewrite.verify.kept import load

    found, damaged = load(failures(folder))
    for line in damaged:
        click.echo(line, err=True)
    return tuple(found)
