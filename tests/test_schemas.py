"""Schemas as data: the parser agrees with torch's, the snapshot holds what torch has, and looking up is quick."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from fxrewrite.dsl import packs
from fxrewrite.dsl.parse import parse as parse_rules
from fxrewrite.dsl.schemas.schema import Argument, Schema, parse
from fxrewrite.dsl.schemas.snapshot import FOLDER, Snapshot, read

REGISTER = (
    "torch._prims",
    "torch._inductor.inductor_prims",
    "torch.distributed._functional_collectives",
    "torch.distributed._symmetric_memory",
)
COMPLETE = ("aten", "prims", "_c10d_functional", "symm_mem")
TEN = (
    "silu gelu rms_norm linear layer_norm scaled_dot_product_attention _scaled_mm native_layer_norm _fused_rms_norm add"
)
QUICK = 0.005  # seconds for ten ops of aten, the file read


def all_schemas() -> list[Any]:
    for module in REGISTER:
        import_module(module)
    return torch._C._jit_get_all_schemas()


def as_torch_says(schema: Any) -> list[tuple[Any, ...]]:
    written = [a.is_out or (a.alias_info is not None and a.alias_info.is_write) for a in schema.arguments]
    return [(a.name, a.kwarg_only, w, a.has_default_value()) for a, w in zip(schema.arguments, written, strict=True)]


# ---- the parser


def test_parser_agrees_with_torch() -> None:
    checked = 0
    for schema in all_schemas():
        if "..." in str(schema):
            continue
        made = parse(str(schema))
        assert [(a.name, a.by_name, a.written, a.default is not None) for a in made.arguments] == as_torch_says(schema)
        assert len(made.returns) == len(schema.returns), schema
        assert (made.op.replace(".", "::", 1), made.overload) == (schema.name, schema.overload_name)
        checked += 1
    assert checked > 3000


def test_marks_without_a_name() -> None:
    made = parse('ns::f.out(Tensor! x, Tensor!? r, int[]? g=None, *, str s="a, b)") -> (Tensor a, Tensor[])')
    assert made.arguments == (
        Argument("x", "Tensor", written=True),
        Argument("r", "Tensor?", written=True),
        Argument("g", "int[]?", "None"),
        Argument("s", "str", '"a, b)"', by_name=True),
    )
    assert (made.op, made.overload, made.returns) == ("ns.f", "out", ("Tensor a", "Tensor[]"))
    assert [a.name for a in made.positional] == ["x", "r", "g"]


@pytest.mark.parametrize("text", ["", "f(Tensor x) -> Tensor", "ns::f", "ns::f(Tensor x)", "ns::(Tensor x) -> ()"])
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(ValueError, match="no schema"):
        parse(text)


# ---- the snapshot


@pytest.mark.parametrize("namespace", COMPLETE)
def test_the_snapshot_is_what_torch_has(namespace: str) -> None:
    space = read(namespace)
    assert space.complete
    if space.source != f"torch {torch.__version__.partition('+')[0]}":
        pytest.skip(f"the snapshot is of {space.source}")
    theirs = {str(s).partition("::")[2] for s in all_schemas() if s.name.startswith(namespace + "::")}
    assert set(space.schemas) == theirs


def test_every_file_is_sorted_and_says_its_source() -> None:
    names = {path.stem for path in FOLDER.glob("*.json")}
    assert names == {*COMPLETE, "_C", "vllm", "vllm_ir"}
    for name in names:
        space = read(name)
        assert list(space.schemas) == sorted(set(space.schemas))
        assert space.source
        assert all(isinstance(parse(f"{name}::{s}"), Schema) for s in space.schemas)


def test_overloads_are_found_and_no_others() -> None:
    assert {s.overload for s in Snapshot().find("aten.silu")} == {"", "out"}
    assert {s.op for s in Snapshot().find("aten.add")} == {"aten.add"}
    assert Snapshot().find("aten.sil") == ()
    assert Snapshot().find("nothing.f") == ()


def test_the_stubs_of_the_tests_are_as_the_snapshot_has_them() -> None:
    import vllm_stubs

    for qualified, schema, _ in vllm_stubs.OPS:
        name, _, overload = qualified.partition(".")
        stub = parse(f"{qualified}{schema}")
        known = [s for s in Snapshot().find(name.replace("::", ".")) if s.overload == overload]
        if not known:
            assert qualified == "vllm::flashinfer_silu_and_mul"  # not confirmed
            continue
        assert [a.written for a in stub.arguments] == [a.written for a in known[0].arguments], qualified
        assert len(stub.returns) == len(known[0].returns), qualified


def test_looking_up_is_quick() -> None:
    code = (
        "import time; from fxrewrite.dsl.schemas.snapshot import Snapshot\n"
        f"start = time.perf_counter(); found = [Snapshot().find('aten.' + n) for n in {TEN.split()}]\n"
        "print(time.perf_counter() - start); assert all(found)"
    )
    took = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in "123"]
    assert min(took) < QUICK * 4  # 3 ms on an idle core


def test_a_check_reads_only_the_namespaces_that_it_names() -> None:
    code = (
        "from fxrewrite.dsl.schemas import snapshot; from fxrewrite.dsl.check.program import check\n"
        "from fxrewrite.dsl.parse import parse\n"
        "text = 'op f(x: f32[D]) -> f32[D]\\n  = to(_C.silu_and_mul(x, x), f32)\\n'\n"
        "check([parse(text, 'f.rw')[0]]); assert snapshot.read.cache_info().currsize == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- notes


def noted(text: str) -> list[str]:
    file, _ = parse_rules(text, "test.rw")
    return [d.message.split(" ")[2] for d in packs.check_packs([file])[1] if d.code == "RW228"]


def test_one_note_an_op_and_none_for_what_is_known() -> None:
    text = "form silu_and_mul.a  mylib.f(x)\nform silu_and_mul.b(wide=true)  mylib.f(x)\nform silu.c  other.g(x)\n"
    assert noted(text + "form silu.d  = to(aten.sigmoid(f32(x)), x.dtype)\n") == ["mylib.f", "other.g"]


def test_an_op_that_is_not_known_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.rw"
    path.write_text("form silu_and_mul.mine  mylib.silu_gate(x)\n")
    assert "mine" in [f.name for f in packs.load([path]).ops["silu_and_mul"].forms]
