"""Files to a checked program. Every part of an item is checked by itself: a broken one hides no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.base import Base
from fxrewrite.dsl.check.checker import Checker
from fxrewrite.dsl.check.passes import Passes
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.signatures import Signatures
from fxrewrite.dsl.check.solver import Origin
from fxrewrite.dsl.check.visible import Visibility
from fxrewrite.dsl.core import Program, Scalar
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.schemas.snapshot import Schemas, Snapshot

RECURSION = 10_000  # frames: an expression of the greatest depth takes about 2,000


def check(
    files: Iterable[syntax.File],
    firing: Iterable[str] | None = None,
    elsewhere: Callable[[], dict[str, str]] = dict[str, str],
    base: Base | None = None,
    schemas: Schemas | None = None,
) -> tuple[Program, list[Diagnostic], dict[syntax.Span, dict[Scalar, Origin]]]:
    """Check files together, after those of `base`.

    `firing`: the paths whose rules fire (all where None); of the others only the names are visible. `elsewhere`: names
    of packs that are not among the files, with their pack, for hints. `schemas`: those of torch ops, with notes on
    every file (None: the snapshot, with notes on what fires). Returns the program of what could be checked, the
    diagnostics of the rest, in no order, and what the derived guards of each item of the files come from.
    """
    files = list(files)
    fires = {f.path for f in files} if firing is None else set(firing)
    checker, program, diagnostics = _checked(files, fires, elsewhere, base, schemas)
    return program, diagnostics, checker.origins


def check_base(parsed: Iterable[tuple[syntax.File, Iterable[Diagnostic]]]) -> Base:
    """Check the files on which others stand, each with what was wrong with its text."""
    parsed = list(parsed)
    checker, program, found = _checked([f for f, _ in parsed], set(), dict[str, str], None, None)
    wrong = (*(d for _, ds in parsed for d in ds), *found)
    owners, broken = checker.visible.owners, tuple(sorted(checker.broken))
    return Base(program, checker.natives, checker.defs, checker.spans, owners, broken, wrong)


def _checked(
    files: list[syntax.File],
    fires: set[str],
    elsewhere: Callable[[], dict[str, str]],
    base: Base | None,
    schemas: Schemas | None,
) -> tuple[Checker, Program, list[Diagnostic]]:
    sources = {**(base.program.sources if base else {}), **{f.path: f.source for f in files}}
    places = Places(sources)
    checker = Checker(places, Visibility(places, elsewhere), Signatures(places), schemas=schemas or Snapshot())
    checker.noted = {path: set() for path in (fires if schemas is None else [f.path for f in files])}
    checker.signatures.classes = checker.classes
    if base is not None:
        checker.stand_on(base)
    with _deep():
        program = Passes(checker, files, fires, dict(base.program.ops) if base else {}).check(sources)
    return checker, program, [*(base.diagnostics if base else ()), *checker.diagnostics]


@contextmanager
def _deep() -> Generator[None]:
    """Room for the recursion that the deepest text needs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
