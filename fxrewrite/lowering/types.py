"""What an emitted op takes and gives, by its declared types: derived guards, and the shapes and dtypes of its
results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from attrs import define, frozen

from fxrewrite.dsl.binding import EvaluationError, bind_operands
from fxrewrite.dsl.core import Dtype, OpDef, Ref
from fxrewrite.dsl.scalars import UNKNOWN, Env, compare, holds, sizes, value
from fxrewrite.lowering.eager import DTYPES, NAMES
from fxrewrite.patterns.values import Value


@frozen
class ResultType:
    """A result of an emitted op: ints or sympy expressions, and how it is stored."""

    dtype: torch.dtype
    shape: tuple[Any, ...]
    layout: str


@define
class SiteEnv(Env):
    """Facts about values of a graph."""

    truth: Any = None

    def dtype_of(self, value: Any) -> Any:
        """The dtype of a value."""
        name = NAMES.get(value.dtype)
        return UNKNOWN if name is None else Dtype(name)

    def shape_of(self, value: Any) -> Any:
        """The sizes of a value."""
        return value.shape if isinstance(value, Value) else UNKNOWN

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison, of symbolic sizes too."""
        if isinstance(left, sympy.Basic) or isinstance(right, sympy.Basic):
            return decide_symbolic(op, left, right, self.truth)
        return compare(op, left, right)


def decide_symbolic(op: str, left: Any, right: Any, truth: Any) -> Any:
    """A comparison of sizes: True, False, or UNKNOWN where run-time sizes decide."""
    if op == "==" and left == right:
        return True
    relation = {"==": sympy.Eq, "<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge}[op](left, right)
    if relation in (sympy.true, sympy.false):
        return bool(relation)
    found = truth(relation) if truth is not None else None
    return UNKNOWN if found is None else found


def attribute(value: Any) -> Any:
    """An attribute as the core has it."""
    return Dtype(NAMES[value]) if isinstance(value, torch.dtype) else value


def result_types(op: OpDef, args: Sequence[Any], attributes: Mapping[str, Any], truth: Any = None) -> list[ResultType]:
    """The types of the results of `op` for these operands (values, lists of values, None).

    Raises EvaluationError where an operand does not fit its declared type, `requires` is not known to hold, or a result
    is not determined.
    """
    env = SiteEnv(truth=truth)
    env.attributes.update({k: attribute(v) for k, v in attributes.items()})
    bind_operands(op, list(args), env)
    held = holds(op.requires, env)
    if held is not True:
        raise EvaluationError(f"the requirements of {op.name} are {'unknown' if held is None else 'not met'} here")
    out: list[ResultType] = []
    for r in op.results:
        shape = sizes(r.type.shape, env) if r.type.shape is not None else UNKNOWN
        dtype = value(r.type.dtype, env) if r.type.dtype is not None else UNKNOWN
        if shape is UNKNOWN or dtype is UNKNOWN:
            raise EvaluationError(f"the type of result `{r.name}` of {op.name} is not known here")
        layout = env.attributes.get(r.type.layout.name, "row") if isinstance(r.type.layout, Ref) else r.type.layout
        out.append(ResultType(DTYPES[dtype.name], shape, layout))
    return out
