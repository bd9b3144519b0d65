"""The two sides of the tests in `tests/holes`: a plain pattern of Inductor on a graph, and a text of rules on the same
graph.

    assert matched(pattern, gm) == 1                 # a hand-built pattern; the graph stays as it is
    there = replaced(search, replace, examples, gm)  # `register_replacement`; `there.count`, `there.outputs`
    here = ours("rule twice: neg(neg(x)) => x", gm)  # fxrewrite, with every check of `graph_checks`

Each test shows what Inductor does first. All of it was seen on torch 2.13; what a version does otherwise stands in the
test, behind a condition on `TORCH`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch._inductor.pattern_matcher import (
    Match,
    PatternExpr,
    PatternMatcherPass,
    fwd_only,
    register_graph_pattern,
    register_replacement,
)
from torch.fx import GraphModule

from capture import INPUTS, run
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.syntax import File
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Event
from graph_checks import Rewritten, rewrite_checked

TORCH = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
FP8 = torch.float8_e4m3fn
SMIN = 1e-12

NORM_QUANT = "fusion norm_quant(x, w) = rms_norm(x, w) |> quant_fp8\n"  # what `norm_quant` below is


# ---- models


def rms(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    """RMS norm as Llama rounds it."""
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def quant(y: Tensor) -> tuple[Tensor, Tensor]:
    """FP8 codes with a scale for each row."""
    scale = (y.abs().amax(-1, keepdim=True).float() / 448).clamp(min=SMIN)
    return (y.float() / scale).clamp(-448, 448).to(FP8), scale


def norm_quant(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The norm, then the codes."""
    return quant(rms(x, w))


def sample(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal values, the same at each call."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rows() -> tuple[Tensor, Tensor]:
    """Operands of `norm_quant`."""
    return sample(6, 64, dtype=torch.bfloat16), (sample(64, seed=1).abs() + 0.5).bfloat16()


# ---- Inductor


@frozen
class Replaced:
    """A copy of a graph after a plain pattern, and how often it matched."""

    gm: GraphModule
    count: int

    @property
    def outputs(self) -> list[Any]:
        """What the graph computes now, on the inputs that it was captured with."""
        return run(self.gm, copy.deepcopy(self.gm.meta[INPUTS]))


def matched(pattern: PatternExpr, gm: GraphModule, check: Callable[[Match], Any] | None = None) -> int:
    """How many sites a hand-built pattern has in a graph, which is left as it is."""
    return edited(pattern, gm, lambda match, *args, **kwargs: None, check).count


def edited(
    pattern: PatternExpr, gm: GraphModule, handler: Callable[..., None], check: Callable[[Match], Any] | None = None
) -> Replaced:
    """`register_graph_pattern` on a copy of `gm`."""
    patterns = PatternMatcherPass()
    register_graph_pattern(pattern, check or (lambda match: True), pass_dict=patterns)(handler)  # type: ignore[arg-type]
    return applied(patterns, gm)


def without_metadata(match: Any, a: Any) -> None:
    """A handler that puts in `exp(a)`, and says nothing of what it is."""
    root = match.output_node()
    with match.graph.inserting_before(root):
        root.replace_all_uses_with(match.graph.call_function(torch.ops.aten.exp.default, (a,)))
    match.erase_nodes()


def registered(
    search: Callable[..., Any], replace: Callable[..., Any], examples: Sequence[Any], **settings: Any
) -> PatternMatcherPass:
    """A pass with one `register_replacement`."""
    patterns = PatternMatcherPass()
    register_replacement(search, replace, list(examples), fwd_only, patterns, **settings)  # type: ignore[arg-type]
    return patterns


def replaced(
    search: Callable[..., Any], replace: Callable[..., Any], examples: Sequence[Any], gm: GraphModule, **settings: Any
) -> Replaced:
    """`register_replacement` on a copy of `gm`."""
    return applied(registered(search, replace, examples, **settings), gm)


def found(search: Callable[..., Any], examples: Sequence[Any], gm: GraphModule, **settings: Any) -> int:
    """How many sites `register_replacement` finds for a function."""
    return replaced(search, lambda *args: search(*args), examples, gm, **settings).count


def applied(patterns: PatternMatcherPass, gm: GraphModule) -> Replaced:
    """A pass of patterns on a copy of `gm`."""
    twin = copy.deepcopy(gm)
    count = patterns.apply(twin.graph)
    twin.recompile()
    return Replaced(twin, count)


# ---- fxrewrite


def rules(text: str) -> File:
    """A text as a pack called `holes`."""
    file, diagnostics = parse(text, "holes.rw")
    assert not diagnostics, diagnostics
    return file


def pass_of(text: str, **settings: Any) -> RewritePass:
    """The pass of a text of rules; the registered op stands for the kernel that a user would have."""
    return make_pass(make_config([rules(text)], **{"providers": ["op"], "strict": True, **settings}))


def ours(text: str, gm: GraphModule, **settings: Any) -> Rewritten:
    """A text of rules on a copy of `gm`. Fails where an output is not equal bit for bit."""
    return rewrite_checked(copy.deepcopy(gm), pass_of(text, **settings))


def missed(done: Rewritten) -> Event:
    """The one event of a site that did not fire."""
    assert not done.fired
    (event,) = done.log.missed()
    return event


# ---- ops


@contextmanager
def op(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None) -> Iterator[None]:
    """An op `holes::...` of the user's, for the time of a test."""
    name = schema.split("(")[0]
    with torch.library._scoped_library("holes", "FRAGMENT") as lib:
        lib.define(schema)
        lib.impl(name, kernel, "CompositeExplicitAutograd" if fake is None else "CPU")
        if fake is not None:
            torch.library.register_fake(f"holes::{name}", fake, lib=lib)
        yield
