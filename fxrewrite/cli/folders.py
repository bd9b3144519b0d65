"""Folders on a command line stand for the rule files in them."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path

import click

from fxrewrite.dsl.sources import SUFFIX


def expanded(names: Iterable[str], others: Container[str]) -> list[str]:
    """The files of folders in place of the folders, each once. `others`: names that are no folder, whatever lies there.

    Raises UsageError for a folder without a rule file.
    """
    found: dict[str, None] = {}
    for name in names:
        if name in others or not os.path.isdir(name):
            found[name] = None
            continue
        inside = sorted(str(path) for path in Path(name).rglob("*" + SUFFIX))
        if not inside:
            raise click.UsageError(f"the folder {name} holds no {SUFFIX} file")
        found |= dict.fromkeys(inside)
    return list(found)
