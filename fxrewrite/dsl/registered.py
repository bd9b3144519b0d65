"""Functions that rule files may name: those that an installed package lists, and no others.

    [project.entry-points."fxrewrite.natives"]      # what `native f(...) -> bool from "mylib.facts:f"` may name
    f = "mylib.facts:f"
    [project.entry-points."fxrewrite.refs"]         # what `ref "mylib.ref:g"` may name
    g = "mylib.ref:g"

The text behind `from` and `ref` is compared with the values of these entry points; the names are the package's own
business. So a rule file cannot import a module: installing a package is what allows its functions.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import MARK, Apply
from fxrewrite.dsl.scalars import UNKNOWN

NATIVES, REFS = "fxrewrite.natives", "fxrewrite.refs"

logger = logging.getLogger(__name__)


@cache
def listed(group: str) -> dict[str, EntryPoint]:
    """What installed packages list in a group: `"package.module:function"` to its entry point."""
    # `entry_points()` takes one of several records of a package, and an old one may lie in the working directory
    return {e.value: e for d in distributions() for e in d.entry_points if e.group == group}


_stand_ins: ContextVar[Mapping[str, Callable[..., Any]] | None] = ContextVar("fxrewrite_stand_ins", default=None)


@contextmanager
def standing_in(functions: Mapping[str, Callable[..., Any]]) -> Generator[None]:
    """For the time of a `with`, functions by source: for `ref`s that no package lists, and natives that do not know."""
    token = _stand_ins.set({**(_stand_ins.get() or {}), **functions})
    try:
        yield
    finally:
        _stand_ins.reset(token)


def function(group: str, source: str) -> Callable[..., Any] | None:
    """The function called `source`; None, with a warning where that is news, if no package lists it or it has none."""
    found = _function(group, source)
    return (_stand_ins.get() or {}).get(source) if found is None else found


@cache
def _function(group: str, source: str) -> Callable[..., Any] | None:
    entry = listed(group).get(source)
    if entry is None:
        return None
    try:
        found = entry.load()
    except Exception as error:  # noqa: BLE001  what an installed package does at import is not known
        logger.warning('"%s" is listed in %s and cannot be loaded: %s', source, group, error)
        return None
    return found if callable(found) else None


class NativeFailed(Exception):
    """A native raised: it is another package's, and may raise anything."""


def call(name: str, args: tuple[Any, ...]) -> Any:
    """What a native says; UNKNOWN where it is not registered or says None. Raises NativeFailed where it raises.

    `name`: the `op` of an `Apply` of it. A tensor comes as the caller has it: `patterns.values.Value` of a graph,
    `torch.Tensor` of an evaluation. Lists are tuples, dtypes are `core.Dtype`.
    """
    source = name.removeprefix(MARK)
    native = function(NATIVES, source)
    if native is None:
        return UNKNOWN
    try:
        found = native(*args)
    except Exception as error:
        raise NativeFailed(f'the native "{source}" raised {type(error).__name__}: {error}') from error
    if found is None and source in (_stand_ins.get() or {}):
        found = (_stand_ins.get() or {})[source](*args)
    return UNKNOWN if found is None else found


def named(parts: Iterable[Any]) -> list[str]:
    """The natives that terms and conditions name, by source."""
    found = {p.op.removeprefix(MARK) for p in walk(tuple(parts)) if isinstance(p, Apply) and p.op.startswith(MARK)}
    return sorted(found)


def state_of(source: str) -> tuple[str, str]:
    """What tells one state of a native from another: its source, and a digest of the file that defines it."""
    found = function(NATIVES, source)
    try:
        path = inspect.getsourcefile(inspect.unwrap(found)) if found is not None else None
    except TypeError:  # it is not written in Python
        path = None
    text = Path(path).read_bytes() if path is not None and Path(path).is_file() else b""
    return source, hashlib.sha256(text).hexdigest()


def missing(conditions: Iterable[Any]) -> str | None:
    """The first native in conditions that no installed package registered, as a line for people."""
    for source in named(conditions):
        if function(NATIVES, source) is None:
            return f'no installed package registers the native "{source}"'
    return None
