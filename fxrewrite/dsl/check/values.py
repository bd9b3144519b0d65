"""Small questions about values and how messages call the text that they come from."""

from __future__ import annotations

from typing import Any, cast

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.scope import Listed, Many, Value
from fxrewrite.dsl.check.solver import as_dim
from fxrewrite.dsl.core import MARK, Apply, Lit, Ref, Scalar, Size


def single(value: Value) -> Value:
    """A tuple of one as what it holds."""
    return value.values[0] if isinstance(value, Many) and len(value.values) == 1 else value


def listed(value: Listed) -> Scalar:
    """A list as a scalar."""
    plain = [conditions.constant(single(v)) for v in value.values]
    if all(isinstance(v, Lit) for v in plain):
        return Lit(tuple(v.value for v in plain))
    return Apply("list", tuple(plain))


TRUTHS = frozenset(
    "and or not all == < <= > >= is_none dtype_in rocm contiguous fresh donated written broadcasts replicated"
    " same_shape same_layout identity widens covers item".split()
)


def is_truth(value: Value) -> bool:
    """Is it certainly true or false (and no number)?"""
    return isinstance(value, Apply) and value.op in TRUTHS and value.op != "item"


def is_condition(value: Value) -> bool:
    """May it be true or false?"""
    if isinstance(value, Lit):
        return isinstance(value.value, bool)
    return isinstance(value, Ref) or (isinstance(value, Apply) and (value.op in TRUTHS or value.op.startswith(MARK)))


def arithmetic(op: str, left: Any, right: Any) -> Scalar:
    """`left op right` of scalars, folded where both are numbers or sizes."""
    if isinstance(left, Lit) and isinstance(right, Lit):
        a, b = left.value, right.value
        folded = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}.get(op)
        if folded is None and b:
            folded = {"/": lambda: a / b, "//": lambda: a // b, "%": lambda: a % b}.get(op)
        try:
            if folded is not None:
                return Lit(folded())
        except OverflowError:
            pass  # no number of the host: it stays an expression
    sizes = (Size, Ref, Lit)
    integral = op in ("+", "-", "*", "//", "%") and isinstance(left, sizes) and isinstance(right, sizes)
    fractional = any(isinstance(v, Lit) and isinstance(v.value, float) for v in (left, right))
    if integral and not fractional and (op in ("//", "%") or isinstance(left, Size) or isinstance(right, Size)):
        return Size(dims.combine(op, as_dim(left), as_dim(right)))
    return Apply(op, (left, right))


def said(e: Any) -> str:
    """How a message calls an expression."""
    if isinstance(e, syntax.Pipe):
        return e.stage.func
    if isinstance(e, syntax.Call):
        return e.func
    return f"`{e.name}`" if isinstance(e, syntax.Var | syntax.Splat) else "this"


def stage_span(e: Any) -> syntax.Span:
    """The name of the op that an expression ends with."""
    call = e.stage if isinstance(e, syntax.Pipe) else e
    return call.func_span or call.span if isinstance(call, syntax.Call) else e.span


def items(scalar: Any) -> tuple[Any, ...] | None:
    """The items of a list literal."""
    value: Any = scalar.value if isinstance(scalar, Lit) else None
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
