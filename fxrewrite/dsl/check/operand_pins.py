"""Operands that a form pins: each in terms of the names that the spelling of the form binds."""

from __future__ import annotations

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.places import names_in
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Scope
from fxrewrite.dsl.core import OpDef, Operand, Term

Spell = syntax.Form | syntax.Impl


def of(spell: Spell, op: OpDef) -> dict[str, syntax.Kwarg]:
    """The pins of a form that are operands. A provider has none: it is given the operands."""
    operands = {o.name for o in op.operands} if isinstance(spell, syntax.Form) else set[str]()
    return {k.name: k for k in spell.pins if k.name in operands}


def matching(scope: Scope, pins: dict[str, syntax.Kwarg]) -> Scope:
    """The scope of the spelling: it binds names, and does not see the operands that are pinned."""
    names = {n: v for n, v in scope.names.items() if n not in pins}
    return scope.child(names=names, binds=bool(pins))


def values(
    elab: Elaborator, spell: Spell, pins: dict[str, syntax.Kwarg], scope: Scope, op: OpDef
) -> tuple[tuple[str, Term], ...]:
    """Each pinned operand as a term over what the spelling has bound. RW201 for a bound name that no pin needs."""
    inner = scope.child(binds=False, wild=False)
    found: list[tuple[str, Term]] = []
    for name, k in pins.items():
        term = elab.term(k.value, inner)
        elab.typed(term, next(o.type for o in op.operands if o.name == name))
        _fits(elab, op, name, term, k)
        found.append((name, term))
    used = {v.name for v in names_in(tuple(k.value for k in pins.values()))}
    for name, bound in elab.item.bound.items():
        if name not in used and isinstance(bound, Operand):
            message = f"`{name}` is no operand of {op.name}, and no pin needs it"
            hint = f"operands: {', '.join(o.name for o in op.operands)}"
            raise Problem("RW201", message, bound.span or spell.span, hint)
    return tuple(found)


def _fits(elab: Elaborator, op: OpDef, name: str, term: Term, k: syntax.Kwarg) -> None:
    """Unify a pinned operand with its declared type, as far as that of the term is known."""
    declared = next(o.type for o in op.operands if o.name == name)
    elab.item.solver.unify(declared, elab.item.type_of(term), k.value.span, f"operand `{name}` of {op.name}")
