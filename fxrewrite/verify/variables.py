"""What a claim leaves open: the values that each may have, the plainest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import NO_DEFAULT, Dtype, DtypeVar, Number, OpDef, OperandInfo, Prim, Ref
from fxrewrite.verify import domains
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.samples import samples_of

SMALL = (4, 2, 1, 3, 6, 5, 16, 8, 32)  # sizes of axes that are not the last


@frozen
class Variable:
    """What is chosen, and the values that it may have.

    `kind`: present, length, dtype, attribute, star, dim, `size` (an attribute that is one) or `each` (a dim of each
    element of a list).
    """

    kind: str
    name: str
    values: tuple[Any, ...] = ()


def variables_of(claim: Claim, rows: str | None) -> Iterator[Variable]:
    """What a claim leaves open, what others depend on first: operands, attributes, sizes, the number of rows."""
    op, pins = claim.op, dict(claim.candidate.pins)
    terms = (*op.requires, *claim.candidate.guards, *claim.candidate.outputs)
    terms += tuple(t for e in op.equations for t in (*e.guards, *e.outputs))
    compared, divisors = domains.literals(terms), domains.divisors(terms)
    axes = domains.axes(claim.program, op)
    sampled = {n: s.values for n, s in samples_of(claim.program, op).items() if s.values}
    sized, bound = domains.attributes_as_sizes(op), bound_by_built_ins(claim)
    yield from _operands(op, pins)
    for a in (a for a in op.attributes if a.name not in (*sized, *bound)):
        found = domains.values_of(a, compared.get(a.name, ()), sampled.get(a.name, ()))
        found = domains.AXES if a.name in axes else found
        yield Variable("attribute", a.name, (pins[a.name],) if a.name in pins else found)
    dims, stars = domains.sizes_in(op)
    own = domains.sizes_of_elements(op)
    for name in (*sorted(sized, key=lambda n: n not in compared), *sorted(dims, key=lambda d: d == rows)):
        found = _sizes(op, name, (*sampled.get(name, ()), *_near(compared.get(name, ()))), divisors)
        values = (pins[name],) if name in pins else found
        yield Variable("size" if name in sized else "each" if name in own else "dim", name, values)
    yield from (Variable("star", s) for s in sorted(stars, key=lambda s: s != rows))


def is_untyped(info: OperandInfo) -> bool:
    """Is it a tensor of which nothing says the shape?"""
    return info.kind == "tensor" and info.type.shape is None


def _operands(op: OpDef, pins: Mapping[str, Any]) -> Iterator[Variable]:
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


def _near(compared: Sequence[Any]) -> list[int]:
    return [n for c in compared if type(c) is int for n in (c, c + 1, c - 1)]


def _sizes(op: OpDef, name: str, first: Sequence[Any], divisors: set[int]) -> tuple[int, ...]:
    """Sizes for a dim: what the text names, then usual ones."""
    multiples = [k * n for n in sorted(divisors) for k in (1, 3, 4)]
    usual = SMALL if name in domains.inner_sizes(op) else (*multiples, *domains.WIDTHS)
    return tuple(dict.fromkeys(n for n in (*first, *usual) if type(n) is int and n > 0))


def bound_by_built_ins(claim: Claim) -> set[str]:
    """The attributes of a rule that are parameters of built-ins on its left side: the tensors there say what fits."""
    left = claim.reference.outputs if claim.reference is not None else ()
    names = {p.name for x in walk(left) if isinstance(x, Prim) for p in x.params if isinstance(p, Ref)}
    names |= {n.value.name for n in walk(left) if isinstance(n, Number) and isinstance(n.value, Ref)}
    known = {a.name for a in claim.op.attributes if a.domain is not None or a.default is not NO_DEFAULT}
    return names - known
