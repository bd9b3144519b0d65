"""`fxrewrite.ops`: shipped ops as functions."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fxrewrite import ops
from fxrewrite.dsl import packs

E4M3 = torch.float8_e4m3fn
X, W = torch.randn(4, 128).bfloat16(), torch.randn(128).bfloat16()


def codes(x: Tensor) -> Tensor:
    return x.view(torch.uint8)


# ---- meaning: the definitions written out in torch


def test_the_op_of_the_front_page() -> None:
    gate, up = X.chunk(2, -1)
    g = gate.float()
    y = (g / (torch.exp(-g) + 1)).bfloat16() * up
    scale = (y.abs().amax(-1, keepdim=True).float() / 448.0).clamp_min(4.359654017857143e-6)
    qx, sx = ops.fused_silu_quant(X)
    assert torch.equal(sx, scale)
    assert torch.equal(codes(qx), codes((y.float() / scale).clamp(-448.0, 448.0).to(E4M3)))


def test_a_norm_and_a_quant() -> None:
    x = X.float()
    n = (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)).bfloat16() * W
    bound = torch.tensor([0.5])
    scale = (n.abs().amax(-1, keepdim=True).float().minimum(bound) / 448.0).clamp_min(1e-3)
    qx, sx = ops.rms_norm_fp8(X, W, bound, eps=1e-5, smin=1e-3, recip=True)
    assert torch.equal(sx, scale)
    assert torch.equal(codes(qx), codes((n.float() * scale.reciprocal()).clamp(-448.0, 448.0).to(E4M3)))


def test_an_optional_operand_may_be_left_out_or_none() -> None:
    for found, expected in zip(ops.rms_norm_fp8(X, W, eps=1e-6), ops.rms_norm_fp8(X, W, None, eps=1e-6)):
        assert torch.equal(found.float(), expected.float())
    assert ops.rms_norm(X, None, eps=1e-6).dtype == torch.bfloat16


def test_a_list_operand_gives_a_list() -> None:
    scales = [torch.tensor([0.1]), torch.tensor([0.2])]
    quantized = ops.rms_norm_fp8_static_each(X, W, scales, eps=1e-6)
    for q, s in zip(quantized, scales):
        assert torch.equal(codes(q), codes(ops.rms_norm_fp8_static(X, W, s, eps=1e-6)))


def test_an_int_fits_a_float_and_a_0d_tensor_too() -> None:
    expected = ops.rms_norm(X, W, eps=1.0)
    assert torch.equal(ops.rms_norm(X, W, eps=1), expected)
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(ops.rms_norm(X, W, eps=torch.tensor(1.0, dtype=dtype)), expected)


def test_a_dtype_is_torchs() -> None:
    assert ops.quant_fp8(X, qt=torch.float8_e4m3fnuz)[0].dtype == torch.float8_e4m3fnuz


# ---- arguments that do not fit


@pytest.mark.parametrize(
    ("call", "kind", "reason"),
    [
        (lambda: ops.fused_silu_quan(X), AttributeError, "no op `fused_silu_quan`; did you mean `fused_silu_quant`?"),
        (lambda: ops.rms_norm(X, W), TypeError, "rms_norm needs the attribute `eps`: write `eps=...`"),
        (lambda: ops.rms_norm(X, W, esp=1e-6), TypeError, "rms_norm has no attribute `esp`; did you mean `eps`?"),
        (lambda: ops.silu(X, wide=True), TypeError, "silu has no attribute `wide`; it has none"),
        (lambda: ops.rms_norm(X, W, 1e-6), TypeError, "takes 2 operands (x, w), not 3; attributes go by name"),
        (lambda: ops.rms_norm(X, eps=1e-6), TypeError, "takes 2 operands (x, w); `w` is missing (None for none)"),
        (lambda: ops.rms_norm(X, w=W, eps=1e-6), TypeError, "`w` of rms_norm is an operand: operands go by position"),
        (lambda: ops.rms_norm(X, W, eps="1"), TypeError, "`eps` of rms_norm is of type float, not '1'"),
        (lambda: ops.rms_norm(X, W, eps=True), TypeError, "`eps` of rms_norm is of type float, not True"),
        (lambda: ops.rms_norm(X, W, eps=torch.ones(2)), TypeError, "`eps` of rms_norm is a number or a 0-d tensor"),
        (lambda: ops.rms_norm(X, W, eps=1e-6, vs=0.5), TypeError, "`vs` of rms_norm is of type int, not 0.5"),
        (lambda: ops.quant_fp8(X, recip=1), TypeError, "`recip` of quant_fp8 is of type bool, not 1"),
        (lambda: ops.quant_fp8(X, qt="e4m3fn"), TypeError, "`qt` of quant_fp8 is of type dtype, not 'e4m3fn'"),
        (lambda: ops.silu(3), TypeError, "`x` of silu is a tensor, not int"),
        (lambda: ops.rms_norm_fp8_static_each(X, W, W, eps=1), TypeError, "`s` of rms_norm_fp8_static_each is a list"),
        (lambda: ops.quant_fp8(X, qt=torch.float8_e5m2), ValueError, "is one of torch.float8_e4m3fn, torch.float8_e4"),
        (lambda: ops.gelu(X, approximate="tan"), ValueError, "`approximate` of gelu is one of none, tanh; not tan"),
        (lambda: ops.silu(X.float()), ValueError, "`x` of silu is lowp (bf16, f16), not f32"),
        (lambda: ops.silu_and_mul(X[:, 1:]), ValueError, "has 127 elements, which is not 2*D for any D"),
        (lambda: ops.quant_fp8_group(X, G=100), ValueError, "requires D%G == 0; here D = 128, G = 100"),
        (lambda: ops.quant_fp8(X, W[:1].float(), narrow=True), ValueError, "requires not narrow or ub == none"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind) as error:
        call()
    assert reason in str(error.value)


# ---- how it looks to a reader


def test_signature_and_documentation() -> None:
    signature = inspect.signature(ops.rms_norm_fp8)
    assert list(signature.parameters)[:4] == ["x", "w", "ub", "eps"]
    assert signature.parameters["ub"].default is None
    assert signature.parameters["eps"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["qt"].default is E4M3
    assert "fusion rms_norm_fp8(x, w, ub) = rms_norm(x, w) |> quant_fp8(ub)" in (ops.rms_norm_fp8.__doc__ or "")
    assert "The op of the front page" in (ops.fused_silu_quant.__doc__ or "")
    assert "Returns qx: qt[*B, D], sx: f32[*B, 1]." in (ops.rms_norm_fp8.__doc__ or "")


def test_dir_lists_every_shipped_op_and_each_can_be_had() -> None:
    shipped = packs.load(["norm_quant", "act_quant"]).ops
    assert shipped.keys() <= set(dir(ops))
    assert all(callable(getattr(ops, name)) for name in shipped)
    assert ops.silu is ops.silu


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, fxrewrite, fxrewrite.dsl.evaluate; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# ---- compilers


def block(x: Tensor, w: Tensor, eps: Any = 1e-6) -> Tensor:
    q, s = ops.rms_norm_fp8(x, w, eps=eps)
    return q.float() * s


@pytest.mark.parametrize("eps", [1e-6, torch.tensor(1e-6)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_dynamo_traces_it_whole(dynamic: bool, eps: Any) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(block, backend=keep, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(X, W, eps), block(X, W, eps))
    assert torch.equal(compiled(X[:3], W, eps), block(X[:3], W, eps))
    overload = "dyn" if isinstance(eps, Tensor) else "default"
    assert str(getattr(torch.ops.fxrewrite.rms_norm_fp8, overload)) in graphs[0].code


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_compiles_it(dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(X, W), block(X, W))
    torch._dynamo.reset()


def test_a_wrong_argument_is_named_under_dynamo() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="which is not 2\\*D for any D"):
        torch.compile(lambda x: ops.silu_and_mul(x), backend="eager", fullgraph=True)(X[:, 1:])
    with pytest.raises(Exception, match="silu_and_mul has no attribute `wid`"):
        torch.compile(lambda x: ops.silu_and_mul(x, wid=True), backend="eager", fullgraph=True)(X)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_keeps_it_one_op(mode: Any) -> None:
    graph = make_fx(lambda x, w: block(x, w), tracing_mode=mode)(X, W)
    assert torch.ops.fxrewrite.rms_norm_fp8.default in [n.target for n in graph.graph.nodes]
    assert torch.equal(graph(X, W), block(X, W))


# ---- gradients


def test_the_gradient_is_that_of_eager_torch() -> None:
    """Of the definition written out, through the codes (torch differentiates a cast to FP8) and through the scale."""

    def written_out(x: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = x[..., :64], x[..., 64:]
        g = gate.float()
        y = (g / (torch.exp(-g) + 1)).bfloat16() * up
        s = torch.clamp(y.abs().amax(-1, keepdim=True).float() / 448.0, 4.359654017857143e-6)
        return torch.clamp(y.float() / s, -448.0, 448.0).to(E4M3), s

    def gradient(f: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        x = X.clone().requires_grad_()
        q, s = f(x)
        (q.float() * s).square().sum().backward()
        assert x.grad is not None
        return x.grad

    assert torch.equal(gradient(ops.fused_silu_quant), gradient(written_out))


def test_the_gradient_under_dynamo() -> None:
    def gradient(f: Callable[..., Tensor]) -> Tensor:
        x = X.clone().requires_grad_()
        f(x).float().square().sum().backward()
        assert x.grad is not None
        return x.grad

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ops.silu_and_mul(x), backend="aot_eager", fullgraph=True)
    assert torch.equal(gradient(compiled), gradient(ops.silu_and_mul))
