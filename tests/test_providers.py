"""Providers: an `impl` of the user's own stands where its text says and nowhere else; elsewhere the reason is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import capture
import fxrewrite
from fxrewrite import ops
from fxrewrite.dsl.core import Dtype
from fxrewrite.dsl.evaluate import Buffer
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.engine import fake_mode
from fxrewrite.lowering.impls import Nodes, NotServed, as_written
from fxrewrite.lowering.providers import candidates, unknown_names
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.values import Table, dims_of
from fxrewrite.patterns.writers import INDUCTOR

FP8 = torch.float8_e4m3fn
HOP = torch.ops.higher_order.auto_functionalized
KEPT = "kept: no faster provider here"

SMIN = 1e-12


def norm(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return ops.rms_norm_fp8(x, w, eps=eps, smin=SMIN)


def norm_out(q: Tensor, x: Tensor, w: Tensor, s: Tensor, eps: float) -> None:
    fill(norm(x, w, eps), q, s)


def norm_some(x: Tensor, w: Tensor, spare: Tensor | None, s: Tensor, *, eps: float) -> Tensor:
    q, scale = norm(x, w, eps)
    s.copy_(scale)
    return q


def add_norm(q: Tensor, x: Tensor, r: Tensor, w: Tensor, s: Tensor, eps: float) -> None:
    fill(ops.add_rms_norm_fp8(x, r, w, eps=eps, smin=SMIN), q, s, r)


def norm_wide(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return ops.rms_norm(x, w, eps=eps), norm(x, w, eps)[1]


def each(x: Tensor, w: Tensor, s: list[Tensor], eps: float) -> list[Tensor]:
    return ops.rms_norm_fp8_static_each(x, w, s, eps=eps)


def fill(values: Sequence[Tensor], *buffers: Tensor) -> None:
    for value, buffer in zip(values, buffers, strict=True):
        buffer.copy_(value)


OPS: dict[str, Callable[..., Any]] = {
    "norm(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)": norm,
    "norm_out(Tensor(a!) q, Tensor x, Tensor w, Tensor(b!) s, float eps) -> ()": norm_out,
    "norm_some(Tensor x, Tensor w, Tensor(a!)? spare, Tensor(b!) s, *, float eps) -> Tensor": norm_some,
    "add_norm(Tensor(a!) q, Tensor x, Tensor(b!) r, Tensor w, Tensor(c!) s, float eps) -> ()": add_norm,
    "norm_wide(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)": norm_wide,
    "norm_bare(Tensor x, Tensor w, float eps) -> (Tensor, Tensor)": norm,
    "each(Tensor x, Tensor w, Tensor[] s, float eps) -> Tensor[]": each,
}
FAKES: dict[str, Callable[..., Any]] = {
    "norm": lambda x, w, eps: (torch.empty_like(x, dtype=FP8), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)),
    "norm_out": lambda *a: None,
    "norm_some": lambda x, *a, **k: torch.empty_like(x, dtype=FP8),
    "add_norm": lambda *a: None,
    "norm_wide": lambda x, w, eps: (torch.empty_like(x), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)),
    "each": lambda x, w, s, eps: [torch.empty_like(x, dtype=FP8) for _ in s],
}  # norm_bare has none


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    lib = torch.library.Library("provided", "FRAGMENT")
    for schema, function in OPS.items():
        name = schema.split("(")[0]
        lib.define(schema)
        lib.impl(name, function, "CPU")
        if name in FAKES:
            torch.library.register_fake(f"provided::{name}", FAKES[name], lib=lib)
    yield
    lib._destroy()


# ---- graphs


def rms(x: Tensor, w: Tensor) -> Tensor:
    t = x.float()
    return (t * torch.rsqrt((t * t).mean(-1, keepdim=True) + 1e-6)).to(w.dtype) * w


def quant(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=SMIN)
    return (x.float() / scale).clamp(-448, 448).to(FP8), scale


def norm_quant(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return quant(rms(x, w).to(x.dtype))


def add_norm_quant(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    h = x + r
    return *quant(rms(h, w)), h


def norm_each(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    y = rms(x, w).float()
    return (y / a).clamp(-448, 448).to(FP8), (y / b).clamp(-448, 448).to(FP8)


def inputs(width: int = 64, weight: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 5, width).bfloat16(), torch.rand(width).to(weight) + 0.5


class Rewritten:
    """A function traced, rewritten with a text of impls, and run."""

    def __init__(
        self,
        function: Any,
        args: Any,
        text: str,
        tmp_path: Path,
        providers: Any,
        packs: str = "default",
        **settings: Any,
    ):
        path = tmp_path / "mine.rw"
        path.write_text(text)
        gm = capture.make_fx_graph(function, args)
        before = capture.run(gm)
        copies = [a.clone() for a in args]
        with fxrewrite.record() as log:
            fxrewrite.rewrite(gm, [packs, str(path)], providers=providers, **settings)
        after = capture.run(gm)
        self.gm, self.log = gm, log
        self.fired = {e.rule: e.by for e in log.events if e.fired}
        self.targets = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        assert len(before) == len(after)
        for a, b in zip(before, after, strict=True):
            assert (
                a.dtype == b.dtype
                and a.stride() == b.stride()
                and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            )
        for a, b in zip(args, copies, strict=True):
            assert torch.equal(a, b), "an input was overwritten"

    def missed(self, rule: str) -> list[tuple[str, str]]:
        return [(e.reason, e.found) for e in self.log.missed(rule)]


MINE = "impl rms_norm_fp8.mine(smin=1e-12)  "


# ---- what is written


def test_functional_op_with_two_results(tmp_path: Path) -> None:
    r = Rewritten(
        norm_quant,
        inputs(),
        MINE + "provided.norm(x, w, eps) when D % 16 == 0, same_dtype(w, x)\n",
        tmp_path,
        ["mine", "op"],
    )
    assert r.fired == {"rms_norm_fp8": "mine"}
    (node,) = [n for n in r.gm.graph.nodes if n.target is torch.ops.provided.norm.default]
    assert "eager_input_vals" in node.meta and node.meta["fxrewrite"]["rule"] == "norm_quant.rms_norm_fp8"


@pytest.mark.parametrize(
    "call",
    [
        "provided.norm_out(out qx, x, w, out sx, eps)",
        "provided.norm_out(q=out qx, x=x, w=w, s=out sx, eps=eps)",
        "provided.norm_out(out qx, x, w, eps=eps, s=out sx)",
    ],
)
def test_buffers_that_the_call_fills(call: str, tmp_path: Path) -> None:
    r = Rewritten(norm_quant, inputs(), f"{MINE} {call}\n", tmp_path, ["mine"])
    assert r.fired == {"rms_norm_fp8": "mine"} and HOP in r.targets


def test_returned_and_written_with_an_empty_slot_between(tmp_path: Path) -> None:
    r = Rewritten(norm_quant, inputs(), MINE + "provided.norm_some(x, w, none, out sx, eps=eps)\n", tmp_path, ["mine"])
    assert r.fired == {"rms_norm_fp8": "mine"}


@pytest.mark.parametrize(
    "call", ["out qx, x, mut r as h, w, out sx, eps", "q=out qx, s=out sx, x=x, w=w, r=mut r as h, eps=eps"]
)
def test_an_operand_that_the_call_overwrites(call: str, tmp_path: Path) -> None:
    x, w = inputs()
    text = f"impl add_rms_norm_fp8.mine(smin=1e-12)  provided.add_norm({call})\n"
    r = Rewritten(add_norm_quant, (x, torch.randn_like(x), w), text, tmp_path, ["mine"])
    assert r.fired == {"add_rms_norm_fp8": "mine"} and HOP in r.targets


@pytest.mark.parametrize("layout", ["row", "col", "tma"])
@pytest.mark.parametrize("fixed", [True, False])
def test_buffers_have_the_strides_of_their_layout(layout: str, fixed: bool) -> None:
    gm = make_fx(lambda x: x.relu(), tracing_mode="fake" if fixed else "symbolic")(torch.zeros(6, 2))
    x = rows = next(n for n in gm.graph.nodes if n.op == "placeholder")
    if not fixed:
        rows = gm.graph.create_node("placeholder", "rows")
        rows.meta["val"] = x.meta["val"].shape[0]
    table = Table()
    for node in gm.graph.nodes:
        read_node(table, node)
    editor = Editor(gm.graph, table, INDUCTOR, fake_mode(gm.graph), cursor=rows)
    buffer = Buffer(Dtype("f32"), (*dims_of(x.meta["val"])[:1], 2), layout, 0)
    if layout == "tma" and not fixed:
        with pytest.raises(NotServed, match="fixed sizes"):
            Nodes(editor, x).buffer(buffer)
        return
    val = Nodes(editor, x).buffer(buffer).meta["val"]
    assert tuple(map(int, val.shape)) == (6, 2)
    assert tuple(map(int, val.stride())) == {"row": (2, 1), "col": (1, 6), "tma": (1, 8)}[layout]


def test_a_list_of_results(tmp_path: Path) -> None:
    x, w = inputs()
    text = "impl rms_norm_fp8_static_each.mine  = *qx where qx = provided.each(x, w, [*s], eps).0\n"
    r = Rewritten(norm_each, (x, w, torch.tensor([0.02]), torch.tensor([0.03])), text, tmp_path, ["mine"])
    assert r.fired == {"rms_norm_fp8_static_each": "mine"}, r.log.report()


def test_a_spelling_in_other_ops(tmp_path: Path) -> None:
    r = Rewritten(
        norm_quant,
        inputs(),
        MINE + " = quant_fp8(n, smin=1e-12) where n = rms_norm(x, w, eps=eps)\n",
        tmp_path,
        ["mine"],
    )
    assert r.fired == {"rms_norm_fp8": "mine"} and torch.ops.fxrewrite.rms_norm_fp8.default not in r.targets


def test_an_optional_operand_that_the_right_side_leaves_out(tmp_path: Path) -> None:
    """`ub` of the fusion is `none`, said by saying nothing."""
    text = "use norm_quant (rms_norm_fp8)\nrule short: rms_norm(x, w) |> quant_fp8 => rms_norm_fp8(x, w)\n"
    assert Rewritten(norm_quant, inputs(), text, tmp_path, ["op"], packs="noop").fired == {"short": "op"}


# ---- what is refused, and the reason


@pytest.mark.parametrize(
    ("text", "args", "reason"),
    [
        ("provided.norm(x, w, eps) when D % 16 == 0", inputs(24), "D = 24"),
        ("provided.norm(x, w, eps) when same_dtype(w, x)", inputs(weight=torch.float32), "is false"),
        ("provided.norm(x, w, eps) when sm >= 89", inputs(), "sm >= 89"),
        ("provided.norm_wide(x, w, eps)", inputs(), "its result `qx` is bf16[2, 5, 64], not e4m3fn[2, 5, 64]"),
        ("provided.norm_bare(x, w, eps)", inputs(), "norm_bare"),
        ("provided.nothing(x, w, eps)", inputs(), "provided.nothing is not in this build"),
        ("contract relaxed 1 codes  provided.norm(x, w, eps)", inputs(), "its contract is relaxed"),
    ],
)
def test_refused_with_a_reason(text: str, args: Any, reason: str, tmp_path: Path) -> None:
    alone = Rewritten(norm_quant, args, f"{MINE} {text}\n", tmp_path, ["mine"])
    assert alone.fired == {}
    ((why, found),) = alone.missed("norm_quant.rms_norm_fp8")
    assert why == "provider missing" and reason in found
    assert Rewritten(norm_quant, args, f"{MINE} {text}\n", tmp_path, ["mine", "op"]).fired == {"rms_norm_fp8": "op"}
    kept = Rewritten(norm_quant, args, f"{MINE} {text}\n", tmp_path, ["mine", "definition"])
    assert [(why, reason in found) for why, found in kept.missed("norm_quant.rms_norm_fp8")] == [(KEPT, True)]


def test_an_attribute_that_it_does_not_mention_is_at_its_default(tmp_path: Path) -> None:
    text = "impl rms_norm_fp8.mine  provided.norm(x, w, eps)\n"  # it says nothing of smin, which is 1e-12 in the graph
    r = Rewritten(norm_quant, inputs(), text, tmp_path, ["mine"])
    ((why, found),) = r.missed("norm_quant.rms_norm_fp8")
    assert (why, found) == ("provider missing", "mine: it serves smin = 4.359654017857143e-06 only")


def test_relaxed_only_where_it_is_allowed(tmp_path: Path) -> None:
    text = MINE + "contract relaxed 1 codes  provided.norm(x, w, eps)\n"
    assert Rewritten(norm_quant, inputs(), text, tmp_path, ["mine"], allow_relaxed=True).fired == {
        "rms_norm_fp8": "mine"
    }


def test_a_rule_whose_impl_is_refused_is_not_broken(tmp_path: Path) -> None:
    def two(x: Tensor, w: Tensor, v: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return *norm_quant(x, w), *norm_quant(v, z)

    text = MINE + "provided.norm(x, w, eps) when D % 16 == 0\n"
    r = Rewritten(two, (*inputs(24), *inputs(64)), text, tmp_path, ["mine"])
    assert r.fired == {"rms_norm_fp8": "mine"} and len(r.missed("norm_quant.rms_norm_fp8")) == 1


def test_names_that_no_op_has() -> None:
    program = load_program(make_config())
    (line,) = unknown_names(program, ["kernel", "vlm", "op"])
    assert "'vlm'" in line and "vllm" in line


def test_candidates_without_a_site() -> None:
    file, _ = parse("impl rms_norm_fp8.absent(recip=_)  nowhere.norm_quant(x, w, out qx, out sx, eps)\n", "absent.rw")
    program = load_program(make_config(["default", file]))
    found = {c.name: c for c in candidates(program.ops["rms_norm_fp8"], "cpu")}
    assert found["op"].on and not found["kernel"].on and not found["absent"].on
    assert "not in this build" in found["absent"].reason


def test_a_number_as_it_was_written() -> None:
    assert as_written(torch.tensor(1e-6).item()) == 1e-6
    assert as_written(0.1) == 0.1 and as_written(448.0) == 448.0
    assert as_written(1 / 3) == 1 / 3


# ---- compiled


class Block(torch.nn.Module):
    """Residual add, norm, quant; eps is an attribute of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(64).bfloat16() + 0.5, requires_grad=False)
        self.eps = 1e-6

    def forward(self, x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        h = x + r
        t = h.float()
        y = (t * torch.rsqrt((t * t).mean(-1, keepdim=True) + self.eps)).bfloat16() * self.w
        return *quant(y), h


def compiled(tmp_path: Path, dynamic: bool) -> fxrewrite.Log:
    """`Block` in generated code with a mutable op: no input changes, and every result is that of the op run alone."""
    path = tmp_path / "mine.rw"
    path.write_text(
        "impl add_rms_norm_fp8.mine(smin=1e-12)  provided.add_norm(out qx, x, mut r as h, w, out sx, eps)\n"
    )
    torch.manual_seed(0)
    model, x, r = Block(), torch.randn(6, 64).bfloat16(), torch.randn(6, 64).bfloat16()
    kept = r.clone()
    torch._dynamo.reset()
    with torch.no_grad(), fxrewrite.record() as log:
        backend = fxrewrite.backend(["default", str(path)], providers=["mine", "op"])
        got = torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=True)(x, r)
    want = ops.add_rms_norm_fp8(x, r, model.w, eps=1e-6, smin=SMIN)
    assert torch.equal(r, kept)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    return log


@pytest.mark.slow
def test_compiled_whole(tmp_path: Path) -> None:
    log = compiled(tmp_path, dynamic=False)
    assert {e.rule: e.by for e in log.events if e.fired} == {"add_rms_norm_fp8": "mine"}, log.report()


@pytest.mark.slow
def test_compiled_whole_where_eps_is_an_input_of_the_graph(tmp_path: Path) -> None:
    """An op that takes a float cannot be given a tensor: the next provider has the site."""
    log = compiled(tmp_path, dynamic=True)
    assert {e.rule: e.by for e in log.events if e.fired} == {"add_rms_norm_fp8": "op"}, log.report()
    with torch._dynamo.config.patch(specialize_float=True):
        log = compiled(tmp_path, dynamic=True)
    assert {e.rule: e.by for e in log.events if e.fired} == {"add_rms_norm_fp8": "mine"}, log.report()


def test_a_number_of_the_graph_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def with_eps(x: Tensor, w: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        t = x.float()
        return quant((t * torch.rsqrt((t * t).mean(-1, keepdim=True) + eps)).bfloat16() * w)

    args = (*inputs(), torch.tensor(1e-6, dtype=torch.float64))
    r = Rewritten(with_eps, args, MINE + "provided.norm(x, w, eps)\n", tmp_path, ["mine"])
    (event,) = r.log.missed("norm_quant.rms_norm_fp8")
    assert event.reason == "provider missing" and "`eps` of provided.norm is a float" in event.found
    assert "specialize_float = True" in event.hint


WITHOUT_KERNELS = """
import sys
sys.modules["fxrewrite_kernels"] = None
import torch, fxrewrite
from fxrewrite.lowering import generated, providers
from torch.fx.experimental.proxy_tensor import make_fx
graph = make_fx(lambda x: torch.nn.functional.silu(x[:, :8]) * x[:, 8:], tracing_mode="fake")(torch.ones(2, 16))
fxrewrite.rewrite(graph, providers=["kernel", "generated", "definition"], strict=True)
print(providers.registered_kernels(), generated.unavailable("cpu"))
"""


@pytest.mark.slow
def test_graphs_are_rewritten_where_the_package_of_kernels_is_not_installed() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNELS], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "[] fxrewrite_kernels is not installed"), ran.stderr
