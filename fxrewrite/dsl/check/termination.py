"""Does a rule end? Each firing must leave less to do, by one of the measures of the language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fxrewrite.dsl.check.places import outputs_span
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.terms import calls_of, is_list, walk
from fxrewrite.dsl.core import Call, OpDef, Prim, RuleDef, TorchCall
from fxrewrite.dsl.wording import said

if TYPE_CHECKING:
    from fxrewrite.dsl import syntax
    from fxrewrite.dsl.check.checker import Checker


Signature = Callable[[str], OpDef]


def built_by(rules: Iterable[RuleDef]) -> set[str]:
    """The ops that the right sides of rules hold."""
    return {n for rule in rules for n in _ops(rule.right)}


def check_ends(checker: Checker, rule: RuleDef, text: syntax.Rule, built: set[str]) -> None:
    """RW403 where nothing says that firing ends. `built`: the ops that some rule builds."""
    if why_ends(checker.signature, rule, built) is None:
        hint = "say what falls: `decreasing e`; or remove one direction"
        message = f"{rule.name} may fire again on what it builds, without end"
        raise Problem("RW403", message, outputs_span(text.right), hint)


def why_ends(signature: Signature, rule: RuleDef, built: set[str]) -> str | None:
    """Why firing a rule ends, in words; None where nothing says so."""
    if rule.decreasing is not None:
        return f"`decreasing {said(rule.decreasing)}`: it falls with each firing"
    before, after = (sum(_weight(signature, x) for x in _steps(side)) for side in (rule.left, rule.right))
    if after < before:
        return f"it leaves fewer ops: {before:g} before, {after:g} after (a fused op counts half less than its parts)"
    if any(map(is_list, rule.left)) and not any(_is_each(t) for t in rule.right):
        return "it replaces all values of an `each` by one"
    if _moves_before_gather(signature, rule):
        return "it moves a row-wise op before a gather"
    kept = {n for name, term in rule.named if name in rule.kept for n in _ops((term,))}
    consumed = set(_ops(rule.left)) - built - kept
    return f"it consumes {min(consumed)}, which no loaded rule builds" if consumed else None


def _moves_before_gather(signature: Signature, rule: RuleDef) -> bool:
    """Do fewer row-wise ops stand behind a collective? What reads the outputs stands behind one before and after."""
    before, after = (sum(_is_behind(signature, c) for c in calls_of(side)) for side in (rule.left, rule.right))
    return after < before and all(_gathers(signature, t) for t in rule.left)


def _is_behind(signature: Signature, call: Call) -> bool:
    """Is it a row-wise op of what a collective gave?"""
    sig = signature(call.op)
    rows = (a for o, a in zip(sig.operands, call.args) if o.name in sig.rowwise)
    return any(_gathers(signature, a) for a in rows)


def _gathers(signature: Signature, term: Any) -> bool:
    """Is there a collective in a term?"""
    return any(kind == "collective" for c in calls_of(term) for kind, _ in signature(c.op).effects)


def _steps(terms: tuple[Any, ...]) -> list[Any]:
    return [x for x in walk(terms, conditions=False) if isinstance(x, Call | Prim | TorchCall)]


def _ops(terms: tuple[Any, ...]) -> Counter[str]:
    return Counter(x.op for x in _steps(terms))


def _is_each(t: Any) -> bool:
    return hasattr(t, "lists")


def _weight(signature: Signature, step: Any) -> float:
    """Ops that a step counts for: a fusion for less than its definition."""
    if not isinstance(step, Call):
        return 1
    sig = signature(step.op)
    if not sig.is_fusion:
        return 1
    return sum(_weight(signature, x) for x in _steps(sig.equations[0].outputs)) - 0.5
