"""Sizes, dtypes and attributes for a claim: chosen one by one, so that what is chosen never breaks a condition.

    space = Space.of(claim)
    space.choose(random.Random(0), {"D": (64, 128), "recip": (True,)})    # the first of these that fit, else others

A search with look-ahead: a value that breaks a condition (`relations.py`) is not taken, and where none is left the
choice before is made anew. Raises `Starved` with the condition that broke most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from fxrewrite.dsl import registered
from fxrewrite.dsl.check.terms import calls_of, operands_of, walk
from fxrewrite.dsl.core import Apply, Dtype, OpDef
from fxrewrite.dsl.evaluate import EvaluationError, case_holds
from fxrewrite.dsl.scalars import UNKNOWN, sizes, value
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said
from fxrewrite.patterns.dtypes import NAMES
from fxrewrite.patterns.groups import Group
from fxrewrite.verify import domains
from fxrewrite.verify.assignment import EMPTY, Assignment, zeros
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.relations import Item, Relation, Relations, Typed, Types
from fxrewrite.verify.straight import record_side
from fxrewrite.verify.untyped import Completion, NoChoice, NoType
from fxrewrite.verify.variables import Variable, bound_by_built_ins, is_untyped, variables_of

TRIES, RESTARTS = 120, 50  # choices before a search begins anew, and how often
COST = 5  # choices that a call of the reference counts as
KEPT = 0.7  # the share of what is wanted that a search keeps which begins anew
ELEMENTS = 1 << 16  # of an operand
SEVERAL = 0.25  # the share of cases whose rows lie on several leading axes
FEW = 129  # rows up to which their number is tried
WHOLE = ((8, 16), (257,), (2, 3, 8))  # leading axes that are all that an operand has
Wanted = Mapping[str, Sequence[Any]]


class Starved(Exception):
    """No operands and attributes satisfy a claim. `condition`: what refuses most; `span`: the item that says it."""

    def __init__(self, condition: str, span: Span | None):
        super().__init__(f"no inputs: nothing that was tried satisfies `{condition}`")
        self.condition, self.span = condition, span


@frozen
class Space:
    """Everything that a claim leaves open.

    `rows`: the name of the axis that is the number of rows; `widths`: the sizes that are only those of last axes.
    `is_tried`: is a choice right only where the reference has a value for zeros? `is_runnable`: can it have one here?
    `asked`: the attributes, operands and classes that conditions speak of. `is_open`: has it operands without a type,
    or parameters of built-ins? `whole`: leading axes that are the whole shape of an operand.
    """

    claim: Claim
    variables: tuple[Variable, ...]
    rows: str | None
    widths: frozenset[str]
    is_tried: bool
    is_runnable: bool
    relations: Relations
    asked: frozenset[str]
    is_open: bool
    whole: frozenset[str]

    @classmethod
    def of(cls, claim: Claim) -> Space:
        """The space of a claim, with the attributes and operands that its candidate pins."""
        op = claim.op
        refs = _refs(claim)
        rows, relations = domains.row_axis(op), Relations(claim.program)
        sizes = {*domains.sizes_in(op)[0], *domains.attributes_as_sizes(op)}
        is_open = bool(bound_by_built_ins(claim)) or any(is_untyped(o) for o in op.operands)
        return cls(
            claim=claim,
            variables=tuple(variables_of(claim, rows)),
            rows=rows,
            widths=frozenset(sizes - domains.inner_sizes(op)),
            is_tried=is_open or any(refs) or bool(domains.axes(claim.program, op)),
            is_runnable=all(refs),
            relations=relations,
            asked=_asked(claim, relations),
            is_open=is_open,
            whole=domains.whole_stars(op),
        )

    def choose(self, random: Random, wanted: Wanted | None = None, restarts: int = RESTARTS) -> Assignment:
        """A choice that breaks no condition, of the `wanted` values where they fit. Raises Starved.

        `restarts`: how often the search may begin anew.
        """
        search = _Search(self, random, wanted or {}, restarts)
        found = search.run()
        if found is None:
            ((relation, _),) = search.blamed.most_common(1)
            raise Starved(relation.condition, relation.span)
        return found


def _however_laid(claim: Claim) -> Claim:
    """The claim without guards on layouts, which are chosen later."""
    case = claim.candidate
    guards = tuple(g for g in case.guards if not any(isinstance(x, Apply) and x.op == "contiguous" for x in walk(g)))
    return claim if len(guards) == len(case.guards) else evolve(claim, candidate=evolve(case, guards=guards))


def _refs(claim: Claim) -> list[bool]:
    """For each op whose meaning is, for some of its attributes, a function of a package: does a package register it?"""
    program, todo, seen = claim.program, [claim.op], dict[str, OpDef]()
    todo += [
        program.ops[c.op] for c in calls_of((claim.candidate.outputs, claim.reference and claim.reference.outputs))
    ]
    while todo:
        op = todo.pop()
        if op.name not in seen:
            seen[op.name] = op
            todo += [program.ops[c.op] for c in calls_of(tuple(e.outputs for e in op.equations))]
    refs = [o.ref for o in seen.values() if o.ref is not None]
    return [registered.function(registered.REFS, r) is not None for r in refs]


def _asked(claim: Claim, relations: Relations) -> frozenset[str]:
    op, case = claim.op, claim.candidate
    found = relations.names((*op.requires, *case.guards), case.outputs) | {n for n, _ in case.pins}
    if claim.reference is not None:
        return frozenset(found | relations.names((), claim.reference.outputs))
    return frozenset(found | relations.of_names(op))


@define(eq=False)
class _Search:
    space: Space
    random: Random
    wanted: Wanted
    restarts: int
    blamed: Counter[Relation] = field(factory=Counter[Relation])
    left: int = 0
    refused: bool = False

    def run(self) -> Assignment | None:
        """Several searches, each given up early: a bad first choice is not proved bad by trying all that follow it."""
        hoped = self.hoped()
        if hoped is not None:
            return hoped
        for restart in range(self.restarts):
            self.left = TRIES
            if restart:  # something that is wanted may not go together
                self.wanted = {n: v for n, v in self.wanted.items() if self.random.random() < KEPT}
            found = self.extend(EMPTY, 0)
            if found is not None:
                return found
        return None

    def hoped(self) -> Assignment | None:
        """The first value of everything, where that breaks nothing."""
        chosen = EMPTY
        for variable in self.space.variables:
            candidates = self.candidates(variable, chosen)
            if not candidates:
                return None
            chosen = _with(chosen, variable, candidates[0])
        return self.whole(chosen) if self.relation(chosen) is None else None

    def extend(self, chosen: Assignment, at: int) -> Assignment | None:
        """`chosen` with everything from variable `at` on."""
        if at == len(self.space.variables):
            return self.whole(chosen)
        variable = self.space.variables[at]
        for candidate in self.candidates(variable, chosen):
            self.left -= 1
            if self.left < 0:
                return None
            tried = _with(chosen, variable, candidate)
            relation = self.relation(tried) if self.matters(variable, at) else None
            if relation is not None:
                self.blamed[relation] += 1
                continue
            found = self.extend(tried, at + 1)
            if found is not None:
                return found
            if self.refused and variable.name == self.space.rows:
                return None  # a reference that refuses some operands refuses them in any number of rows
            self.refused = False
        return None

    def matters(self, variable: Variable, at: int) -> bool:
        """May a choice of it break a condition? At the end it is asked anyway."""
        return (
            variable.kind not in ("present", "attribute", "dtype")
            or variable.name in self.space.asked
            or at + 1 == len(self.space.variables)
        )

    def whole(self, chosen: Assignment) -> Assignment | None:
        """A choice with what only the left side tells, where the claim has a value for it."""
        for _ in range(RESTARTS if self.space.is_open else 1):
            tried = self.completed(chosen) if self.space.is_open else chosen
            if tried is not None and self.has_value(tried):
                return tried
        return None

    def completed(self, chosen: Assignment) -> Assignment | None:
        """A choice with types for operands that have none, and parameters."""
        claim = self.space.claim
        left = claim.reference.outputs if claim.reference is not None else claim.candidate.outputs
        completion = Completion(chosen.env(claim.op), chosen.dtypes, self.random)
        try:
            completion.run([*(t for t in operands_of(left) if t.type.shape is not None), *left])
        except NoType as error:
            raise Starved(str(error), claim.span) from error
        except NoChoice as error:
            self.blamed[Relation(str(error), claim.name, claim.span)] += 1
            return None
        open_ = [o.name for o in claim.op.operands if is_untyped(o)]
        made = {n: completion.tensors[n] for n in open_ if n in completion.tensors}
        types = {n: Typed(Dtype(NAMES[t.dtype]), tuple(t.shape)) for n, t in made.items()}
        return evolve(chosen, attributes=completion.env.attributes, types=types)

    def has_value(self, chosen: Assignment) -> bool:
        """A `ref`, a collective along an axis: no condition says all that they want of operands, so they are asked."""
        claim = _however_laid(self.space.claim)
        if not self.space.is_tried:
            return True
        try:
            record_side(claim.expected, zeros(claim.op, chosen), chosen.attributes)
        except (NotThisCase, ValueError, RuntimeError, IndexError) as error:
            if isinstance(error, EvaluationError) and not self.space.is_runnable:
                return True  # as far as it got it was right
            self.blamed[Relation(str(error).splitlines()[0], claim.name, claim.span)] += 1
            self.left -= COST
            self.refused = True
            return False
        return True

    def candidates(self, variable: Variable, chosen: Assignment) -> list[Any]:
        """The values of a variable, those that are wanted first."""
        values, likely = list(variable.values), list[Any]()
        if variable.kind == "star":
            likely, values = self.stars(variable, chosen)
        elif variable.kind in ("dim", "each", "size"):
            ints = sorted(_numbers(chosen))
            likely = [k * v for v in ints for k in (1, 2, 3)] + [v // 2 for v in ints]
        if variable.kind == "attribute" and isinstance(values[0], Group):
            return values  # one rank first: more have no meaning in this process
        self.random.shuffle(values)
        self.random.shuffle(likely)
        values = [*likely, *values] if self.random.random() < 0.5 else [*values, *likely]
        if variable.kind == "each":
            alike = [(v,) * chosen.length for v in values[:4]]
            return [*alike, *(tuple(self.random.choices(values, k=chosen.length)) for _ in range(4))]
        return list(dict.fromkeys((*self.first(variable), *values)))

    def first(self, variable: Variable) -> list[Any]:
        """The values that are wanted of a variable. `rows` is a number, whatever axis it is of; several leading axes
        have them now and then.
        """
        found = list(self.wanted.get(variable.name, ()))
        if variable.name == self.space.rows:
            rows = [r for n in self.wanted.get("rows", ()) for r in _downwards(n)]
            apart = self.random.random() < SEVERAL
            found += [_axes(n, apart) if variable.kind == "star" and isinstance(n, int) else n for n in rows]
        return found

    def stars(self, variable: Variable, chosen: Assignment) -> tuple[list[Any], list[Any]]:
        """Leading axes: likely ones (those of the others, a single 1), and ones in their place, pairs of sizes."""
        if variable.name == self.space.rows:
            return [(4,)], [(2, 3), ()]
        found: list[Any] = [()]
        for other in chosen.stars.values():
            found += [tuple(1 for _ in other), other[1:], (1, *other[1:])]
        sizes = list(dict.fromkeys((*chosen.dims.values(), *(n for s in chosen.stars.values() for n in s), 8)))[:6]
        pairs = [(a, b) for a in (1, *sizes) for b in (1, *sizes)]
        if variable.name in self.space.whole:
            beside = [(*s[:-1], 1) for s in chosen.stars.values() if s]
            return [*WHOLE, (1,), *((WHOLE[0][0], n) for n in sizes), *beside], pairs
        return [(1,), *chosen.stars.values()], [*found, *pairs]

    def relation(self, chosen: Assignment) -> Relation | None:
        """What a choice breaks."""
        claim, op = self.space.claim, self.space.claim.op
        env = chosen.env(op)
        if not _small(op, env, ELEMENTS):
            return Relation(f"at most {ELEMENTS} elements an operand", claim.name, claim.span)
        case = claim.candidate
        if case_holds(case, env) is False:
            unmet = next((c for c in case.guards if value(c, env) is False), None)
            return Relation(said(unmet) if unmet is not None else "its pins", f"{op.name}/{case.name}", case.span)
        relations, item = self.space.relations, Item(op.name, op.requires, op.span)
        found = relations.broken(item, case.outputs, env)
        if found is not None:
            return found
        if claim.reference is None:
            return relations.of_op(op, env)
        return relations.broken(Item(op.name, (), op.span), claim.reference.outputs, env)


def _axes(rows: int, several: bool) -> tuple[int, ...]:
    """Leading axes of so many rows: one, or `several` where the number itself is not what is tried."""
    if not several or rows <= FEW:
        return (rows,)
    return (2, rows // 2) if rows % 2 == 0 else (1, rows, 1)


def _numbers(chosen: Assignment) -> set[int]:
    """The numbers that a size may be a multiple of: those chosen, and the sums of lists."""
    values = [*chosen.dims.values(), *chosen.attributes.values()]
    sums = [sum(v) for v in values if isinstance(v, tuple) and all(type(n) is int for n in v)]
    return {v for v in (*values, *sums) if type(v) is int and v > 1}


def _downwards(rows: Any) -> list[Any]:
    """A number of rows, and fewer where that many are too large."""
    return [rows >> k for k in range(rows.bit_length())] if isinstance(rows, int) and rows else [rows]


def _with(chosen: Assignment, variable: Variable, candidate: Any) -> Assignment:
    kind, name = variable.kind, variable.name
    if kind == "length":
        return evolve(chosen, length=candidate)
    where = PLACES[kind]
    return evolve(chosen, **{where: {**getattr(chosen, where), name: candidate}})


PLACES = {  # kind of a variable -> the field of an assignment
    "present": "present", "dtype": "dtypes", "attribute": "attributes", "size": "attributes", "dim": "dims",
    "star": "stars", "each": "stars",
}  # fmt: skip


def _small(op: OpDef, env: Types, elements: int) -> bool:
    for o in op.operands:
        shape = UNKNOWN if o.type.shape is None or o.star else sizes(o.type.shape, env)
        if shape is UNKNOWN:
            continue
        numel = 1
        for n in shape:
            if n < 0:
                return False
            numel *= n
        if numel > elements:
            return False
    return True
