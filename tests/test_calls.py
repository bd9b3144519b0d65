"""Ops of the library in a graph: rules see them as what they are; what nothing serves becomes primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fxrewrite_kernels as kernels
import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

import capture
import fxrewrite
from fxrewrite import ops
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.library import op_for
from fxrewrite.patterns.events import record
from fxrewrite.verify.written import is_written
from graph_checks import PACKS, assert_same, check_metadata, rewrite_checked, rewrite_pass, targets
from op_samples import dtypes_of, operands, plain_attributes

PROGRAM = ops.shipped_program()
EPS = 1e-6


def sample(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


X, R, W, S = sample(6, 64), sample(6, 64).flip(0), sample(64), torch.full((1,), 0.02)


def quant(y: Tensor) -> tuple[Tensor, Tensor]:
    s = y.abs().amax(-1, keepdim=True).float() / 448
    return (y.float() / s).clamp(-448, 448).to(torch.float8_e4m3fn), s


def rms(x: Tensor, w: Tensor) -> Tensor:
    c = x.float()
    return w * (c * torch.rsqrt(c.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def add_norm_quant(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y, h = ops.add_rms_norm(x, r, w, eps=EPS)
    return *quant(y), h


MIXED: dict[str, tuple[Callable[..., Any], Sequence[Tensor]]] = {
    "rms_norm_fp8": (lambda x, w: quant(ops.rms_norm(x, w, eps=EPS)), (X, W)),
    "rms_norm_fp8 ": (lambda x, w: ops.quant_fp8(rms(x, w), smin=0.0), (X, W)),
    "rms_norm_fp8  ": (lambda x, w: ops.quant_fp8(ops.rms_norm(x, w, eps=EPS)), (X, W)),
    "rms_norm_fp8   ": (lambda x, w: quant(ops.rms_norm(x.view(2, 3, 64), w, eps=EPS).view(6, 64)), (X, W)),
    "rms_norm_fp8    ": (lambda x, w: quant(ops.rms_norm(x, w, eps=torch.full((), EPS))), (X, W)),
    "rms_norm_fp8_static": (lambda x, w, s: ops.quant_fp8_static(rms(x, w), s), (X, W, S)),
    "add_rms_norm_fp8": (add_norm_quant, (X, R, W)),
    "silu_mul_fp8": (lambda x, r: quant(ops.silu_mul(x, r)), (X, R)),
    "silu_mul_fp8 ": (lambda x, r: quant(ops.silu(x) * r), (X, R)),
    "fused_silu_quant": (lambda x: quant(ops.silu_and_mul(x)), (X,)),
    "rms_norm_fp8_group": (lambda x, w: ops.quant_fp8_group(ops.rms_norm(x, w, eps=EPS, late=True), G=16), (X, W)),
}


@pytest.mark.parametrize("case", MIXED)
def test_rules_see_our_ops_beside_what_is_decomposed(case: str) -> None:
    fn, args = MIXED[case]
    assert rewrite_checked(capture.make_fx_graph(fn, args)).fired == {case.strip(): 1}


def test_an_eps_of_the_graph_is_an_attribute() -> None:
    eps = torch.tensor(EPS, dtype=torch.float64)
    gm = capture.make_fx_graph(lambda x, w, eps: quant(ops.rms_norm(x, w, eps=eps)), (X, W, eps))
    assert rewrite_checked(gm).fired == {"rms_norm_fp8": 1}
    assert targets(gm)["fxrewrite.rms_norm_fp8.dyn"] == 1


# ---- calls that no rule takes

DEFAULTS = ("kernel", "generated", "definition")


def call(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A function that calls an op on its sample operands, and the operands as a flat list."""
    op = PROGRAM.ops[name]
    given = operands(op, dtypes_of(op)[0], optional=True)
    flat = [t for v in given for t in (v if isinstance(v, list) else [v])]
    lengths = [len(v) if isinstance(v, list) else None for v in given]

    def function(*tensors: Tensor) -> Any:
        left = iter(tensors)
        args = [next(left) if n is None else [next(left) for _ in range(n)] for n in lengths]
        found = getattr(ops, name)(*args, **plain_attributes(op))
        return [*found] if isinstance(found, tuple | list) else [found]

    return function, flat


def lowered(gm: GraphModule) -> dict[str, int]:
    return {n: k for n, k in targets(gm).items() if n.startswith("fxrewrite.")}


@pytest.mark.parametrize("name", sorted(n for n, o in PROGRAM.ops.items() if is_written(PROGRAM, o)))
def test_a_call_without_a_kernel_becomes_primitives_that_are_recognised(name: str) -> None:
    function, args = call(name)
    gm = capture.make_fx_graph(function, args)
    before = capture.run(gm)
    with record() as log:
        rewrite_pass(providers=DEFAULTS)(gm.graph)
    gm.graph.lint()
    gm.recompile()
    check_metadata(gm)
    assert_same(before, capture.run(gm))
    assert not lowered(gm)
    assert [(e.rule, e.reason) for e in log.events if e.rule.startswith("fxrewrite")] == [
        (f"fxrewrite::{name}", "lowered to primitives")
    ]
    again = rewrite_checked(gm)
    if name in {r.name for r in PROGRAM.rules if r.pack in PACKS} and PROGRAM.ops[name].is_fusion:
        assert again.fired == {name: 1}


def test_with_the_provider_op_a_call_stays() -> None:
    gm = capture.make_fx_graph(lambda x, w: ops.rms_norm(x, w, eps=EPS), (X, W))
    assert rewrite_checked(gm).fired == {}
    assert lowered(gm) == {"fxrewrite.rms_norm.default": 1}


def test_at_level_0_a_call_stays() -> None:
    gm = capture.make_fx_graph(lambda x, w: ops.rms_norm(x, w, eps=EPS), (X, W))
    assert rewrite_checked(gm, make_pass(make_config(level="O0"))).fired == {}


@pytest.mark.parametrize("decompose", [False, True])
def test_calls_in_an_exported_program(decompose: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Any:
            c = x.to(torch.float32).to(torch.bfloat16)
            return ops.quant_fp8(ops.rms_norm(c, w, eps=EPS, late=True))

    gm = capture.export_graph(Model(), (X, W), decompose, dynamic=True)
    before = capture.run(gm)
    rewrite_pass(providers=DEFAULTS)(gm.graph)
    gm.recompile()
    assert_same(before, capture.run(gm))
    assert not lowered(gm)
    assert not any(str(t).startswith("prims.") for t in targets(gm))
    assert rewrite_checked(gm).fired == {"rms_norm_fp8": 1}


def test_an_eps_of_the_graph_in_primitives() -> None:
    eps = torch.tensor(EPS, dtype=torch.float64)
    gm = capture.make_fx_graph(lambda x, w, eps: ops.rms_norm_fp8(x, w, None, eps=eps), (X, W, eps))
    before = capture.run(gm)
    rewrite_pass(providers=DEFAULTS)(gm.graph)
    gm.recompile()
    assert_same(before, capture.run(gm))
    assert not lowered(gm)
    assert rewrite_checked(gm).fired == {"rms_norm_fp8": 1}


def test_a_kernel_takes_the_call() -> None:
    class Kernel:
        default = op_for(PROGRAM, "rms_norm")

    kernels.register("rms_norm", "cpu", Kernel)
    try:
        gm = capture.make_fx_graph(lambda x, w: ops.rms_norm(x, w, eps=EPS), (X, W))
        with record() as log:
            rewrite_pass(providers=DEFAULTS)(gm.graph)
        assert [(e.reason, e.by) for e in log.events if e.rule == "fxrewrite::rms_norm"] == [("served by", "kernel")]
        assert lowered(gm) == {"fxrewrite.rms_norm.default": 1}
    finally:
        kernels.unregister("rms_norm", "cpu")


def test_compiled_code_has_no_call_left() -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        return ops.rms_norm(x * 2, w, eps=EPS) + 1

    with record() as log:
        torch.compile(model, backend=fxrewrite.backend())(X, W)
    assert [e.reason for e in log.events if e.rule == "fxrewrite::rms_norm"] == ["lowered to primitives"]
    assert "fxrewrite::rms_norm  1 call" in log.report()
