"""Counterexamples in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding


def kept(found: Finding, folder: Path) -> Finding:
    """The finding with its counterexample in a file: `script` is then the path."""
    if found.script is None:
        return found
    path = folder / (re.sub(r"\W+", "_", f"{found.subject}_{found.check}") + ".py")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(found.script)
    except OSError as error:
        click.echo(f"cannot write {path}: {error.strerror}", err=True)
        return evolve(found, script=None)
    return evolve(found, script=str(path))
