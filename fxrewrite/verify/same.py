"""What a rewritten graph owes: equal outputs bit for bit, in equal strides, shared where they were; right metadata.

Each function says what is wrong, or None.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of an element -> integers of that size


# ---- values


def moved(before: Sequence[Any], after: Sequence[Any]) -> str | None:
    """How outputs differ: one of them, or which of them lie in one memory."""
    found = retyped(before, after)
    if found is not None:
        return found
    return next((f"output {i}: {d}" for i, (a, b) in enumerate(zip(before, after)) if (d := difference(a, b))), None)


def retyped(before: Sequence[Any], after: Sequence[Any]) -> str | None:
    """How outputs differ but for their values: types, strides, memory that they share."""
    if len(before) != len(after):
        return f"{len(before)} outputs became {len(after)}"
    for i, (a, b) in enumerate(zip(before, after)):
        found = other_type(a, b)
        if found is not None:
            return f"output {i}: {found}"
    groups = memory_groups(before), memory_groups(after)
    return None if groups[0] == groups[1] else f"outputs in the same memory: {groups[0]} became {groups[1]}"


def other_type(a: Any, b: Any) -> str | None:
    """How `b` differs from `a` in type or strides."""
    if not isinstance(a, Tensor):
        return None if type(a) is type(b) and a == b else f"{a} became {b}"
    if not isinstance(b, Tensor):
        return f"a tensor became {b}"
    if (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device):
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if counted_strides(a) != counted_strides(b):
        return f"strides {a.stride()} became {b.stride()} (shape {list(a.shape)})"
    return None


def difference(a: Any, b: Any) -> str | None:
    """How `b` differs from `a` in type, strides or bits; one NaN is as good as another."""
    found = other_type(a, b)
    if found is not None or not isinstance(a, Tensor):
        return found
    wrong = other_bits(a, b)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0][: a.ndim])
    share = wrong.float().mean().item()
    said = f"{a[at]} became {b[at]}" if a.dtype.is_complex else f"{a[at].float()} became {b[at].float()}"
    return f"{share:.2%} of {a.dtype}{list(a.shape)} differ, first at {at}: {said}"


def other_bits(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one type have other bits; one NaN is as good as another."""
    wrong = bits(a) != bits(b)
    return wrong & ~(a.isnan() & b.isnan()) if a.dtype.is_floating_point and wrong.any() else wrong


def same_values(a: Tensor, b: Tensor) -> bool:
    """Of one dtype and shape, and equal bit for bit, one NaN being as good as another."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and not other_bits(a, b).any()


def counted_strides(t: Tensor) -> tuple[Any, ...]:
    """Strides of the axes where they mean something."""
    return () if t.numel() == 0 else tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1)


def bits(t: Tensor) -> Tensor:
    """The elements as integers."""
    if t.dtype is torch.bool or not (t.dtype.is_floating_point or t.dtype.is_complex):
        return t
    t = torch.view_as_real(t) if t.dtype.is_complex else t
    return t.contiguous().view(BITS[t.element_size()])


def memory_groups(outputs: Sequence[Any]) -> list[int]:
    """For each output the first one that lies in the same memory."""
    at = [
        o.untyped_storage().data_ptr() if isinstance(o, Tensor) and o.numel() else -i - 1 for i, o in enumerate(outputs)
    ]
    return [at.index(a) for a in at]


# ---- metadata


def wrong_metadata(graph: Graph) -> str | None:
    """The first node whose `meta["val"]` is not what it gives for the values of its arguments, or that lacks
    `eager_input_vals` though a rule wrote it."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if "val" not in node.meta:
            if not _returns_nothing(node):
                return f"{node} has no meta['val']"
            continue
        found = _wrong_val(node, node.meta["val"], propagated(node))
        if found is not None:
            return found
        written = "fxrewrite" in node.meta and isinstance(node.target, torch._ops.OpOverload)
        if written and "eager_input_vals" not in node.meta:
            return f"{node} has no eager_input_vals"
    return None


def _returns_nothing(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.returns


def propagated(node: Node) -> Any:
    """The fake result of a node, computed again."""
    mapped: Any = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    args, kwargs = mapped
    if node.target is operator.getitem:
        return args[0][args[1]]
    leaves = tree_leaves((args, kwargs, node.meta["val"]))
    mode = next((v.fake_mode for v in leaves if hasattr(v, "fake_mode")), None)
    if mode is None:
        return node.meta["val"]
    with mode:
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _wrong_val(node: Node, have: Any, want: Any) -> str | None:
    """How a fake value is not of the type of a fresh one."""
    if isinstance(want, list | tuple):
        if len(have) != len(want):
            return f"{node} has {len(have)} values, not {len(want)}"
        return next((w for a, b in zip(have, want) if (w := _wrong_val(node, a, b)) is not None), None)
    if not isinstance(want, Tensor):
        return None
    if (have.dtype, have.device) != (want.dtype, want.device):
        return f"{node} is {want.dtype} on {want.device}, its val {have.dtype} on {have.device}"
    if expressions(have.shape) != expressions(want.shape):
        return f"{node} has the shape {tuple(want.shape)}, its val {tuple(have.shape)}"
    strides = [expressions(t.stride()) for t in (have, want)]
    pairs = [(a, b) for n, a, b in zip(have.shape, *strides, strict=True) if not (isinstance(n, int) and n <= 1)]
    if 0 not in have.shape and any(sympy.simplify(a - b) != 0 for a, b in pairs):
        return f"{node} has the strides {want.stride()}, its val {have.stride()}"
    if "fxrewrite" in node.meta and "tensor_meta" in node.meta and node.meta["tensor_meta"].dtype != want.dtype:
        return f"{node} has a tensor_meta of {node.meta['tensor_meta'].dtype}"
    return None


def expressions(sizes: Sequence[Any]) -> list[Any]:
    """Sizes, symbolic ones as their expressions."""
    return [s if isinstance(s, int) else s.node.expr for s in sizes]
