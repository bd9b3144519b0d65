"""What an emitted op takes and gives, by its declared types: derived guards, and the shapes and dtypes of its
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from fxrewrite.dsl.binding import EvaluationError, bind_operands
from fxrewrite.dsl.core import OpDef, Ref
from fxrewrite.dsl.scalars import UNKNOWN, holds, sizes, value
from fxrewrite.lowering.layouts import stored_shape
from fxrewrite.patterns.dtypes import to_core, to_graph
from fxrewrite.patterns.guards import ValueEnv
from fxrewrite.patterns.values import dims_of


@frozen
class ResultType:
    """A result of an emitted op: ints or sympy expressions, and how it is stored. `shapes`: of the elements of a list,
    where these differ.
    """

    dtype: torch.dtype
    shape: tuple[Any, ...]
    layout: str
    shapes: tuple[tuple[Any, ...], ...] | None = None

    def of_element(self, j: int) -> ResultType:
        """The type of an element of a list."""
        return self if self.shapes is None else evolve(self, shape=self.shapes[j], shapes=None)


def result_types(
    op: OpDef, args: Sequence[Any], attributes: Mapping[str, Any], truth: Any = None,
    evaluated: Callable[[], Sequence[torch.Tensor]] | None = None,
) -> list[ResultType]:  # fmt: skip
    """The types of the results of `op` for these operands (values, lists of values, None). `evaluated()`: its results
    on fake tensors, for a shape that the declaration leaves open.

    Raises EvaluationError where an operand does not fit its declared type, `requires` is not known to hold, or a result
    is not determined.
    """
    env = ValueEnv(truth=truth)
    env.attributes.update({k: to_core(v) for k, v in attributes.items()})
    bind_operands(op, list(args), env)
    held = holds(op.requires, env)
    if held is not True:
        raise EvaluationError(f"the requirements of {op.name} are {'unknown' if held is None else 'not met'} here")
    out: list[ResultType] = []
    for i, r in enumerate(op.results):
        shape = sizes(r.type.shape, env) if r.type.shape is not None else UNKNOWN
        dtype = value(r.type.dtype, env) if r.type.dtype is not None else UNKNOWN
        shapes = None
        if shape is UNKNOWN and evaluated is not None:
            found: Any = evaluated()[i]
            shapes = tuple(map(dims_of, found)) if r.star else None
            shape = () if r.star else dims_of(found)
        if shape is UNKNOWN or dtype is UNKNOWN:
            raise EvaluationError(f"the type of result `{r.name}` of {op.name} is not known here")
        layout = env.attributes.get(r.type.layout.name, "row") if isinstance(r.type.layout, Ref) else r.type.layout
        out.append(ResultType(to_graph(dtype), stored_shape(shape, layout), layout, shapes))
    return out
