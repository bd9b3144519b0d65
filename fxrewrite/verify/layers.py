"""The error of a rewritten graph value by value, against the graph as it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from attrs import asdict, frozen
from torch import Tensor
from torch.fx import Node

from fxrewrite.patterns.events import source_line
from fxrewrite.verify.captured import Captured, Rewritten
from fxrewrite.verify.same import difference


@frozen
class Layer:
    """A value that both graphs have: `node` in the graph as it was, `now` in the rewritten one.

    `largest`: the largest |difference|; `rms`: the root of the mean of its square, over that of the value itself. Both
    are infinite where one of the two is not finite and the other is another value, or the dtypes or shapes differ.
    """

    node: str
    now: str
    source: str
    same: bool  # bit for bit
    largest: float
    rms: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object; what is infinite is null."""
        return {k: None if v in (math.inf, math.nan) else v for k, v in asdict(self).items()}


def layers(program: Captured, rewritten: Rewritten) -> list[Layer]:
    """Each tensor of the graph as it was that the rewritten graph has too, in order. Takes two runs."""
    there = {n.name for n in rewritten.gm.graph.nodes}
    pairs = {n.name: rewritten.stands_for.get(n.name, n.name) for n in program.gm.graph.nodes}
    kept: dict[str, list[tuple[Node, Tensor]]] = {}  # by the name in the rewritten graph

    def keep(node: Node, value: Any) -> None:
        now = pairs[node.name]
        if isinstance(value, Tensor) and now in there:
            kept.setdefault(now, []).append((node, value.clone()))  # a later op may write to it

    program.run(watch=keep)
    found: dict[str, Layer] = {}

    def compare(node: Node, value: Any) -> None:
        for old, before in kept.pop(node.name, ()):
            found[old.name] = layer(old, node, before, value)

    program.run(rewritten.gm, compare)
    return [found[n] for n in pairs if n in found]


def layer(old: Node, new: Node, before: Tensor, after: Any) -> Layer:
    """The error of one value."""
    largest, rms = errors(before, after) if isinstance(after, Tensor) else (math.inf, math.inf)
    return Layer(old.name, new.name, source_line(old), difference(before, after) is None, largest, rms)


def errors(before: Tensor, after: Tensor) -> tuple[float, float]:
    """The largest difference, and its root mean square over that of `before` (0 over 0 is 0)."""
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return math.inf, math.inf
    if before.numel() == 0:
        return 0.0, 0.0
    wide = torch.complex128 if before.dtype.is_complex else torch.float64
    a, b = before.to(wide), after.to(wide)
    equal = (a == b) | (a.isnan() & b.isnan())
    error = torch.where(equal, torch.zeros_like(a), b - a).abs()
    error = torch.where(error.isnan(), torch.full_like(error, torch.inf), error)
    size = torch.where(a.isfinite(), a, torch.zeros_like(a)).abs().square().mean().sqrt().item()
    rms = error.square().mean().sqrt().item()
    return error.max().item(), rms / size if size else (math.inf if rms else 0.0)


def differing(found: Sequence[Layer]) -> list[Layer]:
    """Those that are not equal bit for bit."""
    return [x for x in found if not x.same]
