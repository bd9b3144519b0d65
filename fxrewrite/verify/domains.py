"""What an attribute may be, and a size: a few values each, those that the text names first.

A literal that a condition compares an attribute with gives itself and its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Attribute,
    Call,
    Dtype,
    DtypeVar,
    Lit,
    OpDef,
    OperandInfo,
    Prim,
    Program,
    Ref,
    Size,
)
from fxrewrite.dsl.dims import Compound, Dim, Star, names
from fxrewrite.patterns.dtypes import DTYPES, Absent
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.free_names import parameters

WIDTHS = (64, 128, 100, 1, 32, 2, 96, 192, 256, 384, 3, 16, 48, 8, 4, 512, 1024, 2048)
FLOATS = (1e-6, 1e-5, 0.5, 0.0, 2.0)
INTS = (64, 32, 128, 1, 2, 8, 16, 3)
DATA = ("bf16", "f16", "f32", "e4m3fn", "i32", "u8", "i8", "e5m2", "i64", "bool")  # of an operand of any dtype
GROUPS = tuple(Group("", n) for n in (1, 2, 4, 8))
AXES = (0, -1)  # of a tensor of any rank
COMPARED = frozenset(("==", "<", "<=", ">", ">="))


def values_of(a: Attribute, compared: Iterable[Any], sampled: Iterable[Any] = ()) -> tuple[Any, ...]:
    """Values of an attribute, the default first, then those of its `sample`.

    `compared`: literals that conditions hold against it.
    """
    found = [*sampled, *_near(a, compared), *_of_type(a)]
    default = [] if a.default is NO_DEFAULT else [a.default]
    nothing = [None] if a.optional else []
    return _once([*default, *(a.domain if a.domain is not None else found), *nothing])


def _of_type(a: Attribute) -> Sequence[Any]:
    kinds: dict[str, Sequence[Any]] = {
        "float": FLOATS, "int": INTS, "bool": (False, True), "layout": ("row", "col", "tma"), "group": GROUPS,
        "dtype": [Dtype(n) for n in DATA], "str": ("", "a"), "list": ((16, 8, 8),),
    }  # fmt: skip
    return kinds.get(a.type, ())


def _near(a: Attribute, compared: Iterable[Any]) -> Iterable[Any]:
    """The literals that fit, and their neighbours."""
    for value in compared:
        if a.type == "int" and type(value) is int:
            yield from (n for n in (value, value + 1, value - 1) if n >= 0)
        elif a.type == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            yield from (float(value), math.nextafter(value, math.inf), math.nextafter(value, -math.inf))
        elif a.type in ("str", "layout") and isinstance(value, str):
            yield value


def _once(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once; 0 and 0.0 and False are three."""
    return tuple({(type(v), v): v for v in values}.values())


def literals(conditions: Iterable[Any]) -> dict[str, list[Any]]:
    """The literals that conditions hold against an attribute or a size, by name."""
    found: dict[str, list[Any]] = {}
    for x in walk(tuple(conditions)):
        if not (isinstance(x, Apply) and x.op in COMPARED and len(x.args) == 2):
            continue
        for one, other in (x.args, x.args[::-1]):
            for name in _named(one):
                if isinstance(other, Lit):
                    found.setdefault(name, []).append(other.value)
    return found


def _named(x: Any) -> set[str]:
    if isinstance(x, Ref):
        return {x.name}
    return {x.dim.name} if isinstance(x, Size) and x.dim.name else set()


def divisors(conditions: Iterable[Any]) -> set[int]:
    """The numbers by which conditions divide sizes."""
    return {n for x in walk(tuple(conditions)) if isinstance(x, Dim) for n in _divisors(x)}


def _divisors(dim: Dim) -> Iterable[int]:
    for atom, _ in dim.terms:
        if isinstance(atom, Compound):
            if atom.right.number is not None:
                yield atom.right.number
            yield from (*_divisors(atom.left), *_divisors(atom.right))


def dtypes_of(info: OperandInfo) -> tuple[str, ...] | None:
    """The dtypes that an operand may have, those that this torch has; None where an attribute says it."""
    declared = info.type.dtype
    if isinstance(declared, Ref):
        return None
    every = DATA if declared is None else declared.members if isinstance(declared, DtypeVar) else (declared.name,)
    return tuple(n for n in every if not isinstance(DTYPES[n], Absent))


def sizes_in(op: OpDef) -> tuple[list[str], list[str]]:
    """The dims and the stars in the types of operands, in order; attributes are none."""
    dims: dict[str, None] = {}
    stars: dict[str, None] = {}
    known = {a.name for a in op.attributes}
    for d in (d for o in op.operands for d in o.type.shape or ()):
        if isinstance(d, Star):
            stars[d.name] = None
        else:
            dims |= dict.fromkeys(n for n in sorted(names(d)) if n not in known)
    return list(dims), list(stars)


def sizes_of_elements(op: OpDef) -> set[str]:
    """The sizes that only lists have: each element its own."""

    def named(star: bool) -> set[str]:
        shapes = [d for o in op.operands if o.star == star for d in o.type.shape or ()]
        return {n for d in shapes if isinstance(d, Dim) for n in names(d)}

    return named(True) - named(False)


def whole_stars(op: OpDef) -> frozenset[str]:
    """The leading axes that are the whole shape of an operand."""
    shapes = [o.type.shape for o in op.operands if o.type.shape is not None and len(o.type.shape) == 1]
    return frozenset(s[0].name for s in shapes if isinstance(s[0], Star))


def axes(program: Program, op: OpDef) -> set[str]:
    """The attributes that say which axis a primitive works along, in the op or in those that it calls."""
    found: set[str] = set()
    for x in walk(tuple(e.outputs for e in op.equations)):
        if isinstance(x, Prim):
            found |= {p.name for n, p in zip(parameters(x.op), x.params) if n == "dim" and isinstance(p, Ref)}
        elif isinstance(x, Call):
            inner = axes(program, program.ops[x.op])
            found |= {a.name for n, a in x.attrs if n in inner and isinstance(a, Ref)}
    return found


def inner_sizes(op: OpDef) -> set[str]:
    """The sizes of axes that are not the last."""
    return {d.name for o in op.operands for d in (o.type.shape or ())[:-1] if isinstance(d, Dim) and d.name}


def attributes_as_sizes(op: OpDef) -> list[str]:
    """The attributes that stand in the types of operands."""
    used = {n for o in op.operands for d in o.type.shape or () if isinstance(d, Dim) for n in names(d)}
    return [a.name for a in op.attributes if a.name in used]


def row_axis(op: OpDef) -> str | None:
    """The name of the rows: the leading axis of the first operand with two axes or more, where it is nothing else."""
    shapes = [o.type.shape for o in op.operands if o.kind == "tensor" and o.type.shape is not None]
    first = next((s[0] for s in shapes if len(s) > 1), None)
    if first is None:
        return None
    name = first.name
    if name is None or isinstance(first, Star):
        return name
    elsewhere = {n for s in shapes for d in s for n in _names_of(d) if d != first or (len(s) > 1 and d == s[-1])}
    return None if name in elsewhere or op.attribute(name) is not None else name


def _names_of(d: Dim | Star) -> set[str]:
    return {d.name} if isinstance(d, Star) else names(d)
