"""Signatures of declared ops as schemas of `torch.library`."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from types import GenericAlias
from typing import Any

import torch
from torch import Tensor

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


PYTHON_TYPES: dict[str, Any] = {
    "float": float,
    "int": int,
    "bool": bool,
    "str": str,
    "layout": str,
    "group": str,
    "dtype": torch.dtype,
    "list": Sequence[int],
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


def signature(op: OpDef) -> Signature:
    """The same as a Python signature, which `torch.library.triton_op` wants."""
    parts: list[tuple[str, Any, Any]] = []
    for o in op.operands:
        kind: Any = str if o.kind == "str" else Sequence[Tensor] if o.star else Tensor
        parts.append(
            (o.name, kind | None if o.optional else kind, None if o.has_default and o.optional else Parameter.empty)
        )
    for a in op.attributes:
        kind = PYTHON_TYPES[a.type]
        default = DTYPES[a.default.name] if isinstance(a.default, Dtype) else a.default
        parts.append(
            (a.name, kind | None if a.optional else kind, Parameter.empty if default is NO_DEFAULT else default)
        )
    last_needed = max((i for i, (_, _, default) in enumerate(parts) if default is Parameter.empty), default=-1)
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=kind,
            default=default if i > last_needed else Parameter.empty,
        )
        for i, (name, kind, default) in enumerate(parts)
    ]
    results = [list[Tensor] if r.star else Tensor for r in op.results]
    return Signature(
        parameters, return_annotation=results[0] if len(results) == 1 else GenericAlias(tuple, tuple(results))
    )


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
