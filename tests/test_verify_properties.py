"""Properties of ops hold, and wrong ones fail; a torch op writes what is marked and nothing else."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vllm_stubs
from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.verify.claims import claims
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.memory import Watched
from fxrewrite.verify.profiles import QUICK
from fxrewrite.verify.properties import check_property, properties, property_profile
from fxrewrite.verify.strategies import cases

SHIPPED = ("default", "sequence_parallel", "allreduce_rms", "minimax")


@cache
def shipped() -> Program:
    vllm_stubs.declare()
    return packs.load(SHIPPED)


def findings(program: Program, op: str) -> list[Finding]:
    """Those of one op, or one fusion."""
    profile = property_profile(QUICK)
    return [check_property(d, cases(d.claim, profile, 0)) for d in properties(program) if d.claim.op.name == op]


def test_every_property_of_the_vocabulary_holds() -> None:
    found = [f for name in shipped().ops for f in findings(shipped(), name)]
    assert not [f for f in found if f.outcome == "failed"]
    kinds = Counter((f.subject.split("/")[1].split("(")[0], f.outcome) for f in found)
    unseen = {f.subject for f in found if f.outcome == "not run" and not f.subject.endswith("(layer)")}
    assert unseen <= {"scaled_mm/memory(_C.cutlass_scaled_mm)"}  # a `ref` says too little of its operands
    assert {"rowwise", "elementwise", "commutative", "collective"} <= {s for s, o in kinds if o == "passed"}
    assert kinds["memory", "passed"] > 20 and sum(f.provider is not None for f in found) > 50  # stubs, which run here


WRONG = {  # what check/claims.py does not see
    "prop_mean": (
        "= x - permute(mean(permute(x, [1, 0]), -1, keepdim=true), [1, 0])",
        "rowwise(x)",
        "other rows are NaN",
    ),
    "prop_reversed": ("= cat([slice(x, 0, 1, T), slice(x, 0, 0, 1)], 0)", "rowwise(x)", "other rows are NaN"),
    "prop_scaled": ("= x * T", "rowwise(x)", "when there are 1 rows"),
    "prop_columns": ("= cat([x[..., 1:], x[..., :1]], -1)", "elementwise(x)", "columns are in another order"),
    "prop_amount": ("= x * mean(permute(x, [1, 0]))", "rowwise(x)", "other rows are NaN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_property_of_rows_fails(name: str, tmp_path: Path) -> None:
    equation, said, why = WRONG[name]
    found = findings(
        written(tmp_path, f"op {name}(x: f32[T, D]) -> (y: f32[T, D])\n  {equation}\n  property {said}\n"), name
    )
    assert [f.outcome for f in found] == ["failed"] and why in found[0].reason, found
    assert found[0].code == "RW226"


SWAPPED = {
    "prop_weighed": "= rms_norm(x, none, eps=1e-6) + r",
    "prop_rounded": "= to(f32(x) + f32(r) * 1.001953125, bf16)",
}


@pytest.mark.parametrize("name", SWAPPED)
def test_operands_that_may_not_be_swapped(name: str, tmp_path: Path) -> None:
    text = (
        f"op {name}(x: bf16[T, D], r: bf16[T, D]) -> (y: bf16[T, D])\n  {SWAPPED[name]}\n  property commutative(x, r)\n"
    )
    found = findings(written(tmp_path, text), name)
    assert [f.outcome for f in found] == ["failed"] and "`x` and `r` are swapped" in found[0].reason, found


def test_what_holds_and_is_not_said_is_silent(tmp_path: Path) -> None:
    program = written(tmp_path, "op prop_silent(x: f32[T, D]) -> (y: f32[T, D])\n  = x + 1.0\n")
    assert findings(program, "prop_silent") == []


def test_ranks_that_do_not_meet(tmp_path: Path) -> None:
    """`check` takes any built-in over ranks for a meeting."""
    text = "op prop_alone(x: f32[T, D]; g: group) -> f32[*S]\n  = pshard(x, 0, g)\n  property collective(g)\n"
    found = findings(written(tmp_path, text), "prop_alone")
    assert [f.outcome for f in found] == ["failed"] and "no rank meets another" in found[0].reason, found


def written(folder: Path, text: str) -> Program:
    path = folder / "wrong_properties.rw"
    path.write_text(text)
    return packs.load([str(path)])


# ---- memory


def faults_of(program: Program, op: str, spelling: str) -> list[str]:
    """What the torch op of a form or `impl` does to memory."""
    claim = next(c for c in claims(program) if c.name == f"{op}/{spelling}")
    faults: list[str] = []
    for given in cases(claim, property_profile(QUICK), 0):
        watched = Watched()
        claim.claimed(watched, given.operands, given.attributes)
        faults += watched.faults
    return faults


@pytest.mark.parametrize(
    ("op", "spelling"),
    [
        ("rms_norm", "custom"), ("add_rms_norm", "custom"), ("quant_fp8", "custom"), ("quant_fp8_static", "custom"),
        ("quant_fp8_group", "tma"), ("rope", "custom"), ("silu_and_mul", "custom"),
    ],
)  # fmt: skip
def test_an_op_writes_what_is_marked(op: str, spelling: str) -> None:
    assert faults_of(shipped(), op, spelling) == []


def _beside(x: Tensor, y: Tensor) -> None:
    y.copy_(x)
    if y.untyped_storage().nbytes() > y.numel() * y.element_size():
        y.as_strided((1,), (1,), y.storage_offset() + y.numel()).fill_(1.0)


def _unmarked(x: Tensor, y: Tensor) -> None:
    y.copy_(x)
    x.zero_()


def _partly(x: Tensor, y: Tensor) -> None:
    y[1:].copy_(x[1:])


def _flat(x: Tensor, y: Tensor) -> None:
    y.copy_(torch.as_strided(x, x.shape, (x.shape[1], 1)))


KERNELS: dict[str, tuple[Any, str]] = {
    "beside": (_beside, "bytes beside `y` are written"),
    "unmarked": (_unmarked, "`x` is written"),
    "partly": (_partly, "depends on what was there before"),
    "flat": (_flat, "depends on strides"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_writes_wrongly(name: str, tmp_path: Path) -> None:
    kernel, why = KERNELS[name]
    library = torch.library.Library("prop_memory", "FRAGMENT")
    library.define(f"{name}(Tensor x, Tensor(a!) y) -> ()")
    library.impl(name, kernel, "CompositeExplicitAutograd")
    text = (
        f"op prop_{name}(x: f32[T, D]) -> (y: f32[T, D])\n  = clone(x)\n  form kernel  prop_memory.{name}(x, out y)\n"
    )
    found = faults_of(written(tmp_path, text), f"prop_{name}", "kernel")
    library._destroy()
    assert any(why in f for f in found), found
