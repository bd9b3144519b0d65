"""What kind of value a scalar is, as far as the text says it: what can never be compared or computed is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Scope, Value
from fxrewrite.dsl.check.terms import TERMS, names_of
from fxrewrite.dsl.check.values import TRUTHS, said
from fxrewrite.dsl.core import MARK, UNKNOWN, Apply, Dtype, DtypeVar, Lit, Number, Operand, Ref, Size
from fxrewrite.dsl.formats import DTYPE_HINTS

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator

NUMBERS = ("int", "float", "number")
_OF_PYTHON = {"bool": "bool", "int": "int", "float": "float", "str": "str", "tuple": "list"}
_KIND_OF_OP = {
    **dict.fromkeys(TRUTHS - {"item"}, "bool"),
    **dict.fromkeys("+ - * / neg".split(), "number"),
    **dict.fromkeys("// % rows bytes numel sm world tokens group.size".split(), "int"),
    **dict.fromkeys("shape shape_list list sizes compose".split(), "list"),
    "dtype": "dtype",
    "group.name": "str",
}


def kind_of(elab: Elaborator, value: Value) -> str | None:
    """int, float, number, bool, str, dtype, list, group, "tensor" or "none"; None where the text does not say."""
    if isinstance(value, Number):
        return kind_of(elab, value.value)
    if isinstance(value, Dtype | DtypeVar):
        return "dtype"
    if isinstance(value, Size):
        return "int"
    if isinstance(value, Lit):
        return _of_python(value.value)
    if isinstance(value, Ref):
        return _of_attribute(elab.item, value.name)
    if isinstance(value, Apply):
        return _of_operation(elab, value)
    if isinstance(value, Operand):
        is_open = elab.item.types.get(value.name) == UNKNOWN  # its uses will say
        return None if is_open or value.name in elab.item.texts else "tensor"
    return "tensor" if isinstance(value, TERMS) else None


def _of_python(value: Any) -> str:
    if value is None:
        return "none"
    return _OF_PYTHON.get(type(value).__name__, "dtype")


def _of_attribute(item: Item, name: str) -> str | None:
    attribute = item.own.get(name) or item.captured.get(name)
    return None if attribute is None else "str" if attribute.type == "layout" else attribute.type


def _of_operation(elab: Elaborator, value: Apply) -> str | None:
    if value.op.startswith("finfo."):
        return "number"
    if value.op.startswith(MARK):
        found = [n for n in elab.checker.natives.values() if value.op == MARK + n.source]
        return found[0].result.name if found else None
    if value.op == "shape" and len(value.args) == 2:
        return "int"  # x.shape[d]
    return _KIND_OF_OP.get(value.op)


def may_be_compared(elab: Elaborator, op: str, pair: tuple[Value, Value], texts: tuple[Any, Any]) -> None:
    """RW310 where the two sides of a comparison can never be alike."""
    kinds = tuple("number" if (k := kind_of(elab, v)) in NUMBERS else k for v in pair)
    for kind, text, other, there in zip(kinds, texts, kinds[::-1], pair[::-1]):
        if kind == "tensor" and other != "none":
            name = text.name if isinstance(text, syntax.Var) else "x"
            hint = f"a condition asks for facts: `{name}.dtype`, `{name}.shape[-1]`, `{name} != none`"
            raise Problem("RW310", f"{shown(elab, text)} is a tensor: a rule does not see its values", text.span, hint)
        if op not in ("==", "!=") and kind not in (None, "number"):
            raise Problem("RW310", f"{shown(elab, text)} is {said_kind(kind)}: only numbers are ordered", text.span,
                          "write `==` or `!=`")  # fmt: skip
        if None not in (kind, other) and kind != other and "none" not in (kind, other):
            message = f"{shown(elab, text)} is {said_kind(kind)}, and never {said_kind(other)}"
            raise Problem("RW310", message, texts[1].span, _instead(elab, kind, there, texts[1]))


def shown(elab: Elaborator, e: Any) -> str:
    """How a message calls an expression: its name, or its text where that is short."""
    told = said(e)
    text = elab.places.text(e.span)
    return f"`{text}`" if told == "this" and len(text) <= 24 and "\n" not in text else told


def said_kind(kind: str | None) -> str:
    """A kind with its article."""
    return {"int": "a whole number", "float": "a number", "number": "a number", "none": "`none`"}.get(
        kind or "", f"{'an' if (kind or '')[:1] in 'aeiou' else 'a'} {kind}"
    )


def _instead(elab: Elaborator, kind: str | None, other: Value, text: Any) -> str:
    """What to write for a value of the wrong kind."""
    value = other.value if isinstance(other, Lit) else None
    if kind == "dtype" and isinstance(value, str):
        name = DTYPE_HINTS.get(value, value)
        return f"write `{name}`, without quotes" if name in DTYPES else "a dtype is a name: `bf16`"
    if kind == "bool":
        return "write `true` or `false`"
    if kind == "str":
        return f'write `"{elab.places.text(text.span)}"`' if isinstance(text, syntax.Var) else 'write `"..."`'
    return {"number": "write a number", "dtype": "write a dtype: `bf16`", "list": "write a list: `[1, 2]`"}.get(
        kind or "", "compare what is of one kind"
    )


def must_be_number(elab: Elaborator, value: Value, e: Any, scope: Scope) -> None:
    """RW310, or RW307 for an optional attribute, where a scalar that is no number stands beside a tensor."""
    kind = kind_of(elab, value)
    if kind not in (None, "tensor", *NUMBERS):
        hint = "text, lists, dtypes and conditions have no arithmetic"
        raise Problem("RW310", f"{shown(elab, e)} is {said_kind(kind)}, not a number", e.span, hint)
    for name in names_of(value) if isinstance(value, Number) else ():
        attribute = elab.item.own.get(name)
        if attribute is not None and attribute.optional and name not in scope.present:
            hint = f"write `when {name} != none`, and another equation for `none`"
            raise Problem("RW307", f"`{name}` may be `none`, and a number is needed", e.span, hint)


def must_not_divide_by_zero(op: str, divisor: Any, e: Any) -> None:
    """RW310 for a division of numbers or sizes by 0."""
    zero = isinstance(divisor, Lit) and conditions.number(divisor) and divisor.value == 0
    if op in ("/", "//", "%") and zero:
        raise Problem("RW310", f"`{op}` by 0 has no value", e.span, "divide by 1 or more")


def must_be_whole(elab: Elaborator, value: Any, e: Any, what: str, hint: str) -> None:
    """RW310 where a size or a bound is certainly no whole number."""
    kind = kind_of(elab, value)
    fraction = kind == "number" and isinstance(value, Apply) and value.op == "/"
    if fraction or kind not in (None, "int", "number", "none"):
        raise Problem("RW310", f"{what} is a whole number, and {shown(elab, e)} is not", e.span,
                      "write `//` for `/`" if fraction else hint)  # fmt: skip
