"""Does a rule end? Each firing must leave less to do, by one of the measures of the language."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fxrewrite.dsl.check.places import outputs_span
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.terms import calls_of, is_list, walk
from fxrewrite.dsl.core import Call, Prim, RuleDef, TorchCall

if TYPE_CHECKING:
    from fxrewrite.dsl import syntax
    from fxrewrite.dsl.check.program import Checker


def check_ends(checker: Checker, rule: RuleDef, text: syntax.Rule, rules: list[RuleDef]) -> None:
    """RW403 where nothing says that firing ends."""
    if rule.decreasing is not None:
        return
    if sum(_weight(checker, x) for x in _steps(rule.right)) < sum(_weight(checker, x) for x in _steps(rule.left)):
        return
    if any(map(is_list, rule.left)) and not any(_is_each(t) for t in rule.right):
        return
    if _moves_before_gather(checker, rule):
        return
    built = {n for other in rules for n in _ops(other.right)}
    kept = {n for name, term in rule.named if name in rule.kept for n in _ops((term,))}
    if set(_ops(rule.left)) - built - kept:
        return
    hint = "say what falls: `decreasing e`; or remove one direction"
    raise Problem("RW403", f"{rule.name} may fire again on what it builds, without end", outputs_span(text.right), hint)


def _moves_before_gather(checker: Checker, rule: RuleDef) -> bool:
    """Do fewer row-wise ops stand behind a collective? What reads the outputs stands behind one before and after."""
    before, after = (sum(_is_behind(checker, c) for c in calls_of(side)) for side in (rule.left, rule.right))
    return after < before and all(_gathers(checker, t) for t in rule.left)


def _is_behind(checker: Checker, call: Call) -> bool:
    """Is it a row-wise op of what a collective gave?"""
    sig = checker.signature(call.op)
    rows = (a for o, a in zip(sig.operands, call.args) if o.name in sig.rowwise)
    return any(_gathers(checker, a) for a in rows)


def _gathers(checker: Checker, term: Any) -> bool:
    """Is there a collective in a term?"""
    return any(kind == "collective" for c in calls_of(term) for kind, _ in checker.signature(c.op).effects)


def _steps(terms: tuple[Any, ...]) -> list[Any]:
    return [x for x in walk(terms, conditions=False) if isinstance(x, Call | Prim | TorchCall)]


def _ops(terms: tuple[Any, ...]) -> Counter[str]:
    return Counter(x.op for x in _steps(terms))


def _is_each(t: Any) -> bool:
    return hasattr(t, "lists")


def _weight(checker: Checker, step: Any) -> float:
    """Ops that a step counts for: a fusion for less than its definition."""
    if not isinstance(step, Call):
        return 1
    sig = checker.signature(step.op)
    if not sig.is_fusion:
        return 1
    return sum(_weight(checker, x) for x in _steps(sig.equations[0].outputs)) - 0.5
