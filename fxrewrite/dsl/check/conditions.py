"""Conditions as scalars: folded where they can be, split into what an attribute must be and what is left to a guard."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Apply, Dtype, Lit, Nothing, Number, Operand, Ref, Scalar, Size

TRUE, FALSE = Lit(True), Lit(False)
ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def equal(left: Any, right: Any) -> Scalar:
    """`left == right`, folded."""
    for a, b in ((left, right), (right, left)):
        if is_none(b):
            if is_none(a):
                return TRUE
            if isinstance(a, Operand):
                return Apply("is_none", (a,)) if a.optional else FALSE
            return Apply("==", (a, Lit(None))) if isinstance(a, Ref | Apply) else FALSE
    left, right = constant(left), constant(right)
    if isinstance(left, Lit | Dtype) and isinstance(right, Lit | Dtype):
        a, b = plain(left), plain(right)
        return Lit(isinstance(a, bool) == isinstance(b, bool) and a == b)
    return TRUE if left == right and isinstance(left, Size | Ref) else Apply("==", (left, right))


def compare(op: str, left: Any, right: Any) -> Scalar:
    """`left op right` for `< <= > >=`, folded where both are numbers."""
    if isinstance(left, Lit) and isinstance(right, Lit) and number(left) and number(right):
        return Lit(ORDER[op](left.value, right.value))
    return Apply(op, (left, right))


def is_none(x: Any) -> bool:
    """Is it `none`?"""
    return isinstance(x, Nothing) or x == Lit(None)


def number(x: Lit) -> bool:
    """Is it a number? A bool is none."""
    return isinstance(x.value, int | float) and not isinstance(x.value, bool)


def constant(value: Any) -> Any:
    """A size without names as the literal that it is."""
    if isinstance(value, Size) and value.dim.number is not None:
        return Lit(value.dim.number)
    return value.value if isinstance(value, Number) else value


def plain(scalar: Lit | Dtype) -> Any:
    """A literal as a Python value; a dtype is its own."""
    return scalar.value if isinstance(scalar, Lit) else scalar


def literal(value: Any) -> Scalar:
    """A Python value or a dtype as a scalar."""
    return value if isinstance(value, Dtype) else Lit(value)


def negate(condition: Scalar) -> Scalar:
    """`not condition`, folded."""
    if isinstance(condition, Lit):
        return Lit(not condition.value)
    if isinstance(condition, Apply) and condition.op == "not":
        return condition.args[0]
    return Apply("not", (condition,))


def both(left: Scalar, right: Scalar) -> Scalar:
    """`left and right`, folded."""
    if left == FALSE or right == FALSE:
        return FALSE
    if left == TRUE or right == TRUE:
        return right if left == TRUE else left
    return Apply("and", (left, right))


def either(left: Scalar, right: Scalar) -> Scalar:
    """`left or right`, folded."""
    if left == TRUE or right == TRUE:
        return TRUE
    if left == FALSE or right == FALSE:
        return right if left == FALSE else left
    return Apply("or", (left, right))


def all_of(conditions: Iterable[Scalar]) -> Scalar:
    """The conjunction of conditions, folded."""
    result: Scalar = TRUE
    for condition in conditions:
        result = both(result, condition)
    return result


def conjuncts(conditions: Iterable[Scalar]) -> list[Scalar]:
    """The conditions with every `and` taken apart, true ones dropped, each once."""
    out: dict[Scalar, None] = {}
    for condition in conditions:
        parts = conjuncts(condition.args) if isinstance(condition, Apply) and condition.op == "and" else [condition]
        out |= {p: None for p in parts if p != TRUE and p not in out and _mirrored(p) not in out}
    return list(out)


def _mirrored(condition: Scalar) -> Scalar | None:
    """`b == a` for `a == b`."""
    if isinstance(condition, Apply) and condition.op == "==":
        return Apply("==", (condition.args[1], condition.args[0]))
    return None


def pin(condition: Scalar) -> tuple[str, Any] | None:
    """What a conjunct fixes, and its value: `not wide` is ("wide", False), `w == none` is ("w", None)."""
    if isinstance(condition, Ref):
        return condition.name, True
    if isinstance(condition, Apply):
        if condition.op == "not" and isinstance(condition.args[0], Ref):
            return condition.args[0].name, False
        if condition.op == "is_none" and isinstance(condition.args[0], Operand):
            return condition.args[0].name, None
        if condition.op == "==":
            for a, b in (condition.args, condition.args[::-1]):
                if isinstance(a, Ref) and isinstance(b, Lit | Dtype):
                    return a.name, plain(b)
                if isinstance(a, Size) and a.dim.name and isinstance(b, Lit) and isinstance(b.value, int):
                    return a.dim.name, b.value
    return None


def substitute(scalar: Any, values: Mapping[str, Any]) -> Any:
    """`scalar` with attributes (and operands that are `none`) replaced by plain values, folded."""
    if isinstance(scalar, Ref) and scalar.name in values:
        return literal(values[scalar.name])
    if isinstance(scalar, Operand) and scalar.name in values and values[scalar.name] is None:
        return Nothing()
    if isinstance(scalar, Size):
        known = {k: dims.constant(v) for k, v in values.items() if type(v) is int}
        return constant(Size(dims.substitute(scalar.dim, known)))
    if not isinstance(scalar, Apply):
        return scalar
    return fold(scalar.op, tuple(substitute(a, values) for a in scalar.args))


def fold(op: str, args: tuple[Any, ...]) -> Scalar:
    """An operation on scalars, folded where they allow."""
    if op == "not":
        return negate(args[0])
    if op in ("and", "all"):
        return all_of(args)
    if op == "or":
        return either(args[0], args[1])
    if op == "==":
        return equal(args[0], args[1])
    if op == "is_none":
        return equal(args[0], Lit(None))
    if op in ORDER:
        return compare(op, args[0], args[1])
    if op == "dtype_in" and isinstance(args[0], Dtype):
        return Lit(args[0] in args[1:])
    return Apply(op, args)


def present(conds: tuple[Scalar, ...]) -> frozenset[str]:
    """The optional operands and attributes that the conditions say are there."""
    found: set[str] = set()
    for c in conds:
        inner = c.args[0] if isinstance(c, Apply) and c.op == "not" else None
        if not isinstance(inner, Apply):
            continue
        if inner.op == "is_none" and isinstance(inner.args[0], Operand):
            found.add(inner.args[0].name)
        if inner.op == "==" and isinstance(inner.args[0], Ref) and inner.args[1] == Lit(None):
            found.add(inner.args[0].name)
    return frozenset(found)
