"""Rules against each other: one left side with two right sides (RW401), a rule that another always beats (RW402)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import define, field

from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.contradiction import never
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.terms import children, walk
from fxrewrite.dsl.core import (
    Apply,
    Dtype,
    DtypeVar,
    Extern,
    Lit,
    Nothing,
    Number,
    Operand,
    Prim,
    Ref,
    Result,
    RuleDef,
    Size,
    Term,
    Wild,
)
from fxrewrite.dsl.diagnostics import Related
from fxrewrite.dsl.dims import Dim, substitute
from fxrewrite.dsl.dims import name as dim_named

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

MAX_ROOTS = 4  # of a left side that are tried in every order
MAX_COMPARED = 100  # rules before one that it is held against, where their left sides look alike
KEY_DEPTH = 3  # of a left side: how far it is looked into before rules are compared in pairs
COMMUTATIVE = ("add", "mul", "maximum", "minimum")


def check_overlaps(checker: Checker, rules: list[RuleDef]) -> None:
    """Diagnostics for rules of which one cannot stand beside another: one for each rule that cannot."""
    by_name: dict[str, list[RuleDef]] = defaultdict(list)
    groups: dict[Any, list[RuleDef]] = defaultdict(list)
    for rule in rules:
        by_name[rule.name].append(rule)
        groups[rule.stage, *sorted(str(_key(t, KEY_DEPTH)) for t in roots(rule.left))].append(rule)
    turning: set[int] = set()
    for winner in rules:
        if winner.order in turning:
            continue
        circle = _circle(winner, by_name)
        if len(circle) > 2:
            turning |= {r.order for r in circle}
            checker.guard(lambda circle=circle: _refuse_circle(checker.places, circle))
            continue
        for loser in _losers(winner, by_name):
            checker.guard(lambda a=winner, b=loser: _winner_and_loser(checker.places, a, b))
    for group in groups.values():
        _check_group(checker, group)


def _losers(winner: RuleDef, by_name: dict[str, list[RuleDef]]) -> list[RuleDef]:
    """The rules that one stands over."""
    return [r for name in winner.over for r in by_name.get(name, ()) if r.stage == winner.stage]


def _circle(start: RuleDef, by_name: dict[str, list[RuleDef]]) -> list[RuleDef]:
    """The shortest way from a rule over others back to itself; none where there is no such way."""
    ways, seen = [[start]], {start.order}
    for way in ways:
        for loser in _losers(way[-1], by_name):
            if loser.order == start.order:
                return way
            if loser.order not in seen:
                seen.add(loser.order)
                ways.append([*way, loser])
    return []


def _refuse_circle(places: Places, circle: list[RuleDef]) -> None:
    first, *others = circle
    names = f"{', '.join(r.name for r in circle[:-1])} and {circle[-1].name}"
    related = [Related(_place(places, r), f"{r.name} is here") for r in others]
    message = f"{names} stand over each other in a circle, so none wins"
    raise Problem("RW401", message, _place(places, first), f"remove `over {others[0].name}` here, or another", related)


def _check_group(checker: Checker, group: list[RuleDef]) -> None:
    """Each rule of a group against those before it that nothing was said of."""
    standing: list[RuleDef] = []
    for b in group:
        if all(checker.guard(lambda a=a, b=b: _pair(checker.places, a, b)) for a in standing[-MAX_COMPARED:]):
            standing.append(b)


def _winner_and_loser(places: Places, winner: RuleDef, loser: RuleDef) -> None:
    if winner.name in loser.over:
        if winner.order < loser.order:  # said once
            related = [Related(_place(places, winner), f"{winner.name} is here")]
            message = f"{winner.name} and {loser.name} stand over each other"
            hint = f"remove `over {winner.name}` here, or the other"
            raise Problem("RW401", message, _place(places, loser), hint, related)
    elif _beats(winner, loser):
        message = f"{loser.name} can never fire: {winner.name} matches wherever it does and stands over it"
        related = [Related(_place(places, winner), f"{winner.name} is here")]
        raise Problem("RW402", message, _place(places, loser), f"remove it, or narrow {winner.name}", related)


def _pair(places: Places, a: RuleDef, b: RuleDef) -> bool:
    """Are they two rules? RW401 where they have one left side and different right sides."""
    if b.name in a.over or a.name in b.over:
        return True
    names = same_left(a, b)
    if names is None:
        return True
    if same_right(a, b, names):
        return False
    message = f"{a.name} and {b.name} match the same values and build different ones"
    related = [Related(_place(places, a), f"{a.name} is here")]
    head = "rule" if b.right[0:1] and not isinstance(b.right[0], Result) else "rule or fusion"
    hint = f"write `over {a.name}` in the head of this {head}, or `over {b.name}` there"
    raise Problem("RW401", message, _place(places, b), hint, related)


def _place(places: Places, rule: RuleDef) -> Any:
    assert rule.span is not None
    word = places.word(rule.span, rule.name)
    return word if word.end_column - word.column == len(rule.name) else rule.left_span or word


# ---- left sides


def roots(terms: tuple[Any, ...]) -> list[Any]:
    """The calls and primitives that nothing else of a side contains, several results of one call once."""
    found = list(dict.fromkeys(t.call if isinstance(t, Result | Extern) else t for t in terms))
    inner = {id(x) for t in found for x in walk(t) if x is not t}
    return [t for t in found if id(t) not in inner]


def _key(t: Any, depth: int) -> Any:
    """What two terms must share to be one left side, down to a depth: ops and literals, not names."""
    if isinstance(t, Result | Extern):
        return _key(t.call, depth)
    if isinstance(t, Number):
        return _key(t.value, depth)
    if isinstance(t, Nothing) or (isinstance(t, Operand) and t.optional):
        return "none"
    if isinstance(t, Lit | Dtype):
        return str(t)
    if isinstance(t, Ref) or (isinstance(t, Size) and t.dim.name):
        return "name"
    head = getattr(t, "op", type(t).__name__)
    if depth == 0 or isinstance(t, Apply | Size):
        return head
    inside = [_key(c, depth - 1) for c in children(t, conditions=False)]
    return (head, *(sorted(inside, key=str) if head in COMMUTATIVE else inside))


def same_left(a: RuleDef, b: RuleDef) -> Names | None:
    """How the names of `a` are called in `b`, where both have one left side (optional operands at `none`)."""
    for names in _pairings(roots(a.left), roots(b.left), one_to_one=True):
        if never((*(_renamed(g, names) for g in a.guards), *b.guards)) is not None:
            continue
        if _types_meet(a, b, names):
            return names
    return None


def _pairings(left: list[Any], right: list[Any], one_to_one: bool) -> Iterator[Names]:
    """Every way to make the first terms the second ones by naming."""
    if len(left) != len(right) or len(left) > MAX_ROOTS:
        return
    for order in itertools.permutations(right):
        names = Names(one_to_one)
        if all(names.match(p, t) for p, t in zip(left, order)):
            yield names


def _types_meet(a: RuleDef, b: RuleDef, names: Names) -> bool:
    """May one value be the operand of both?"""
    types = {o.name: o.type for o in b.operands}
    for o in a.operands:
        other = names.operands.get(o.name)
        theirs = types.get(other.name) if isinstance(other, Operand) else None
        if theirs is not None and not _dtypes(o.type.dtype) & _dtypes(theirs.dtype):
            return False
    return True


def _dtypes(dtype: Any) -> set[str]:
    if isinstance(dtype, DtypeVar):
        return set(dtype.members)
    return {dtype.name} if isinstance(dtype, Dtype) else set(DTYPES)


def same_right(a: RuleDef, b: RuleDef, names: Names) -> bool:
    """Do both build the same, as far as both give an output?"""
    mine, theirs = roots(a.right), roots(b.right)
    return len(mine) == len(theirs) and all(names.match(x, y) for x, y in zip(mine, theirs))


def _beats(a: RuleDef, b: RuleDef) -> bool:
    """Does `a` match wherever `b` does, by conditions that are those of `b`, and give all that `b` gives?"""
    if a.prefer or len(b.kept) > len(a.kept) or (a.pack, a.level, a.flag) != (b.pack, b.level, b.flag):
        return False
    for names in _pairings(roots(a.left), roots(b.left), one_to_one=False):
        given = {_renamed(t, names) for t in a.left}
        weaker = all(_renamed(g, names) in b.guards for g in a.guards)
        if weaker and len(given) >= len(set(b.left)) and _types_cover(a, b, names):
            return True
    return False


def _types_cover(a: RuleDef, b: RuleDef, names: Names) -> bool:
    types = {o.name: o.type for o in b.operands}
    for o in a.operands:
        other = names.operands.get(o.name)
        theirs = types.get(other.name) if isinstance(other, Operand) else None
        if theirs is not None and not _dtypes(theirs.dtype) <= _dtypes(o.type.dtype):
            return False
    return True


# ---- terms as patterns for terms


@define(eq=False, repr=False)
class Names:
    """What the names of one rule are in another. `one_to_one`: a name is a name; optional operands are at `none`."""

    one_to_one: bool
    operands: dict[str, Any] = field(factory=dict[str, Any])
    scalars: dict[str, Any] = field(factory=dict[str, Any])

    def match(self, p: Any, t: Any) -> bool:
        """Is `t` what `p` is, names aside?"""
        if isinstance(p, Operand):
            return self._operand(p, t)
        if isinstance(p, Ref) or (isinstance(p, Size) and p.dim.name):
            return self._scalar(p.name if isinstance(p, Ref) else p.dim.name or "", t)
        if self.one_to_one and isinstance(t, Operand) and t.optional:
            return isinstance(p, Nothing)
        if isinstance(p, Wild):
            return isinstance(t, Wild) or not self.one_to_one
        if type(p) is not type(t):
            return False
        if isinstance(p, Lit | Dtype | Dim | Nothing | Wild):
            return p == t
        facts = ("op", "index", "returned", "written")
        return all(getattr(p, f, None) == getattr(t, f, None) for f in facts) and self._inside(p, t)

    def _inside(self, p: Any, t: Any) -> bool:
        mine, theirs = list(children(p)), list(children(t))
        if len(mine) != len(theirs):
            return False
        if isinstance(p, Prim) and p.op in COMMUTATIVE:
            saved = dict(self.operands), dict(self.scalars)
            if all(self.match(a, b) for a, b in zip(mine, theirs)):
                return True
            self.operands, self.scalars = saved
            theirs[0], theirs[1] = theirs[1], theirs[0]
        return all(self.match(a, b) for a, b in zip(mine, theirs))

    def _operand(self, p: Operand, t: Any) -> bool:
        if self.one_to_one and p.optional:
            return isinstance(t, Nothing) or (isinstance(t, Operand) and t.optional)
        if isinstance(t, Nothing) or (isinstance(t, Operand) and t.optional and not p.optional):
            return p.optional and isinstance(t, Nothing)
        if self.one_to_one and not (isinstance(t, Operand) and t.star == p.star):
            return False
        if isinstance(t, Number) or not isinstance(t, Term):
            return False
        return self._bind(self.operands, p.name, t)

    def _scalar(self, name: str, t: Any) -> bool:
        if self.one_to_one and not (isinstance(t, Ref) or (isinstance(t, Size) and t.dim.name)):
            return False
        return self._bind(self.scalars, name, t)

    def _bind(self, known: dict[str, Any], name: str, t: Any) -> bool:
        if name not in known and self.one_to_one and t in known.values():
            return False
        return known.setdefault(name, t) == t


def _renamed(x: Any, names: Names) -> Any:
    """A condition of one rule in the names of another."""
    if isinstance(x, Ref):
        return names.scalars.get(x.name, x)
    if isinstance(x, Operand):
        return names.operands.get(x.name, x)
    if isinstance(x, Size):
        dims = {
            n: s.dim if isinstance(s, Size) else dim_named(s.name)
            for n, s in names.scalars.items()
            if isinstance(s, Size | Ref)
        }
        return Size(substitute(x.dim, dims))
    if isinstance(x, Apply):
        return conditions.fold(x.op, tuple(_renamed(a, names) for a in x.args))
    return x
