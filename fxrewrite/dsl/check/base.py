"""What checked files leave for others that are checked after them: the vocabulary is checked once, then stored."""

from __future__ import annotations

from attrs import frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic


@frozen
class Base:
    """Checked files whose rules do not fire: what they declare, under which names, and what was wrong with them."""

    program: Program
    natives: dict[str, syntax.Native]
    defs: dict[str, syntax.Def]
    spans: dict[str, syntax.Span]
    owners: dict[str, str]
    broken: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
