"""The dtypes of results as torch has them: where two dtypes meet, and what numbers and steps make of whole ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item
from fxrewrite.dsl.check.solver import DtypeExpr, shown
from fxrewrite.dsl.core import Apply, Dtype, DtypeVar, Lit, Ref, Size
from fxrewrite.dsl.formats import BYTES
from fxrewrite.dsl.syntax import Span

WHOLE = ("u8", "i8", "i16", "i32", "i64")
FLOATS = ("bf16", "f16", "f32", "f64")
OF_WHOLE = "f32"  # torch's default dtype: fractions of whole numbers are computed in it
FRACTIONS = frozenset("exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh erf div fdiv".split())
CAST = "write the cast: `f32(...)`"
CODES = ("e4m3fn", "e4m3fnuz", "e5m2", "e8m0fnu")
OF_CODES = ("mul", "square", "abs", "clone")  # torch computes nothing else in 8-bit floats
FLOATS_ONLY = ("mean", "var")
NOT_OF_BOOL = ("abs", "neg", "ceil", "floor", "round", "sub", "square", "relu")

# ---- plain dtypes


def promoted(a: str, b: str) -> str | None:
    """What tensors of two dtypes promote to; None where torch refuses, and for bf16 beside f16 (f32 there)."""
    if a == b:
        return a
    for one, other in ((a, b), (b, a)):
        if other in FLOATS and (one in WHOLE or one == "bool"):
            return other
        if one == "bool" and other in WHOLE:
            return other
        if other in ("f32", "f64") and one in FLOATS[: FLOATS.index(other)]:
            return other
    if a not in WHOLE or b not in WHOLE:
        return None
    return "i16" if {a, b} == {"u8", "i8"} else max(a, b, key=lambda name: BYTES[name])


def beside_number(kind: str, dtype: str) -> str:
    """What a tensor and a number ("int" or "float") promote to."""
    if kind == "float":
        return OF_WHOLE if dtype in WHOLE or dtype == "bool" else dtype
    return "i64" if dtype == "bool" else dtype


def stepped(op: str, dtype: str) -> str | None:
    """The dtype of a primitive of operands that have met in `dtype`; None where torch has no such step."""
    whole = dtype in WHOLE or dtype == "bool"
    if whole and op in FRACTIONS:
        return OF_WHOLE
    if whole and op == "sum":
        return "i64"
    refused = (op in FLOATS_ONLY and whole) or (op in NOT_OF_BOOL and dtype == "bool")
    return None if refused or (dtype in CODES and op not in OF_CODES) else dtype


# ---- dtypes of an item


def kind_of_number(item: Item, value: Any) -> str | None:
    """Is a scalar beside a tensor "int" or "float"? None where the text does not say."""
    if isinstance(value, Lit):
        return "float" if isinstance(value.value, float) else "int"
    if isinstance(value, Size):
        return "int"
    if isinstance(value, Ref):
        attribute = item.own.get(value.name) or item.captured.get(value.name)
        return attribute.type if attribute is not None and attribute.type in ("int", "float") else None
    if not isinstance(value, Apply):
        return None
    if value.op == "/" or value.op.startswith("finfo."):
        return "float"
    if value.op in ("rows", "numel", "bytes", "shape", "sm", "world", "group.size", "//", "%"):
        return "int"
    kinds = {kind_of_number(item, a) for a in value.args} if value.op in ("+", "-", "*", "neg") else {None}
    return "float" if "float" in kinds else None if None in kinds else "int"


def of_two(item: Item, a: DtypeExpr, b: DtypeExpr, span: Span) -> DtypeExpr:
    """Where two tensors meet. RW301 where that is not one dtype for every member of the classes."""
    a, b = item.solver.dtype(a), item.solver.dtype(b)
    if a is None or b is None or a == b:
        return a if b is None else b
    if _members(item, a) is None or _members(item, b) is None:
        raise Problem("RW301", f"the dtypes {shown(a)} and {shown(b)} do not meet here", span, CAST)
    found = _each_member(item, promoted, a, b)
    if found is not None:
        return found
    if isinstance(a, DtypeVar) and isinstance(b, DtypeVar):
        message = f"one side is {a}, the other {b}: they need not be one dtype"
        raise Problem("RW301", message, span, f"a class is one dtype among written types: `x: {a}[*B, D]` on both")
    message = f"the dtypes {shown(a)} and {shown(b)} do not meet here"
    raise Problem("RW301", message, span, CAST)


def of_number(item: Item, dtype: DtypeExpr, number: Any, span: Span) -> DtypeExpr:
    """Where a tensor and a number meet; None where it is open whether a number for whole ones is whole."""
    kind, dtype = kind_of_number(item, number), item.solver.dtype(dtype)
    if _members(item, dtype) is None:
        return None
    kinds = ("int", "float") if kind is None else (kind,)
    met = [_each_member(item, partial(beside_number, kind), dtype) for kind in kinds]
    if None in met:
        message = f"{shown(dtype)} and a number meet in another dtype for whole numbers than for others"
        raise Problem("RW301", message, span, CAST)
    return met[0] if met[0] == met[-1] else None


def of_step(item: Item, op: str, dtype: DtypeExpr, span: Span) -> DtypeExpr:
    """The dtype of a primitive of operands of this dtype. RW301 where torch has none."""
    dtype = item.solver.dtype(dtype)
    if _members(item, dtype) is None:
        return None
    found = _each_member(item, partial(stepped, op), dtype)
    if found is None:
        which = "" if isinstance(dtype, Dtype) else " for each of its dtypes"
        message = (
            f"torch has no `{op}` of {shown(dtype)}{which}"
            if _refused(item, op, dtype)
            else (f"`{op}` of {shown(dtype)} has another dtype for whole numbers than for others")
        )
        raise Problem("RW301", message, span, CAST)
    return found


def least_kind(item: Item, dtype: DtypeExpr) -> int:
    """The lowest kind of a dtype or of the members of a class: 0 for bool, 1 for whole numbers, 2 for the rest."""
    return min(map(_kind, _members(item, dtype) or ("bool",)))


def greatest_kind(item: Item, dtype: DtypeExpr) -> int:
    """The highest kind of a dtype or of the members of a class."""
    return max(map(_kind, _members(item, dtype) or ("f32",)))


def _kind(dtype: str) -> int:
    return 0 if dtype == "bool" else 1 if dtype in WHOLE else 2


def _refused(item: Item, op: str, dtype: DtypeExpr) -> bool:
    return any(stepped(op, name) is None for name in _members(item, dtype) or ())


def _each_member(item: Item, made: Callable[..., str | None], *dtypes: DtypeExpr) -> DtypeExpr:
    """The one dtype that `made` gives for all members of classes: an operand's own, or a fixed one; else None."""
    members = [_members(item, d) for d in dtypes]
    combinations = [*itertools.product(*(m or () for m in members))]
    results = [made(*c) for c in combinations]
    for i, dtype in enumerate(dtypes):
        if all(c[i] == r for c, r in zip(combinations, results)):
            return dtype
    one = results[0] if results else None
    return Dtype(one) if one is not None and set(results) == {one} else None


def _members(item: Item, dtype: DtypeExpr) -> tuple[str, ...] | None:
    """The dtypes that this may be; None where nothing says."""
    if isinstance(dtype, Ref):
        domain = item.solver.domains.get(dtype.name)
        return None if domain is None else tuple(sorted(domain))
    if isinstance(dtype, DtypeVar):
        return dtype.members if len(dtype.members) < len(DTYPES) else None  # a `dtype` parameter of a `def`
    return None if dtype is None else (dtype.name,)
