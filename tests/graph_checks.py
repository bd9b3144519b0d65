"""What every rewritten graph owes: equal outputs bit for bit, right metadata, and nothing changed where nothing fired.

rewritten = rewrite_checked(gm)     # every check below; `rewritten.fired` counts the rules
"""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import sympy
import torch
from attrs import frozen
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

import vllm_stubs
from capture import INPUTS, run
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record

PACKS = ("norm_quant", "act_quant")
BITS = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
}  # bytes of an element -> a dtype that compares bits


@frozen
class Rewritten:
    """A graph after the pass, what it computes on its captured inputs, and what the pass said."""

    gm: GraphModule
    log: Log
    before: list[Any]
    after: list[Any]

    @property
    def fired(self) -> dict[str, int]:
        """Rule name -> how often it fired."""
        return dict(self.log.fired())


@cache
def rewrite_pass(
    packs: tuple[str, ...] = PACKS, providers: tuple[str, ...] = ("op",), strict: bool = True
) -> RewritePass:
    """The pass of these packs, made once; forms on vLLM's ops take part."""
    vllm_stubs.declare()
    return make_pass(make_config(packs, providers=providers, strict=strict))


def rewrite_checked(gm: GraphModule, pass_: RewritePass | None = None, args: Sequence[Any] | None = None) -> Rewritten:
    """Rewrite `gm` in place and check it. Each run has inputs of its own: the graph may write to them."""
    args = gm.meta[INPUTS] if args is None else args
    text, nodes = str(gm.graph), list(gm.graph.nodes)
    before = run(gm, copy.deepcopy(args))
    with record() as log:
        (pass_ or rewrite_pass())(gm.graph)
    gm.graph.lint()
    gm.recompile()
    if not log.fired():
        assert str(gm.graph) == text
        assert all(a is b for a, b in zip(gm.graph.nodes, nodes, strict=True))
        return Rewritten(gm, log, before, before)
    check_metadata(gm)
    after = run(gm, copy.deepcopy(args))
    assert_same(before, after)
    return Rewritten(gm, log, before, after)


def assert_same(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Outputs are equal bit for bit, in dtype, shape and strides, and share memory with one another where they did."""
    assert len(before) == len(after)
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        problem = difference(a, b)
        assert problem is None, f"output {i}: {problem}"
    assert memory_groups(after) == memory_groups(before)


def difference(a: Any, b: Any) -> str | None:
    """How `b` differs from `a`, or None."""
    if not isinstance(a, Tensor):
        return None if type(a) is type(b) and a == b else f"{a} became {b}"
    if (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device):
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if counted_strides(a) != counted_strides(b):
        return f"strides {a.stride()} became {b.stride()} (shape {list(a.shape)})"
    nan = a.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
    wrong = (bits(a) != bits(b)) & ~(nan & b.isnan())  # one NaN is as good as another
    if not wrong.any():
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0])
    share = wrong.float().mean().item()
    return f"{share:.2%} of {a.dtype}{list(a.shape)} differ, first at {at}: {a[at].float()} became {b[at].float()}"


def counted_strides(t: Tensor) -> tuple[Any, ...]:
    """Strides of the axes where they mean something."""
    return () if t.numel() == 0 else tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1)


def bits(t: Tensor) -> Tensor:
    """The elements as integers."""
    return t.contiguous().view(BITS[t.element_size()])


def memory_groups(outputs: Sequence[Any]) -> list[int]:
    """For each output the first one that lies in the same memory."""
    at = [
        o.untyped_storage().data_ptr() if isinstance(o, Tensor) and o.numel() else -i - 1 for i, o in enumerate(outputs)
    ]
    return [at.index(a) for a in at]


# ---- metadata


def check_metadata(gm: GraphModule) -> None:
    """Every `meta["val"]` is what the node gives for the `val` of its arguments; op calls have `eager_input_vals`."""
    for node in gm.graph.nodes:
        if node.op != "call_function" or "val" not in node.meta:
            assert node.op != "call_function" or _returns_nothing(node), f"{node} has no val"
            continue
        written = "fxrewrite" in node.meta
        fresh = propagate(node)
        assert_same_val(node, node.meta["val"], fresh)
        if written and isinstance(node.target, torch._ops.OpOverload):
            assert "eager_input_vals" in node.meta, f"{node} has no eager_input_vals"


def _returns_nothing(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.returns


def propagate(node: Node) -> Any:
    """The fake result of a node, computed again."""
    mapped: Any = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    args, kwargs = mapped
    if node.target is operator.getitem:
        return args[0][args[1]]
    mode = next(
        (v.fake_mode for v in tree_leaves((args, kwargs, node.meta["val"])) if hasattr(v, "fake_mode")),
        None,
    )
    if mode is None:
        return node.meta["val"]
    with mode:
        return node.target(*args, **kwargs)  # type: ignore[operator]


def assert_same_val(node: Node, have: Any, want: Any) -> None:
    """A fake value and a fresh one have the same type."""
    if isinstance(want, list | tuple):
        assert len(have) == len(want), node
        for a, b in zip(have, want, strict=True):
            assert_same_val(node, a, b)
    elif isinstance(want, Tensor):
        assert (have.dtype, have.device) == (want.dtype, want.device), f"{node}: {have} and {want}"
        assert _expressions(have.shape) == _expressions(want.shape), f"{node}: {have.shape} and {want.shape}"
        strides = [_expressions(t.stride()) for t in (have, want)]
        pairs = [(a, b) for n, a, b in zip(have.shape, *strides, strict=True) if not (isinstance(n, int) and n <= 1)]
        assert 0 in have.shape or all(sympy.simplify(a - b) == 0 for a, b in pairs), f"{node}: {strides}"
        if "fxrewrite" in node.meta and "tensor_meta" in node.meta:
            assert node.meta["tensor_meta"].dtype == want.dtype, node


def _expressions(sizes: Sequence[Any]) -> list[Any]:
    return [s if isinstance(s, int) else s.node.expr for s in sizes]


def written_nodes(gm: GraphModule) -> list[Node]:
    """The nodes that rules wrote."""
    return [n for n in gm.graph.nodes if "fxrewrite" in n.meta]


def targets(gm: GraphModule) -> Counter[str]:
    """How often each op occurs."""
    return Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
