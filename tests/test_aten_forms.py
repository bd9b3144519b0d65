"""Every form of the vocabulary on an aten op against what tracers make of the module that people write.

A form stands for the op as exports and traces hold it: with the arguments that they fill in (`cudnn_enable=False`),
that they leave out, and after their own decompositions, where the definition must then match instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor, nn
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.patterns.forms import Library, MissingOp, torch_op
from fxrewrite.patterns.views import Sweep
from fxrewrite.patterns.writes import writes

aten = torch.ops.aten
F32_EPS = torch.finfo(torch.float32).eps


# ---- what people write


@frozen(eq=False)
class Written:
    """A function, its arguments, and the attributes of the op that it is; None where it is another function."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    attributes: dict[str, Any] | None


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


X, W, B = randn(2, 3, 64), randn(64), randn(64)
WIDE, BIAS = randn(32, 64), randn(32)
Q, K, MASK = randn(1, 4, 8, 16), randn(1, 2, 8, 16), randn(8, 8)
CODES, COLUMNS = randn(16, 64).to(torch.float8_e4m3fn), randn(32, 64).to(torch.float8_e4m3fn).t()
ONE, ROW, COLUMN = torch.tensor([0.5]), torch.rand(16, 1), torch.rand(1, 32)
BF16 = torch.bfloat16


def sdpa(**kwargs: Any) -> Callable[..., Tensor]:
    return lambda q, k, v, mask=None: F.scaled_dot_product_attention(q, k, v, mask, **kwargs)


def scaled_mm(**kwargs: Any) -> Callable[..., Tensor]:
    return lambda a, b, s, t, bias=None: torch._scaled_mm(a, b, s, t, bias=bias, out_dtype=BF16, **kwargs)


def late(eps: float) -> dict[str, Any]:
    return {"eps": eps, "late": True, "vs": None}


SILU = [
    Written("silu", F.silu, (X,), {}),
    Written("SiLU", nn.SiLU(), (X,), {}),
    Written("float32", F.silu, (X.float(),), None),
]
GELU = [
    Written("gelu", F.gelu, (X,), {"approximate": "none"}),
    Written("tanh", lambda x: F.gelu(x, approximate="tanh"), (X,), {"approximate": "tanh"}),
    Written("GELU", nn.GELU("tanh"), (X.half(),), {"approximate": "tanh"}),
]
RMS_NORM = [
    Written("rms_norm", lambda x, w: F.rms_norm(x, [64], w, 1e-6), (X, W), late(1e-6)),
    Written("no weight", lambda x: F.rms_norm(x, [64], None, 1e-6), (X,), {"eps": 1e-6, "vs": None}),
    Written("eps of the dtype", lambda x, w: F.rms_norm(x, [64], w), (X, W), late(F32_EPS)),
    Written("no weight, eps of the dtype", lambda x: F.rms_norm(x, [64]), (X,), {"eps": F32_EPS}),
    Written("RMSNorm", nn.RMSNorm(64, eps=1e-5, dtype=BF16), (X,), late(1e-5)),
    Written("two axes", lambda x: F.rms_norm(x, [3, 64], None, 1e-6), (X,), None),
]
FUSED_RMS_NORM = [
    Written("fused", lambda x, w: aten._fused_rms_norm(x, [64], w, 1e-6)[0], (X, W), late(1e-6)),
    Written("fused, eps of the dtype", lambda x, w: aten._fused_rms_norm(x, [64], w, None)[0], (X, W), late(F32_EPS)),
]
LAYER_NORM = [
    Written("layer_norm", lambda x, w, b: F.layer_norm(x, [64], w, b, 1e-6), (X, W, B), {"eps": 1e-6}),
    Written("default eps", lambda x, w, b: F.layer_norm(x, [64], w, b), (X, W, B), {"eps": 1e-5}),
    Written("no bias", lambda x, w: F.layer_norm(x, [64], w), (X, W), {"eps": 1e-5}),
    Written("no weight", lambda x: F.layer_norm(x, [64]), (X,), {"eps": 1e-5}),
    Written("LayerNorm", nn.LayerNorm(64, eps=1e-6, dtype=torch.float16), (X.half(),), {"eps": 1e-6}),
    Written("no cudnn", lambda x, w, b: torch.layer_norm(x, [64], w, b, 1e-6, False), (X, W, B), {"eps": 1e-6}),
    Written("two axes", lambda x: F.layer_norm(x, [3, 64]), (X,), None),
]
LINEAR = [
    Written("linear", F.linear, (X, WIDE), {}),
    Written("bias", F.linear, (X, WIDE, BIAS), {}),
    Written("two axes", F.linear, (X[0], WIDE, BIAS), {}),
    Written("Linear", nn.Linear(64, 32, dtype=BF16), (X,), {}),
]
SCALED_MM = [
    Written("one scale", scaled_mm(), (CODES, COLUMNS, ONE, ONE), {"dt": BF16, "fast": False}),
    Written("scales of rows", scaled_mm(), (CODES, COLUMNS, ROW, COLUMN), {"dt": BF16, "fast": False}),
    Written("bias", scaled_mm(), (CODES, COLUMNS, ONE, ONE, BIAS), {"dt": BF16, "fast": False}),
    Written("fast", scaled_mm(use_fast_accum=True), (CODES, COLUMNS, ONE, ONE), {"dt": BF16, "fast": True}),
]
ATTENTION = [
    Written("sdpa", sdpa(), (Q, Q, Q), {"causal": False, "scale": None}),
    Written("causal", sdpa(is_causal=True), (Q, Q, Q), {"causal": True, "scale": None}),
    Written("scale", sdpa(scale=0.5), (Q, Q, Q), {"causal": False, "scale": 0.5}),
    Written("mask", sdpa(), (Q, Q, Q, MASK), {"causal": False, "scale": None}),
    Written("dropout", sdpa(dropout_p=0.25), (Q, Q, Q), None),
]
GROUPED = [Written("grouped", sdpa(enable_gqa=True), (Q, K, K), {"causal": False, "scale": None})]


def flash(q: Tensor, p: float = 0.0) -> Tensor:
    return aten._scaled_dot_product_flash_attention(q, q, q, p, True, False, scale=0.5)[0]


def efficient(q: Tensor, m: Tensor) -> Tensor:
    return aten._scaled_dot_product_efficient_attention(q, q, q, m, False, 0.0, False)[0]


FLASH = [
    Written("flash", flash, (Q,), {"causal": True, "scale": 0.5}),
    Written("flash with dropout", lambda q: flash(q, 0.5), (Q,), None),
]
EFFICIENT = [
    Written("efficient", efficient, (Q, MASK[None, None].repeat(1, 4, 1, 1)), {"causal": False, "scale": None})
]

CASES: dict[str, list[Written]] = {
    "silu.aten": SILU,
    "gelu.aten": GELU,
    "rms_norm.composite": RMS_NORM,
    "rms_norm.composite_default": RMS_NORM,
    "rms_norm.aten": FUSED_RMS_NORM,
    "rms_norm.aten_default": FUSED_RMS_NORM,
    "layer_norm.aten": LAYER_NORM,
    "layer_norm.composite": LAYER_NORM,
    "linear.linear": LINEAR,
    "scaled_mm.aten": SCALED_MM,
    "attention.sdpa": ATTENTION,
    "attention.grouped": GROUPED,
    "attention.cpu": ATTENTION,
    "attention.flash": FLASH,
    "attention.efficient": EFFICIENT,
}


# ---- what tracers make of it


class Module(nn.Module):
    def __init__(self, fn: Callable[..., Any]):
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


@cache
def exported(written: Written) -> Any:
    with torch.no_grad():
        return torch.export.export(Module(written.fn), written.args)


@cache
def traced(written: Written, pre_dispatch: bool = False) -> GraphModule:
    """A trace on fake tensors, without decompositions; parameters of a module are constants of it."""
    with torch.no_grad():
        make = make_fx(
            lambda *args: written.fn(*args), tracing_mode="fake", pre_dispatch=pre_dispatch, _allow_non_fake_inputs=True
        )
        return make(*written.args)


TRACERS: dict[str, Callable[[Written], GraphModule]] = {
    "training IR": lambda written: exported(written).graph_module,
    "export": lambda written: exported(written).run_decompositions({}).graph_module,
    "Inductor": lambda written: exported(written).run_decompositions(select_decomp_table()).graph_module,
    "make_fx": traced,
    "make_fx before dispatch": lambda written: traced(written, pre_dispatch=True),
}
WRITES = {"rms_norm"}  # ops whose own decomposition writes to a value of it, which `make_fx` leaves in the graph


# ---- what is recognised


@cache
def library() -> Library:
    return make_pass(make_config([])).engine.library


def views(gm: GraphModule, op: str) -> list[dict[str, Any]]:
    """The attributes of every view as `op` on what the graph returns, or on a part of it."""
    sweep = Sweep(library())
    sweep.read(gm.graph)
    returned = [sweep.table.of_node[n] for n in gm.graph.output_node().all_input_nodes]
    found = [view for v in returned for view, i in sweep.views_of(v, op) if i == 0]
    return [{a.name: x for a, x in zip(v.op.attributes, v.args[len(v.op.operands) :])} for v in found]


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() >= wanted.keys() and all(_equal(found[n], x) for n, x in wanted.items())


def _equal(a: Any, b: Any) -> bool:
    floats = isinstance(a, float) and isinstance(b, float)
    return math.isclose(a, b, rel_tol=1e-6) if floats else a == b


def forms() -> Iterator[tuple[str, str]]:
    """Form and aten op of every form that is one call of such an op."""
    for op in library().program.ops.values():
        for form in op.forms:
            call = form.torch_call
            if call is not None and call.op.startswith("aten."):
                yield f"{op.name}.{form.name}", call.op


FORMS = dict(forms())


def test_every_form_on_an_aten_op_is_tried() -> None:
    assert FORMS.keys() <= CASES.keys()
    assert {"silu.aten", "gelu.aten", "rms_norm.composite", "rms_norm.aten"} <= FORMS.keys()
    assert [o for o in library().off if o.name in FORMS] == []


def tried() -> Iterator[Any]:
    done: set[tuple[str, str]] = set()
    for form in FORMS:
        op = form.partition(".")[0]
        for written in CASES.get(form, ()):
            if (op, written.name) not in done:
                done.add((op, written.name))
                yield pytest.param(op, written, id=f"{op}-{written.name}")


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize(("op", "written"), tried())
def test_what_is_written_is_recognised(op: str, written: Written, tracer: str) -> None:
    gm = TRACERS[tracer](written)
    found = views(gm, op)
    if tracer == "make_fx" and op in WRITES and any(writes(n) for n in gm.graph.nodes):
        return
    if written.attributes is None:
        assert found == [], gm.graph
    else:
        assert any(same(f, written.attributes) for f in found), f"{found}\n{gm.graph}"


def test_a_mask_of_truths_is_not_added() -> None:
    written = Written("bool mask", sdpa(), (Q, Q, Q, MASK > 0), None)
    assert views(TRACERS["training IR"](written), "attention") == []


@pytest.mark.parametrize("form", FORMS)
def test_the_op_of_a_form_is_what_some_tracer_makes(form: str) -> None:
    made = {
        str(n.target).rpartition(".")[0]
        for written in CASES.get(form, ())
        for tracer in ("training IR", "make_fx", "make_fx before dispatch")
        for n in TRACERS[tracer](written).graph.nodes
    }
    assert FORMS[form] in made


def test_a_name_without_overload() -> None:
    assert torch_op("aten.silu") is aten.silu.default
    assert torch_op("aten.softmax") is aten.softmax.int  # it has no default
    assert torch_op("aten.div.Tensor") is aten.div.Tensor
    for name in ("aten.bitwise_and", "aten.sillu", "aten.silu.nothing", "nothing.f"):
        with pytest.raises(MissingOp):
            torch_op(name)
