"""Declared ops as torch.library ops: schemas, names, layouts, fake kernels, gradients, opcheck."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import op_samples
from fxrewrite.dsl import core, digest, packs
from fxrewrite.dsl.core import OpDef, Program
from fxrewrite.dsl.evaluate import EvaluationError, evaluate
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering import library
from fxrewrite.lowering.eager import DTYPES, Torch
from fxrewrite.lowering.library import op_for
from fxrewrite.lowering.schema import schema

PROGRAM = packs.load(["norm_quant", "act_quant"])
OPS = [n for n, op in PROGRAM.ops.items() if op_samples.has_meaning(PROGRAM, op)]


def program(text: str, file: str = "mine.rw") -> Program:
    parsed, diagnostics = parse(text, file)
    assert not diagnostics
    return packs.load([parsed])


def python(value: Any) -> Any:
    return DTYPES[value.name] if isinstance(value, core.Dtype) else list(value) if isinstance(value, tuple) else value


def arguments(op: OpDef, operands: list[Any], attributes: dict[str, Any], dyn: bool = False) -> list[Any]:
    """Everything by position, as the schema has it."""
    values = [python(attributes.get(a.name, a.default)) for a in op.attributes]
    if dyn:
        number = {a.name for a in op.attributes if a.type == "float"}
        values = [
            torch.tensor(v, dtype=torch.float64) if a.name in number and v is not None else v
            for a, v in zip(op.attributes, values)
        ]
    return [*operands, *values]


def tensors(results: Any) -> list[Tensor]:
    many = results if isinstance(results, tuple | list) else [results]
    return [t for r in many for t in (r if isinstance(r, list | tuple) else [r])]


def equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool((bits(a) == bits(b)).all())


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize])


# ---- names and schemas


def test_the_schema_says_operands_then_attributes() -> None:
    assert schema(PROGRAM.ops["rms_norm_fp8"], dyn=False) == (
        "(Tensor x, Tensor? w, Tensor? ub, float eps, bool late=False, int? vs=None, bool recip=False, "
        "ScalarType qt=float8_e4m3fn, float smin=4.359654017857143e-06, bool narrow=False) -> (Tensor, Tensor)"
    )
    assert schema(PROGRAM.ops["quant_fp8_group"], dyn=True) == (
        "(Tensor x, int G, bool ue8m0, str L, Tensor qeps, Tensor smin, ScalarType qt=float8_e4m3fn)"
        " -> (Tensor, Tensor)"
    )
    assert schema(PROGRAM.ops["add_rms_norm_fp8_static_each"], dyn=False).startswith(
        "(Tensor x, Tensor r, Tensor? w, Tensor[] s, bool recip, ScalarType qt, float eps, bool late=False,"
    )
    assert schema(PROGRAM.ops["add_rms_norm_fp8_static_each"], dyn=False).endswith("-> (Tensor[], Tensor)")


def test_a_float_default_survives_exactly() -> None:
    declared = op_for(PROGRAM, "quant_fp8")._schema.arguments
    default = next(a.default_value for a in declared if a.name == "smin")
    assert default == next(a.default for a in PROGRAM.ops["quant_fp8"].attributes if a.name == "smin")


def test_attributes_go_by_name_too() -> None:
    x, w = torch.randn(3, 64).bfloat16(), torch.randn(64).bfloat16()
    op = op_for(PROGRAM, "rms_norm")
    assert equal(op(x, w, 1e-5, True), op(x, w, eps=1e-5, late=True))


def test_equal_definitions_are_one_op() -> None:
    again = packs.load(["norm_quant"])
    assert op_for(again, "rms_norm_fp8") is op_for(PROGRAM, "rms_norm_fp8")
    assert digest.of_op(again, "rms_norm_fp8") == digest.of_op(PROGRAM, "rms_norm_fp8")


def test_formatting_and_names_of_parts_do_not_change_a_definition() -> None:
    one = program("op tidy(x: lowp[*B, D]) -> lowp[*B, D]\n  = a + a where a = x * x\n")
    two = program("## Documented.\nop tidy(x: lowp[*B, D]) -> lowp[*B, D]\n  =   (x * x) + (x*x)   # same\n")
    assert digest.of_op(one, "tidy") == digest.of_op(two, "tidy")


def test_two_definitions_of_one_name_are_two_ops() -> None:
    one = program("op doubled_or_tripled(x: lowp[*B, D]) -> lowp[*B, D]\n  = x + x\n")
    two = program("op doubled_or_tripled(x: lowp[*B, D]) -> lowp[*B, D]\n  = x * 3.0\n")
    x = torch.ones(2).bfloat16()
    assert op_for(one, "doubled_or_tripled")(x).tolist() == [2, 2]
    assert op_for(two, "doubled_or_tripled")(x).tolist() == [3, 3]
    assert op_for(one, "doubled_or_tripled").name() == "fxrewrite::doubled_or_tripled"
    assert (
        op_for(two, "doubled_or_tripled").name()
        == f"fxrewrite::doubled_or_tripled_{digest.of_op(two, 'doubled_or_tripled')[:8]}"
    )


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("op off(x: f32[T, D], w: f32[D]) -> (y: f32[T, 1])\n  = aten.mv(x, w)\n", [torch.ones(2, 3), torch.ones(3)]),
        ("op off(x: bf16[*B, D]) -> (y: bf16[*B, D])\n  = permute(x, [1, 0])\n", [torch.ones(2, 3).bfloat16()]),
        ("op off(x: i32[T, D]) -> (y: i32[T, D])\n  = aten.cumsum(x, 1)\n", [torch.ones(2, 3).int()]),
    ],
    ids=["shape", "order", "dtype"],
)
def test_a_definition_that_is_not_of_the_declared_type_is_an_error(text: str, x: list[Tensor]) -> None:
    """What the checker cannot see is seen when the op runs: its fake kernel has promised the declared type."""
    with pytest.raises(EvaluationError, match=r"off: `y` is .* declared"):
        op_for(program(text), "off")(*x)


def test_what_an_op_calls_is_part_of_its_definition() -> None:
    text = (
        "op inner(x: lowp[*B, D]) -> lowp[*B, D]\n  = x {} x\nop outer(x: lowp[*B, D]) -> lowp[*B, D]\n  = inner(x)\n"
    )
    one, two = program(text.format("+")), program(text.format("*"))
    assert op_for(one, "outer") is not op_for(two, "outer")
    x = torch.tensor([3.0]).bfloat16()
    assert (op_for(one, "outer")(x).item(), op_for(two, "outer")(x).item()) == (6, 9)


def test_a_shipped_op_keeps_its_name() -> None:
    """Whatever a user's file calls `silu_mul_int8`, and whichever is asked for first."""
    mine = program("op silu_mul_int8(x: lowp[*B, D]) -> lowp[*B, D]\n  = x + x\n")
    assert op_for(mine, "silu_mul_int8").name().startswith("fxrewrite::silu_mul_int8_")
    assert op_for(PROGRAM, "silu_mul_int8").name() == "fxrewrite::silu_mul_int8"


def test_an_unknown_op() -> None:
    with pytest.raises(EvaluationError, match="no op is called `nothing`"):
        op_for(PROGRAM, "nothing")


def test_any_thread_may_register() -> None:
    mine = [program("op threaded(x: lowp[*B, D]) -> lowp[*B, D]\n  = x + x\n") for _ in range(8)]
    found: list[Any] = []
    barrier = threading.Barrier(8)

    def ask(p: Program) -> None:
        barrier.wait()
        found.append(op_for(p, "threaded"))

    threads = [threading.Thread(target=ask, args=(p,)) for p in mine]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8
    assert len(set(found)) == 1


# ---- results


@pytest.mark.parametrize("dyn", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_an_op_is_its_definition(name: str, dyn: bool) -> None:
    op = PROGRAM.ops[name]
    operands, attributes = op_samples.operands(op, op_samples.dtypes_of(op)[0]), op_samples.plain_attributes(op)
    expected = evaluate(PROGRAM, name, operands, attributes, Torch())
    found = op_for(PROGRAM, name, dyn)(*arguments(op, operands, attributes, dyn))
    assert len(tensors(found)) == len(tensors(expected))
    assert all(equal(a, b) for a, b in zip(tensors(found), tensors(expected)))
    pointers = {t.untyped_storage().data_ptr() for t in tensors(operands) if t is not None}
    for t in tensors(found):
        assert t.untyped_storage().data_ptr() not in pointers
        assert t.is_contiguous()


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("layout", ["row", "col", "tma"])
def test_layouts(layout: str, rows: int) -> None:
    x = torch.randn(rows, 256).bfloat16()
    q, s = op_for(PROGRAM, "quant_fp8_group")(x, 64, L=layout)
    assert s.shape == (rows, 4)
    assert s.stride() == {"row": (4, 1), "col": (1, rows), "tma": (1, -(-rows // 4) * 4)}[layout]
    assert q.is_contiguous()
    assert equal(s, op_for(PROGRAM, "quant_fp8_group")(x, 64)[1])


def test_a_result_never_lies_in_the_memory_of_an_operand() -> None:
    p = program("op same_twice(x: lowp[*B, D]) -> (a: lowp[*B, D], b: lowp[*B, D])\n  = x, x\n")
    x = torch.randn(4, 8).bfloat16()
    a, b = op_for(p, "same_twice")(x)
    assert len({t.untyped_storage().data_ptr() for t in (x, a, b)}) == 3
    assert equal(a, x)
    assert equal(b, x)


def test_strided_operands() -> None:
    wide = torch.randn(6, 512).bfloat16()
    for x in (wide[:, ::2], wide[::2, 128:256], wide.t()[:64].t()):
        assert equal(op_for(PROGRAM, "silu_and_mul")(x), op_for(PROGRAM, "silu_and_mul")(x.contiguous()))
        assert op_for(PROGRAM, "silu_and_mul")(x).is_contiguous()


def test_an_error_of_the_definition_reaches_the_caller() -> None:
    with pytest.raises(EvaluationError, match="which is not 2\\*D for any D"):
        op_for(PROGRAM, "silu_and_mul")(torch.randn(2, 7).bfloat16())


# ---- fake kernels


def test_a_fake_kernel_reads_types_only() -> None:
    class Evaluated(Exception):
        pass

    def stop(*args: Any, **kwargs: Any) -> Any:
        raise Evaluated

    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        patch.setattr(library, "evaluate_bound", stop)
        x, w = torch.empty(3, 64, dtype=torch.bfloat16), torch.empty(64, dtype=torch.bfloat16)
        q, s = op_for(PROGRAM, "rms_norm_fp8")(x, w, None, 1e-6)
    assert (q.dtype, q.shape, s.dtype, s.shape) == (torch.float8_e4m3fn, (3, 64), torch.float32, (3, 1))


def test_a_fake_kernel_keeps_symbolic_sizes_symbolic() -> None:
    def block(x: Tensor, w: Tensor) -> Any:
        y, h = op_for(PROGRAM, "add_rms_norm")(x, x, w, 1e-6)
        return op_for(PROGRAM, "quant_fp8_group")(op_for(PROGRAM, "silu_and_mul")(y), 64, L="tma"), h

    graph = make_fx(block, tracing_mode="symbolic")(torch.randn(6, 256).bfloat16(), torch.randn(256).bfloat16())
    rows, width = graph.graph.find_nodes(op="placeholder")[0].meta["val"].shape
    quant = next(n for n in graph.graph.nodes if n.target is op_for(PROGRAM, "quant_fp8_group"))
    q, s = quant.meta["val"]
    assert [str(n) for n in q.shape] == [str(rows), f"({width}//2)"]
    assert [str(n) for n in s.shape] == [str(rows), f"({width}//128)"]
    assert str(s.stride()[1]) == f"4*((({rows} + 3)//4))"
    assert graph.shape_env is not None
    assert not any("Eq" in str(g.expr) for g in graph.shape_env.guards)


# ---- gradients


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    loss = sum((o.float().sin().sum() for o in outputs if o.requires_grad), torch.zeros(()))
    assert isinstance(loss, Tensor)
    if not loss.requires_grad:
        return [None] * len(inputs)
    return list(torch.autograd.grad(loss, inputs, allow_unused=True))


@pytest.mark.parametrize("name", OPS)
def test_the_gradient_is_that_of_the_definition(name: str) -> None:
    """Through FP8 codes too: torch differentiates a cast to FP8, with a gradient in FP8."""
    op = PROGRAM.ops[name]
    operands, attributes = op_samples.operands(op, op_samples.dtypes_of(op)[0]), op_samples.plain_attributes(op)
    inputs = [t.requires_grad_() for t in tensors(operands) if t is not None and t.is_floating_point()]
    expected = tensors(evaluate(PROGRAM, name, operands, attributes, Torch()))
    found = tensors(op_for(PROGRAM, name)(*arguments(op, operands, attributes)))
    assert [t.requires_grad for t in found] == [t.requires_grad for t in expected]
    for a, b in zip(gradients(found, inputs), gradients(expected, inputs)):
        assert (a is None or not a.any()) if b is None else (a is not None and torch.equal(a, b))


def test_the_gradient_of_a_tensor_attribute() -> None:
    x, w = torch.randn(4, 64).bfloat16(), torch.randn(64).bfloat16()
    eps = torch.tensor(1e-3, dtype=torch.float64, requires_grad=True)
    found = op_for(PROGRAM, "rms_norm", dyn=True)(x, w, eps, False)
    (expected,) = evaluate(PROGRAM, "rms_norm", [x, w], {"eps": eps}, Torch())
    assert torch.equal(gradients([found], [eps])[0], gradients([expected], [eps])[0])  # type: ignore[arg-type]


def test_second_derivatives() -> None:
    x = torch.randn(2, 16).bfloat16().requires_grad_()

    def twice(y: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.float().square().sum(), x)[0].float()

    found = twice(op_for(PROGRAM, "silu_and_mul")(x))
    expected = twice(evaluate(PROGRAM, "silu_and_mul", [x], {}, Torch())[0])
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=1e-2)  # the sums of bf16 gradients have another order


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_training_under_aot_autograd(dynamic: bool) -> None:
    x, w = torch.randn(4, 64).bfloat16().requires_grad_(), torch.randn(64).bfloat16().requires_grad_()

    def step(x: Tensor, w: Tensor) -> Tensor:
        q, s = op_for(PROGRAM, "rms_norm_fp8")(x, w, None, 1e-6)
        return (q.float() * s).square().sum()

    expected = torch.autograd.grad(step(x, w), [x, w])
    torch._dynamo.reset()
    found = torch.autograd.grad(torch.compile(step, backend="aot_eager", dynamic=dynamic)(x, w), [x, w])
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


# ---- opcheck


def samples(op: OpDef) -> list[tuple[list[Any], dict[str, Any]]]:
    """Two kinds of operands: all of them, and as few as there may be, in the last dtype, with no rows."""
    plain = op_samples.plain_attributes(op)
    few = op_samples.operands(op, op_samples.dtypes_of(op)[-1], optional=False, rows=4)
    return [(op_samples.operands(op, op_samples.dtypes_of(op)[0]), plain), (few, plain)]


OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
NOT_CHECKED = {
    "scaled_mm": ("test_schema",),  # torch compares operands by arithmetic, which FP8 does not have
    **dict.fromkeys(("rotate", "rope", "rope_q"), ("test_aot_dispatch_dynamic",)),  # widths choose the equation
}


@pytest.mark.slow
@pytest.mark.parametrize("dyn", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_opcheck(name: str, dyn: bool) -> None:
    op = PROGRAM.ops[name]
    codes = any(str(r.type).startswith(("qt", "i8", "u8", "e4m3", "e8m0")) for r in op.results)
    checks = set(OPCHECKS) - set(NOT_CHECKED.get(name, ()))
    for operands, attributes in samples(op):
        given = arguments(op, operands, attributes, dyn)
        torch.library.opcheck(op_for(PROGRAM, name, dyn), tuple(given), test_utils=sorted(checks))
        if not codes:  # the check adds up what an op returns, which torch cannot do with codes
            again = [
                t.clone().requires_grad_() if isinstance(t, Tensor) and t.is_floating_point() else t for t in given
            ]
            torch.library.opcheck(op_for(PROGRAM, name, dyn), tuple(again), test_utils=sorted(checks))


@pytest.mark.parametrize("layout", ["col", "tma"])
def test_opcheck_of_layouts(layout: str) -> None:
    torch.library.opcheck(op_for(PROGRAM, "quant_fp8_group"), (torch.randn(6, 128).bfloat16(), 64, False, layout))
