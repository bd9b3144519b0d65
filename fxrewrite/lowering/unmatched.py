"""Rules that the checker reads and the engine does not match yet, with the reason."""

from __future__ import annotations

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Program, RuleDef

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
            if kind != "collective":
                continue
            return f"{call.op} {SAID[kind].format(key=key)}: effects are checked and not matched yet"
    return None
