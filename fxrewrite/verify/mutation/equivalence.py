"""Arguments that a mutant is no fault: `equivalent.toml`, mutant -> one line why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files

from attrs import evolve

from fxrewrite.verify.mutation.subjects import Tried

OPEN = ("survived", "never differs")


def arguments() -> Mapping[str, str]:
    """The recorded arguments: a mutant's id, in which `*` stands for any text, and why it is equivalent."""
    text = (files("fxrewrite.verify.mutation") / "equivalent.toml").read_text()
    return tomllib.loads(text)["equivalent"]


def argued(tried: Tried, known: Mapping[str, str]) -> Tried:
    """A mutant that nothing killed is equivalent where an argument says so."""
    if tried.state not in OPEN:
        return tried
    why = next((why for pattern, why in known.items() if is_of(tried.id, pattern)), None)
    return tried if why is None else evolve(tried, state="equivalent", why=why)


def refuted(tried: Iterable[Tried], known: Mapping[str, str]) -> list[Tried]:
    """The mutants that an argument calls equivalent, and that were killed: it is wrong, or covers too much."""
    return [t for t in tried if t.state == "killed" and any(is_of(t.id, pattern) for pattern in known)]


def is_of(mutant: str, pattern: str) -> bool:
    """Does the id of a mutant have this pattern?"""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), mutant) is not None
