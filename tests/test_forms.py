"""Every form of the shipped ops against its definition: another spelling of the same function, or it is caught.

Equal bit for bit where nothing in it has a free last bit. Where something has (exp, fdiv, erf, rsqrt, a reduction)
the two are compared rounding by rounding: what is rounded may differ by 4 ulp of float32, and what comes out then by
one place. An aten op means its decomposition (Inductor's table): `aten.silu` on bf16 is x / (1 + exp(-x)) in float32,
rounded once, whatever the eager kernel does. A custom op is a stub whose kernel is an equation written by hand: that
shows which argument stands where, not what vLLM's kernel computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

import op_samples
import vllm_stubs
from fxrewrite.dsl import core, packs
from fxrewrite.dsl.core import Case, OpDef, Program
from fxrewrite.dsl.evaluate import EvaluationError, bind, case_holds, evaluate_bound, evaluate_case
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.eager import DTYPES, Torch
from roundings import FACTS, differ, difference

PROGRAM = packs.load(["norm_quant", "act_quant"])
E4M3 = torch.float8_e4m3fn


# ---- inputs


def all_values(dtype: torch.dtype) -> Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def midpoints() -> Tensor:
    """Halfway between every two neighbouring codes, both signs: [252], padded to [256] with the ends."""
    codes = torch.arange(127, dtype=torch.uint8).view(E4M3).float()
    middle = (codes[1:] + codes[:-1]) / 2
    return torch.cat([middle, -middle, torch.tensor([448.0, -448.0, 0.0, -0.0])])


def tie_aligned(dtype: torch.dtype, scale: Tensor) -> Tensor:
    """Midpoints times a scale, a row for each scale.

    The largest code stands in each group of 64, so that a dynamic scale is the scale that was meant.
    """
    x = midpoints().repeat(len(scale), 1) * scale[:, None]
    x[:, ::64] = 448.0 * scale[:, None]
    return x.to(dtype)


def hostile(dtype: torch.dtype, width: int) -> Tensor:
    """Rows of zeros, of one NaN or infinity, of huge, tiny and subnormal values."""
    info = torch.finfo(dtype)
    x = torch.randn(10, width, generator=torch.Generator().manual_seed(7))
    x[0], x[1] = 0.0, -0.0
    x[2, 5], x[3, 5], x[4, 5] = float("nan"), float("inf"), -float("inf")
    x[5] *= info.max / 8
    x[6] *= info.tiny
    x[7] *= info.tiny / 64
    x[8] = 2.0 ** torch.arange(width).remainder(24).sub(12)
    x[9, 1:] = 0.0
    return x.clamp(-info.max, info.max).where(x.isfinite(), x).to(dtype)


def inputs(op: OpDef, dtype: str) -> Iterator[list[Any]]:
    """Operands of the op: normal, hostile, every value of a 16-bit dtype, ties of a quantization."""
    plain = op_samples.operands(op, dtype)
    yield plain
    yield [p if p is None or p.dtype != torch.float32 or p.numel() > 1 else p * 0.37 for p in plain]
    shaped = [i for i, o in enumerate(op.operands) if o.type.shape and str(o.type.shape[0]) in ("*B", "T")]
    width = plain[shaped[0]].shape[-1]
    torch_dtype = plain[shaped[0]].dtype
    yield _with(plain, shaped, lambda i: hostile(torch_dtype, width).roll(i, 0))
    if torch_dtype.itemsize == 2 and not op.name.startswith("quant"):
        values = all_values(torch_dtype)
        mixed = torch.randperm(65536, generator=torch.Generator().manual_seed(1))
        yield _with(plain, shaped, lambda i: (values[mixed] if i else values).reshape(-1, width))
    if "quant" in op.name or "fp8" in op.name:
        for scale in (torch.tensor([0.5, 1.0, 4.0]), torch.rand(64, generator=torch.Generator().manual_seed(2)) + 1e-3):
            ties = tie_aligned(torch_dtype, scale)
            if "static" not in op.name:
                yield _with(plain, shaped, lambda i, ties=ties: ties)
                continue
            for row, s in zip(ties, scale):
                yield [
                    s.reshape(1) if o.name == "s" else p
                    for o, p in zip(op.operands, _with(plain, shaped, lambda i, row=row: row[None]))
                ]


def _with(plain: list[Any], shaped: list[int], make: Any) -> list[Any]:
    return [make(i) if i in shaped else p for i, p in enumerate(plain)]


def attribute_sets(op: OpDef, case: Case) -> Iterator[dict[str, Any]]:
    """Every combination of attribute values that the case stands for. The layout changes no value."""
    fixed = {n: v for n, v in case.pins if op.attribute(n) is not None}
    fixed |= {a.name: a.default for a in op.attributes if a.type == "layout" and a.name not in fixed}
    return op_samples.attribute_sets(op, fixed)


def fits(op: OpDef, case: Case, program: Program, operands: list[Any], attributes: dict[str, Any]) -> bool:
    """Does the case stand for these operands and attributes?"""
    try:
        return case_holds(case, bind(program, op, operands, attributes, Torch(), FACTS)) is True
    except EvaluationError:
        return False


def first_difference(op: OpDef, case: Case, program: Program, dtypes: list[str] | None = None) -> tuple[int, str]:
    """On how many inputs the case was tried, and how it differs on the first where it does."""
    tried = 0
    for dtype in dtypes or op_samples.dtypes_of(op):
        for attributes in attribute_sets(op, case):
            for given in inputs(op, dtype):
                for operands in variants(op, given, dtype):
                    if not fits(op, case, program, operands, attributes):
                        continue
                    tried += 1
                    found = difference(op, case, program, operands, attributes)
                    if found:
                        return tried, f"{dtype} {attributes}: {found}"
    return tried, ""


def variants(op: OpDef, given: list[Any], dtype: str) -> Iterator[list[Any]]:
    """The operands; without the optional ones, all of them or all but one; with a float32 weight."""
    yield given
    optional = [i for i, o in enumerate(op.operands) if o.optional]
    for kept in (None, *optional) if len(optional) > 1 else (None,) * len(optional):
        yield [None if i in optional and i != kept else g for i, g in enumerate(given)]
    weights = [i for i, o in enumerate(op.operands) if o.name == "w"]
    if weights:
        yield [g.float() * 1.01 if i in weights else g for i, g in enumerate(given)]


# ---- forms


def is_spelled(case: Case) -> bool:
    """Is it `= e`, or calls of aten only?"""
    return all(name.startswith("aten.") for name in torch_calls(case))


def torch_calls(case: Case) -> set[str]:
    found: set[str] = set()

    def walk(x: Any) -> None:
        if isinstance(x, core.Extern):
            found.add(x.call.op)
        parts = (
            x if isinstance(x, tuple) else [getattr(x, n, None) for n in ("args", "call", "cases", "choices", "body")]
        )
        for part in parts:
            if part is not None:
                walk(part)

    walk(case.outputs)
    return found


APART = {  # ops whose forms are not held here, and why
    "attention": "dense attention has no order of its sums: tests/test_adopted.py",
    "scaled_mm": "a product has no order of its sums: tests/test_adopted.py",
    "layer_norm": "aten also rounds the mean and the factor, which nobody reads: below",
    **dict.fromkeys(("kv_cache_update", "paged_attention"), "an engine holds the cache"),
    **dict.fromkeys(("mla_kv_cache_update", "mla_attention"), "an engine holds the cache"),
    **dict.fromkeys(("all_reduce", "reduce_scatter", "all_gather", "shard"), "a collective needs its ranks"),
}
FORMS = [(op, f) for op in PROGRAM.ops.values() if op.name not in APART for f in op.forms if not f.binds]
SPELLED = [pytest.param(op, f, id=f"{op.name}.{f.name}") for op, f in FORMS if is_spelled(f)]
CUSTOM = [pytest.param(op, f, id=f"{op.name}.{f.name}") for op, f in FORMS if not is_spelled(f)]
IMPLS = [pytest.param(op, i, id=f"{op.name}.{i.name}") for op in PROGRAM.ops.values() for i in op.impls]


def test_there_are_forms_of_both_kinds() -> None:
    assert {"silu.aten", "silu.sigmoid", "gelu.aten", "rms_norm.aten", "rms_norm.composite", "quant_fp8.free"} <= {
        str(p.id) for p in SPELLED
    }
    assert len(CUSTOM) >= 15


@pytest.mark.parametrize(("op", "form"), SPELLED)
def test_a_form_is_the_same_function(op: OpDef, form: Case) -> None:
    tried, found = first_difference(op, form, PROGRAM)
    assert not found
    assert tried >= 8


@pytest.mark.parametrize(("op", "case"), [*CUSTOM, *IMPLS])
def test_the_binding_of_a_custom_op(op: OpDef, case: Case) -> None:
    vllm_stubs.declare()
    tried = 0
    for dtype in op_samples.dtypes_of(op):
        for attributes in op_samples.attribute_sets(op, dict(case.pins)):
            for operands in variants(op, op_samples.operands(op, dtype, rows=6), dtype):
                if not fits(op, case, PROGRAM, operands, attributes):
                    continue
                tried += 1
                expected = evaluate_bound(bind(PROGRAM, op, operands, attributes, Torch()))
                found = evaluate_case(case, bind(PROGRAM, op, operands, attributes, Torch(), FACTS))
                for r, a, b in zip(op.results, expected, found):
                    assert a.dtype == b.dtype, r.name
                    assert not differ(a.contiguous(), b.contiguous()).any(), (r.name, attributes)
    assert tried


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_layer_norm_is_the_first_result_of_aten(dtype: str) -> None:
    """Both sums have an order of their own: 2 places of the result at most, and no difference almost everywhere."""
    op = PROGRAM.ops["layer_norm"]
    form = next(f for f in op.forms if f.name == "aten")
    for given in variants(op, op_samples.operands(op, dtype, rows=64), dtype):
        x, w, b = given
        if w is None and b is not None:
            continue  # no equation has a shift alone
        operands = [x, w, None if w is None or b is None else b.to(w.dtype)]
        bindings = [bind(PROGRAM, op, operands, {"eps": 1e-5}, Torch()) for _ in range(2)]
        (expected,), (found,) = evaluate_bound(bindings[0]), evaluate_case(form, bindings[1])
        assert found.dtype == expected.dtype
        assert (found != expected).float().mean() < 0.01
        torch.testing.assert_close(found, expected, rtol=2 * torch.finfo(found.dtype).eps, atol=1e-3)


@pytest.mark.parametrize("pairing", ["half", "pair"])
def test_forms_that_give_operands_by_parts(pairing: str) -> None:
    """Hugging Face's rotation with cos and sin over both halves, and Meta's with complex numbers."""
    x, f = torch.randn(2, 4, 6, 64).bfloat16(), torch.randn(6, 32)
    c, s = (torch.cat([t, t], -1).bfloat16() for t in (f.cos(), f.sin()))
    op = PROGRAM.ops["rotate"]
    if pairing == "half":
        a, b = x.chunk(2, -1)
        spelled = x * c + torch.cat([-b, a], -1) * s
        given: list[Any] = [x, c[..., :32], s[..., :32]]
        (expected,) = evaluate_bound(bind(PROGRAM, op, given, {}, Torch()))
        torch.testing.assert_close(spelled, expected, rtol=2**-7, atol=2**-7)
        assert (spelled != expected).float().mean() < 0.01  # a * c - b * s is a * c + (-b) * s
    else:
        z = torch.polar(f.exp(), f)
        turned = torch.view_as_real(torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * z)
        (expected,) = evaluate_bound(bind(PROGRAM, op, [x, z.real, z.imag], {"pairing": "pair", "wide": True}, Torch()))
        torch.testing.assert_close(turned.flatten(-2).bfloat16(), expected, rtol=2**-7, atol=1e-3)


# ---- forms that are another function are caught


def with_form(text: str) -> tuple[OpDef, Case, Program]:
    file, diagnostics = parse(text, "other.rw")
    assert not diagnostics
    program = packs.load([file])
    (op,) = (o for o in program.ops.values() if any(f.name == "other" for f in o.forms))
    return op, next(f for f in op.forms if f.name == "other"), program


@pytest.mark.parametrize(
    "text",
    [
        # rounds the product once
        "form silu_mul.other = to(silu32(f32(g)) * f32(u), g.dtype)",
        # rounds 1 + exp(-x) to 16 bits
        "form silu.other = x / (exp(-x) + 1)",
        # the other gelu
        "form gelu.other = to(t * 0.5 * (tanh((t + t * t * t * 0.044715) * 0.7978845608028654) + 1), x.dtype)\n"
        "  where t = f32(x)",
        # multiplies by the reciprocal
        "form quant_fp8_static.other(qt=_) = to(clamp(f32(x) * reciprocal(s), -finfo(qt).max, finfo(qt).max), qt)",
        # does not clamp as high
        "form quant_fp8_static.other(qt=_) = to(clamp(f32(x) / s, -240, 240), qt)",
        # multiplies by the weight before the rounding
        "form rms_norm.other = to(rms32(f32(x), eps, none) * f32(w), x.dtype) when w != none",
        # squares in 16 bits
        "form rms_norm.other = weigh(f32(x) * rsqrt(mean(f32(x * x), -1, keepdim=true) + eps), w, x.dtype, false)",
        # the norm reads the sum in float32
        "form add_rms_norm.other = weigh(rms32(t, eps, none), w, x.dtype, false), to(t, x.dtype)\n"
        "  where t = f32(x) + f32(r)",
        # bounds the scale, not the maximum
        "form quant_fp8_group.other(qeps=_) =\n"
        "  by_group(x, clamp_min(group_max(x, G) / finfo(qt).max, 1e-9), G, qt) when smin >= 0",
    ],
)
def test_another_function_is_caught(text: str) -> None:
    op, form, program = with_form(text + "\n")
    tried, found = first_difference(op, form, program)
    assert tried
    assert found, f"{tried} inputs do not tell it from {op.name}"


def test_normal_inputs_alone_do_not_tell_a_division_from_a_reciprocal() -> None:
    """Why there are tie-aligned inputs."""
    op = PROGRAM.ops["quant_fp8_static"]
    generator = torch.Generator().manual_seed(0)
    scales = torch.rand(64, generator=generator) + 1e-3

    def share(x: Tensor) -> float:
        rows = zip(x, scales)
        both = [
            [evaluate_bound(bind(PROGRAM, op, [row, s.reshape(1)], {"recip": r}, Torch()))[0] for r in (False, True)]
            for row, s in rows
        ]
        return torch.stack([differ(*pair).float().mean() for pair in both]).mean().item()

    assert share(torch.randn(64, 256, generator=generator)) < 1e-3
    assert share(tie_aligned(torch.float32, scales)) > 0.05


def test_the_meaning_of_an_aten_op_is_its_decomposition() -> None:
    """Inductor divides by 1 + exp(-x) in float32; the table of core ATen would multiply by sigmoid(x)."""
    x = all_values(torch.bfloat16)
    (found,), _ = Torch().torch_call("aten.silu", [x], {})
    t = x.float()
    assert not differ(found, (t / (1 + torch.exp(-t))).bfloat16()).any()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_silu_by_sigmoid_on_every_value(dtype: str) -> None:
    """Where the two differ at all: the last place of a float32 decided a rounding."""
    op = PROGRAM.ops["silu"]
    x = all_values(DTYPES[dtype])
    form = next(f for f in op.forms if f.name == "sigmoid")
    expected = evaluate_bound(bind(PROGRAM, op, [x], {}, Torch()))[0]
    found = evaluate_case(form, bind(PROGRAM, op, [x], {}, Torch()))[0]
    assert differ(expected, found).sum() <= 2
    assert not difference(op, form, PROGRAM, [x], {})


def test_a_wrong_argument_order_is_caught() -> None:
    """The binding test fails for a form that passes the operands of a custom op the other way round."""
    vllm_stubs.declare()
    op = PROGRAM.ops["add_rms_norm"]
    form = next(f for f in op.forms if f.name == "ir")
    call = form.outputs[0].call  # type: ignore[union-attr]
    turned = evolve(call, args=(call.args[0], call.args[0], *call.args[2:]))
    wrong = evolve(form, outputs=tuple(evolve(o, call=turned) for o in form.outputs))
    operands = op_samples.operands(op, "bf16")
    attributes = {"eps": 1e-6, "wide": True}
    assert not difference(op, form, PROGRAM, operands, attributes)
    assert difference(op, wrong, PROGRAM, operands, attributes)
