"""Effects of a rule: what the left side writes or reads, the right side does too; collectives decide alike."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.places import outputs_span, parts_of
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.terms import calls_of, operands_of, walk
from fxrewrite.dsl.core import MARK, Apply, Call, Operand, Ref, Scalar, Term
from fxrewrite.dsl.diagnostics import Related
from fxrewrite.dsl.wording import said

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

OF_A_RANK = ("contiguous", "fresh", "donated", "written", "same_layout")  # facts that may differ from rank to rank


def check_effects(
    checker: Checker, r: syntax.Rule, left: tuple[Term, ...], right: tuple[Term, ...], guards: tuple[Scalar, ...]
) -> None:
    """RW406 where an effect is lost or doubled, RW405 where a guard of a collective rule may differ between ranks."""
    before, after = _effects(checker, left), _effects(checker, right)
    for key in before | after:
        kind, name = key
        if kind == "collective" or before[key] == after[key]:
            continue
        verb = {"writes": "write", "reads": "read"}[kind]
        counts = f"the left {verb}s `{name}` {_times(before[key])}, the right {_times(after[key])}"
        hint = "each effect on the left occurs exactly once on the right"
        raise Problem("RW406", counts, outputs_span(r.right), hint, [Related(outputs_span(r.left), "the left side")])
    if any(kind == "collective" for kind, _ in before | after):
        _rank_independent(r, guards)


def replicated_guards(
    checker: Checker, left: tuple[Term, ...], right: tuple[Term, ...], guards: tuple[Scalar, ...]
) -> tuple[Scalar, ...]:
    """`guards`, and for each operand that a collective of the right side moves and none of the left: what one rank has
    of it stands in for what the others have, so it must be equal on all ranks of the group.
    """
    groups, before = _moved(checker, left)
    if not groups:
        return guards
    over = groups[0]
    own = tuple(evolve(g, args=(*g.args, over)) if isinstance(g, Apply) and g.op == "replicated" else g for g in guards)
    derived = [Apply("replicated", (t, over)) for t in _moved(checker, right)[1] if t not in before]
    return (*own, *(g for g in derived if g not in own))


def _moved(checker: Checker, terms: tuple[Any, ...]) -> tuple[list[Scalar], list[Operand]]:
    """The groups of the collectives in terms, and the operands that feed them."""
    groups: list[Scalar] = []
    fed: dict[Operand, None] = {}
    for call in calls_of(terms):
        for kind, key in checker.signature(call.op).effects:
            if kind == "collective":
                groups.append(dict(call.attrs)[key])
                fed.update(dict.fromkeys(t for a in call.args for t in operands_of(a)))
    return groups, list(fed)


def _times(count: int) -> str:
    return {0: "does not", 1: "once"}.get(count, f"{count} times")


def _effects(checker: Checker, terms: tuple[Any, ...]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for call in calls_of(terms):
        sig = checker.signature(call.op)
        keys = _keys(call, [o.name for o in sig.operands])
        for kind, key in sig.effects:
            found[kind, keys.get(key, key)] += 1
    return found


def _keys(call: Call, operands: list[str]) -> dict[str, str]:
    """What each operand and attribute is at a call, as the rule calls it."""
    pairs = [*zip(operands, call.args), *call.attrs]
    return {n: v.name if isinstance(v, Operand | Ref) else said(v) for n, v in pairs}


def _rank_independent(r: syntax.Rule, guards: tuple[Scalar, ...]) -> None:
    for guard in guards:
        for part in walk(guard):
            if isinstance(part, Apply) and (part.op in OF_A_RANK or part.op.startswith(MARK)):
                shown = part.op.removeprefix(MARK)
                place = next(
                    (e.span for e in r.requires if _mentions(e, part.op)), r.requires[-1].span if r.requires else r.span
                )
                message = f"a collective rule must decide alike on every rank; `{shown}` may differ"
                raise Problem("RW405", message, place, "use sizes, dtypes and attributes only")


def _mentions(e: Any, func: str) -> bool:
    return (isinstance(e, syntax.Call) and e.func == func) or any(_mentions(p, func) for p in parts_of(e))
