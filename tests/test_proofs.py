"""Proof on first use: what another package computes is used where it is shown to be the op."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import fxrewrite
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering import proofs

FP8 = torch.float8_e4m3fn
PACK = """pack prooflib level O1

op proof_quant(x: lowp[*B, D], s: f32[1]) -> (qx: e4m3fn[*B, D])
  = to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)
  form theirs  prooflib.{form}(x, s)
fusion proof_silu_quant(x, s) = silu(x) |> proof_quant(s)
  impl lib  prooflib.{impl}(x, s)
"""


def _quant(x: Tensor, s: Tensor) -> Tensor:
    return (x.float() / s).clamp(-448, 448).to(FP8)


def _quant_by_reciprocal(x: Tensor, s: Tensor) -> Tensor:
    """Equal on random numbers, another code on ties."""
    return (x.float() * (1 / s)).clamp(-448, 448).to(FP8)


def _silu(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide / (torch.exp(-wide) + 1)).to(x.dtype)


OPS: dict[str, Callable[..., Tensor]] = {
    "quant": _quant,
    "quant_by_reciprocal": _quant_by_reciprocal,
    "silu_quant": lambda x, s: _quant(_silu(x), s),
    "silu_quant_by_reciprocal": lambda x, s: _quant_by_reciprocal(_silu(x), s),
}


@pytest.fixture(scope="module", autouse=True)
def ops() -> Iterator[None]:
    lib = torch.library.Library("prooflib", "FRAGMENT")
    for name, function in OPS.items():
        lib.define(f"{name}(Tensor x, Tensor s) -> Tensor")
        lib.impl(name, function, "CPU")
        lib.impl(name, lambda x, s: torch.empty_like(x, dtype=FP8), "Meta")
    lib.define("only_fake(Tensor x, Tensor s) -> Tensor")
    lib.impl("only_fake", lambda x, s: torch.empty_like(x, dtype=FP8), "Meta")
    yield
    lib._destroy()


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(proofs.VARIABLE)
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path / "cache"))


def graph(quant: Callable[..., Tensor]) -> GraphModule:
    x, s = torch.randn(6, 32).bfloat16(), torch.tensor([0.03])
    return make_fx(lambda x, s: quant(torch.ops.aten.silu(x), s), tracing_mode="fake")(x, s)


def rewritten(quant: Callable[..., Tensor], form: str = "quant", impl: str = "silu_quant", **settings: Any) -> Any:
    """The log of the rewriting of a graph, and the graph."""
    file, diagnostics = parse(PACK.format(form=form, impl=impl), "prooflib.rw")
    assert not diagnostics
    settings = {"providers": ["lib"], **settings}
    with fxrewrite.record() as log:
        made = fxrewrite.rewrite(graph(quant), [file], **settings)
    return log, made


def test_a_right_provider_is_proved_and_used() -> None:
    log, made = rewritten(_quant)
    assert log.fired() == {"proof_silu_quant": 1}
    assert torch.ops.prooflib.silu_quant.default in {n.target for n in made.graph.nodes}


def test_a_provider_with_another_rounding_on_ties_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fxrewrite"):
        log, _ = rewritten(_quant, impl="silu_quant_by_reciprocal")
    (event,) = log.events
    assert (event.fired, event.reason) == (False, "not proved")
    assert "lib: its proof failed: qx[" in event.found
    assert "x f16[256, 128] strided" in event.found  # the case
    assert "proof_silu_quant/lib" in event.hint
    assert "--allow-unproved" in event.hint
    assert sum("is not used: its proof failed" in r.message for r in caplog.records) == 1
    log, _ = rewritten(_quant, impl="silu_quant_by_reciprocal", allow_unproved=True)
    assert log.fired() == {"proof_silu_quant": 1}
