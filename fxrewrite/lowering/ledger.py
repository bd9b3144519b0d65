"""What proofs came to: those that ship with the packs, and those of this machine, in the private cache.

An entry holds for one spelling of one definition, on one device, with these releases of the packages that take part. It
is data: what is damaged, or is not of this form, is as if it were not there.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import attrs
import torch
from attrs import frozen

import fxrewrite
from fxrewrite.dsl import digest, private_cache
from fxrewrite.dsl.core import Case, OpDef, Program
from fxrewrite.dsl.sources import shipped_folder
from fxrewrite.lowering import owners

logger = logging.getLogger("fxrewrite")
SCHEMA = 1
KEPT = 2000  # entries of the private record; those that were asked for longest ago go


@frozen
class Entry:
    """`subject`: op/case. `digest`: of the case and the definition that it claims to be. `releases`: `package==version`
    of torch, of fxrewrite and of what owns the ops that it calls. `device`: cpu, or the name of a GPU. `why`: how it
    failed. `date`: ISO 8601.
    """

    kind: str
    subject: str
    digest: str
    releases: tuple[str, ...]
    device: str
    result: Literal["proved", "failed"]
    cases: int
    date: str
    why: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What it holds for."""
        return self.digest, self.releases, self.device


Key = tuple[str, tuple[str, ...], str]


def key_of(program: Program, op: OpDef, kind: str, case: Case, device: str) -> Key | None:
    """What an entry must hold for; None where an op is of no known release: it may change at any time."""
    found = [owners.release(name) for name in owners.foreign(case)]
    if None in found:
        return None
    releases = {f"torch=={torch.__version__}", f"fxrewrite=={fxrewrite.__version__}", *map(str, found)}
    return meaning(program, op, kind, case), tuple(sorted(releases)), device


def meaning(program: Program, op: OpDef, kind: str, case: Case) -> str:
    """A digest of a case and of what it claims to be."""
    return digest.of(program, (kind, op, op.contract, case))


def find(key: Key) -> Entry | None:
    """The entry that holds here: the shipped one, or that of this machine."""
    found = shipped().get(key)
    return found or _entry(private_cache.load(_file(key)), key)


def keep(entry: Entry) -> None:
    """Remember a proof of this machine. A file for each: processes that prove at one time disturb nobody."""
    private_cache.store(_file(entry.key), {"schema": SCHEMA, **attrs.asdict(entry)})
    private_cache.prune("proof-*.json", KEPT)


def made(key: Key, kind: str, subject: str, result: Literal["proved", "failed"], cases: int, why: str) -> Entry:
    """The entry of a proof that has just been tried."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Entry(kind, subject, *key, result, cases, today, why)


@cache
def shipped() -> Mapping[Key, Entry]:
    """The entries that ship with the packs."""
    path = shipped_folder() / "ledger.json"
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        listed = read["entries"] if read["schema"] == SCHEMA else []
        entries = [_checked(e) for e in listed]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        logger.warning("the ledger of proofs %s is ignored: %s: %s", path, type(error).__name__, error)
        return {}
    return {e.key: e for e in entries}


def _file(key: Sequence[Any]) -> str:
    return f"proof-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"


def _entry(value: Any, key: Key) -> Entry | None:
    """What was stored, if it is an entry for this key."""
    if value is None:
        return None
    try:
        entry = _checked({n: v for n, v in value.items() if n != "schema"})
        if value["schema"] != SCHEMA or entry.key != key:
            raise ValueError("it is of something else")
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        logger.warning("a record of a proof (%s) is ignored: %s: %s", _file(key), type(error).__name__, error)
        return None
    return entry


def _checked(value: Mapping[str, Any]) -> Entry:
    """An entry. Raises TypeError or ValueError for what is none."""
    entry = Entry(**{**value, "releases": tuple(value["releases"])})
    texts = (entry.kind, entry.subject, entry.digest, *entry.releases, entry.device, entry.date, entry.why)
    if not all(isinstance(t, str) for t in texts) or type(entry.cases) is not int:
        raise TypeError("a field has another type")
    if entry.result not in ("proved", "failed"):
        raise ValueError(f"{entry.result!r} is no result")
    return entry
