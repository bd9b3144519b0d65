"""Does what a match has bound fit the declared types? Binds dims and dtype classes on the way.

A problem is (reason, expected, found), as events say it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Dtype, DtypeVar, OpDef, OperandInfo, Ref, Size
from fxrewrite.dsl.dims import Star
from fxrewrite.patterns.constants import ITEM
from fxrewrite.patterns.dtypes import DTYPES, NAMES, to_graph
from fxrewrite.patterns.forms import Pattern
from fxrewrite.patterns.sizes import known
from fxrewrite.patterns.state import POP, UNSET, State, bind, lookup
from fxrewrite.patterns.values import Value

Problem = tuple[str, Any, Any]


def fits(pattern: Pattern, o: OperandInfo, s: State) -> Problem | None:
    """Does what an operand is bound to have its declared type? Binds dims and classes."""
    at = pattern.slots.index[o.name]
    value = s.v[at]
    if value is UNSET:
        if o.optional or o.has_default:
            s.v[at] = None
            s.trail.append(at)
            return None
        return ("other op", f"an operand {o.name}", None) if not o.star and isinstance(pattern.owner, OpDef) else None
    if value is None:
        return None if o.optional else ("guard false", f"{o.name} != none", None)
    if type(value) is not Value:
        return None
    return fits_type(pattern, o, value, s)


def fits_type(pattern: Pattern, o: OperandInfo, value: Value, s: State) -> Problem | None:
    """Has a value the declared type of an operand?"""
    type_, slots = o.type, pattern.slots
    if isinstance(type_.dtype, DtypeVar):
        if NAMES.get(value.dtype) not in type_.dtype.members:
            return "dtype", f"{o.name}: {type_}", value.dtype
        if not bind(s, slots("dtype:" + type_.dtype.key), value.dtype):
            return "dtype", f"{o.name}: {type_}", value.dtype
    elif isinstance(type_.dtype, Dtype) and value.dtype != DTYPES[type_.dtype.name]:
        return "dtype", f"{o.name}: {type_}", value.dtype
    if isinstance(type_.dtype, Ref) and not bind(s, slots(type_.dtype.name), value.dtype):
        return "dtype", f"{o.name}: {type_}", value.dtype
    if type_.shape is None or _fits_shape(pattern, type_.shape, value.shape, s):
        return None
    return "shape", f"{o.name}: {type_}", list(value.shape)


def _fits_shape(pattern: Pattern, declared: tuple[Any, ...], shape: tuple[Any, ...], s: State) -> bool:
    if len(declared) == 1 and not isinstance(declared[0], Star) and declared[0].number == 1:
        return all(d == 1 for d in shape)  # one element, any rank
    star = declared[0] if declared and isinstance(declared[0], Star) else None
    tail = declared[1:] if star is not None else declared
    cut = len(shape) - len(tail)
    if cut < 0 or (cut and star is None):
        return False
    if star is not None and not bind(s, pattern.slots("star:" + star.name), tuple(shape[:cut])):
        return False
    return all(_fits_dim(pattern, d, x, s) for d, x in zip(tail, shape[cut:], strict=True))


def _fits_dim(pattern: Pattern, dim: Any, size: Any, s: State) -> bool:
    if dim.number is not None:
        return dim.number == size
    have_of = partial(known, lookup(pattern.slots, s))
    if dim.name is not None:
        have = have_of(dim.name)
        return bind(s, pattern.slots("dim:" + dim.name), size) if have is None else have == size
    if all(have_of(n) is not None for n in dims.names(dim)):
        return dims.evaluate(dim, have_of) == size
    solved = dims.solve(dim, have_of, size)
    if solved is None:
        s.deferred.append((Size(dim), size))
        s.trail.append(POP)
        return True
    name, numerator, divisor = solved
    remainder = numerator % divisor if divisor != 1 else 0
    if remainder != 0:
        return False
    return bind(s, pattern.slots("dim:" + name), numerator // divisor if divisor != 1 else numerator)


def implied(pattern: Pattern, name: str, s: State) -> Any:
    """An attribute that nothing gives by its name: the list of the items that are given, or a size of the first result;
    UNSET where neither is.
    """
    index = pattern.slots.index
    items = sorted(key[2] for key in index if isinstance(key, tuple) and key[:2] == (ITEM, name))
    found = tuple(s.v[index[ITEM, name, i]] for i in items)
    if items:
        return UNSET if UNSET in found or items != list(range(len(items))) else found
    shape = pattern.owner.results[0].type.shape if isinstance(pattern.owner, OpDef) else None
    axes = [a for a, d in enumerate(shape or (), -len(shape or ())) if not isinstance(d, Star) and d.name == name]
    return s.anchor.shape[axes[0]] if axes and -axes[0] <= len(s.anchor.shape) else UNSET


def attribute_fits(a: Any, value: Any) -> Problem | None:
    """Has a captured attribute its declared type and a value of its domain?"""
    if value is UNSET or type(value) is Value:
        return None if value is not UNSET and a.type == "float" else ("other constant", f"a value of {a.name}", None)
    if value is None:
        return None if a.optional else ("other constant", f"{a.name}: {a.type}", None)
    wants: Any = {"float": (float, int), "int": int, "bool": bool, "str": str, "dtype": torch.dtype, "layout": str}.get(
        a.type
    )
    if wants is not None and (not isinstance(value, wants) or isinstance(value, bool) != (a.type == "bool")):
        return "other constant", f"{a.name}: {a.type}", value
    if a.domain is not None:
        allowed = [to_graph(d) for d in a.domain]
        if value not in allowed:
            return "other constant", f"{a.name} in {allowed}", value
    return None
