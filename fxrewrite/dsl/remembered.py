"""Results kept between runs: what was made of the same texts by the same code is read, not made again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from fxrewrite.dsl import private_cache
from fxrewrite.dsl.encoding import decode, encode
from fxrewrite.dsl.sources import Source

T = TypeVar("T", bound=attrs.AttrsInstance)
KEPT = 24  # results; the least recently written go: some 200 KB each


def remembered(kind: type[T], sources: Iterable[Source], make: Callable[[], T], keep: Callable[[T], bool]) -> T:
    """The stored result of `make()`, an instance of the attrs class `kind`, for these texts; else made, and stored.

    `keep`: may the result be used again? Asked before it is stored and after it is read.
    """
    digest = hashlib.sha256(_code())
    digest.update(kind.__name__.encode())
    for source in sources:
        for part in (source.name, source.text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    name = f"checked-{digest.hexdigest()[:32]}.json"
    found = _read(kind, name)
    if found is not None and keep(found):
        return found
    made = make()
    if keep(made):
        with contextlib.suppress(RecursionError):  # what nests too deep for the stack at hand is not stored
            private_cache.store(name, encode((kind.__name__, *attrs.astuple(made, recurse=False))))
            private_cache.prune("checked-*.json", KEPT)
    return made


def _read(kind: type[T], name: str) -> T | None:
    nodes: Any = private_cache.load(name)
    if nodes is None:
        return None
    try:
        name, *fields = decode(nodes)
        return kind(*fields) if name == kind.__name__ else None
    except (TypeError, ValueError, RecursionError):
        return None


@cache
def _code() -> bytes:
    """What tells one state of the code of this package from another: its files."""
    files = sorted(p for p in Path(__file__).parent.rglob("*") if p.suffix in {".py", ".lark", ".json"})
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()
