"""vLLM's CPU build against what the vocabulary claims of it, and against what it is: `make test-vllm`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fxrewrite.verify.findings import Finding
from fxrewrite.verify.runner import Plan, begin

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM's CPU build: make test-vllm"),
]
MODULES = ("vllm._custom_ops", "vllm.ir.ops")
CLAIMED = {  # docs/providers.md says why
    "rms_norm/ir": "passed",
    "add_rms_norm/ir": "passed",
    "add_rms_norm/inplace": "passed",
    "silu_and_mul/custom": "failed",
    "gelu_and_mul/erf": "failed",
    "gelu_and_mul/tanh": "failed",
    "rms_norm/custom": "failed",
    "add_rms_norm/custom": "failed",
    "quant_int8/custom": "failed",
    "rope/custom": "failed",
    "rope_q/custom": "failed",
    "quant_fp8/custom": "not run",
}
CLAIMED_MEMORY = {
    "silu_and_mul/memory(_C.silu_and_mul)": {"passed"},
    "gelu_and_mul/memory(_C.gelu_and_mul)": {"passed"},
    "rms_norm/memory(vllm_ir.rms_norm)": {"passed"},
    "rms_norm/memory(_C.rms_norm)": {"failed"},
    "add_rms_norm/memory(vllm_ir.fused_add_rms_norm)": {"passed"},
    "add_rms_norm/memory(vllm_ir.fused_add_rms_norm.maybe_inplace)": {"passed"},
    "add_rms_norm/memory(_C.fused_add_rms_norm)": {"failed"},
    "quant_int8/memory(_C.dynamic_scaled_int8_quant)": {"passed"},
}
# f16: where a CPU has AVX512-BF16, some kernels write bf16 below the normal numbers as zero
IS = """pack vllm_on_a_cpu level O1

op cpu_gelu_and_mul(x: f16[*B, 2*D]) -> f16[*B, D]
  = to(t * 0.5 * (erf(t * 0.7071067811865476) + 1) * f32(u), x.dtype)
  where (g, u) = halves(x), t = f32(g)
  form cpu  _C.gelu_and_mul(out, x)   when contiguous(x)

op cpu_rms_norm(x: lowp[*B, D], w: real[D]?; eps: float) -> (y: lowp[*B, D])
  = rms_norm(x, w, late=true)
  form cpu  _C.rms_norm(out y, x, w, eps)   when same_dtype(w, x), contiguous(x), contiguous(w)
  form cpu_weightless  _C.rms_norm(out y, x, w, eps)   when w == none, contiguous(x)

op cpu_add_rms_norm(x: f16[*B, D], r: f16[*B, D]; eps: float) -> (y: f16[*B, D], h: f16[*B, D])
  = to(f32(h) * rsqrt(mean(t * t, -1, keepdim=true) + eps), x.dtype), h
  where t = f32(x) + f32(r), h = to(t, x.dtype)
  form cpu  _C.fused_add_rms_norm(mut x as y, mut r as h, none, eps)   when contiguous(x), contiguous(r)
"""


def _found(plan: Plan) -> dict[str, Finding]:
    return {f"{f.subject}" + (f" {f.provider}" if f.provider else ""): f for f in begin(plan, jobs=2).findings}


def test_what_the_vocabulary_claims() -> None:
    """A claim of the vocabulary that this build refutes is not used with it: it has no proof here."""
    only = (*CLAIMED, *CLAIMED_MEMORY)
    found = _found(Plan((), only=only, vocabulary=True, modules=MODULES))
    assert {n: found[n].outcome for n in CLAIMED} == CLAIMED
    for name, wanted in CLAIMED_MEMORY.items():
        assert {f.outcome for n, f in found.items() if n.startswith(name)} == wanted, name
    assert "at most 0 argument(s)" in found["quant_fp8/custom"].reason


def test_what_its_kernels_are(tmp_path: Path) -> None:
    (tmp_path / "is.rw").write_text(IS)
    found = _found(Plan((str(tmp_path / "is.rw"),), only=("/cpu",), modules=MODULES))
    wrong = {n: f"{f.outcome}: {f.reason}" for n, f in found.items() if f.outcome != "passed"}
    assert wrong == {}
    assert len(found) == 4
