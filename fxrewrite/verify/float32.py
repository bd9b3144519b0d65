"""The float32 run of a model, and how far other runs are from it.

    exact = run_wide(program)
    distances(exact.outputs, program.run().outputs)

The captured graph runs op by op with each 16-bit float held in float32: inputs are widened, a cast to a 16-bit dtype
is one to float32, and so is a dtype argument. Codes (FP8, INT8, FP4) are rounded as ever, from values in float32, and
scales follow their formulas in float32. An op that takes no float32 runs as it is, on rounded operands, and is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_map

from fxrewrite.patterns.values import LOW
from fxrewrite.verify.captured import SEED, Captured, Results
from fxrewrite.verify.graphs import quiet


@frozen
class Wide:
    """The outputs of a float32 run, and the calls that could not run in float32, by op."""

    outputs: tuple[Any, ...]
    kept: tuple[str, ...]


def run_wide(program: Captured) -> Wide:
    """Run a captured program in float32. Raises what torch raises where an op runs in neither way."""
    kept: list[str] = []
    inputs = [widened(t.clone()) if isinstance(t, Tensor) else t for t in program.inputs]
    with torch.no_grad(), torch.random.fork_rng(), quiet():
        torch.manual_seed(SEED)
        outputs = _Float32(program.gm, kept).run(*inputs, enable_io_processing=False)
    leaves = tree_leaves(outputs, is_leaf=lambda leaf: leaf is None)
    return Wide(tuple(leaves), tuple(dict.fromkeys(kept)))


def widened(x: Any) -> Any:
    """A tensor or dtype of 16 bits in float32; anything else as it is."""
    if isinstance(x, torch.dtype):
        return torch.float32 if x in LOW else x
    return x.float() if isinstance(x, Tensor) and x.dtype in LOW else x


class _Float32(Interpreter):
    def __init__(self, gm: GraphModule, kept: list[str]):
        super().__init__(gm)
        self.kept = kept

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return self._inside(widened(super().run_node(n))) if n.op == "get_attr" else super().run_node(n)
        args, kwargs = tree_map(widened, self.fetch_args_kwargs_from_env(n))
        try:
            found = n.target(*args, **kwargs)  # type: ignore[operator]
            if fits(found, n.meta.get("val")):
                return tree_map(widened, found)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            pass  # it takes no float32
        self.kept.append(str(n.target))
        narrow: Any = torch.fx.map_arg((n.args, n.kwargs), lambda a: self._narrow(a))
        return tree_map(widened, n.target(*narrow[0], **narrow[1]))  # type: ignore[operator]

    def _narrow(self, n: Node) -> Any:
        """The value of a node in the dtype that it has in the graph."""
        value, val = self.env[n], n.meta.get("val")
        if isinstance(value, Tensor) and isinstance(val, Tensor) and val.dtype in LOW:
            return value.to(val.dtype)
        return value

    def _inside(self, value: Any) -> Any:
        """A branch of a control flow op in float32, too."""
        if not isinstance(value, GraphModule):
            return value
        return lambda *args: _Float32(value, self.kept).run(*args, enable_io_processing=False)


def fits(found: Any, declared: Any) -> bool:
    """Is it of the types that the graph declares, but for the width of floats?"""
    if declared is None:
        return True
    pairs = zip(tree_leaves(found), tree_leaves(declared))
    return all(_fits(x, val) for x, val in pairs if isinstance(x, Tensor) and isinstance(val, Tensor))


def _fits(x: Tensor, val: Tensor) -> bool:
    sizes = all(a == b for a, b in zip(x.shape, val.shape) if isinstance(b, int))
    return x.ndim == val.ndim and sizes and widened(x.dtype) == widened(val.dtype)


# ---- how far


@frozen
class Distance:
    """How far an output is from the float32 run: the root of the mean of the squared difference, in its own unit.

    `size`: the root mean square of the float32 output.
    """

    output: int
    on: float
    off: float
    size: float

    @property
    def ratio(self) -> float:
        """With packs on over packs off; 1 where both are the float32 run."""
        if self.on == self.off:
            return 1.0
        return self.on / self.off if self.off else float("inf")


def distances(exact: Wide, on: Results, off: Results) -> list[Distance]:
    """The distance of each output of floats; elements that are not finite in float32 are left out."""
    found: list[Distance] = []
    for i, (x, a, b) in enumerate(zip(exact.outputs, on.outputs, off.outputs)):
        if isinstance(x, Tensor) and x.is_floating_point() and x.numel():
            at = x.isfinite()
            found.append(Distance(i, _rms(a, x, at), _rms(b, x, at), _rms(x, torch.zeros_like(x), at)))
    return found


def _rms(a: Any, x: Tensor, at: Tensor) -> float:
    if not isinstance(a, Tensor) or a.shape != x.shape:
        return float("inf")
    apart = (a.double() - x.double())[at].square()
    mean = apart.mean().sqrt().item() if apart.numel() else 0.0
    return float("inf") if mean != mean else mean


def shown(found: Sequence[Distance]) -> str:
    """The output that moved most, in a line."""
    worst = max(found, key=lambda d: d.ratio)
    return f"{worst.on:.4g} on, {worst.off:.4g} off ({worst.ratio:.3f} x)"
