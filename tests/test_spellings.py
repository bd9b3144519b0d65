"""One function in many spellings (vLLM's custom ops, vLLM IR, our own ops, aten, Hugging Face) and in every dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import capture
import fp8_linear
import models
import vllm_stubs
from fxrewrite import ops
from graph_checks import rewrite_checked
from spelled_ops import EPS, FP8, NORMS, QUANTS, rms

vllm_stubs.declare()
custom, ir = torch.ops._C, torch.ops.vllm_ir
token, static, group = (QUANTS[name][0] for name in ("token min", "static", "group 16"))
Spelling = Callable[[Tensor, Tensor, Tensor, Tensor], Any]


def operands(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, r = (torch.randn(4, 8, 64, generator=generator).to(dtype) for _ in range(2))
    return x, r, (1 + 0.1 * torch.randn(64, generator=generator)).to(dtype), torch.tensor([0.05])


# ---- vLLM's mutable ops, as its layers call them


def custom_norm(x: Tensor, w: Tensor) -> Tensor:
    out = torch.empty_like(x)
    custom.rms_norm(out, x, w, EPS)
    return out


def custom_add_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x, r = x.clone(), r.clone()
    custom.fused_add_rms_norm(x, r, w, EPS)
    return x, r


def custom_silu(x: Tensor) -> Tensor:
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype)
    custom.silu_and_mul(out, x)
    return out


def custom_gelu(x: Tensor) -> Tensor:
    out = torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=x.dtype)
    custom.gelu_tanh_and_mul(out, x)
    return out


def custom_token(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.reshape(-1, x.shape[-1])
    q, s = torch.empty(x.shape, dtype=FP8), torch.empty(x.shape[0], 1)
    custom.dynamic_per_token_scaled_fp8_quant(q, x, s, None)
    return q, s


def custom_static(x: Tensor, s: Tensor) -> tuple[Tensor]:
    q = torch.empty(x.shape, dtype=FP8)
    custom.static_scaled_fp8_quant(q, x, s)
    return (q,)


def custom_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    q, s = torch.empty(x.shape, dtype=FP8), torch.empty(1)
    custom.dynamic_scaled_fp8_quant(q, x, s)
    return q, s


def custom_group(x: Tensor, column_major: bool = False) -> tuple[Tensor, Tensor]:
    x = x.reshape(-1, x.shape[-1])
    q, s = torch.empty(x.shape, dtype=FP8), torch.empty(x.shape[0], x.shape[1] // 16)
    if column_major:
        s = torch.empty(x.shape[1] // 16, x.shape[0]).t()
    custom.per_token_group_fp8_quant(x, q, s, 16, 1e-10, -448.0, 448.0, False, column_major, False)
    return q, s


def custom_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.reshape(-1, x.shape[-1])
    q, s = torch.empty(x.shape, dtype=torch.int8), torch.empty(x.shape[0], 1)
    custom.dynamic_scaled_int8_quant(q, x, s, None)
    return q, s


def with_sum(pair: tuple[Tensor, Tensor], quant: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return (*quant(pair[0]), pair[1])


MUTABLE: dict[str, tuple[Spelling, str | None]] = {
    "norm, token": (lambda x, r, w, s: custom_token(custom_norm(x, w)), "rms_norm_fp8"),
    "norm, decomposed token": (lambda x, r, w, s: token(custom_norm(x, w), s), "rms_norm_fp8"),
    "decomposed norm, token": (lambda x, r, w, s: custom_token(rms(x, w)), "rms_norm_fp8"),
    "norm, static": (lambda x, r, w, s: custom_static(custom_norm(x, w), s), "rms_norm_fp8_static"),
    "norm, tensor": (lambda x, r, w, s: custom_tensor(custom_norm(x, w)), "rms_norm_fp8_tensor"),
    "norm, group": (lambda x, r, w, s: custom_group(custom_norm(x, w)), "rms_norm_fp8_group"),
    "norm, column-major group": (lambda x, r, w, s: custom_group(custom_norm(x, w), True), "rms_norm_fp8_group"),
    "norm, int8": (lambda x, r, w, s: custom_int8(custom_norm(x, w)), "rms_norm_int8"),
    "add, token": (lambda x, r, w, s: with_sum(custom_add_norm(x, r, w), custom_token), "add_rms_norm_fp8"),
    "add, static": (
        lambda x, r, w, s: with_sum(custom_add_norm(x, r, w), lambda y: custom_static(y, s)), "add_rms_norm_fp8_static",
    ),
    "add, group": (lambda x, r, w, s: with_sum(custom_add_norm(x, r, w), custom_group), "add_rms_norm_fp8_group"),
    "silu, token": (lambda x, r, w, s: custom_token(custom_silu(x)), "fused_silu_quant"),
    "silu, static": (lambda x, r, w, s: custom_static(custom_silu(x), s), "silu_and_mul_fp8_static"),
    "silu, decomposed token": (lambda x, r, w, s: token(custom_silu(x), s), "fused_silu_quant"),
    "gelu, token": (lambda x, r, w, s: custom_token(custom_gelu(x)), None),  # no rule of the packs is for packed gelu
    "norm read twice": (
        lambda x, r, w, s: (lambda n: (*custom_token(n), n.cos()))(custom_norm(x, w)), "norm_fans_out_token",
    ),
}  # fmt: skip


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("name", MUTABLE)
def test_mutable_custom_ops(name: str, v2: bool) -> None:
    fn, rule = MUTABLE[name]
    with inductor_config.patch(enable_auto_functionalized_v2=v2):
        (gm,) = capture.post_grad_graphs(fn, operands())
    assert ("auto_functionalized_v2" in str(gm.graph)) is v2
    assert rewrite_checked(gm).fired == ({rule: 1} if rule else {})


@pytest.mark.parametrize("name", MUTABLE)
def test_mutable_ops_of_a_graph_that_is_not_functional_stay(name: str) -> None:
    rewrite_checked(capture.make_fx_graph(MUTABLE[name][0], operands()))


def test_a_buffer_that_somebody_else_reads_is_not_fresh() -> None:
    def fn(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
        rows = torch.zeros(64, 64, dtype=x.dtype)
        custom.rms_norm(rows[:32], x.view(-1, 64), w, EPS)  # half of the buffer
        return (*custom_token(rows), rows)

    (gm,) = capture.post_grad_graphs(fn, operands())
    assert rewrite_checked(gm).fired == {}


# ---- functional ops

FUNCTIONAL: dict[str, tuple[Spelling, str]] = {
    "ir norm": (lambda x, r, w, s: token(ir.rms_norm(x, w, EPS), s), "rms_norm_fp8"),
    "ir norm without weight": (lambda x, r, w, s: token(ir.rms_norm(x, None, EPS), s), "rms_norm_fp8"),
    "ir norm of a part": (lambda x, r, w, s: token(ir.rms_norm(x, w, EPS, 32), s), "rms_norm_fp8"),
    "ir norm, custom static": (lambda x, r, w, s: custom_static(ir.rms_norm(x, w, EPS), s), "rms_norm_fp8_static"),
    "ir add": (
        lambda x, r, w, s: with_sum(ir.fused_add_rms_norm(x, r, w, EPS), lambda y: token(y, s)), "add_rms_norm_fp8",
    ),
    "ir add in place": (
        lambda x, r, w, s: with_sum(ir.fused_add_rms_norm.maybe_inplace(x, r, w, EPS), lambda y: static(y, s)),
        "add_rms_norm_fp8_static",
    ),
    "our norm": (lambda x, r, w, s: token(ops.rms_norm(x, w, eps=EPS), s), "rms_norm_fp8"),
    "our late norm": (lambda x, r, w, s: token(ops.rms_norm(x, w, eps=EPS, late=True), s), "rms_norm_fp8"),
    "our norm, eps a tensor": (lambda x, r, w, s: token(ops.rms_norm(x, w, eps=torch.tensor(EPS)), s), "rms_norm_fp8"),
    "our norm and quant": (lambda x, r, w, s: ops.quant_fp8(ops.rms_norm(x, w, eps=EPS)), "rms_norm_fp8"),
    "our quant": (lambda x, r, w, s: ops.quant_fp8(rms(x, w), s), "rms_norm_fp8"),
    "our add": (
        lambda x, r, w, s: with_sum(ops.add_rms_norm(x, r, w, eps=EPS), lambda y: (ops.quant_fp8_static(y, s),)),
        "add_rms_norm_fp8_static",
    ),
    "our group": (
        lambda x, r, w, s: ops.quant_fp8_group(ops.rms_norm(x, w, eps=EPS).view(-1, 64), G=16, L="col"),
        "rms_norm_fp8_group",
    ),
    "our activation": (lambda x, r, w, s: ops.quant_fp8(ops.silu_and_mul(x)), "fused_silu_quant"),
    "our silu": (lambda x, r, w, s: token(ops.silu(x) * r, s), "silu_mul_fp8"),
    "our gelu": (lambda x, r, w, s: token(ops.gelu(x, approximate="tanh") * r, s), "gelu_mul_fp8"),
    "our int8": (lambda x, r, w, s: ops.quant_int8(rms(x + r, w)), "add_rms_norm_int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional_ops(name: str) -> None:
    fn, rule = FUNCTIONAL[name]
    (gm,) = capture.post_grad_graphs(fn, operands())
    assert rewrite_checked(gm).fired == {rule: 1}


def test_every_shipped_vocabulary_op_is_read_back() -> None:
    vocabulary = {name for name, op in ops.shipped_program().ops.items() if not op.is_fusion}
    assert {
        "silu",
        "gelu",
        "silu_mul",
        "silu_and_mul",
        "gelu_mul",
        "rms_norm",
        "gemma_rms_norm",
        "add_rms_norm",
    } <= vocabulary


# ---- dialects


def post_grad(fn: Spelling) -> GraphModule:
    return capture.post_grad_graphs(fn, operands())[0]


def post_grad_dynamic(fn: Spelling) -> GraphModule:
    return capture.post_grad_graphs(fn, operands(), dynamic=True)[0]


class Module(nn.Module):
    def __init__(self, fn: Spelling) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
        return self.fn(x, r, w, s)


def training_ir(fn: Spelling) -> GraphModule:
    return capture.export_graph(Module(fn), operands(), decompose=False)


def core_aten(fn: Spelling) -> GraphModule:
    return capture.export_graph(Module(fn), operands(), decompose=True)


def core_aten_dynamic(fn: Spelling) -> GraphModule:
    return capture.export_graph(Module(fn), operands(), decompose=True, dynamic=True)


def bare_make_fx(fn: Spelling) -> GraphModule:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        gm = make_fx(fn)(*map(mode.from_tensor, operands()))
    gm.meta[capture.INPUTS] = operands()
    return gm


def aot(fn: Spelling) -> GraphModule:
    graphs: list[GraphModule] = []

    def keep(gm: GraphModule, inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            gm.meta[capture.INPUTS] = args
            return gm(*args)

        graphs.append(gm)
        return call

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(fn, backend=aot_autograd(fw_compiler=keep), dynamic=False)(*operands())
    torch._dynamo.reset()
    (gm,) = graphs
    return gm


DIALECTS = {
    f.__name__: f for f in (post_grad, post_grad_dynamic, training_ir, core_aten, core_aten_dynamic, bare_make_fx, aot)
}


def aten_norm(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return token(F.rms_norm(x, (64,), w, EPS), s)


def aten_silu(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return token(F.silu(x) * r, s)


def aten_gelu(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return token(F.gelu(x, approximate="tanh") * r, s)


def packed_silu(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    g, u = x.chunk(2, -1)
    return token(F.silu(g) * u, s)


def hugging_face(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    h = x + r
    return (*token(rms(h, w), s), h)


def gemma(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return static(NORMS["gemma"][0](x, r, w), s)


def grouped(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return group(rms(x, w), s)


def narrow(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
    return QUANTS["token narrow"][0](rms(x, w), s)


SPELLINGS: dict[Spelling, str] = {
    aten_norm: "rms_norm_fp8",
    aten_silu: "silu_mul_fp8",
    aten_gelu: "gelu_mul_fp8",
    packed_silu: "fused_silu_quant",
    hugging_face: "add_rms_norm_fp8",
    gemma: "rms_norm_fp8_static",
    grouped: "rms_norm_fp8_group",
    narrow: "rms_norm_fp8",
}


STAYS: dict[tuple[str, Spelling], tuple[str, str]] = {  # (dialect, spelling) -> what is not there, and what is
    ("post_grad_dynamic", packed_silu): ("a result of silu_and_mul", "mul"),  # nothing says that the width is even
    ("core_aten_dynamic", packed_silu): ("a result of silu_and_mul", "mul"),
    ("post_grad_dynamic", grouped): ("a quant_fp8_group among its users", "rms_norm"),  # nor that 16 divides it
    ("core_aten_dynamic", grouped): ("a quant_fp8_group among its users", "rms_norm"),
    ("bare_make_fx", aten_norm): ("a result of rms_norm", "to"),  # C++ decomposes it there, and adds eps in place
}


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects(dialect: str, spelling: Spelling) -> None:
    done = rewrite_checked(DIALECTS[dialect](spelling))
    if (dialect, spelling) in STAYS:
        expected, found = STAYS[dialect, spelling]
        assert done.fired == {}
        assert [e for e in done.log.missed(SPELLINGS[spelling]) if e.expected == expected and found in e.found]
        return
    assert done.fired == {SPELLINGS[spelling]: 1}, done.log.report(SPELLINGS[spelling])


@pytest.mark.slow
@pytest.mark.parametrize("decompose", [False, True], ids=["training IR", "core aten"])
@pytest.mark.parametrize("kind", models.KINDS)
def test_exported_models(kind: str, decompose: bool) -> None:
    model = fp8_linear.quantize(models.make(kind), "token")
    gm = capture.export_graph(model, models.inputs(model), decompose)
    activation = {"phi3": "fused_silu_quant", "gemma3": "gelu_mul_fp8"}.get(kind, "silu_mul_fp8")
    assert rewrite_checked(gm).fired == {"rms_norm_fp8": 1, "add_rms_norm_fp8": 3, activation: 2}
