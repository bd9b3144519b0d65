"""Verification on a device. `cpu:0` is the CPU under another name: operands are moved, and results brought back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import fxrewrite_kernels
import pytest
import torch
from click.testing import CliRunner, Result

from fxrewrite.cli import cli
from fxrewrite.verify.device import brought_back, placed_on
from fxrewrite.verify.layouts import LAYOUTS, placed
from fxrewrite.verify.runner import Plan, finding, make_checks

pytest_plugins = ["pytester"]
RULES = """pack placed level O1

op placed_codes(x: lowp[*B, D], s: f32[1]) -> e4m3fn[*B, D]
  = to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)

fusion placed_twice(x) = silu(x) |> gelu
rule placed_by_reciprocal(x: lowp[*B, D], s: f32[1]):
  to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)
  => to(clamp(f32(x) * reciprocal(s), -448.0, 448.0), e4m3fn)
"""


@pytest.fixture
def rules(files_here: Callable[[dict[str, str]], Path]) -> Path:
    return files_here({"placed.rw": RULES})


def verify(*args: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "--jobs", "1", *args], catch_exceptions=False)


# ---- moving


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", ["meta", "cpu:0"])
def test_layouts_are_kept(layout: str, dtype: torch.dtype, device: str) -> None:
    x = placed(torch.randn(4, 6).to(dtype), layout)
    y = placed_on([x], device)[0]
    assert (y.shape, y.stride(), y.storage_offset(), y.dtype) == (x.shape, x.stride(), x.storage_offset(), x.dtype)
    assert y.untyped_storage().nbytes() == x.untyped_storage().nbytes()
    assert y.device.type == device.partition(":")[0]
    if device != "meta":
        assert torch.equal(brought_back([y])[0].float(), x.float())


def test_what_is_one_tensor_stays_one_and_what_shares_memory_still_does() -> None:
    parent = torch.arange(12.0)
    x, tail = parent.view(3, 4), parent[4:]
    a, (b, c), d = placed_on([x, [x, tail], None], "meta")
    assert a is b and d is None
    assert c.untyped_storage()._cdata == a.untyped_storage()._cdata and c.storage_offset() == 4


# ---- the command


@pytest.mark.parametrize("device", ["bogus", "meta", "cuda:99"])
def test_a_device_that_is_not_here_is_two_lines(rules: Path, device: str) -> None:
    result = verify("placed.rw", "--device", device)
    assert result.exit_code == 2
    code, hint = result.output.splitlines()
    assert code.startswith("error[RW611]: ") and device.partition(":")[0] in code
    assert hint.startswith("  hint: this machine has cpu")


def test_a_module_that_cannot_be_imported_is_named(rules: Path) -> None:
    result = verify("placed.rw", "--import", "no_such_module_at_all")
    assert (result.exit_code, "cannot import no_such_module_at_all" in result.output) == (2, True)


def test_a_wrong_rule_fails_there_and_its_script_runs_there(rules: Path) -> None:
    result = verify("placed.rw", "--device", "cpu:0", "--json", "--import", "json")
    told = {(f["subject"], f["check"]): f for f in json.loads(result.output)["findings"]}
    assert set(told) == {("placed.placed_twice", "equal"), ("placed.placed_by_reciprocal", "equal")}
    assert told["placed.placed_twice", "equal"]["outcome"] == "passed"  # two computations of one definition
    wrong = told["placed.placed_by_reciprocal", "equal"]
    assert (wrong["outcome"], wrong["code"]) == ("failed", "RW601")
    script = (rules / wrong["script"]).read_text()
    assert "device='cpu:0'" in script and "\nimport json\n" in script
    alone = subprocess.run([sys.executable, wrong["script"]], capture_output=True, text=True, check=False)
    assert "AssertionError: out[" in alone.stderr
    assert "still fails" in verify("placed.rw", "--replay", wrong["script"]).output
    elsewhere = rules / "elsewhere.py"
    elsewhere.write_text(script.replace('"device": "cpu:0"', '"device": "cuda:99"'))
    assert "there is no device `cuda:99` here" in verify("placed.rw", "--replay", str(elsewhere)).output


def test_pytest_takes_a_device(pytester: pytest.Pytester) -> None:
    pytester.makefile(".rw", placed=RULES)
    ran = pytester.runpytest_inprocess("--fxrewrite-device", "cpu:0", "-k", "placed_twice")
    ran.assert_outcomes(passed=1, deselected=1)
    ran = pytester.runpytest_inprocess("--fxrewrite-device", "bogus")
    ran.stdout.fnmatch_lines(["*RW611*no device is called `bogus`*"])


@pytest.mark.parametrize("name", ["norm_quant.rms_norm_fp8_tensor", "norm_quant.norm_fans_out"])
def test_a_definition_is_what_it_gives_op_by_op(name: str) -> None:
    """Squares that overflow in f32 and not in f64, products by a reciprocal that fall on ties."""
    checks = make_checks(Plan(("norm_quant",), only=(f"{name}:equal",), device="cpu:0"))
    assert [finding(c).outcome for c in checks.listed] == ["passed"]


# ---- hand-written kernels


@pytest.fixture
def kernel() -> Iterator[SimpleNamespace]:
    """The kernel of `placed_codes`: what `default` is set to."""
    target = SimpleNamespace(default=None)
    fxrewrite_kernels.register("placed_codes", "cpu", target)
    yield target
    fxrewrite_kernels.unregister("placed_codes", "cpu")


def _codes(x: torch.Tensor, s: torch.Tensor, divide: bool = True, strided: bool = True) -> torch.Tensor:
    x = x if strided else x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset())
    y = x.float() / s if divide else x.float() * (1 / s)
    return y.clamp(-448, 448).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_kernel_is_judged_as_an_impl_is(rules: Path, kernel: SimpleNamespace, device: str) -> None:
    plan = Plan(("placed.rw",), only=("placed_codes/kernel",), device=device)
    (check,) = make_checks(plan).listed
    kernel.default = _codes
    assert finding(check).outcome == "passed"
    for wrong in ({"divide": False}, {"strided": False}):
        kernel.default = lambda x, s, wrong=wrong: _codes(x, s, **wrong)
        found = finding(check)
        assert (found.outcome, found.code) == ("failed", "RW602"), found
    kernel.default = lambda x, s: _codes(x, s)[0]
    assert "was written where" in finding(check).reason
