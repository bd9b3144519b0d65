"""Outputs in other strides: let through where every reader says by its registration that it does not depend on them.

What Inductor promises to a torch op is what may be done to its arguments here: an op with the tag `flexible_layout`
takes any strides, one with `needs_fixed_stride_order` those in which the axes lie in the same order; any other op of a
library is given the strides of eager execution, so they stay as they are. Of torch's own ops only those count whose
result is one rounding of each element: a sum, or an `exp`, may differ in its last bit with the strides of its operand.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch._library.utils import get_layout_constraint_tag
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from fxrewrite.lowering import fakes
from fxrewrite.patterns.dialect import BOOKKEEPING, CASTS, VIEWS
from fxrewrite.patterns.functionalized import FUNCTIONALIZED
from fxrewrite.patterns.values import dims_of

aten = torch.ops.aten
ELEMENTWISE = {
    *CASTS, aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.add.Scalar, aten.sub.Scalar,
    aten.mul.Scalar, aten.div.Scalar, aten.neg.default, aten.abs.default, aten.maximum.default, aten.minimum.default,
    aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.relu.default, aten.clone.default,
    aten.cat.default,
}  # fmt: skip
Vals = dict[Node, Any]


def relaid(outputs: Mapping[Node, Any], gone: Collection[Node]) -> Vals | None:
    """The fake values of `outputs` (a node -> what it will be) and of all views of them; None where a reader depends on
    strides. `gone`: readers that do not count.
    """
    vals: Vals = dict(outputs)
    readers: dict[Node, None] = {}
    todo = list(outputs)
    while todo:
        for user in todo.pop().users:
            if user in gone or user in vals:
                continue
            if user.target in VIEWS or user.target is operator.getitem:
                try:
                    vals[user] = _run(user, vals)
                except (RuntimeError, ValueError):  # not a view of what lies so
                    return None
                todo.append(user)
            else:
                readers[user] = None
    return vals if all(_takes(r, vals) for r in readers) else None


def note(vals: Vals) -> None:
    """Give views the fake values that they have now."""
    for node, val in vals.items():
        if not node._erased:
            node.meta["val"] = val
            if isinstance(val, torch.Tensor):
                node.meta["tensor_meta"] = fakes.metadata(val)


def _run(node: Node, vals: Vals) -> Any:
    args: Any = torch.fx.map_arg(node.args, lambda n: vals.get(n, n.meta.get("val")))
    kwargs: Any = torch.fx.map_arg(node.kwargs, lambda n: vals.get(n, n.meta.get("val")))
    if node.target is operator.getitem:
        return args[0][args[1]]
    mode = next(v.fake_mode for v in vals.values() if isinstance(v, torch._subclasses.FakeTensor))
    target: Any = node.target
    with mode:
        return target(*args, **kwargs)


def _takes(reader: Node, vals: Vals) -> bool:
    """Does a reader give the same of what lies otherwise, in the same strides?"""
    target: Any = reader.target
    if target in BOOKKEEPING:
        return target is not aten._assert_tensor_metadata.default or len(reader.args) < 3 or reader.args[2] is None
    op = target
    if target in FUNCTIONALIZED:
        op = reader.args[0]
        if any(n in vals for n in _written(reader)):
            return False
    if not isinstance(op, torch._ops.OpOverload) or not _allows(op, reader, vals):
        return False
    try:
        now = tree_leaves(_run(reader, vals))
    except (RuntimeError, ValueError):
        return False
    return all(_alike(a, b) for a, b in zip(now, tree_leaves(reader.meta.get("val")), strict=True))


def _written(call: Node) -> Iterator[Node]:
    """What a functionalized call writes to."""
    op: Any = call.args[0]
    names = [a.name for a in op._schema.arguments if a.is_write]
    written = [call.kwargs.get("_all_bases"), *(call.kwargs.get(n) for n in names)]
    yield from (n for n in tree_leaves(written) if isinstance(n, Node))


def _allows(op: torch._ops.OpOverload, reader: Node, vals: Vals) -> bool:
    if op.namespace in ("aten", "prims"):
        return op in ELEMENTWISE and not reader.kwargs.get("alpha")
    tag = get_layout_constraint_tag(op)
    if tag == torch.Tag.needs_fixed_stride_order:
        return all(_in_order(n.meta["val"], vals[n]) for n in reader.all_input_nodes if n in vals)
    return tag == torch.Tag.flexible_layout


def _in_order(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do the axes of two tensors of one shape lie in the same order, none of them over another?"""
    axes = [i for i, n in enumerate(a.shape) if not isinstance(n, int) or n > 1]
    strides = [[t.stride(i) for i in axes] for t in (a, b)]
    if any(not isinstance(s, int) or s == 0 for one in strides for s in one):
        return strides[0] == strides[1]
    orders = [sorted(range(len(axes)), key=one.__getitem__) for one in strides]
    return orders[0] == orders[1] and all(len(set(one)) == len(one) for one in strides)


def _alike(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is None or type(a) is type(b)
    types = [(t.dtype, t.device, dims_of(t)) for t in (a, b)]
    counted = [i for i, n in enumerate(a.shape) if not isinstance(n, int) or n > 1]
    return types[0] == types[1] and all(a.stride(i) == b.stride(i) for i in counted)
