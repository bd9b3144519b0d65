"""Generated kernels on a GPU: against their definitions, in compiled models, and as ops of torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.gpu

FEW = (
    "silu_mul_fp8_static",
    "silu_mul_fp8",
    "add_rms_norm_fp8_group",
    "layer_norm_fp8",
    "swiglu_clamped_fp8",
    "rms_norm_int8",
)
ROUNDINGS = [{}, {"late": True}, {"wide": True}, {"recip": True}, {"L": "tma", "ue8m0": True}]


@pytest.fixture(scope="module")
def program() -> Any:
    from fxrewrite.dsl import packs
    from generated_ops import PACKS

    return packs.load(PACKS)


@pytest.mark.parametrize("chosen", ROUNDINGS, ids=str)
@pytest.mark.parametrize("name", FEW)
def test_kernel_is_the_definition(program: Any, name: str, chosen: dict[str, Any]) -> None:
    from generated_ops import check

    if all(program.ops[name].attribute(a) is None for a in chosen) and chosen:
        pytest.skip("the op has no such attribute")
    for width, rows in ((128, 3), (2880 // 64 * 64, 17), (4096, 130), (20096, 5)):
        group = {"G": 64} if "G" not in chosen else {}
        outcome = check(program, name, "bf16", width, rows, "cuda", "strided", **group, **chosen)
        assert outcome.unexplained == 0, (width, rows, outcome)


@pytest.mark.parametrize("name", ["silu", "gelu", "swiglu_clamped"])
def test_functions_of_one_value_are_proved(program: Any, name: str) -> None:
    """Approximate instructions are equal to exact ones on all 65,536 values."""
    from fxrewrite_kernels.analyse import segments
    from fxrewrite_kernels.prove import alone, differing

    from fxrewrite.lowering.codegen import lower
    from fxrewrite.lowering.generated import given
    from generated_ops import operands, required

    op = program.ops[name]
    lowered = lower(program, name, [given(x) for x in operands(op, "bf16", 128, 2)], required(op))
    found = segments(lowered.definition)
    assert found
    assert [differing(alone(s), torch.device("cuda")) for s in found] == [0] * len(found)


def test_a_function_that_is_not_equal_fails_its_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """x / (0.3 + x) with an approximation that is made wrong: the proof fails, and the exact kernel is taken."""
    from fxrewrite_kernels import prelude, prove
    from fxrewrite_kernels.emit import EXACT
    from fxrewrite_kernels.ir import Builder, Input, Output, define_kernel

    build, source = Builder(), Input("x", "rows", "bf16", 1024)
    wide = build.to(build.load(source), "f32")
    below = build.apply("add", build.apply("exp", wide), build.const(1.0))
    made = define_kernel("odd", [source], [Output("y", build.to(build.apply("div", wide, below), "bf16"))], 1024)
    monkeypatch.setattr(prove, "folder", lambda: tmp_path)
    assert prove.target_for(made, torch.device("cuda")).approximate
    monkeypatch.setitem(prelude.DEVICE, "_rcp", prelude.RCP.replace("[b]", "[b * 1.001]"))
    assert prove.target_for(made, torch.device("cuda")) == EXACT


@pytest.mark.parametrize("visible", [False, True], ids=["opaque", "visible"])
def test_ops_of_torch(program: Any, visible: bool) -> None:
    from fxrewrite.lowering.generated import op_for
    from fxrewrite.lowering.library import op_for as by_definition

    x = torch.randn(33, 512, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
    op = op_for(program, "rms_norm", visible)
    torch.library.opcheck(op, (x, w, 1e-6))
    silu = op_for(program, "silu_and_mul", visible)
    assert torch.equal(silu(x), by_definition(program, "silu_and_mul")(x))
    y = silu(x.view(3, 11, 512).requires_grad_())
    y.float().sum().backward()


@pytest.mark.parametrize("visible", [False, True], ids=["opaque", "visible"])
def test_one_compiled_function_serves_all_sizes(program: Any, visible: bool) -> None:
    from fxrewrite.lowering.generated import op_for

    op = op_for(program, "rms_norm", visible)
    w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: op(x * 2, w, 1e-6) + 1, dynamic=True)
    for rows in (2, 17, 200, 2000):
        x = torch.randn(rows, 512, device="cuda", dtype=torch.bfloat16)
        assert torch.equal(compiled(x), op(x * 2, w, 1e-6) + 1)


def test_compiled_model() -> None:
    """`torch.compile(model, backend="fxrewrite")` with nothing said runs generated kernels."""
    import fp8_linear
    import fxrewrite
    import models

    model = fp8_linear.quantize(models.make("llama", 2, 256), "token")
    args = tuple(x.cuda() for x in models.inputs(model))
    model = model.cuda()
    torch._dynamo.reset()
    with torch.no_grad():
        plain = torch.compile(model)(*args)
        torch._dynamo.reset()
        with fxrewrite.record() as log:
            fused = torch.compile(model, backend=fxrewrite.backend(strict=True))(*args)
        eager = model(*args)
    assert log.fired()["add_rms_norm_fp8"] == 3 or log.cached
    error = [(out.float() - eager.float()).pow(2).mean().sqrt() for out in (plain, fused)]
    assert error[1] <= 1.1 * error[0] + 1e-3


def test_more_elements_than_32_bits_count(program: Any) -> None:
    """61,681 rows of 34,816 columns: 2.1e9 elements. The last rows are right."""
    from fxrewrite.lowering.generated import op_for
    from fxrewrite.lowering.library import op_for as by_definition
    from generated_ops import bits

    rows, width = 61_700, 34_816
    if torch.cuda.mem_get_info()[0] < 12e9:
        pytest.skip("needs 12 GB of free memory")
    x = torch.zeros(rows, width, device="cuda", dtype=torch.bfloat16)
    x[-3:] = torch.randn(3, width, device="cuda")
    s = torch.tensor([0.02], device="cuda")
    found = op_for(program, "silu_and_mul_fp8_static")(x, s)
    wanted = by_definition(program, "silu_and_mul_fp8_static")(x[-3:], s)
    assert torch.equal(bits(found[-3:]), bits(wanted))
    assert not math.isnan(found[0].float().sum().item())
