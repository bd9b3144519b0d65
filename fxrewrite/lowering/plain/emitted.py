"""A rule as plain patterns: its spellings, equal ones together, and its right side; or why it is none."""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, field, frozen

from fxrewrite.dsl import core
from fxrewrite.dsl.core import Case, Program, Result, RuleDef
from fxrewrite.lowering.plain import fits, sizes
from fxrewrite.lowering.plain.choices import Dead, Ways
from fxrewrite.lowering.plain.layout import Group, call, line
from fxrewrite.lowering.plain.names import safe, scalar_text
from fxrewrite.lowering.plain.provider import call_text, case_of
from fxrewrite.lowering.plain.sizes import Free
from fxrewrite.lowering.plain.spelled import Captured, NeedsLiteral, Store
from fxrewrite.lowering.plain.spelling import spell
from fxrewrite.lowering.plain.structure import Structure, structure_of

MOST = 64  # patterns of a rule
TRIED = 240  # spellings of a rule


@define(eq=False)
class Family:
    """Spellings with one text. `rows`: what dtypes operands and casts may have. `leading`: how many leading axes were
    tried. `orders`: which operands of which ops change places, `01` those of the second.
    """

    first: Structure
    departures: int
    given: dict[str, Any]
    rows: list[tuple[torch.dtype, ...]] = field(factory=list)
    leading: set[int] = field(factory=set)
    orders: list[str] = field(factory=list)
    check: list[str] = field(factory=list)

    def columns(self) -> list[str]:
        """What each dtype of a row is of: operands, then casts in order; equal columns have one name."""
        names = list(self.first.operand_dtypes)
        columns = list(zip(*self.rows, strict=True))
        casts: dict[Any, str] = {}
        for column in columns[len(names) :]:
            one = len(set(column)) == 1
            names.append(str(column[0]) if one else casts.setdefault(column, f"dtype_{len(casts)}"))
        return names

    def lines(self) -> list[str]:
        """The body of the function that builds the expression, dtypes written in."""
        casts = self.columns()[len(self.first.operand_dtypes) :]
        return self.first.lines(casts)

    def captured_dtypes(self) -> list[str]:
        """The names of dtypes that a match binds."""
        casts = self.columns()[len(self.first.operand_dtypes) :]
        return list(dict.fromkeys(c for c in casts if c.startswith("dtype_")))

    def table(self) -> list[dict[str, str]]:
        """The rows as a match has them: name to dtype."""
        names = self.columns()
        kept = [i for i, n in enumerate(names) if i < len(self.first.operand_dtypes) or n.startswith("dtype_")]
        return [{names[i]: str(row[i]) for i in kept} for row in self.rows]


@frozen
class Plain:
    """A rule in plain patterns. `why`: the reason where there are none. `cut`: patterns that are left out; `more`: and
    spellings that were not tried.
    """

    rule: RuleDef
    families: tuple[Family, ...] = ()
    put: tuple[str, ...] = ()  # the body of the function of the right side
    served: tuple[str, ...] = ()  # the same by the provider that was named, for the families that it serves
    why: str = ""
    cut: int = 0
    more: bool = False

    @property
    def count(self) -> int:
        """How many patterns there are."""
        return sum(len(f.orders) for f in self.families)


def plain(program: Program, rule: RuleDef, most: int = MOST, provider: str | None = None) -> Plain:
    """The plain patterns of a rule. `provider`: what is put in where it serves."""
    why = _unsayable(program, rule)
    if why:
        return Plain(rule, why=why)
    try:
        put = right_side(program, rule)
    except Dead as error:
        return Plain(rule, why=str(error))
    case = case_of(program, rule, provider)
    served = [] if case is None else served_side(program, rule, case)
    literal: set[str] = set()
    store = Store()
    while True:
        ways = Ways(lambda choose: spell(program, rule, store, literal, choose, case), TRIED)
        try:
            families = _families(ways)
        except NeedsLiteral as error:
            literal.add(error.name)
            continue
        break
    if not families:
        return Plain(rule, why=ways.dead)
    cut = _cut(families, most)
    kept = tuple(f for f in families if f.orders)
    return Plain(rule, kept, tuple(put), tuple(served), cut=cut, more=ways.left > 0)


def _unsayable(program: Program, rule: RuleDef) -> str:
    if rule.stage != "fuse":
        return "clean-up of a graph, no fusion"
    if any(isinstance(t, core.Each) for t in rule.left):
        return "`each`: a list of any length"
    if rule.kept:
        return f"`keep {rule.kept[0]}`: how many users it has is not known"
    if rule.prefer:
        return "`prefer`: a count of tokens"
    return ""


def _families(ways: Ways) -> list[Family]:
    found: dict[Any, Family] = {}
    for departures, spelled in ways:
        s = structure_of(spelled)
        try:
            given = _given(s)
            check = fits.body(s, any_rank=False)
        except Dead as error:
            ways.dead = ways.dead or str(error)
            continue
        rank = max(map(len, spelled.leading.values()), default=0)
        texts = (s.spelled.served, s.sizes, s.spelled.assumed, given, s.captures, rank if _ranked(s) else None)
        key = (*s.made, s.returned, *map(str, texts))
        family = found.setdefault(key, Family(s, departures, given, check=check))
        row = (*s.operand_dtypes.values(), *s.dtypes)
        if row not in family.rows:
            family.rows.append(row)
        family.leading.add(rank)
    for family in found.values():
        if len(family.leading) > 1:
            family.check = fits.body(family.first, any_rank=True)
    return list(found.values())


def _ranked(s: Structure) -> bool:
    """Do sizes that the graph states name leading axes?"""
    leading = {n for axes in s.spelled.leading.values() for axis in axes for n in sizes.names(axis)}
    stated = [n for size in s.sizes.values() for n in (size if isinstance(size, list) else [size])]
    return any(sizes.names(n) & leading for n in stated)


def _given(s: Structure) -> dict[str, Any]:
    """Operands and attributes that no match binds, with their values."""
    out: dict[str, Any] = {}
    for name, node in s.spelled.operands.items():
        if node is None:
            out[name] = None
        elif name not in s.captures:
            raise Dead(f"`{name}` stands in no pattern")
    for name, value in s.spelled.attributes.items():
        if isinstance(value, Captured):
            if name in s.captures:
                continue
            default = next(a.default for a in s.spelled.rule.attributes if a.name == name)
            value = s.spelled.fixed.get(name, default)
            if value is core.NO_DEFAULT:
                raise Dead(f"`{name}` stands in no pattern")
        if not isinstance(value, Free):
            out[name] = value
    return out


def _cut(families: list[Family], most: int) -> int:
    """Give each family its orders while there is room, the fewest departures first. How many are left out."""
    orders = ((f, i, order) for i, f in enumerate(families) for order in _orders(f.first.pairs))
    every = sorted(((f.departures + order.count("1"), i, order) for f, i, order in orders), key=lambda x: x[:2])
    for _, i, order in every[:most]:
        families[i].orders.append(order)
    return max(0, len(every) - most)


def _orders(pairs: int) -> list[str]:
    found = [f"{n:0{pairs}b}" if pairs else "" for n in range(2**pairs)]
    return sorted(found, key=lambda o: (o.count("1"), o))


# ---- the right side


def right_side(program: Program, rule: RuleDef) -> list[str]:
    """Statements that call the ops of the right side. Raises Dead where it computes."""
    right = _Right(program)
    results = [right.result(t) for t in rule.right]
    returned = results[0] if len(results) == 1 else Group("(", tuple(results), ")")
    if isinstance(returned, Group) and len(returned.flat()) < 70:
        returned = ", ".join(results)
    return [*right.lines, *line(returned, "return ", depth=1)]


def served_side(program: Program, rule: RuleDef, case: Case) -> list[str]:
    """Statements that call a provider. Raises Dead where it computes an argument."""
    emitted = next(t.call for t in rule.right if isinstance(t, Result))
    made = line(call_text(case, emitted, program), "r0 = ", depth=1)
    outputs = [case.outputs[t.index] for t in rule.right if isinstance(t, Result)]
    results = [f"result(r0, {o.returned})" for o in outputs if isinstance(o, core.Extern)]
    return [*made, f"    return {', '.join(results)}"]


@define
class _Right:
    """Calls of ops as statements, each once."""

    program: Program
    calls: dict[int, str] = field(factory=dict)
    lines: list[str] = field(factory=list)

    def result(self, term: Any) -> str:
        """The text of an operand, or of a result of a call."""
        if isinstance(term, core.Operand):
            return safe(term.name)
        if isinstance(term, core.Nothing):
            return "None"
        if not isinstance(term, Result):
            raise Dead("its right side is no call of an op")
        op = term.call
        if id(op) not in self.calls:
            if any(isinstance(a, tuple) for a in op.args):
                raise Dead("its right side has a list")
            args = [self.result(a) for a in op.args]
            made = call(f"torch.ops.fxrewrite.{op.op}", *args, *(f"{n}={scalar_text(a)}" for n, a in op.attrs))
            self.calls[id(op)] = f"r{len(self.calls)}"
            self.lines += line(made, f"{self.calls[id(op)]} = ", depth=1)
        several = len(self.program.ops[op.op].results) > 1
        return f"{self.calls[id(op)]}[{term.index}]" if several else self.calls[id(op)]
