"""Rules that may want the same values as a rule, and which of them wins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from fxrewrite.dsl.check.overlap import Names, roots, same_left, same_right
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Call, Prim, RuleDef, TorchCall


@frozen
class Rival:
    """Another rule, how the two left sides lie, and who wins where both match."""

    rule: str
    how: str
    wins: str


def rivals(rule: RuleDef, rules: Iterable[RuleDef]) -> Iterator[Rival]:
    """The rules among `rules` that can match at the values of `rule`, in their order."""
    for other in rules:
        if other.order == rule.order or other.stage != rule.stage:
            continue
        names = same_left(rule, other)
        if names is not None:
            yield Rival(other.full_name, "the same left side", _winner(rule, other, same_right(rule, other, names)))
        elif _inside(rule, other):
            yield Rival(other.full_name, "its left side holds this one", _over(rule, other) or _larger(other))
        elif _inside(other, rule):
            yield Rival(other.full_name, "its left side is inside this one", _over(rule, other) or _larger(rule))


def _winner(rule: RuleDef, other: RuleDef, alike: bool) -> str:
    first = min(rule, other, key=lambda r: r.order)
    return _over(rule, other) or ("both build the same" if alike else f"{first.full_name}: it stands first")


def _over(a: RuleDef, b: RuleDef) -> str:
    for winner, loser in ((a, b), (b, a)):
        if loser.name in winner.over:
            return f"{winner.full_name}: `over {loser.name}`"
    return ""


def _larger(rule: RuleDef) -> str:
    return f"{rule.full_name}: it removes more nodes"


def _inside(small: RuleDef, large: RuleDef) -> bool:
    """Does the left side of `small`, which has one root, match a part of the left side of `large`?"""
    tops = roots(small.left)
    if len(tops) != 1 or not isinstance(tops[0], Call | Prim | TorchCall):
        return False
    parts = (t for t in walk(large.left, conditions=False) if type(t) is type(tops[0]))
    return any(Names(one_to_one=False).match(tops[0], t) for t in parts)
