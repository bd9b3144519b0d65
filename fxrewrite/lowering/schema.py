"""Signatures of declared ops as schemas of `torch.library`."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, OpDef, OperandInfo, ResultInfo
from fxrewrite.patterns.dtypes import DTYPES

TYPES: dict[str, str] = {
    "float": "float",
    "int": "int",
    "bool": "bool",
    "str": "str",
    "layout": "str",
    "group": "str",  # the name of a process group
    "dtype": "ScalarType",
    "list": "int[]",
}


def schema(op: OpDef, dyn: bool) -> str:
    """`(operands, attributes) -> results`, in the order of the declaration, all by position or by name.

    With `dyn` every float attribute is a 0-d tensor. A default may stand only where everything after it has one too, so
    an operand that may be left out before an attribute without default is written out (None) by the caller.
    """
    parts = [*(_operand(o) for o in op.operands), *(_attribute(a, dyn) for a in op.attributes)]
    last_needed = max((i for i, (_, default) in enumerate(parts) if default is None), default=-1)
    arguments = [p + (f"={default}" if i > last_needed else "") for i, (p, default) in enumerate(parts)]
    results = [_result(r) for r in op.results]
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"({', '.join(arguments)}) -> {returned}"


def _operand(o: OperandInfo) -> tuple[str, str | None]:
    type_ = "str" if o.kind == "str" else "Tensor"
    type_ += "[]" if o.star else "?" if o.optional else ""
    return f"{type_} {o.name}", "None" if o.has_default and o.optional else None


def _attribute(a: Attribute, dyn: bool) -> tuple[str, str | None]:
    tensor = dyn and a.type == "float"
    type_ = ("Tensor" if tensor else TYPES[a.type]) + ("?" if a.optional else "")
    if a.default is NO_DEFAULT or (tensor and a.default is not None):
        return f"{type_} {a.name}", None
    return f"{type_} {a.name}", _default(a.default)


def _default(value: Any) -> str:
    if isinstance(value, Dtype):
        return str(DTYPES[value.name]).removeprefix("torch.")
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _result(r: ResultInfo) -> str:
    return "Tensor[]" if r.star else "Tensor"
