"""What is missing or broken: one rule or one site is off, with a line that says why and where; the model runs."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fxrewrite
from capture import make_fx_graph, run
from fxrewrite.lowering import emit, engine, providers
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.failures import RuleFailure
from fxrewrite.patterns.views import Sweep
from graph_checks import PACKS, assert_same, rewrite_checked, rewrite_pass
from spelled_ops import QUANTS, rms

token, group = QUANTS["token min"][0], QUANTS["group 16"][0]
OPERANDS = (torch.randn(4, 8, 64).bfloat16(), torch.randn(4, 8, 64).bfloat16(), torch.randn(64).bfloat16())


def norm(x: Tensor, r: Tensor, w: Tensor) -> Any:
    return token(rms(x, w), x)


def norm_and_activation(x: Tensor, r: Tensor, w: Tensor) -> Any:
    return (*token(rms(x, w), x), *token(torch.nn.functional.silu(x) * r, x))


def soft(strict: bool = False, **settings: Any) -> Any:
    return make_pass(make_config(PACKS, **{"providers": ["op"], **settings}, strict=strict))


def check_left_alone(caplog: pytest.LogCaptureFixture, word: str, fn: Any = norm) -> None:
    """Nothing fires, the graph computes what it did, and one line says why."""
    gm = make_fx_graph(fn, OPERANDS)
    before = run(gm)
    with caplog.at_level(logging.WARNING, "fxrewrite"), fxrewrite.record() as log:
        soft()(gm.graph)
    gm.graph.lint()
    gm.recompile()
    assert_same(before, run(gm))
    assert not log.fired()
    lines = [r.getMessage() for r in caplog.records if r.name == "fxrewrite"]
    assert lines
    assert len({line.split(" ")[0] for line in lines}) == len(lines), "each rule once"
    assert all("boom" in line and "\n" not in line for line in lines)
    assert word in lines[0]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


# ---- what raises


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (emit.Emitter, "outputs"),
        (emit, "result_types"),
        (providers.Providers, "choose"),
        (engine, "fire"),
    ],
)
def test_a_rule_that_raises_is_off_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: Any, name: str
) -> None:
    monkeypatch.setattr(where, name, raising(ZeroDivisionError("boom\nand more")))

    def two(x: Tensor, r: Tensor, w: Tensor) -> Any:
        return (*token(rms(x, w), x), *token(rms(r, w), x))

    check_left_alone(caplog, "norm_quant.rms_norm_fp8 (patterns/norm_quant.rw:", two)
    assert "ZeroDivisionError: boom" in caplog.text
    with pytest.raises(RuleFailure, match=r"norm_quant\.rms_norm_fp8"):
        soft(strict=True)(make_fx_graph(norm, OPERANDS).graph)


def test_a_rule_that_raises_does_not_stop_another(monkeypatch: pytest.MonkeyPatch) -> None:
    original = emit.Emitter.outputs

    def fail_for_norms(self: Any) -> Any:
        if "norm" in self.plan.found.rule.name:
            raise ZeroDivisionError
        return original(self)

    monkeypatch.setattr(emit.Emitter, "outputs", fail_for_norms)
    gm = make_fx_graph(norm_and_activation, OPERANDS)
    done = rewrite_checked(gm, soft())
    assert done.fired == {"silu_mul_fp8": 1}
    (failed,) = [e for e in done.log.missed("rms_norm_fp8") if e.reason == "rule failed"]
    assert "ZeroDivisionError" in failed.found
    assert failed.span is not None


def test_a_fake_kernel_that_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(emit.Emitter, "fake", raising(RuntimeError("boom: no meta kernel")))
    check_left_alone(caplog, "no meta kernel")


@pytest.mark.parametrize("stage", ["read", "match_rules"])
def test_a_matcher_that_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stage: str) -> None:
    monkeypatch.setattr(Sweep, stage, raising(KeyError("boom")))
    check_left_alone(caplog, "boom")
    with pytest.raises(KeyError):
        soft(strict=True)(make_fx_graph(norm, OPERANDS).graph)


@pytest.mark.slow
def test_the_model_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit.Emitter, "outputs", raising(ZeroDivisionError("boom")))
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(norm, backend=fxrewrite.backend(PACKS, providers=["op"]))(*OPERANDS)
    torch._dynamo.reset()
    assert [t.shape for t in compiled] == [t.shape for t in norm(*OPERANDS)]


# ---- what is not there

GONE = """pack gone level O1 flag gone
{item}
"""


def pack_with(tmp_path: Path, item: str) -> Any:
    path = tmp_path / "gone.rw"
    path.write_text(GONE.format(item=item))
    return make_pass(make_config([path, *PACKS], providers=["op"]))


def test_a_rule_on_an_op_that_this_build_does_not_have(tmp_path: Path) -> None:
    pass_ = pack_with(
        tmp_path,
        "op twice(x: lowp[*B, D]) -> lowp[*B, D]\n  = x + x\n  form gone  nobody_s.twice(x)\n"
        "  property elementwise(x)\nfusion twice_fp8(x) = twice(x) |> quant_fp8",
    )
    assert [(off.name, off.reason) for off in pass_.engine.library.off if "gone" in off.name] == [
        ("twice.gone", "missing op")
    ]
    doubled = make_fx_graph(lambda x, r, w: token(x + x, x), OPERANDS)
    assert rewrite_checked(doubled, pass_).fired == {"twice_fp8": 1}
    done = rewrite_checked(make_fx_graph(norm, OPERANDS), pass_)
    assert done.fired == {"rms_norm_fp8": 1}


@pytest.mark.slow
def test_the_fp8_types_are_absent() -> None:
    """A build of torch without e4m3fnuz and e8m0fnu: what needs neither works."""
    code = """
import torch
from torch._inductor import decomposition, pattern_matcher
gone = {name: torch.__dict__.pop(name) for name in ("float8_e4m3fnuz", "float8_e8m0fnu")}
import sys
sys.path[:0] = [TESTS]
from test_bad_input import OPERANDS, norm
from capture import make_fx_graph
from graph_checks import rewrite_checked, rewrite_pass
rewrite_pass()
vars(torch).update(gone)  # Inductor itself asks for them when it runs
assert rewrite_checked(make_fx_graph(norm, OPERANDS)).fired == {"rms_norm_fp8": 1}
"""
    here = repr(str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code.replace("TESTS", here)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_package_of_kernels_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == "fxrewrite_kernels":
                raise RuntimeError("no driver")

    monkeypatch.delitem(sys.modules, "fxrewrite_kernels", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    providers._kernels.cache_clear()
    with caplog.at_level(logging.WARNING, "fxrewrite"):
        done = rewrite_checked(make_fx_graph(norm_and_activation, OPERANDS), soft(providers=["kernel", "op"]))
    providers._kernels.cache_clear()
    assert done.fired == {"rms_norm_fp8": 1, "silu_mul_fp8": 1}
    assert [r.getMessage() for r in caplog.records if r.name == "fxrewrite"] == [
        "the provider `kernel` is off: RuntimeError: no driver"
    ]


def test_an_impl_that_this_build_does_not_have() -> None:
    done = rewrite_checked(make_fx_graph(norm, OPERANDS), soft(providers=["vllm"]))
    assert done.fired == {}
    (event,) = done.log.missed("rms_norm_fp8")
    assert event.reason == "provider missing"
    assert "vllm" in event.found


def test_the_default_on_a_cpu_keeps_the_site() -> None:
    done = rewrite_checked(make_fx_graph(norm, OPERANDS), make_pass(make_config(PACKS)))
    assert done.fired == {}
    assert [e.reason for e in done.log.missed("rms_norm_fp8")] == ["kept: no faster provider here"]


# ---- what does not fit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dtype_that_no_rule_takes(dtype: torch.dtype) -> None:
    done = rewrite_checked(make_fx_graph(norm, [t.to(dtype) for t in OPERANDS]))
    assert done.fired == {}


def test_a_width_that_the_rule_does_not_take() -> None:
    def fn(x: Tensor, r: Tensor, w: Tensor) -> Any:
        return group(rms(x, w), x)[0].view(4, 8, -1)[..., :40]  # groups of 16 in 64: fits, and the part of it is a user

    assert rewrite_checked(make_fx_graph(fn, OPERANDS)).fired == {"rms_norm_fp8_group": 1}


def test_a_write_between_is_said() -> None:
    def fn(x: Tensor, r: Tensor, w: Tensor) -> Any:
        x = x * 1
        n = rms(x, w)
        x.add_(1)
        return (*token(n, x), x)

    done = rewrite_checked(make_fx_graph(fn, OPERANDS))
    assert done.fired == {}
    (event,) = [e for e in done.log.missed("rms_norm_fp8") if e.reason == "mutation between"]
    assert "add_" in event.found


def test_a_graph_without_metadata_is_refused_with_a_line() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(ValueError, match="has no meta"):
        fxrewrite.rewrite(gm, PACKS)


def test_strict_is_quiet_where_nothing_is_wrong() -> None:
    assert rewrite_checked(make_fx_graph(norm, OPERANDS), rewrite_pass(strict=True)).fired == {"rms_norm_fp8": 1}
