"""Generated kernels: what can be generated, what is written, and each kernel against its definition through Triton's
interpreter, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fxrewrite_kernels import prelude
from fxrewrite_kernels.analyse import analyse, segments
from fxrewrite_kernels.emit import DEVICE, EXACT, emit
from fxrewrite_kernels.ir import Builder, Definition, Input, is_exact
from fxrewrite_kernels.schedule import Schedule, choose, class_of

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.lowering import codegen
from fxrewrite.lowering.generated import given
from generated_ops import PACKS, expressible, operands, required

pytest.importorskip("triton", reason="kernels need triton: pip install -e '.[triton]'")

GENERATED = {  # the fusions of the two packs
    *(
        f"{n}_{q}"
        for n in ("rms_norm", "add_rms_norm")
        for q in "fp8_static fp8 fp8_group int8 fp8_static_each".split()
    ),
    *(f"layer_norm_{q}" for q in "fp8_static fp8 fp8_group".split()),
    *(f"silu_mul_{q}" for q in "fp8_static fp8 fp8_group int8".split()),
    *(f"{n}_{q}" for n in ("gelu_mul", "swiglu_clamped") for q in "fp8_static fp8 fp8_group".split()),
    *"silu_and_mul_fp8_static silu_and_mul_fp8_group gelu_fp8_static gelu_fp8 fused_silu_quant".split(),
}


@pytest.fixture(scope="module")
def program() -> Program:
    return packs.load(PACKS)


def interpreted(*suites: str) -> dict[str, Any]:
    """The outcomes of suites of `interpreted_kernels.py`."""
    script = Path(__file__).with_name("interpreted_kernels.py")
    env = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, script, *suites], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def faults(outcomes: dict[str, Any]) -> dict[str, Any]:
    return {case: found for case, found in outcomes.items() if isinstance(found, str) or found[0]}


@pytest.mark.slow
def test_every_kernel_is_its_definition() -> None:
    """Three widths, 0 to 17 rows, three layouts: equal in every bit, or in all outputs of a row with its sum moved."""
    found = interpreted("sizes")
    assert set(found["names"]) >= GENERATED
    assert len(found["sizes"]) == 12 * len(GENERATED) + 6 * (len(found["names"]) - len(GENERATED))
    assert not faults(found["sizes"])
    assert sum(outcome[1] for outcome in found["sizes"].values()) <= 5  # rows that only a moved sum explains


@pytest.mark.slow
def test_attributes_schedules_hostile_rows_and_casts() -> None:
    """The casts that the interpreter does by hand: every code of E4M3, every midpoint and its neighbours."""
    found = interpreted("variants", "schedules", "hostile", "casts")
    assert all(len(found[suite]) >= len(GENERATED) for suite in ("variants", "schedules", "hostile"))
    assert not faults(found["variants"])
    assert not faults(found["schedules"])
    assert not faults(found["hostile"])
    assert found["casts"] == {"e4m3": 0, "bf16": 0}


# ---- what can be generated


def lowered(program: Program, name: str, width: int = 512, dtype: str = "bf16", **chosen: Any) -> Definition:
    op = program.ops[name]
    values = [given(v) for v in operands(op, dtype, width, 2)]
    return codegen.lower(program, name, values, required(op, **chosen)).definition


def test_the_fusions_of_both_packs(program: Program) -> None:
    fusions = [n for n, op in program.ops.items() if op.is_fusion]
    assert set(expressible(program, fusions)) == GENERATED


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("silu_mul_fp8_tensor", "amax over more than the columns of a row or group (patterns/vocab/quant.rw:"),
        ("silu_mul_nvfp4", "round_e2m1: 4-bit codes are not generated yet (patterns/vocab/quant.rw:"),
        ("silu_mul_mxfp8", "a cast to e8m0fnu (patterns/vocab/quant.rw:"),
    ],
)
def test_what_cannot_be_generated_is_named_with_its_place(program: Program, name: str, reason: str) -> None:
    op = program.ops[name]
    with pytest.raises(codegen.NotExpressible) as error:
        lowered(program, name)
    assert str(error.value).startswith(reason)
    assert error.value.span is not None and op.is_fusion


def test_widths_that_are_refused(program: Program) -> None:
    with pytest.raises(codegen.NotExpressible, match="at most 65536"):
        lowered(program, "silu", 65537)
    with pytest.raises(codegen.NotExpressible, match="groups of 8 columns"):
        lowered(program, "quant_fp8_group", 64, G=8)


def test_attributes_change_the_kernel(program: Program) -> None:
    """An attribute that changes roundings is never dropped on the way."""
    for attribute in ("wide", "late"):
        plain, other = (lowered(program, "add_rms_norm_fp8", dtype="bf16", **{attribute: v}) for v in (False, True))
        schedule = choose(plain, 1000)
        assert emit(plain, schedule, DEVICE).text != emit(other, schedule, DEVICE).text


# ---- IR and analysis


def test_equal_nodes_are_one() -> None:
    build = Builder()
    x = build.load(Input("x", "rows", "bf16", 64))
    assert build.to(x, "f32") is build.to(x, "f32")
    assert build.const(0.0) is not build.const(-0.0)
    with pytest.raises(TypeError, match="arithmetic is float32"):
        build.apply("add", x, x)


def test_a_lossless_rounding_is_not_computed() -> None:
    build = Builder()
    wide = build.to(build.load(Input("x", "rows", "bf16", 64)), "f32")
    size = build.apply("abs", wide)
    assert build.to(build.to(size, "bf16"), "f32") is size
    assert not is_exact(build.apply("add", wide, wide), "bf16")
    assert not is_exact(build.apply("max", wide, build.const(0.1)), "bf16")


def test_functions_of_one_value(program: Program) -> None:
    """silu is one, before its product; the product of two values is none; float16 has none."""
    assert len(segments(lowered(program, "silu_mul"))) == 1
    assert not segments(lowered(program, "silu_mul", wide=True))
    assert not segments(lowered(program, "silu_mul", dtype="f16"))
    assert not segments(lowered(program, "rms_norm"))


def test_products_that_feed_a_sum_are_rounded_alone(program: Program) -> None:
    definition = lowered(program, "layer_norm")
    text = emit(definition, choose(definition, 1000), DEVICE).text
    assert text.count("libdevice.mul_rn") == len(analyse(definition).fused) == 1


def test_approximate_instructions_stand_only_in_proved_functions(program: Program) -> None:
    definition = lowered(program, "silu_mul_fp8_static")
    schedule = choose(definition, 1000)
    assert "tl.exp(" in emit(definition, schedule, DEVICE).text
    exact = emit(definition, schedule, EXACT).text
    assert "tl.exp(" not in exact and "libdevice.exp(" in exact


# ---- schedules and source


@pytest.mark.parametrize("tokens", [1, 100, 1000, 10000])
@pytest.mark.parametrize("width", [1, 100, 2880, 4096, 8192, 14336, 16384, 20000, 65536])
def test_every_width_has_a_schedule(program: Program, width: int, tokens: int) -> None:
    for name in ("silu_mul_fp8_static", "add_rms_norm_fp8", "layer_norm_fp8"):
        definition = lowered(program, name, width)
        schedule = choose(definition, tokens)
        assert schedule.block & (schedule.block - 1) == 0 and schedule.warps & (schedule.warps - 1) == 0
        grid = schedule.grid(definition, tokens)
        assert grid[0] * schedule.rows >= tokens or schedule.per_sm
        compile(emit(definition, schedule, DEVICE).text, "kernel", "exec")


def test_the_table_of_the_device_is_used(program: Program) -> None:
    definition = lowered(program, "add_rms_norm_fp8", 8192)
    assert class_of(definition) == "norm2"
    assert choose(definition, 1) == Schedule("row", 4096, 16, hold=True)
    assert choose(definition, 9000) == Schedule("row", 8192, 16)


def test_a_kernel_carries_only_the_helpers_that_it_uses(program: Program) -> None:
    definition = lowered(program, "rms_norm")
    text = emit(definition, choose(definition, 16), DEVICE).text
    assert "_e4m3" not in text and "_by_row" not in text
    for name, source in prelude.DEVICE.items():
        assert f"def {name}(" in source
        for other in prelude.DEVICE:
            if other != name and f"{other}(" in source:
                assert list(prelude.DEVICE).index(other) < list(prelude.DEVICE).index(name)


def test_a_damaged_kernel_in_the_cache_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from fxrewrite_kernels import launch
    from fxrewrite_kernels.emit import Source

    monkeypatch.setattr(launch, "folder", lambda: tmp_path)
    text = "def kernel():\n    return 3\n"
    assert launch.load(Source(text, "kernel"))() == 3
    (path,) = tmp_path.iterdir()
    path.write_text("def kernel():\n    return 4\n")
    launch._module.cache_clear()
    assert launch.load(Source(text, "kernel"))() == 3
    assert path.read_text() == text
    assert "damaged" in caplog.text


# ---- as a provider


def test_a_cpu_says_why_nothing_is_generated(program: Program) -> None:
    from fxrewrite.lowering.generated import why_not

    op = program.ops["silu_mul_fp8_static"]
    reason = why_not(program, op, "cpu", operands(op, "bf16", 128, 2), required(op))
    assert reason == "kernels are generated for cuda, not for cpu"


def test_imports_nothing_of_fxrewrite() -> None:
    folder = Path(__file__).parents[1] / "kernels"
    for path in folder.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.startswith(("from fxrewrite.", "import fxrewrite.", "import fxrewrite\n")), (path, line)


def test_results_lie_in_their_layouts(program: Program) -> None:
    from fxrewrite_kernels.launch import Launcher

    from fxrewrite.lowering.layouts import strides

    for layout in ("row", "col", "tma"):
        launcher = Launcher(lowered(program, "quant_fp8_group", 512, L=layout))
        for tokens in (0, 1, 5):
            codes, scales = launcher.results(tokens, torch.device("cpu"))
            assert codes.shape == (tokens, 512) and scales.shape == (tokens, 4)
            assert scales.stride() == strides((tokens, 4), layout)


# ---- the command


def test_the_command_prints_source_and_schedule() -> None:
    from click.testing import CliRunner

    from fxrewrite.cli import cli

    ran = CliRunner().invoke(cli, ["kernel", "rms_norm_fp8", "--width", "8192", "--tokens", "16", "--set", "late=true"])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("# rms_norm_fp8, 8192 columns, 16 tokens: class norm1, kind row, block 8192")
    compile(ran.output, "kernel", "exec")
    ran = CliRunner().invoke(cli, ["kernel", "quant_mxfp4"])
    assert ran.exit_code == 1 and "no kernel for quant_mxfp4: a cast to e8m0fnu (patterns/vocab/quant.rw:" in ran.output
    ran = CliRunner().invoke(cli, ["kernel", "rms_norm", "--set", "esp=1"])
    assert ran.exit_code == 2 and "esp" in ran.output and "eps" in ran.output


def test_signatures_are_schemas(program: Program) -> None:
    """What `triton_op` infers from a signature is the schema of the op; it takes sizes that are symbols, too."""
    from torch._library.infer_schema import infer_schema

    from fxrewrite.lowering.schema import schema, signature

    for op in program.ops.values():

        def call(*args: Any) -> Any: ...

        call.__signature__ = signature(op)  # pyright: ignore[reportFunctionMemberAccess]
        inferred = torch._C.parse_schema("x::y" + infer_schema(call, mutates_args={}))
        assert str(inferred).replace("SymInt", "int") == str(torch._C.parse_schema("x::y" + schema(op, False)))


def test_opaque_op_in_the_interpreter() -> None:
    """The registered op: opcheck, leading axes, lists of results, layouts. In a process where Triton interprets."""
    assert interpreted("ops")["ops"] == {"opcheck": True, "equal": True, "layouts": True, "differ": "leading axes"}


def test_the_visible_op_is_traced_with_free_tokens(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake call with sizes that are symbols: the width becomes a number, tokens only fall into a bucket."""
    import fxrewrite_kernels.prove
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from fxrewrite.lowering.generated import op_for

    monkeypatch.setattr(fxrewrite_kernels.prove, "target_for", lambda definition, device: DEVICE)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x, w = (mode.from_tensor(torch.empty(s, dtype=torch.bfloat16), static_shapes=False) for s in ((16, 4096), (4096,)))
    with mode:
        y = op_for(program, "rms_norm", visible=True)(x, w, 1e-6)
    assert isinstance(y.shape[0], torch.SymInt) and y.shape[1] == 4096
    guards = {str(g.expr) for g in env.guards if "4096" not in str(g.expr)}
    assert len(guards) == 1 and guards.pop().endswith("<= 16")
