"""Conditions as scalars: folded where they can be, and split into what an attribute must be and what is left to a guard."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Apply, Dtype, Lit, Nothing, Number, Operand, Ref, Scalar, Size

TRUE, FALSE = Lit(True), Lit(False)


def equal(left: Any, right: Any) -> Scalar:
    """`left == right`, folded."""
    for a, b in ((left, right), (right, left)):
        if isinstance(b, Nothing) or b == Lit(None):
            if isinstance(a, Nothing) or a == Lit(None):
                return TRUE
            if isinstance(a, Operand):
                return Apply("is_none", (a,)) if a.optional else FALSE
            if isinstance(a, Ref | Apply):
                return Apply("==", (a, Lit(None)))
            return FALSE
    left, right = constant(left), constant(right)
    if isinstance(left, Lit | Dtype) and isinstance(right, Lit | Dtype):
        return Lit(plain(left) == plain(right))
    return Apply("==", (left, right))


def constant(value: Any) -> Any:
    """A size without names as the literal that it is."""
    if isinstance(value, Size) and value.dim.number is not None:
        return Lit(value.dim.number)
    return value.value if isinstance(value, Number) else value


def plain(scalar: Lit | Dtype) -> Any:
    return scalar.value if isinstance(scalar, Lit) else scalar


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


def conjuncts(conditions: tuple[Scalar, ...]) -> list[Scalar]:
    """The conditions with every `and` taken apart, true ones dropped."""
    out: list[Scalar] = []
    for condition in conditions:
        if isinstance(condition, Apply) and condition.op == "and":
            out += conjuncts(condition.args)
        elif condition != TRUE:
            out.append(condition)
    return out


def pin(condition: Scalar) -> tuple[str, Any] | None:
    """The attribute or operand that a conjunct fixes, and its value: `not wide` is ("wide", False), `w == none` is ("w", None)."""
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


def substitute(scalar: Any, values: dict[str, Any]) -> Any:
    """`scalar` with attributes (and operands that are `none`) replaced by literals, folded."""
    if isinstance(scalar, Ref) and scalar.name in values:
        value = values[scalar.name]
        return value if isinstance(value, Dtype) else Lit(value)
    if isinstance(scalar, Operand) and scalar.name in values and values[scalar.name] is None:
        return Nothing()
    if isinstance(scalar, Size):
        known = {k: dims.constant(v) for k, v in values.items() if type(v) is int}
        return Size(dims.substitute(scalar.dim, known))
    if not isinstance(scalar, Apply):
        return scalar
    args = [substitute(a, values) for a in scalar.args]
    if scalar.op == "not":
        return negate(args[0])
    if scalar.op == "and":
        return both(*args)
    if scalar.op == "or":
        return either(*args)
    if scalar.op == "==":
        return equal(*args)
    if scalar.op == "is_none":
        return equal(args[0], Lit(None))
    return Apply(scalar.op, tuple(args))
