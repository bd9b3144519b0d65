"""Failures that are kept and tried first, in `.fxrewrite/failures`: one JSON file a check, read as data alone.

A file holds the check, the seed, the text of what is claimed, and the case. The case of a claim about numbers is its
operands; that of a check of graphs is the name of the graph, or the number of the program; where there is none, the
seed stands for it. A failure that passes is dropped once the text has changed: it was mended. While the text is the
same it stays, since what it met (a kernel, the engine) may come back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import lines_of
from fxrewrite.dsl.syntax import Span
from fxrewrite.verify.findings import Finding

SCHEMA = 1
FOLDER = Path(".fxrewrite/failures")


@frozen
class Kept:
    """A failure. `name`: of the check. `text`: a digest of the lines of the claim. `file`: where it is kept."""

    name: str
    seed: int
    profile: str
    text: str
    case: Mapping[str, Any] | None
    file: str = ""

    def drop(self) -> None:
        """Keep it no longer. What cannot be removed stays."""
        Path(self.file).unlink(missing_ok=True)


def digest(program: Program, span: Span | None) -> str:
    """What stands for the text at a place."""
    return sha256("\n".join(lines_of(span, program.sources)).encode()).hexdigest()[:16]


def load(folder: Path = FOLDER) -> tuple[list[Kept], list[str]]:
    """What is kept, and a line for each file that is damaged."""
    found, damaged = list[Kept](), list[str]()
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"{path} is ignored: {type(error).__name__}: {error}".split("\n")[0])
    return found, damaged


def _read(path: Path) -> Kept:
    kept = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(kept, dict) or kept.pop("schema", None) != SCHEMA:
        raise ValueError(f"it is no failure of schema {SCHEMA}")
    made = Kept(**kept, file=str(path))
    if not (isinstance(made.name, str) and isinstance(made.seed, int) and isinstance(made.case, dict | None)):
        raise ValueError("its name, seed or case is of another type")
    return made


def keep(finding: Finding, folder: Path = FOLDER) -> None:
    """Write down what failed. Raises OSError."""
    if finding.outcome != "failed" or finding.case is None:
        return
    kept = Kept(**finding.case)
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", kept.name) + "_" + sha256(kept.name.encode()).hexdigest()[:6]
    shown = asdict(kept, filter=lambda a, _: a.name != "file")
    part = folder / f"{name}.part"
    part.write_text(json.dumps({"schema": SCHEMA, **shown}), encoding="utf-8")
    part.replace(folder / f"{name}.json")


def of_check(kept: Sequence[Kept], name: str) -> Iterator[Kept]:
    """What is kept of a check."""
    return (k for k in kept if k.name == name)
