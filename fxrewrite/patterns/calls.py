"""Calls of declared ops in a graph: a node whose target is an op of the language is a view of that op as it stands.

torch.ops.fxrewrite.rms_norm(x, w, 1e-6)    # a view of `rms_norm` of x and w, eps = 1e-6
torch.ops.fxrewrite.rms_norm.dyn(x, w, eps) # the same, eps a value

A call of a fusion is not read as its definition, too: its rule would match what it wrote, and the rule of a smaller
fusion would take a larger one apart; both would need a measure that falls from firing to firing.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen

from fxrewrite.dsl.core import NO_DEFAULT, Attribute, OpDef, Program
from fxrewrite.patterns.arguments import argument, number_of, schema_arguments
from fxrewrite.patterns.dtypes import to_graph
from fxrewrite.patterns.values import Symbol, Table, Value, dims_of


@frozen(eq=False)
class Declared:
    """What a torch op is in the language. `program` declares `op`; `dyn`: its float attributes are 0-d tensors.

    `visible`: the program that is matched declares this very op, so its calls are views.
    """

    program: Program
    op: OpDef
    dyn: bool
    visible: bool


def arguments_of(node: Any, op: OpDef) -> tuple[list[Any], dict[str, Any]]:
    """The operands and the attributes of a call, as the node has them; a dtype that is left out is torch's."""
    given = schema_arguments(node.target, node.args, node.kwargs)
    count = len(op.operands)
    return given[:count], {a.name: _filled_in(a, v) for a, v in zip(op.attributes, given[count:], strict=True)}


def _filled_in(a: Attribute, given: Any) -> Any:
    """A schema has the default of a dtype as a number."""
    default = a.type == "dtype" and isinstance(given, int) and a.default is not NO_DEFAULT
    return to_graph(a.default) if default else given


def view_of(t: Table, node: Any, op: OpDef) -> tuple[tuple[Any, ...], list[Value]] | None:
    """The arguments (operands, then attributes) and the results of a call as values.

    None for an op with a list among its operands or results, which no term of a rule has below its root.
    """
    if any(o.star for o in op.operands) or any(r.star for r in op.results):
        return None
    operands, attributes = arguments_of(node, op)
    groups = {a.name for a in op.attributes if a.type == "group"}
    args = (
        *(argument(t, a) for a in operands),
        *(t.groups.named(v) if n in groups and type(v) is str else _constant(t, v) for n, v in attributes.items()),
    )
    call, val = t.of_node[node], node.meta["val"]
    if isinstance(val, torch.Tensor):
        return args, [call]
    return args, [t.cons("getitem", (call, i), (), v.dtype, dims_of(v)) for i, v in enumerate(val)]


def _constant(t: Table, value: Any) -> Any:
    """An attribute: a constant, a size, or the value of a 0-d tensor."""
    if isinstance(value, torch.fx.Node):
        number = number_of(t, value)
        if number is not None:
            return number
    found = argument(t, value)
    return found.expr if isinstance(found, Symbol) else found
