"""Variants of a fusion, as rules and through Inductor's `register_replacement`: to register, and to apply.

The variants differ in their eps. The graph is a chain of norms and quants; site i has the eps of variant i modulo their
number, so that every variant fires. Ours starts at the text of the rules (parse, check, compile); theirs at Python
functions, which it traces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.graphs import FP8, HIDDEN, engine, eps_of, norm_graph, quant, rms_norm, variants_file
from benchmarks.report import Column, Table
from benchmarks.settings import Settings
from benchmarks.timing import Times, in_turn

Fired = dict[str, int]


@cache
def fused_op() -> Callable[..., Any]:
    """An op for their replacement. It is never run."""

    @torch.library.custom_op("fxrewrite_benchmarks::rms_norm_fp8", mutates_args=())
    def fused(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @fused.register_fake
    def _(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape, dtype=FP8), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)

    return torch.ops.fxrewrite_benchmarks.rms_norm_fp8.default


def register_theirs(variants: int) -> PatternMatcherPass:
    """A pass with a replacement for each variant. Fake example tensors: the quicker of the two ways."""
    passes, fused = PatternMatcherPass(pass_name="replacements"), fused_op()

    def search(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return quant(rms_norm(x, w, eps))

    def replace(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return fused(x, w, eps)

    with FakeTensorMode(), torch.no_grad():
        example = [torch.empty(8, HIDDEN, dtype=torch.bfloat16), torch.empty(HIDDEN, dtype=torch.bfloat16)]
        for i in range(variants):
            register_replacement(
                _bound(search, eps_of(i)), _bound(replace, eps_of(i)), example, fwd_only, passes,  # type: ignore[arg-type]
                skip_duplicates=True,
            )  # fmt: skip
    return passes


def _bound(fn: Callable[..., Any], eps: float) -> Callable[..., Any]:
    """`fn` of two tensors, with the name and the signature that tracing asks for."""

    def bound(x: Tensor, w: Tensor) -> Any:
        return fn(x, w, eps)

    bound.__name__ = fn.__name__
    return bound


def run(settings: Settings) -> list[Table]:
    """The table of both, for each number of variants."""
    rows = [row for n in settings.variants for row in _side_by_side(n, settings)]
    columns = (
        Column("variants"), Column("how"), Column("register, CPU", "ms"), Column("apply, CPU", "ms"),
        Column("apply, CPU a site", "ms"),
        Column("sites fired"), Column("both, CPU", "ms"), Column("to ours", "x"),
    )  # fmt: skip
    notes = (
        f"{settings.sites} sites, {len(norm_graph(settings.sites, 1).graph.nodes):,} nodes; best of the runs",
        "registering ours includes checking the whole vocabulary, once for all rules; its files were read before",
    )
    return [Table("registration", columns, tuple(rows), notes)]


def _side_by_side(variants: int, settings: Settings) -> list[tuple[Any, ...]]:
    gm = norm_graph(settings.sites, variants)
    fired: Fired = {}
    made: dict[str, Any] = {}

    def register(name: str, how: Callable[[], Any], times: Times) -> None:
        with times.measure():
            made[name] = how()

    def apply_ours(times: Times) -> None:
        graph = copy.deepcopy(gm).graph
        with times.measure():
            fired["ours"] = len(made["ours"].run(graph).fired)

    def apply_theirs(times: Times) -> None:
        graph = copy.deepcopy(gm).graph
        with times.measure():
            fired["theirs"] = made["theirs"].apply(graph)

    times = in_turn(
        {
            "register ours": partial(register, "ours", lambda: engine([variants_file(variants)])),
            "register theirs": partial(register, "theirs", lambda: register_theirs(variants)),
            "apply ours": apply_ours, "apply theirs": apply_theirs,
        },
        settings.slow_runs,
    )  # fmt: skip
    whole = {who: times[f"register {who}"].best_ms + times[f"apply {who}"].best_ms for who in ("ours", "theirs")}
    names = {"ours": "fxrewrite rules", "theirs": "register_replacement"}
    return [
        (
            variants, names[who], times[f"register {who}"].best_ms, times[f"apply {who}"].best_ms,
            times[f"apply {who}"].best_ms / settings.sites, fired[who], whole[who], whole[who] / whole["ours"],
        )
        for who in ("ours", "theirs")
    ]  # fmt: skip
