"""Rules that the checker reads and the engine does not match yet, with the reason."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import NO_DEFAULT, Each, Operand, Program, Ref, RuleDef

SAID = {
    "writes": "writes what its `{key}` names",
    "reads": "reads what its `{key}` names",
    "collective": "is a collective",
}


def unmatched(program: Program, rule: RuleDef) -> str | None:
    """Why a rule is not matched; None where it may be.

    Effects and collectives are not matched, nor are outputs that name something that the first output does not: these
    are built from what the first one has bound.
    """
    for call in calls_of((rule.left, rule.right)):
        for kind, key in program.ops[call.op].effects:
            return f"{call.op} {SAID[kind].format(key=key)}: effects are checked and not matched yet"
    given = {a.name for a in rule.attributes if a.default is not NO_DEFAULT}
    first = _names(rule.left[0]) | given
    for output in rule.left[1:]:
        new = sorted(_names(output) - first)
        if new and not isinstance(output, Each):
            return f"`{new[0]}` stands in a later output alone: such outputs are checked and not matched yet"
    return None


def _names(term: Any) -> set[str]:
    """The operands and attributes that a term names."""
    return {x.name for x in walk(term) if isinstance(x, Operand | Ref)}
