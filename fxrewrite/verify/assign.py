"""Sizes, dtypes and attributes for a claim: chosen one by one, so that what is chosen never breaks a condition.

    space = Space.of(claim)
    space.choose(random.Random(0), {"D": (64, 128), "recip": (True,)})    # the first of these that fit, else others

A search with look-ahead: a value that breaks a condition (`relations.py`) is not taken, and where none is left the
choice before is made anew. Raises `Starved` with the condition that broke most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from fxrewrite.dsl import registered
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Dtype, DtypeVar, OpDef, OperandInfo
from fxrewrite.dsl.dims import Dim, names
from fxrewrite.dsl.evaluate import case_holds
from fxrewrite.dsl.scalars import UNKNOWN, sizes, value
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify import domains
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.relations import Item, Relation, Relations, Typed, Types

TRIES, RESTARTS = 120, 25  # choices before a search begins anew, and how often
KEPT = 0.7  # the share of what is wanted that a search keeps which begins anew
ELEMENTS = 1 << 16  # of an operand, where nobody says
SMALL = (4, 2, 1, 3, 6, 5, 16, 8, 32)  # sizes of axes that are not the last
Wanted = Mapping[str, Sequence[Any]]


class Starved(Exception):
    """No operands and attributes satisfy a claim. `condition`: what refuses most; `span`: the item that says it."""

    def __init__(self, condition: str, span: Span | None):
        super().__init__(f"no inputs: nothing that was tried satisfies `{condition}`")
        self.condition, self.span = condition, span


@frozen
class Assignment:
    """A choice. `dtypes`: of classes by key, of operands of any dtype by name. `lengths`: of list operands."""

    attributes: dict[str, Any]
    dims: dict[str, int]
    stars: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    absent: frozenset[str]
    length: int

    def env(self, op: OpDef) -> Types:
        """What conditions are asked in."""
        env = Types(attributes=dict(self.attributes), dims=dict(self.dims), stars=dict(self.stars))
        env.dtypes = {k: Dtype(n) for k, n in self.dtypes.items()}
        env.operands = dict.fromkeys(self.absent)
        for o in op.operands:
            if o.star and self.length:
                env.operands[o.name] = [element(o, i, env) for i in range(self.length)]
        return env


EMPTY = Assignment({}, {}, {}, {}, frozenset(), 0)


def element(info: OperandInfo, index: int, env: Types) -> Typed:
    """The type of one of a list: a size of its own is that of its place."""
    inner = Types(attributes=env.attributes, dims=dict(env.dims), stars=dict(env.stars), dtypes=env.dtypes)
    for d in info.type.shape or ():
        for n in names(d) if isinstance(d, Dim) else ():
            if n not in env.dims and n in env.stars:
                inner.dims[n] = env.stars[n][index]
    return inner.typed(info.type)


@frozen
class Variable:
    """What is chosen, and the values that it may have.

    `kind`: present, length, dtype, attribute, star, dim, `size` (an attribute that is one) or `each` (a dim of each
    element of a list).
    """

    kind: str
    name: str
    values: tuple[Any, ...] = ()


@frozen
class Space:
    """Everything that a claim leaves open. `rows`: the name of the axis that is the number of rows; `widths`: the sizes
    that are only those of last axes. `asked`: the attributes, operands and classes that conditions speak of.
    """

    claim: Claim
    variables: tuple[Variable, ...]
    rows: str | None
    widths: frozenset[str]
    has_refs: bool
    relations: Relations
    asked: frozenset[str]

    @classmethod
    def of(cls, claim: Claim) -> Space:
        """The space of a claim, with the attributes and operands that its candidate pins."""
        op, pins = claim.op, dict(claim.candidate.pins)
        terms = (*op.requires, *claim.candidate.guards, *claim.candidate.outputs)
        terms += tuple(t for e in op.equations for t in (*e.guards, *e.outputs))
        compared, divisors = domains.literals(terms), domains.divisors(terms)
        sized = domains.attributes_as_sizes(op)
        plain = [a for a in op.attributes if a.name not in sized]
        found = [*_operand_variables(op, pins), *(_attribute(a, compared, pins) for a in plain)]
        rows = domains.row_axis(op)
        dims, stars = domains.sizes_in(op)
        for n in sized:
            values = (pins[n],) if n in pins else _pool(op, n, compared.get(n, ()), divisors)
            found.append(Variable("size", n, values))
        own = {n for o in op.operands if o.star for d in o.type.shape or () if isinstance(d, Dim) for n in names(d)}
        own -= {
            n for o in op.operands if not o.star for d in o.type.shape or () if isinstance(d, Dim) for n in names(d)
        }
        for d in sorted(dims, key=lambda d: d == rows):
            kind = "each" if d in own else "dim"
            found.append(Variable(kind, d, _pool(op, d, compared.get(d, ()), divisors)))
        found += [Variable("star", s) for s in sorted(stars, key=lambda s: s != rows)]
        widths = {*dims, *sized} - domains.inner_sizes(op)
        relations = Relations(claim.program)
        return cls(claim, tuple(found), rows, frozenset(widths), _has_refs(claim), relations, _asked(claim, relations))

    def choose(self, random: Random, wanted: Wanted | None = None, elements: int = ELEMENTS) -> Assignment:
        """A choice that breaks no condition, of the `wanted` values where they fit. Raises Starved."""
        unknown = next((o for o in self.claim.op.operands if o.kind == "tensor" and o.type.shape is None), None)
        if unknown is not None:
            raise Starved(f"the type of `{unknown.name}`", unknown.span)
        search = _Search(self, random, wanted or {}, elements)
        found = search.run()
        if found is None:
            ((relation, _),) = search.blamed.most_common(1)
            raise Starved(relation.condition, relation.span)
        return found


def _has_refs(claim: Claim) -> bool:
    """Is there an op whose meaning is, for some of its attributes, a function of a package?"""
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
    return bool(refs) and all(registered.function(registered.REFS, r) is not None for r in refs)


def zeros(op: OpDef, chosen: Assignment) -> list[Any]:
    """Operands of a choice that hold nothing but zeros."""
    env = chosen.env(op)
    return [_zeros(o, env) if o.name not in chosen.absent else None for o in op.operands]


def _zeros(info: OperandInfo, env: Types) -> Any:
    if info.kind == "str":
        return ""
    types = env.operands[info.name] if info.star else [env.typed(info.type)]
    made = [torch.zeros(t.shape, dtype=DTYPES[t.dtype.name]) for t in types]
    return made if info.star else made[0]


def _asked(claim: Claim, relations: Relations) -> frozenset[str]:
    op, case = claim.op, claim.candidate
    found = relations.names((*op.requires, *case.guards), case.outputs) | {n for n, _ in case.pins}
    if claim.reference is not None:
        return frozenset(found | relations.names((), claim.reference.outputs))
    return frozenset(found | relations.of_names(op))


def _operand_variables(op: OpDef, pins: Mapping[str, Any]) -> Iterator[Variable]:
    for o in op.operands:
        if o.optional:
            yield Variable("present", o.name, (False,) if o.name in pins else (True, False))
    if any(o.star for o in op.operands):
        yield Variable("length", "length", (2, 3, 1))
    seen: set[str] = set()
    for o in op.operands:
        dtypes = domains.dtypes_of(o) if o.kind == "tensor" else None
        key = o.type.dtype.key if isinstance(o.type.dtype, DtypeVar) else o.name
        if dtypes is not None and not isinstance(o.type.dtype, Dtype) and key not in seen:
            seen.add(key)
            yield Variable("dtype", key, dtypes)


def _attribute(a: Any, compared: Mapping[str, Any], pins: Mapping[str, Any]) -> Variable:
    if a.name in pins:
        return Variable("attribute", a.name, (pins[a.name],))
    return Variable("attribute", a.name, domains.values_of(a, compared.get(a.name, ())))


def _pool(op: OpDef, name: str, compared: Sequence[Any], divisors: set[int]) -> tuple[int, ...]:
    """Sizes for a dim: what the text names, then usual ones."""
    near = [n for c in compared if type(c) is int for n in (c, c + 1, c - 1)]
    multiples = [k * n for n in sorted(divisors) for k in (1, 3, 4)]
    usual = SMALL if name in domains.inner_sizes(op) else (*multiples, *domains.WIDTHS)
    return tuple(dict.fromkeys(n for n in (*near, *usual) if n > 0))


@define(eq=False)
class _Search:
    space: Space
    random: Random
    wanted: Wanted
    elements: int
    blamed: Counter[Relation] = field(factory=Counter[Relation])
    left: int = 0

    def run(self) -> Assignment | None:
        """Several searches, each given up early: a bad first choice is not proved bad by trying all that follow it."""
        hoped = self.hoped()
        if hoped is not None:
            return hoped
        for restart in range(RESTARTS):
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
        return chosen if self.relation(chosen) is None and self.has_value(chosen) else None

    def extend(self, chosen: Assignment, at: int) -> Assignment | None:
        """`chosen` with everything from variable `at` on."""
        if at == len(self.space.variables):
            return chosen if self.has_value(chosen) else None
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
        return None

    def matters(self, variable: Variable, at: int) -> bool:
        """May a choice of it break a condition? At the end it is asked anyway."""
        return (
            variable.kind not in ("present", "attribute", "dtype")
            or variable.name in self.space.asked
            or at + 1 == len(self.space.variables)
        )

    def has_value(self, chosen: Assignment) -> bool:
        """Where a `ref` says what an op is, no condition says all that it wants of its operands: it is asked."""
        claim = self.space.claim
        if not self.space.has_refs:
            return True
        try:
            claim.expected(Torch(), zeros(claim.op, chosen), chosen.attributes)
        except (NotThisCase, ValueError, RuntimeError, IndexError) as error:
            self.blamed[Relation(str(error).splitlines()[0], claim.name, claim.span)] += 1
            self.left = 0  # what it refuses is not in the last choice alone: begin anew
            return False
        return True

    def candidates(self, variable: Variable, chosen: Assignment) -> list[Any]:
        """The values of a variable, those that are wanted first."""
        values = list(variable.values)
        if variable.kind == "star":
            values = self.stars(variable, chosen)
        elif variable.kind in ("dim", "each", "size"):
            ints = sorted(_numbers(chosen))
            values += [k * v for v in ints for k in (1, 2, 3)] + [v // 2 for v in ints]
        self.random.shuffle(values)
        if variable.kind == "each":
            return [tuple(self.random.choices(values, k=chosen.length)) for _ in range(8)]
        return list(dict.fromkeys((*self.first(variable), *values)))

    def first(self, variable: Variable) -> list[Any]:
        """The values that are wanted of a variable. `rows` is a number, whatever axis it is of."""
        found = list(self.wanted.get(variable.name, ()))
        if variable.name == self.space.rows:
            rows = [r for n in self.wanted.get("rows", ()) for r in _downwards(n)]
            found += [(n,) if variable.kind == "star" and isinstance(n, int) else n for n in rows]
        return found

    def stars(self, variable: Variable, chosen: Assignment) -> list[Any]:
        """Leading axes: those of the others, ones in their place, and pairs of sizes."""
        if variable.name == self.space.rows:
            return [(4,), (2, 3), ()]
        found: list[Any] = [(), (1,)]
        for other in chosen.stars.values():
            found += [other, tuple(1 for _ in other), other[1:], (1, *other[1:])]
        sizes = list(dict.fromkeys(chosen.dims.values()))[:6]
        return [*found, *((a, b) for a in (1, *sizes) for b in (1, *sizes))]

    def relation(self, chosen: Assignment) -> Relation | None:
        """What a choice breaks."""
        claim, op = self.space.claim, self.space.claim.op
        env = chosen.env(op)
        if not _small(op, env, self.elements):
            return Relation(f"at most {self.elements} elements an operand", claim.name, claim.span)
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
    if kind == "present":
        return chosen if candidate else evolve(chosen, absent=chosen.absent | {name})
    if kind == "length":
        return evolve(chosen, length=candidate)
    where = PLACES[kind]
    return evolve(chosen, **{where: {**getattr(chosen, where), name: candidate}})


PLACES = {
    "dtype": "dtypes", "attribute": "attributes", "size": "attributes", "dim": "dims", "star": "stars", "each": "stars",
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
