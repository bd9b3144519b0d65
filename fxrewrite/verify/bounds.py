"""Just inside and just outside of each condition of a rule: it must fire there, and must not here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from attrs import evolve

from fxrewrite.dsl.check.terms import names_of, walk
from fxrewrite.dsl.scalars import value
from fxrewrite.dsl.wording import said
from fxrewrite.verify.assign import Space, Starved
from fxrewrite.verify.domains import divisors, literals
from fxrewrite.verify.edits import written_after
from fxrewrite.verify.settings import Setting, Wanted, plain
from fxrewrite.verify.sites import AS_DEFINED, Before, Site, Subject, fact, usual
from fxrewrite.verify.variants import Variant
from fxrewrite.verify.written import NoGraph

GUESSES = 6  # choices of all flags together, where none alone leads outside


def of_guards(subject: Subject) -> Iterator[Variant]:
    """For each condition: operands and attributes just outside of it, as near as there are any, and on its bound; and
    a graph that has not the fact that it asks for."""
    for guard in subject.rule.guards:
        yield Variant(f"outside of `{said(guard)}`", "stays", partial(_outside, subject, guard))
        for name, at in _bounds(subject, guard):
            inside = partial(_inside, subject, name, at)
            yield Variant(f"just inside of `{said(guard)}`: {name} = {at}", "fires", inside)
        for name, make in WITHOUT.items():
            asked = fact(guard, name)
            if asked is not None:
                yield Variant(f"a graph outside of `{said(guard)}`", "stays", partial(make, subject, asked.name))


# ---- facts of a graph


def _otherwise(before: Before, subject: Subject, operand: str) -> Site:
    """Another beginning of the graph for one operand."""
    usually = usual(subject.rule)
    setting = subject.site().setting
    return subject.traced(setting, before=lambda n, t: before(n, t) if n == operand else usually(n, t))


def _written(subject: Subject, operand: str) -> Site:
    """The operand is written after its last reader."""
    site = subject.site()
    at = site.setting.names(subject.claim.op).index(operand)
    node = list(site.graph.find_nodes(op="placeholder"))[at]
    if subject.rule.stage == "canonicalize":
        node = next(iter(node.users))
    return written_after(node, list(node.users)[-1]).site(site)


WITHOUT: dict[str, Callable[[Subject, str], Site]] = {  # a graph where a condition about it does not hold
    "fresh": partial(_otherwise, lambda name, t: t.neg()),
    "donated": partial(_otherwise, lambda name, t: t),
    "written": _written,
}


# ---- sizes and attributes on a bound


def _bounds(subject: Subject, guard: Any) -> Iterator[tuple[str, Any]]:
    """The sizes and numbers that a condition names, on the bounds that it holds against them: the next one up or down
    is outside."""
    env = subject.setting().assignment.env(subject.claim.op)
    compared, dividing = literals([guard]), divisors([guard])
    for v in subject.space.variables:
        if v.name not in names_of(guard) or v.kind not in ("dim", "size", "attribute"):
            continue
        where = env.attributes if v.kind != "dim" else env.dims
        have = where.get(v.name)
        near = {n + k for n in compared.get(v.name, ()) if type(n) is int for k in (-1, 0, 1)}
        for at in sorted(n for n in near | dividing if n > 0 and type(have) is int):
            holds = []
            for n in (at - 1, at, at + 1):
                where[v.name] = n
                holds.append(value(guard, env))
            if holds[1] is True and False in holds:
                yield v.name, at
        if have is not None:
            where[v.name] = have


def _inside(subject: Subject, name: str, at: Any) -> Site:
    for rows in ((), (("rows", (2,)),), (("rows", (1,)),)):
        try:
            setting = subject.setting({**dict(rows), name: (at,)})
        except NoGraph:
            continue
        chosen = setting.assignment
        if chosen.dims.get(name, chosen.attributes.get(name)) == at:
            return subject.site(AS_DEFINED, setting)
    raise NoGraph(f"nothing has {name} = {at}")


# ---- outside


def _outside(subject: Subject, guard: Any) -> Site:
    claim = subject.claim
    op = evolve(claim.op, requires=tuple(g for g in claim.op.requires if g is not guard))
    space = Space.of(evolve(claim, op=op, candidate=claim.reference or claim.candidate))
    for wanted in _near(subject, space, guard):
        try:
            chosen = plain(space, {**subject.rows, **wanted})
        except Starved:
            continue
        if value(guard, chosen.env(op)) is False:
            try:
                return evolve(subject, claim=evolve(claim, op=op)).traced(Setting.of(claim, chosen))
            except NoGraph:
                continue
    raise NoGraph(f"nothing is outside of `{said(guard)}` and has a value")


def _near(subject: Subject, space: Space, guard: Any) -> Iterator[Wanted]:
    """Values of what a condition names, the nearest first."""
    base = subject.setting().assignment
    named = names_of(guard) | {t.name for t in walk(guard) if hasattr(t, "optional")}
    for v in space.variables:
        if v.name not in named:
            continue
        if v.kind == "dim":
            have = base.dims.get(v.name, 64)
            yield from ({v.name: (n,)} for n in (have + 1, have - 1, have + 2, have // 2, have * 3 // 2) if n > 0)
        elif v.kind in ("attribute", "present"):
            yield from ({v.name: (o,)} for o in v.values)
    flags = [v for v in space.variables if v.name in named and v.kind in ("attribute", "present")]
    for seed in range(len(flags), len(flags) + GUESSES):
        random = Random(seed)
        yield {v.name: (random.choice(v.values),) for v in flags if v.values}
