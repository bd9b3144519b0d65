"""Rules as plain patterns of Inductor: a Python file that needs torch only.

    emitted = emit(program, [r for r in program.rules if ...], ["norm_quant"])
    emitted.text     # the file
    emitted.rules    # each rule: its patterns, how many were left out, or why it has none

What a plain pattern can say is in `docs/plain-patterns.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxrewrite.dsl.core import Program, RuleDef
from fxrewrite.lowering.plain.emitted import MOST, Plain, plain
from fxrewrite.lowering.plain.render import Emitted, cut_text, render

__all__ = ["Emitted", "Plain", "cut_text", "emit"]


def emit(
    program: Program, rules: Sequence[RuleDef], packs: Sequence[str], most: int = MOST, provider: str | None = None
) -> Emitted:
    """The file of `rules`, at most `most` patterns each. `packs`: what it is called after. `provider`: the name of an
    `impl` that is put in where it serves, in the place of the registered op.
    """
    found = tuple(plain(program, rule, most, provider) for rule in rules)
    return Emitted(render(found, packs), found)
