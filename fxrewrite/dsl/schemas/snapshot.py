"""The schemas that are known without torch: one JSON file a namespace beside this module, made by `tools/`.

A file holds its source, whether the namespace is complete there, and the schemas, sorted, without the namespace.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from attrs import field, frozen

from fxrewrite.dsl.schemas.schema import Schema, parse

FOLDER = Path(__file__).parent


@frozen
class Remark:
    """What is worth a note about an op: a code, a message, a hint."""

    code: str
    message: str
    hint: str = ""


class Schemas(Protocol):
    """Where a check looks schemas up."""

    def find(self, op: str) -> tuple[Schema, ...]:
        """The overloads of `namespace.name`; none where nothing is known of it."""
        ...

    def is_complete(self, namespace: str) -> bool:
        """Is an op that is not found in `namespace` no op at all?"""
        ...

    def names(self, namespace: str) -> list[str]:
        """The names of ops known in a namespace, for suggestions."""
        ...

    def remark(self, op: str) -> Remark | None:
        """What a check of a call of `op` leaves open."""
        ...


@frozen
class Namespace:
    """The schemas of one namespace, sorted."""

    name: str
    source: str = ""
    complete: bool = False
    schemas: tuple[str, ...] = field(factory=tuple, repr=False)

    def find(self, name: str) -> tuple[Schema, ...]:
        """The overloads of an op: `(` and `.` sort before letters, so they stand together."""
        at = bisect_left(self.schemas, name)
        found: list[Schema] = []
        while at < len(self.schemas) and self.schemas[at].startswith((name + "(", name + ".")):
            found.append(parse(f"{self.name}::{self.schemas[at]}"))
            at += 1
        return tuple(found)


@cache
def read(name: str) -> Namespace:
    """A namespace of the snapshot; an empty one where it has none of that name."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return Namespace(name)
    stored = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    return Namespace(name, stored["source"], stored["complete"], tuple(stored["schemas"]))


@frozen
class Snapshot:
    """The schemas of the files beside this module. A namespace is read when a file names one of its ops."""

    def find(self, op: str) -> tuple[Schema, ...]:
        """The overloads of `namespace.name`."""
        space, _, name = op.partition(".")
        return read(space).find(name)

    def is_complete(self, namespace: str) -> bool:
        """Does the snapshot hold every op of the namespace?"""
        return read(namespace).complete

    def names(self, namespace: str) -> list[str]:
        """The names of its ops."""
        return sorted({s.partition("(")[0].partition(".")[0] for s in read(namespace).schemas})

    def remark(self, op: str) -> Remark | None:
        """RW228 for an op that the snapshot does not have and that may exist."""
        if self.find(op) or self.is_complete(op.partition(".")[0]):
            return None
        message = f"schema of {op} is not known here: its arguments and mutations are checked when it is bound"
        hint = self._meant(op) or "`fxrewrite check --bind` reads the schemas of the torch that is installed"
        return Remark("RW228", message, hint)

    def _meant(self, op: str) -> str:
        """A hint that names an op that is spelled almost like `op`, or nothing."""
        from difflib import get_close_matches  # only an unknown op pays for it

        space, _, name = op.partition(".")
        spaces = [space, *get_close_matches(space, [p.stem for p in FOLDER.glob("*.json")], n=1, cutoff=0.7)]
        known = [f"{s}.{n}" for s in spaces for n in self.names(s)]
        close = get_close_matches(f"{spaces[-1]}.{name}", known, n=1, cutoff=0.85)
        return f"did you mean `{close[0]}`?" if close else ""
