"""The engine on graphs of a GPU: the same counts, the same bits, and code that Inductor compiles. And the verifier on
what runs there."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fxrewrite

pytestmark = pytest.mark.gpu
LAYERS = 2
PACKS = ("noop", "norm_quant", "act_quant")


def _on_gpu(kind: str, quant: str):
    import fp8_linear
    import models

    model = fp8_linear.quantize(models.make(kind, LAYERS, 256), quant)
    args = tuple(x.cuda() for x in models.inputs(model))
    return model.cuda(), args


COUNTS = {
    ("llama", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "silu_mul_fp8": LAYERS},
    ("phi3", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "fused_silu_quant": LAYERS},
    ("qwen3", "static"): {  # moving a model to a GPU gives each linear a scale of its own
        "rms_norm_fp8_static_each": 1, "add_rms_norm_fp8_static_each": 2 * LAYERS - 1, "silu_mul_fp8_static": LAYERS,
    },
    ("gemma3", "token"): {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, "gelu_mul_fp8": LAYERS},
}  # fmt: skip


class Divides(TorchDispatchMode):
    """Eager torch multiplies by the reciprocal of a number on a GPU; definitions divide, as Inductor does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.div.Tensor and not isinstance(args[1], torch.Tensor):
            args = args[0], torch.full((), args[1], dtype=args[0].dtype, device=args[0].device)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "quant"), COUNTS)
def test_counts_and_bits(kind: str, quant: str) -> None:
    """Rewritten and not, op by op on the GPU: equal bit for bit, and the rules fire as often as on a CPU."""
    import capture

    model, args = _on_gpu(kind, quant)
    graph = capture.post_grad_graphs(model, args)[0]
    with Divides():
        before = capture.run(copy.deepcopy(graph))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(graph, PACKS, providers=["op"], strict=True)
    with Divides():
        after = capture.run(graph)
    fired = {rule: n for rule, n in log.fired().items() if rule in COUNTS[kind, quant] or "fp8" in rule}
    assert fired == COUNTS[kind, quant]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


def test_compiled_whole() -> None:
    """`torch.compile` with the rules in it runs on the GPU and is as near to float32 as without them."""
    model, args = _on_gpu("llama", "token")
    torch._dynamo.reset()
    with torch.no_grad():
        plain = torch.compile(model)(*args)
        torch._dynamo.reset()
        with fxrewrite.record() as log:
            fused = torch.compile(model, backend=fxrewrite.backend(providers=["op"], strict=True))(*args)
        eager = model(*args)
    assert log.fired()["add_rms_norm_fp8"] == 2 * LAYERS - 1 or log.cached
    error = [(out.float() - eager.float()).pow(2).mean().sqrt() for out in (plain, fused)]
    assert error[1] <= 1.1 * error[0] + 1e-3


def test_defaults_generate_kernels() -> None:
    """With the default providers the sites get generated kernels: as many as there are."""
    import capture

    model, args = _on_gpu("llama", "token")
    graph = capture.post_grad_graphs(model, args)[0]
    with fxrewrite.record() as log:
        fxrewrite.rewrite(graph, PACKS)
    assert log.fired()["add_rms_norm_fp8"] == COUNTS["llama", "token"]["add_rms_norm_fp8"]
    assert {e.by for e in log.events if e.fired and "fp8" in e.rule} == {"generated"}


# ---- verify --device cuda

GPU_RULES = """pack on_gpu level O1

op gpu_codes(x: lowp[*B, D], s: f32[1]) -> e4m3fn[*B, D]
  = to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)

rule gpu_by_reciprocal(x: lowp[*B, D], s: f32[1]):
  to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)
  => to(clamp(f32(x) * reciprocal(s), -448.0, 448.0), e4m3fn)
"""


@pytest.fixture
def gpu_rules(files_here: Callable[[dict[str, str]], Path]) -> Path:
    return files_here({"on_gpu.rw": GPU_RULES})


def _findings(packs: tuple[str, ...], *only: str):
    from fxrewrite.verify.runner import Plan, finding, make_checks

    return [finding(c) for c in make_checks(Plan(packs, only=only, device="cuda")).listed]


@pytest.mark.parametrize("pack", ["noop", "act_quant", "norm_quant"])
def test_no_definition_is_called_wrong(pack: str) -> None:
    """Right sides and forms, op by op on the GPU, are what the definitions admit."""
    found = _findings((pack,), f"{pack}.")
    assert [f for f in found if f.outcome == "failed"] == []
    assert sum(f.outcome == "passed" for f in found) > len(found) / 2


def test_a_wrong_rule_is_found_and_its_script_runs_there(gpu_rules: Path) -> None:
    from click.testing import CliRunner

    from fxrewrite.cli import cli

    told = CliRunner().invoke(cli, ["verify", "on_gpu.rw", "--device", "cuda", "--jobs", "1", "--json"])
    (wrong,) = [f for f in json.loads(told.stdout)["findings"] if f["outcome"] == "failed"]
    assert wrong["code"] == "RW601"
    alone = subprocess.run([sys.executable, wrong["script"]], capture_output=True, text=True, check=False)
    assert "AssertionError: out[" in alone.stderr


@pytest.fixture
def gpu_kernel() -> Iterator[SimpleNamespace]:
    """The kernel of `gpu_codes`: what `default` is set to."""
    import fxrewrite_kernels

    target = SimpleNamespace(default=None)
    fxrewrite_kernels.register("gpu_codes", "cuda", target)
    yield target
    fxrewrite_kernels.unregister("gpu_codes", "cuda")


def test_a_right_triton_kernel_passes(gpu_rules: Path, gpu_kernel: SimpleNamespace) -> None:
    gpu_kernel.default = pytest.importorskip("triton_kernels", reason="needs triton", exc_type=ImportError).codes
    (found,) = _findings(("on_gpu.rw",), "gpu_codes/kernel")
    assert (found.outcome, found.reason) == ("passed", "")


@pytest.mark.parametrize("fault", [{"divide": False}, {"narrow": True}, {"strided": False}], ids=str)
def test_a_wrong_triton_kernel_fails(gpu_rules: Path, gpu_kernel: SimpleNamespace, fault: dict[str, bool]) -> None:
    codes = pytest.importorskip("triton_kernels", reason="needs triton", exc_type=ImportError).codes
    gpu_kernel.default = lambda x, s: codes(x, s, **fault)
    (found,) = _findings(("on_gpu.rw",), "gpu_codes/kernel")
    assert (found.outcome, found.code) == ("failed", "RW602")


def test_a_kernel_that_breaks_the_device_fails_and_what_follows_is_not_run(gpu_rules: Path) -> None:
    """In a process of its own: nothing runs on the GPU in it afterwards."""
    program = """
import torch, fxrewrite_kernels
from types import SimpleNamespace
from fxrewrite.verify.runner import Plan, finding, make_checks

def far(x, s):
    return torch.zeros(4, device=x.device)[torch.full((1,), 1 << 40, device=x.device)].to(torch.float8_e4m3fn)

fxrewrite_kernels.register("gpu_codes", "cuda", SimpleNamespace(default=far))
checks = make_checks(Plan(("on_gpu.rw",), only=("codes/kernel", "by_reciprocal"), device="cuda"))
for check in sorted(checks.listed, key=lambda c: "kernel" not in c.name):
    print(check.name, finding(check).outcome)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lines = [line for line in ran.stdout.splitlines() if "/generated" not in line]
    assert lines == ["gpu_codes/kernel:equal failed", "on_gpu.gpu_by_reciprocal:equal not run"], ran.stderr[-2000:]
