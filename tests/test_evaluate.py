"""The interpreter of definitions, its scalars, and the torch algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fxrewrite.dsl import core, formats, packs, scalars
from fxrewrite.dsl.core import Apply, Dtype, DtypeVar, Lit, Operand, Ref, Size
from fxrewrite.dsl.dims import combine, constant, name
from fxrewrite.dsl.evaluate import (
    UNKNOWN,
    Env,
    EvaluationError,
    bind,
    evaluate,
    evaluate_case,
    evaluate_terms,
    holds,
    scalar,
    value,
)
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.eager import DTYPES, PRIMITIVES, Torch

X = Operand("x", core.UNKNOWN)


class Shapes(Env):
    """An environment whose values are (dtype, shape)."""

    def dtype_of(self, value: Any) -> Any:
        return Dtype(value[0])

    def shape_of(self, value: Any) -> Any:
        return value[1]


def program(text: str) -> core.Program:
    file, diagnostics = parse(text, "test.rw")
    assert not diagnostics
    return packs.load([file])


# ---- scalars

ENV = Shapes(
    operands={"x": ("bf16", (2, 3, 8)), "n": None},
    attributes={"eps": 1e-6, "wide": True, "vs": None, "qt": Dtype("e4m3fn"), "G": 4, "order": (1, 0)},
    dims={"D": 8},
    stars={"B": (2, 3)},
    dtypes={"lowp": Dtype("bf16")},
    facts={"sm": 90},
)
D = Size(name("D"))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (Lit(1.5), 1.5),
        (Ref("eps"), 1e-6),
        (DtypeVar("lowp", ("bf16", "f16")), Dtype("bf16")),
        (Size(combine("//", name("D"), name("G"))), 2),
        (Size(combine("up", name("D"), constant(5))), 10),
        (Apply("+", (D, Lit(1))), 9),
        (Apply("/", (Lit(1.0), Lit(0))), UNKNOWN),
        (Apply("neg", (Apply("finfo.max", (Ref("qt"),)),)), -448.0),
        (Apply("finfo.smallest_normal", (Dtype("f32"),)), 2.0**-126),
        (Apply("==", (Ref("vs"), Lit(None))), True),
        (Apply("==", (Ref("eps"), Lit(None))), False),
        (Apply("==", (Ref("wide"), Lit(1))), False),
        (Apply("==", (DtypeVar("lowp", ()), Dtype("bf16"))), True),
        (Apply("<", (D, Lit(9))), True),
        (Apply(">=", (Apply("sm"), Lit(89))), True),
        (Apply(">=", (Apply("world"), Lit(2))), UNKNOWN),
        (Apply("<", (Ref("vs"), Lit(2))), UNKNOWN),
        (Apply("not", (Ref("wide"),)), False),
        (Apply("not", (Apply("rocm"),)), UNKNOWN),
        (Apply("and", (Apply("rocm"), Lit(False))), False),
        (Apply("and", (Apply("rocm"), Lit(True))), UNKNOWN),
        (Apply("or", (Apply("rocm"), Lit(True))), True),
        (Apply("or", (Apply("rocm"), Lit(False))), UNKNOWN),
        (Apply("all", (Lit(True), Ref("wide"))), True),
        (Apply("is_none", (Operand("n", core.UNKNOWN),)), True),
        (Apply("is_none", (X,)), False),
        (Apply("is_none", (Operand("absent", core.UNKNOWN),)), UNKNOWN),
        (Apply("dtype", (X,)), Dtype("bf16")),
        (Apply("dtype_in", (Dtype("f16"), Dtype("bf16"), Dtype("f16"))), True),
        (Apply("shape", (X,)), (2, 3, 8)),
        (Apply("shape", (X, Lit(-1))), 8),
        (Apply("shape", (X, Lit(5))), UNKNOWN),
        (Apply("shape_list", (name("D"), name("_"))), (8, -1)),
        (Apply("list", (Lit(1), D)), (1, 8)),
        (Apply("item", (Ref("order"), Lit(0))), 1),
        (Apply("rows", (X,)), 6),
        (Apply("numel", (X,)), 48),
        (Apply("bytes", (X,)), 96),
        (Apply("same_shape", (X, X)), True),
        (Apply("identity", (Ref("order"),)), False),
        (Apply("identity", (Lit((0, -1)),)), True),
        (Apply("compose", (Lit((1, 2, 0)), Lit((0, 2, 1)))), (1, 0, 2)),
        (Apply("widens", (Dtype("bf16"), Dtype("f32"))), True),
        (Apply("contiguous", (X,)), UNKNOWN),
        (Apply("group.name", (Lit("tp"),)), "tp"),
        (core.Wild(), UNKNOWN),
    ],
)
def test_scalars(x: Any, expected: Any) -> None:
    found = value(x, ENV)
    assert found is expected if expected is UNKNOWN else found == expected and type(found) is type(expected)
    assert scalar(x, ENV) == (None if expected is UNKNOWN else expected)


def test_compose_is_what_permuting_twice_does() -> None:
    p, q = (1, 2, 0), (0, 2, 1)
    x = torch.zeros(2, 3, 4)
    both = value(Apply("compose", (Lit(p), Lit(q))), ENV)
    assert x.permute(p).permute(q).shape == x.permute(both).shape


def test_conditions_are_three_valued() -> None:
    unknown = Apply("rocm")
    assert holds((Lit(True),), ENV) is True
    assert holds((unknown, Lit(False)), ENV) is False
    assert holds((unknown, Lit(True)), ENV) is None
    with pytest.raises(TypeError):
        bool(UNKNOWN)


def test_formats_are_those_of_torch() -> None:
    for short, known in formats.FLOATS.items():
        info = torch.finfo(DTYPES[short])
        assert (known.max, known.min, known.eps, known.tiny) == (info.max, info.min, info.eps, info.tiny), short
    for short, (lo, hi) in formats.INTEGERS.items():
        assert short == "bool" or (torch.iinfo(DTYPES[short]).min, torch.iinfo(DTYPES[short]).max) == (lo, hi)
    for short, n in formats.BYTES.items():
        assert DTYPES[short].itemsize == n


BITS = {1: torch.uint8, 2: torch.int16}


@pytest.mark.parametrize("narrow", ["e4m3fn", "e4m3fnuz", "e5m2", "e8m0fnu", "bf16", "f16", "i8", "u8", "i16"])
@pytest.mark.parametrize("wide", ["e4m3fn", "e4m3fnuz", "e5m2", "bf16", "f16", "f32", "i16", "i32"])
def test_widens_on_all_values(narrow: str, wide: str) -> None:
    if narrow in formats.INTEGERS:
        lo, hi = formats.INTEGERS[narrow]
        values = torch.arange(lo, hi + 1, dtype=torch.float64).to(DTYPES[narrow])
    else:
        count = 256 ** formats.BYTES[narrow]
        values = torch.arange(count, dtype=torch.int32).to(BITS[formats.BYTES[narrow]]).view(DTYPES[narrow])
    exact = values.float().double() if narrow not in formats.INTEGERS else values.double()
    there = (
        exact.clone() if wide not in formats.INTEGERS else exact.nan_to_num(0.5, 0.5, 0.5).clamp(-(2.0**31), 2.0**31)
    )
    there = there.float().to(DTYPES[wide]).float().double() if wide != "i32" else there.to(torch.int32).double()
    same = ((there == exact) & (there.signbit() == exact.signbit())) | (there.isnan() & exact.isnan())
    assert formats.widens(narrow, wide) == bool(same.all()), values[~same][:4]


# ---- definitions


def test_the_first_equation_that_holds_is_the_meaning() -> None:
    p = program(
        "op f(x: lowp[*B, D]; wide: bool = false) -> lowp[*B, D]\n  = x + x   when not wide\n  = x * x   when wide\n"
    )
    x = torch.tensor([3.0]).bfloat16()
    assert evaluate(p, "f", [x], {}, Torch())[0].item() == 6
    assert evaluate(p, "f", [x], {"wide": True}, Torch())[0].item() == 9


def test_equal_terms_are_computed_once() -> None:
    class Counting(Torch):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def primitive(self, op: str, args: Any, params: Any, term: Any) -> Any:
            self.seen.append(op)
            return super().primitive(op, args, params, term)

    p = packs.load([])
    algebra = Counting()
    evaluate(p, "gelu", [torch.ones(4).bfloat16()], {"approximate": "tanh"}, algebra)
    assert algebra.seen.count("to") == 2  # f32(x) stands seven times in the text


def test_a_norm_feeds_a_list_of_quants_and_is_computed_once() -> None:
    class Counting(Torch):
        norms = 0

        def primitive(self, op: str, args: Any, params: Any, term: Any) -> Any:
            self.norms += op == "rsqrt"
            return super().primitive(op, args, params, term)

    p = packs.load(["norm_quant"])
    x, w = torch.randn(2, 64).bfloat16(), torch.randn(64).bfloat16()
    scales = [torch.tensor([s]) for s in (0.1, 0.2, 0.3)]
    algebra = Counting()
    (codes,) = evaluate(p, "rms_norm_fp8_static_each", [x, w, scales], {"eps": 1e-6}, algebra)
    assert algebra.norms == 1
    for q, s in zip(codes, scales):
        (one,) = evaluate(p, "rms_norm_fp8_static", [x, w, s], {"eps": 1e-6}, Torch())
        assert torch.equal(q.view(torch.uint8), one.view(torch.uint8))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_of_any_rank(shape: tuple[int, ...]) -> None:
    p = packs.load([])
    x = torch.randn(4, 64).bfloat16()
    (q,) = evaluate(p, "quant_fp8_static", [x, torch.full(shape, 0.05)], {}, Torch())
    assert torch.equal(q.view(torch.uint8), (x.float() / 0.05).clamp(-448, 448).to(q.dtype).view(torch.uint8))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)])
def test_any_number_of_leading_axes(leading: tuple[int, ...]) -> None:
    p = packs.load(["norm_quant"])
    x, w = torch.randn(*leading, 64).bfloat16(), torch.randn(64)
    q, s = evaluate(p, "rms_norm_fp8", [x, w], {"eps": 1e-6}, Torch())
    assert q.shape == x.shape
    assert s.shape == (*leading, 1)


def test_a_form_is_evaluated_with_given_bindings() -> None:
    p = packs.load([])
    op = p.ops["silu"]
    bindings = bind(p, op, [torch.linspace(-9, 9, 64).bfloat16()], {}, Torch())
    by_equation = evaluate_terms(op.equations[0].outputs, bindings)
    for form in op.forms:
        assert torch.equal(evaluate_case(form, bindings)[0], by_equation[0]), form.name


X16, W16, S1 = torch.ones(3, 128).bfloat16(), torch.ones(128).bfloat16(), torch.ones(1)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "reason"),
    [
        ("rms_nrm", [X16], {}, "no op is called `rms_nrm`; did you mean `rms_norm`?"),
        ("rms_norm", [X16, W16], {}, "rms_norm needs the attribute `eps`: it has no default"),
        ("rms_norm", [X16, W16], {"eps": 1e-6, "lat": 1}, "rms_norm has no attribute `lat`; did you mean `late`?"),
        ("rms_norm", [X16, W16], {"eps": "1e-6"}, "`eps` of rms_norm is of type float, not '1e-6'"),
        ("rms_norm", [X16, W16], {"eps": 1e-6, "late": 1}, "`late` of rms_norm is of type bool, not 1"),
        ("rms_norm", [X16], {"eps": 1e-6}, "rms_norm takes 2 operands (x, w); `w` is missing"),
        ("rms_norm", [X16, W16, S1], {"eps": 1e-6}, "rms_norm takes 2 operands (x, w), not 3"),
        ("rms_norm", [None, W16], {"eps": 1e-6}, "`x` of rms_norm may not be none"),
        ("rms_norm", [X16, W16[:3]], {"eps": 1e-6}, "axis 0 of `w` of rms_norm has 3 elements, not D (with D = 128)"),
        ("silu", [X16.float()], {}, "`x` of silu is lowp (bf16, f16), not f32"),
        ("silu_mul", [X16, X16.half()], {}, "`u` of silu_mul is f16, and another operand of class lowp is bf16"),
        ("silu_mul", [X16, X16[:2]], {}, "the leading axes of `u` of silu_mul are [2]; those before it have [3]"),
        ("silu_and_mul", [X16[:, 1:]], {}, "axis -1 of `x` of silu_and_mul has 127 elements, which is not 2*D for any"),
        ("quant_fp8_group", [X16], {"G": 100}, "quant_fp8_group requires D%G == 0; here D = 128, G = 100"),
        ("quant_fp8_group", [X16[0]], {"G": 64}, "`x` of quant_fp8_group is real[T, D], not of the shape [128]"),
        ("quant_fp8", [X16, S1], {"narrow": True}, "quant_fp8 requires not narrow or ub == none; here narrow = true"),
        ("quant_fp8_static", [X16, torch.ones(3)], {}, "`s` of quant_fp8_static has one element, not the shape [3]"),
        ("quant_fp8_static", [X16, S1], {"qt": "e5m2"}, "`qt` of quant_fp8_static is one of e4m3fn, e4m3fnuz;"),
        ("quant_fp8_static", [X16, S1.double()], {}, "`s` of quant_fp8_static is f32, not f64"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_reason(op: str, operands: Any, attributes: Any, reason: str) -> None:
    with pytest.raises(EvaluationError) as error:
        evaluate(packs.load([]), op, operands, attributes, Torch())
    assert str(error.value).startswith(reason)


def test_no_equation_for_an_attribute() -> None:
    p = program('op f(x: lowp[*B, D]; mode: str = "a") -> lowp[*B, D]\n  = x + x   when mode == "a"\n')
    with pytest.raises(EvaluationError, match='f has no equation that holds for mode = "b"'):
        evaluate(p, "f", [X16], {"mode": "b"}, Torch())


# ---- the torch algebra


def test_the_table_covers_every_primitive() -> None:
    assert PRIMITIVES.keys() == core.PRIMITIVES.keys()


def all_values(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    equal = (a == b) & (a.signbit() == b.signbit())
    return a.dtype == b.dtype and bool((equal | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_step_is_a_float32_step_rounded(dtype: torch.dtype) -> None:
    x, y = all_values(dtype), all_values(dtype).flip(0)
    for op in core.UNARY:
        assert same(PRIMITIVES[op](x), getattr(torch, op)(x.float()).to(dtype)), op
    for op in ("add", "sub", "mul", "div", "fdiv"):
        exact = getattr(torch, "div" if op == "fdiv" else op)
        assert same(PRIMITIVES[op](x, y), exact(x.float(), y.float()).to(dtype)), op
        for number in (0.1, 1 / 3, 1e-6, 3e4):
            assert same(PRIMITIVES[op](x, number), exact(x.float(), number).to(dtype)), (op, number)
            assert same(PRIMITIVES[op](number, x), exact(torch.tensor(number), x.float()).to(dtype)), (op, number)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_number_may_be_a_tensor(dtype: torch.dtype, kind: torch.dtype) -> None:
    x = torch.randn(4096).to(dtype)
    for number in (1e-6, 1 / 3, 0.1):
        wrapped = Torch().number(torch.tensor(number, dtype=kind))
        for op in ("add", "sub", "mul", "div", "maximum", "minimum"):
            assert same(PRIMITIVES[op](x, wrapped), PRIMITIVES[op](x, number)), (op, number)
        with_nan = torch.cat([x, torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=dtype)])
        assert same(PRIMITIVES["clamp"](with_nan, wrapped, None), torch.clamp(with_nan, number, None))
        assert same(PRIMITIVES["clamp"](with_nan, None, wrapped), torch.clamp(with_nan, None, number))
        assert same(PRIMITIVES["clamp"](with_nan, -0.5, wrapped), torch.clamp(with_nan, -0.5, number))


def test_eps_as_a_graph_input_gives_the_bits_of_the_graph() -> None:
    p = packs.load([])
    x, w, eps = torch.randn(64, 64).bfloat16(), torch.randn(64).bfloat16(), torch.tensor(1e-6, dtype=torch.float64)
    m = x.float()
    n = m * torch.rsqrt((m * m).mean(-1, keepdim=True) + eps.to(torch.float32))
    assert torch.equal(evaluate(p, "rms_norm", [x, w], {"eps": eps}, Torch())[0], n.bfloat16() * w)


def test_reductions_over_all_axes() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(PRIMITIVES["amax"](x, (), False), x.amax())
    assert torch.equal(PRIMITIVES["sum"](x, (), False), x.sum())
    assert torch.equal(PRIMITIVES["var"](x, (-1,), True), x.var(-1, correction=0, keepdim=True))
    with pytest.warns(UserWarning, match="degrees of freedom"):  # torch of the variance of nothing
        assert PRIMITIVES["var"](x[:, :0], (-1,), False).isnan().all()


def test_scalars_know_what_torch_knows() -> None:
    bindings = bind(packs.load([]), "rms_norm", [X16, W16], {"eps": 1e-6}, Torch())
    assert scalars.value(Apply("rows", (bindings.op.equations[0].outputs[0],)), bindings) == 3
    assert bindings.dims == {"D": 128}
    assert bindings.stars == {"B": (3,)}
    assert bindings.dtypes == {"lowp": Dtype("bf16"), "real": Dtype("bf16")}
