"""The shipped ops and fusions as functions on tensors.

    from fxrewrite import ops
    qx, sx = ops.fused_silu_quant(x)                    # operands by position
    qx, sx = ops.rms_norm_fp8(x, w, eps=1e-6)           # attributes by name
    help(ops.rms_norm_fp8)

Each runs the definition that its `.rw` text gives, rounding by rounding; under `torch.compile` it is one op of the
graph. Its gradient is that of the definition. A float attribute may be a 0-d tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from fxrewrite.dsl import packs
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, OpDef, OperandInfo, Program
from fxrewrite.dsl.diagnostics import RuleError
from fxrewrite.lowering.eager import DTYPES
from fxrewrite.lowering.library import op_for, shipped_names

ACCEPTED: dict[str, tuple[type, ...]] = {  # what Python values an attribute of each type takes
    "float": (float, int, torch.SymFloat, torch.SymInt, Tensor),
    "int": (int, torch.SymInt),
    "bool": (bool, torch.SymBool),
    "str": (str,),
    "layout": (str,),
    "group": (str,),
    "dtype": (torch.dtype,),
    "list": (list, tuple),
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in shipped_names():
        hint = closest(name, shipped_names())
        raise AttributeError(f"fxrewrite.ops has no op `{name}`" + (f"; {hint}" if hint else ""))
    made = globals()[name] = function(shipped_program(), name)
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *shipped_names()})


@cache
def shipped_program() -> Program:
    """The program of all shipped packs. Raises RuleError where an op of them has an error."""
    program, diagnostics = packs.check_packs(packs.shipped())
    if shipped_names().keys() - program.ops.keys():
        raise RuleError([d for d in diagnostics if d.severity == "error"], program.sources)
    return program


def function(program: Program, name: str) -> Callable[..., Any]:
    """A function that calls an op of `program`: operands by position, attributes by name.

    It returns a tensor, or a tuple where the op has several results. It raises TypeError for arguments that do not fit
    the signature, and ValueError for values that the op excludes: a dtype, a width, `requires`.
    """
    op = program.ops[name]
    static, dyn = op_for(program, name), op_for(program, name, dyn=True)
    operands, attributes = op.operands, {a.name: _checked(op, a) for a in op.attributes}
    floats = {a.name for a in op.attributes if a.type == "float"}

    def call(*given: Any, **named: Any) -> Any:
        if len(given) != len(operands) or any(n not in attributes for n in named):
            given = _complete(op, given, named)
        for info, value in zip(operands, given):
            _check_operand(op, info, value)
        values = [checked(named) for checked in attributes.values()]
        if not any(isinstance(named.get(n), Tensor) for n in floats):
            return static(*given, *values)
        return dyn(*given, *(_tensor(v) if n in floats else v for n, v in zip(attributes, values)))

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__doc__ = _documentation(program, op)
    call.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return call


# ---- arguments


@frozen
class _Checked:
    """One attribute: what a call gives for it, checked, or its default. Values are Python's."""

    op: str
    name: str
    type: str
    accepted: tuple[type, ...]
    domain: tuple[Any, ...] | None
    needed: bool
    default: Any

    def __call__(self, named: Mapping[str, Any]) -> Any:
        if self.name not in named:
            if self.needed:
                raise TypeError(f"{self.op} needs the attribute `{self.name}`: write `{self.name}=...`")
            return self.default
        value = named[self.name]
        if not isinstance(value, self.accepted) or (isinstance(value, bool) and self.type != "bool"):
            raise TypeError(f"`{self.name}` of {self.op} is of type {self.type}, not {value!r}")
        if isinstance(value, Tensor) and value.ndim:
            raise TypeError(f"`{self.name}` of {self.op} is a number or a 0-d tensor, not {tuple(value.shape)}")
        if self.domain is not None and value not in self.domain:
            raise ValueError(f"`{self.name}` of {self.op} is one of {', '.join(map(str, self.domain))}; not {value}")
        return float(value) if self.type == "float" and isinstance(value, int) else value


def _checked(op: OpDef, a: Attribute) -> _Checked:
    accepted = (*ACCEPTED[a.type], *((type(None),) if a.optional else ()))
    domain = None if a.domain is None else tuple(_python(v) for v in a.domain)
    needed = a.default is NO_DEFAULT
    return _Checked(op.name, a.name, a.type, accepted, domain, needed, None if needed else _python(a.default))


def _python(value: Any) -> Any:
    """A value of the language as Python has it."""
    return DTYPES[value.name] if isinstance(value, Dtype) else list(value) if isinstance(value, tuple) else value


def _complete(op: OpDef, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Operands with those that may be left out filled in. Raises TypeError where count or names do not fit."""
    names = ", ".join(o.name for o in op.operands)
    for n in named:
        if any(o.name == n for o in op.operands):
            raise TypeError(f"`{n}` of {op.name} is an operand: operands go by position ({names})")
        if op.attribute(n) is None:
            known = [a.name for a in op.attributes]
            close = "" if torch.compiler.is_compiling() else closest(n, known)  # Dynamo cannot trace difflib
            hint = close or (f"its attributes: {', '.join(known)}" if known else "it has none")
            raise TypeError(f"{op.name} has no attribute `{n}`; {hint}")
    if len(given) > len(op.operands):
        hint = "; attributes go by name" if op.attributes else ""
        raise TypeError(f"{op.name} takes {len(op.operands)} operands ({names}), not {len(given)}{hint}")
    missing = op.operands[len(given) :]
    for info in missing:
        if not info.has_default:
            none = " (None for none)" if info.optional else ""
            raise TypeError(f"{op.name} takes {len(op.operands)} operands ({names}); `{info.name}` is missing{none}")
    return (*given, *(None for _ in missing))


def _check_operand(op: OpDef, info: OperandInfo, value: Any) -> None:
    if value is None and info.optional:
        return
    what = f"`{info.name}` of {op.name}"
    if info.kind == "str":
        if not isinstance(value, str):
            raise TypeError(f"{what} is a string, not {type(value).__name__}")
    elif info.star:
        if not isinstance(value, list | tuple) or not all(isinstance(v, Tensor) for v in value):
            raise TypeError(f"{what} is a list of tensors")
    elif not isinstance(value, Tensor):
        raise TypeError(f"{what} is a tensor, not {type(value).__name__}")


def _tensor(value: Any) -> Any:
    """A float as the 0-d tensor that `.dyn` takes."""
    return value if value is None or isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=torch.float64)


# ---- what help() shows


def _signature(op: OpDef) -> inspect.Signature:
    parameter = inspect.Parameter
    operands = [
        parameter(o.name, parameter.POSITIONAL_ONLY, default=None if o.has_default else parameter.empty)
        for o in op.operands
    ]
    attributes = [
        parameter(
            a.name,
            parameter.KEYWORD_ONLY,
            default=parameter.empty if a.default is NO_DEFAULT else _python(a.default),
        )
        for a in op.attributes
    ]
    return inspect.Signature([*operands, *attributes])


def _documentation(program: Program, op: OpDef) -> str:
    """The documentation of the `.rw` text, the types, and the text itself."""
    lines = [op.doc.strip()] if op.doc.strip() else []
    lines += [f"{o.name}: {o.type}{'?' if o.optional else ''}{' (a list)' if o.star else ''}" for o in op.operands]
    results = ", ".join(f"{r.name}: {r.type}{' (a list)' if r.star else ''}" for r in op.results)
    lines.append(f"Returns {results}.")
    if op.span is not None and op.span.file in program.sources:
        text = program.sources[op.span.file].splitlines()[op.span.line - 1 : op.span.end_line]
        lines += [f"\n{op.span.file}:{op.span.line}", *("    " + line for line in text)]
    return "\n".join(lines)
