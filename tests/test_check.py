"""What the checker refuses, and that what it accepts loses no attribute, guard or name on the way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxrewrite.dsl import packs
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Call,
    Choose,
    Dtype,
    Each,
    Extern,
    Lit,
    Nothing,
    OpDef,
    Prim,
    Program,
    Ref,
    Result,
    RuleDef,
    Size,
)
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.wording import said
from test_corpus import CHECKED, FAIL

ROOT = Path(__file__).parents[1]
LIBRARY = {path: path.read_text() for path in sorted((ROOT / "patterns").rglob("*.rw"))}


def checked(text: str) -> tuple[Program, list[Diagnostic]]:
    file, diagnostics = parse(text, "test.rw")
    program, found = packs.check_packs([file])
    return program, [d for d in (*diagnostics, *found) if d.severity != "note"]


def program(text: str) -> Program:
    made, diagnostics = checked(text)
    assert not diagnostics, "\n".join(d.render({**made.sources, "test.rw": text}) for d in diagnostics)
    return made


def op(text: str, name: str = "f") -> OpDef:
    return program(text).ops[name]


def rule(text: str) -> RuleDef:
    return next(r for r in program(text).rules if r.span and r.span.file == "test.rw")


def refused(text: str) -> list[str]:
    return [d.code for d in checked(text)[1]]


def calls(x: Any) -> dict[str, Call]:
    return {t.op: t for t in walk(x) if isinstance(t, Call)}


def attributes(x: Any, name: str) -> dict[str, Any]:
    return dict(calls(x)[name].attrs)


def guards(case: Any) -> set[str]:
    return {said(g) for g in case.guards}


# ---- the library


def test_the_library_checks() -> None:
    made, diagnostics = packs.check_packs(packs.shipped())
    assert diagnostics == []
    assert {r.pack for r in made.rules} == set(packs.shipped())
    assert len({r.full_name for r in made.rules}) == len(made.rules)


# ---- several faults


def test_two_faults_are_two_errors() -> None:
    text = (
        "fusion f(x) = quant_fp8_token(x)\nfusion g(x) = silu(x, 3)\nfusion h(x) = f(x) |> silu\nform f.a  eng.f(x)\n"
    )
    assert refused(text) == ["RW205", "RW204"]


def test_what_uses_a_broken_def_is_silent() -> None:
    assert refused("def d(x: f32[*B, D]) = x * eps\nfusion f(x: f32[T, D]) = d(x)\nfusion g(x) = f(x) |> silu\n") == [
        "RW202"
    ]


def test_each_form_and_equation_is_checked_by_itself() -> None:
    text = (
        "op f(x: lowp[*B, D]; eps: float) -> lowp[*B, D]\n  = rms_norm(x, none)\n"
        "  form a  eng.a(x)\n  form b(round=1)  eng.b(x, eps)\n  form c  eng.c(x, eps)\n"
    )
    made, diagnostics = checked(text)
    assert [d.code for d in diagnostics] == ["RW215", "RW211"]
    assert [c.name for c in made.ops["f"].forms] == ["c"]


def test_an_unused_def_is_checked() -> None:
    assert refused("def d(x: lowp[*B, D]) = x.to(f32)\n") == ["RW216"]


# ---- names of rules


def test_a_bare_rule_is_called_after_the_op_on_its_right() -> None:
    made = packs.load(["act_quant"])
    assert "act_quant.fused_silu_quant" in {r.full_name for r in made.rules}


def test_bare_rules_are_made_unique_by_number() -> None:
    text = (
        'silu(x) |> silu => gelu(x, approximate="tanh")\n'
        'gelu(x, approximate="none") |> silu => gelu(x, approximate="tanh")\n'
        'rule gelu_2: silu(gelu(silu(x), approximate="none")) => gelu(x, approximate="tanh")\n'
    )
    assert [r.name for r in program(text).rules] == ["gelu", "gelu_3", "gelu_2"]


# ---- attributes: none is dropped


def test_an_attribute_left_out_is_captured_and_passed_on() -> None:
    r = rule(
        "use norm_quant (rms_norm_fp8_static)\n"
        "rule r: rms_norm(x, w) |> quant_fp8_static(s) => rms_norm_fp8_static(x, w, s)\n"
    )
    assert [a.name for a in r.attributes] == ["eps", "late", "vs", "recip", "qt"]
    assert attributes(r.right, "rms_norm_fp8_static") == {a.name: Ref(a.name) for a in r.attributes}


def test_a_renamed_attribute_is_bound_under_its_new_name() -> None:
    r = rule(
        "use norm_quant (rms_norm_fp8_static)\n"
        "rule r: rms_norm(x, w, eps=e) |> quant_fp8_static(s) => rms_norm_fp8_static(x, w, s, eps=e)\n"
    )
    assert [a.name for a in r.attributes][:1] == ["e"]
    assert r.attributes[0].default is NO_DEFAULT
    assert attributes(r.left, "rms_norm")["eps"] == Ref("e") == attributes(r.right, "rms_norm_fp8_static")["eps"]


def test_a_declared_attribute_of_a_rule_is_one_of_it() -> None:
    r = rule(
        "use norm_quant (rms_norm_fp8_static)\n"
        "rule r(x, w, s; e: float):\n"
        "  rms_norm(x, w, eps=e) |> quant_fp8_static(s) => rms_norm_fp8_static(x, w, s, eps=e)\n"
    )
    assert "e" in {a.name for a in r.attributes}


def test_an_equation_that_says_nothing_of_an_attribute_stands_for_its_default() -> None:
    f = op(
        "op f(x: lowp[*B, D]; wide: bool = false, late: bool = false) -> lowp[*B, D]\n"
        "  = silu(x)   when late\n  = x * x   when wide\n"
        "  = x + x   when not wide and not late\n  = x - x   when wide and late\n"
    )
    assert [dict(e.pins) for e in f.equations] == [
        {"late": True, "wide": False},
        {"wide": True, "late": False},
        {"wide": False, "late": False},
        {"wide": True, "late": True},
    ]


def test_an_equation_for_the_default_only_is_not_the_meaning_of_other_values() -> None:
    text = (
        "op f(x: lowp[*B, D]; wide: bool = false, late: bool = false) -> lowp[*B, D]\n"
        "  = silu(x)   when not wide\n  = x + x   when wide and not late\n  = x * x   when wide and late\n"
    )
    assert refused(text) == ["RW407"]  # not wide and late: the first equation says nothing of `late`


def test_a_form_that_says_nothing_of_an_attribute_stands_for_its_default() -> None:
    made = packs.load(["norm_quant"])
    vllm = next(i for i in made.ops["rms_norm_fp8_static"].impls if i.name == "vllm")
    assert dict(vllm.pins) == {"recip": True, "late": False, "vs": None, "qt": Dtype("e4m3fn")}


def test_a_spelling_without_an_optional_operand_stands_for_none_only() -> None:
    made = program("impl rms_norm_fp8.mine  eng.quant(x, w, out qx, out sx, eps)\n")
    assert dict(made.ops["rms_norm_fp8"].impls[-1].pins)["ub"] is None


def test_a_value_outside_of_a_domain_is_guarded() -> None:
    f = op("fusion f(x, s; q: dtype) = quant_fp8_static(x, s, qt=q)\n")
    assert guards(f.equations[0]) == {"q == e4m3fn or q == e4m3fnuz"}


def test_an_attribute_that_only_types_name_is_said() -> None:
    made = packs.load(["norm_quant"])
    assert dict(made.ops["quant_fp8_group"].equations[0].pins) == {}  # G and qt are in the types, L is the layout


def test_an_attribute_carried_by_a_call_in_a_form_is_said() -> None:
    f = op(
        "op f(x: lowp[*B, D], w: real[D]; eps: float) -> lowp[*B, D]\n  = rms_norm(x, f32(w))\n"
        "  form other = rms_norm(x, f32(w) * 1.0)\n"
    )
    assert dict(f.forms[0].pins) == {}
    assert attributes(f.forms[0].outputs, "rms_norm")["eps"] == Ref("eps")


def test_a_wildcard_pins_nothing_and_is_one_value() -> None:
    text = (
        "fusion two(x, w, v) = a, b where a = rms_norm(x, w), b = rms_norm(x, v)\n"
        'op g(x: lowp[*B, D], w: real[D]?, v: real[D]?) -> (a: lowp[*B, D], b: lowp[*B, D])\n  ref "p:g"\n'
        "rule r: two(x, w, v, eps=_, late=false, vs=none) => g(x, w, v)\n"
    )
    r = next(r for r in program(text).rules if r.name == "r")
    eps = {dict(c.attrs)["eps"] for c in walk(r.left) if isinstance(c, Call)}
    assert len(eps) == 1
    assert isinstance(next(iter(eps)), Ref)


def test_a_builtin_of_the_same_name_as_a_torch_op_with_other_arguments_is_not_it() -> None:
    text = (
        "op f(x: f32[*B, D]) -> f32[*B]\n  = aten.var(x, -1)\n"
        "op g(x: f32[*B, D]) -> f32[*B, D]\n  = aten.round(x, decimals=2)\n"
        "op h(x: f32[*B, D], y: f32[*B, D]) -> f32[*B, D]\n  = aten.add(x, y, alpha=2)\n"
        "op k(x: f32[*B, D]) -> f32[*B, D]\n  = aten.pow(x, 3)\n"
    )
    made = program(text)
    for name in "fghk":
        assert isinstance(made.ops[name].equations[0].outputs[0], Extern)


# ---- dtypes, dims and guards: nothing is unified in silence


def test_a_bare_cast_needs_the_own_dtype() -> None:
    r = rule("rule r: to(x, t) => x\n  requires t in {bf16, f16}\n")
    assert Apply("==", (Ref("t"), Apply("dtype", (r.right[0],)))) in r.guards


def test_what_an_emitted_op_requires_is_required() -> None:
    r = rule(
        'op old(x: lowp[T, D]; qt: dtype in fp8 = e4m3fn) -> (qx: qt[T, D], sx: f32[T, D//96])\n  ref "p:old"\n'
        'rule r: old(x) => quant_fp8_group(x, G=96, ue8m0=false, L="row")\n'
    )
    assert guards(r) == {"D%96 == 0"}


def test_what_a_nested_fusion_requires_is_required() -> None:
    made = program(
        "fusion inner(x, w) = rms_norm(x, w) |> quant_fp8\n  requires D % 16 == 0\n"
        "fusion outer(x, w: real[K], v: real[K]?) = inner(y, w) where (y, _h) = add_rms_norm(x, x, v)\n"
    )
    assert guards(made.ops["inner"].equations[0]) == {"D%16 == 0"}
    assert guards(made.ops["outer"].equations[0]) == {"K%16 == 0"}


def test_the_sizes_of_a_split_are_the_axis() -> None:
    f = op("fusion f(x: lowp[T, D]) = a, b where (p, q) = split(x, [64, 64], -1), a = silu(p), b = gelu(q)\n")
    assert guards(f.equations[0]) == {"128 == D"}


def test_chunks_are_equal() -> None:
    f = op("fusion f(x: lowp[T, D]) = silu_mul(p, q) where (p, q) = chunk(x, 2, -1)\n")
    assert guards(f.equations[0]) == {"D%2 == 0"}


def test_a_bound_from_the_end_is_a_size() -> None:
    f = op("fusion f(x: lowp[T, D]) = silu(x[..., 1:-1])\n")
    assert str(f.results[0].type) == "lowp[T, D - 2]"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("fusion f(x: lowp[*B, D], y: lowp[*C, D]) = silu_mul(x, y)\n", "RW305"),
        ("fusion f(x: lowp[T, D], y: lowp[T, K]) = silu_mul(x, y)\n", "RW305"),
        ("op f(x: lowp[T, D], y: lowp[T, K]) -> lowp[T, D]\n  = x + y\n", "RW305"),
        ("op f(x: lowp[T, D], y: real[T, D]) -> lowp[T, D]\n  = x + y\n", "RW301"),
        ("op f(a: lowp[M, K], b: lowp[N, K]) -> lowp[M, N]\n  = a @ b\n", "RW305"),
        ("op f(a: bf16[M, K], b: f16[K, N]) -> bf16[M, N]\n  = a @ b\n", "RW301"),
        ("op f(a: bf16[M, K], b: f16[M, K]) -> bf16[2*M, K]\n  = cat([a, b], 0)\n", "RW301"),
    ],
)
def test_independent_sizes_and_dtypes_stay_so(text: str, code: str) -> None:
    assert refused(text) == [code]


def test_requires_may_tie_two_sizes() -> None:
    f = op("fusion f(x: lowp[T, D], y: lowp[T, K]) = silu_mul(x, y)\n  requires D == K\n")
    assert guards(f.equations[0]) == {"D == K"}


def test_a_dtype_attribute_against_a_dtype_is_a_guard() -> None:
    f = op(
        'op take(q: e4m3fn[*B, D]) -> e4m3fn[*B, D]\n  ref "p:take"\nfusion f(x, s) = quant_fp8_static(x, s) |> take\n'
    )
    assert guards(f.equations[0]) == {"qt == e4m3fn"}
    assert refused(
        'op take(q: i8[*B, D]) -> i8[*B, D]\n  ref "p:take"\nfusion f(x, s) = quant_fp8_static(x, s) |> take\n'
    ) == ["RW301"]


def test_a_class_is_one_dtype_a_call() -> None:
    r = rule("rule r: silu_mul(silu(a), u, wide=false) |> silu => silu_mul(a, u, wide=true)\n")
    assert {str(o.type) for o in r.operands} == {"lowp[*B, D]"}


# ---- optional operands


def test_an_operand_that_may_be_none_needs_a_guard() -> None:
    assert refused("op f(x: lowp[*B, D], w: real[D]?) -> lowp[*B, D]\n  = to(f32(x) * f32(w), x.dtype)\n") == ["RW307"]
    program(
        "op f(x: lowp[*B, D], w: real[D]?) -> lowp[*B, D]\n"
        "  = to(f32(x) * f32(w), x.dtype)  when w != none\n  = x + x  when w == none\n"
    )


def test_a_parameter_that_a_builtin_needs_may_not_be_none() -> None:
    f = op("fusion f(x, ub) = quant_fp8(x, ub), t where t = ub + 1.0\n")
    assert [o.optional for o in f.operands] == [False, False]
    assert op("fusion f(x, ub) = quant_fp8(x, ub)\n").operands[1].optional


def test_a_condition_on_an_inferred_operand_is_kept() -> None:
    f = op("fusion f(x, ub) = quant_fp8(x, ub)\n  requires ub == none\n")
    assert guards(f.equations[0]) == {"ub == none"}


TAKES_A_WEIGHT = (
    'op f(x: lowp[*B, D], w: real[D]; eps: float, late: bool = false, vs: int? = none) -> lowp[*B, D]\n  ref "p:f"\n'
)


def test_a_rule_that_needs_an_operand_says_so() -> None:
    assert refused(TAKES_A_WEIGHT + "rule r: rms_norm(x, w) => f(x, w)\n") == ["RW307"]
    r = rule(TAKES_A_WEIGHT + "rule r: rms_norm(x, w) |> silu => f(x, w)\n  requires w != none\n")
    assert not next(o for o in r.operands if o.name == "w").optional


# ---- equations: the first that holds


def test_overlapping_equations_exclude_each_other() -> None:
    f = op("op f(x: lowp[*B, D]; n: int) -> lowp[*B, D]\n  = silu(x)  when n >= 2\n  = x + x  when n >= 1\n")
    assert [guards(e) for e in f.equations] == [{"n >= 2"}, {"n >= 1", "not n >= 2"}]


def test_a_later_equation_knows_what_an_earlier_one_pins() -> None:
    text = (
        "op f(x: lowp[*B, D], w: real[D]?; wide: bool = false) -> lowp[*B, D]\n"
        "  = silu(x)  when not wide\n  = x + x  when w == none and wide\n  = x * x  when wide\n"
    )
    f = op(text)
    assert [dict(e.pins) for e in f.equations] == [{"wide": False}, {"w": None, "wide": True}, {"wide": True}]
    assert [guards(e) for e in f.equations] == [set(), set(), {"not w == none"}]
    assert refused(text.replace(" and wide", "")) == ["RW404"]  # for `wide` at its default, where the first one holds


def test_cases_of_a_def_exclude_each_other() -> None:
    f = op(
        "def d(x: f32[*B, D], n: int)\n  = x + 1.0  when n >= 2\n  = x * 2.0  when n >= 1\n  = x\n"
        "op f(x: f32[*B, D]; n: int) -> f32[*B, D]\n  = d(x, n)\n"
    )
    choose = f.equations[0].outputs[0]
    assert isinstance(choose, Choose)
    assert [{said(c) for c in conds} for conds, _ in choose.cases] == [
        {"n >= 2"},
        {"n >= 1", "not n >= 2"},
        {"not n >= 2", "not n >= 1"},
    ]


def test_complementary_cases_stay_as_they_are_written() -> None:
    f = op("op f(x: f32[*B, D], s: f32[1]; recip: bool = false) -> f32[*B, D]\n  = scaled(x, s, recip)\n")
    choose = f.equations[0].outputs[0]
    assert isinstance(choose, Choose)
    assert [tuple(map(said, conds)) for conds, _ in choose.cases] == [("not recip",), ("recip",)]


# ---- hygiene


def test_a_def_does_not_see_the_names_of_its_caller() -> None:
    assert refused("def d(x: f32[*B, D]) = x * smin\nop f(x: f32[*B, D]; smin: float) -> f32[*B, D]\n  = d(x)\n") == [
        "RW202"
    ]
    assert refused("def d(x: f32[*B, K]) = x * D\nop f(x: f32[*B, D]) -> f32[*B, D]\n  = d(x)\n") == ["RW202"]


def test_dims_of_a_def_are_its_own() -> None:
    f = op("def first(x: real[*B, 2*D]) = x[..., :D]\nfusion f(x: lowp[T, D]) = silu(first(x))\n")
    assert str(f.results[0].type) == "lowp[T, D//2]"
    assert guards(f.equations[0]) == {"D%2 == 0"}


def test_dims_of_a_nested_fusion_are_its_own() -> None:
    f = op("fusion inner(x: lowp[T, 2*D]) = silu(x[..., :D])\nfusion f(x: lowp[T, D]) = gelu(inner(x))\n")
    (piece,) = [t for t in walk(f.equations[0].outputs) if isinstance(t, Prim) and t.op == "slice"]
    assert said(piece.params[2]) == "D//2"


def test_a_def_may_stand_in_an_argument_of_itself() -> None:
    program("def half(x: real[*B, 2*D]) = x[..., :D]\nfusion f(x: lowp[T, 4*K]) = silu(half(half(x)))\n")


def test_a_pinned_attribute_does_not_leak() -> None:
    text = (
        "fusion inner(x, w) = rms_norm(x, w) |> silu\n"
        "fusion f(x, w, v) = inner(x, w, eps=1e-5), t where t = rms_norm(x, v)\n"
    )
    outputs = op(text).equations[0].outputs
    found = {dict(c.attrs)["eps"] for c in walk(outputs) if isinstance(c, Call) and c.op == "rms_norm"}
    assert found == {Lit(1e-5), Ref("eps")}


def test_a_pinned_attribute_does_not_leak_through_two_fusions() -> None:
    text = (
        "fusion inner(x, w; e: float) = rms_norm(x, w, eps=e) |> gelu_mul(x)\n"
        "fusion middle(x, w, v) = inner(y, w, e=1e-5) where y = rms_norm(x, v)\n"
        "fusion f(x, w, v) = middle(x, w, v, eps=1e-3)\n"
    )
    f = op(text)
    found = [dict(c.attrs)["eps"] for c in walk(f.equations[0].outputs) if isinstance(c, Call) and c.op == "rms_norm"]
    assert sorted(said(e) for e in found) == ["0.001", "1e-05"]
    assert "eps" not in {a.name for a in f.attributes}


def test_own_attributes_of_a_nested_fusion_are_inherited() -> None:
    f = op("fusion inner(x, w; e: float) = rms_norm(x, w, eps=e) |> silu\nfusion f(x, w) = inner(x, w) |> quant_fp8\n")
    assert [a.name for a in f.attributes][:3] == ["e", "late", "vs"]
    assert attributes(f.equations[0].outputs, "rms_norm")["eps"] == Ref("e")


def test_a_kept_name_is_the_one_of_its_own_item() -> None:
    made = program(
        "fusion inner(x, w) = silu(n) where n = rms_norm(x, w)\n"
        "fusion outer(x, w, v) = q, s where m = inner(x, w), keep n = rms_norm(m, v), (q, s) = quant_fp8(n)\n"
    )
    r = next(r for r in made.rules if r.name == "outer")
    kept = [t for name, t in r.named if name in r.kept]
    assert len(kept) == 1
    assert isinstance(kept[0], Result)
    assert any(isinstance(t, Call) and t.op == "silu" for t in walk(kept[0]))


def test_an_operand_and_an_attribute_of_one_name_are_told_apart() -> None:
    assert refused("rule r: rms_norm(eps, w) |> silu => silu(eps)\n  requires w == none\n") == ["RW213"]


def test_a_number_is_no_tensor_elsewhere() -> None:
    assert refused("rule r: slice(silu(d), d, 0, _n) => d\n") == ["RW310"]


# ---- keep and each


def test_each_binds_lists() -> None:
    f = op("fusion f(x, w, *s) = *qx where n = rms_norm(x, w), each qx = quant_fp8_static(n, s)\n")
    (each,) = f.equations[0].outputs
    assert isinstance(each, Each)
    assert each.lists == ("s",)
    assert f.operands[2].star
    assert f.results[0].star


def test_names_inside_an_each_are_lists_where_lists_are_used() -> None:
    text = (
        "rule r:  *y => split(x, sizes(a, b), d) where each y = slice(x, d, a, b) requires covers(a, b, x.shape[d])\n"
    )
    (r,) = program(text).rules
    (each,), (split,) = r.left, r.right
    assert isinstance(each, Each)
    assert each.lists == ("a", "b")  # x and d are one value: the right side uses them so
    assert isinstance(split, Extern)
    assert split.returned is split.written is None
    assert split.call.args[1] == Apply("sizes", (Ref("a"), Ref("b")))
    assert [g.op for g in r.guards if isinstance(g, Apply)] == ["covers"]


def test_a_split_whose_axis_a_rule_binds_is_the_torch_op() -> None:
    text = (
        "rule r:  y, p, q => split(x, [l, m, n], d) where (y, t) = split(x, [l, _], d), (p, q) = split(t, [m, n], d)\n"
    )
    (r,) = program(text).rules
    assert all(isinstance(t, Extern) and t.call.op == "aten.split_with_sizes.default" for t in (*r.left, *r.right))
    assert [t.returned for t in r.right if isinstance(t, Extern)] == [0, 1, 2]


def test_a_list_is_no_value() -> None:
    text = (
        "fusion f(x, w, *s) = *qx, quant_fp8_static(x, s) where n = rms_norm(x, w), each qx = quant_fp8_static(n, s)\n"
    )
    assert refused(text) == ["RW220"]


# ---- row-wise fusions


def test_a_fusion_is_rowwise_along_what_its_rows_follow() -> None:
    made = packs.load(["norm_quant"])
    assert made.ops["rms_norm_fp8"].rowwise == ("x",)
    assert made.ops["add_rms_norm_fp8"].rowwise == ("x", "r")
    assert made.ops["rms_norm_fp8_tensor"].rowwise == ()


def test_a_fusion_that_reads_rows_as_a_whole_is_not() -> None:
    f = op("fusion f(x: lowp[T, D]) = quant_fp8_static(x, reshape(f32(amax(x)), [1]))\n")
    assert f.rowwise == ()
    g = op("fusion f(x: lowp[D, D], y: lowp[D]) = rms_norm(x, y), s where s = silu(y)\n")
    assert g.rowwise == ()


def test_a_weight_added_to_rows_is_shared_by_them() -> None:
    f = op("fusion f(x: lowp[*B, D], b: lowp[D]) = silu(x + b)\n")
    assert f.rowwise == ("x",)


# ---- rules against each other


SILU_FP8 = "silu_and_mul(x) |> quant_fp8_static(s)"


def test_over_settles_an_overlap() -> None:
    text = (
        "use act_quant (silu_and_mul_fp8_static, silu_mul_fp8_static)\n"
        f"rule r: {SILU_FP8} => silu_and_mul_fp8_static(x, s)\n"
        f"rule q over r: {SILU_FP8} => silu_mul_fp8_static(g, u, s) where (g, u) = halves(x)\n  prefer tokens >= 4\n"
    )
    program(text)


def test_one_right_side_is_no_overlap() -> None:
    text = "use act_quant (silu_and_mul_fp8_static)\n" + "".join(
        f"rule {name}: silu_and_mul({x}) |> quant_fp8_static({s}) => silu_and_mul_fp8_static({x}, {s})\n"
        for name, x, s in (("r", "x", "s"), ("q", "a", "b"))
    )
    program(text)


def test_conditions_that_exclude_each_other_are_no_overlap() -> None:
    text = (
        "use act_quant (silu_and_mul_fp8_static, silu_mul_fp8_static)\n"
        f"rule r: {SILU_FP8} => silu_and_mul_fp8_static(x, s)\n  requires wide\n"
        f"rule q: {SILU_FP8} => silu_mul_fp8_static(g, u, s) where (g, u) = halves(x)\n  requires not wide\n"
    )
    program(text)


def test_a_rule_ends_by_a_measure() -> None:
    text = "rule r(x: lowp[*B, D], y: lowp[*B, D]): silu(x) + silu(y) => silu(y) + silu(x)\n"
    assert refused(text) == ["RW403"]
    measure = rule(text + "  decreasing rows(x)\n").decreasing
    assert isinstance(measure, Apply)
    assert measure.op == "rows"


def test_effects_need_their_op() -> None:
    write = 'op write(k: lowp[T, D], layer: str) -> lowp[T, D]\n  ref "p:w"\n  property writes(layer)\n'
    assert program(write).ops["write"].effects == (("writes", "layer"),)
    fused = write + "fusion silu_write(k, layer) = write(silu(k), layer)\n"
    assert program(fused).ops["silu_write"].effects == (("writes", "layer"),)
    assert refused(fused + "rule r: write(silu(k), l) |> gelu => gelu(silu_write(k, l))\n") == []


# ---- packs


def test_contract_and_prefer_of_a_pack_hold_for_its_rules() -> None:
    made = program(
        "pack mine level O2 prefer tokens <= 64 contract bitwise\n"
        'fusion f(x, w) = rms_norm(x, w) |> silu\nrule r: gelu(silu(x), approximate="none") => silu(x)\n'
    )
    assert [[said(p) for p in r.prefer] for r in made.rules] == [["tokens <= 64"]] * 2
    assert all(r.contract is not None and r.contract.kind == "bitwise" for r in made.rules)


def test_a_pack_is_visible_by_use_only() -> None:
    text = "rule r: rms_norm(x, w) |> silu |> quant_fp8(ub) => rms_norm_fp8(x, w, ub)\n"
    file, _ = parse(text, "test.rw")
    _, (found,) = packs.check_packs(["default", file])
    assert (found.code, found.hint) == ("RW205", "write `use norm_quant (rms_norm_fp8)` above")
    file, _ = parse("use norm_quant (rms_norm_fp8)\n" + text, "test.rw")
    assert packs.check_packs(["default", file])[1] == []


def test_a_provider_for_an_op_of_a_pack_needs_no_use() -> None:
    made = program("impl rms_norm_fp8.mine  eng.quant(x, w, out qx, out sx, eps)  when sm >= 90, ub == none\n")
    assert [i.name for i in made.ops["rms_norm_fp8"].impls][-1] == "mine"
    assert not any(r.pack == "norm_quant" for r in made.rules)


# ---- any text


MUTANTS = ["", "(", ")", ",", ";", "x", "D", "*", "none", "1", '"s"', "qx", "silu", "each", "_", ".0", "+", "=>", "eps"]
WORD = re.compile(r"\w+|[^\w\s]")


def mutated(text: str, edits: list[tuple[int, str, int]]) -> str:
    """Words of the text removed, doubled, swapped or replaced."""
    for at, how, other in edits:
        words = list(WORD.finditer(text))
        if not words:
            return text
        one, two = sorted((at % len(words), other % len(words)))
        a, b = words[one], words[two]
        if how == "delete":
            text = text[: a.start()] + text[a.end() :]
        elif how == "double":
            text = text[: a.end()] + " " + a[0] + text[a.end() :]
        elif how == "swap" and one != two:
            text = text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]
        elif how == "copy":
            text = text[: a.start()] + b[0] + text[a.end() :]
        else:
            text = text[: a.start()] + MUTANTS[other % len(MUTANTS)] + text[a.end() :]
    return text


EDITS = st.lists(
    st.tuples(
        st.integers(0, 10_000), st.sampled_from(["delete", "double", "swap", "copy", "replace"]), st.integers(0, 10_000)
    ),
    min_size=1,
    max_size=4,
)


TEXTS = [*LIBRARY.values(), *(path.read_text().partition("\n")[2] for path in (*FAIL, *CHECKED))]


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(TEXTS), EDITS)
def test_damaged_text(text: str, edits: list[tuple[int, str, int]]) -> None:
    answers(mutated(text, edits))


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(st.sampled_from(TEXTS), EDITS)
def test_much_damaged_text(text: str, edits: list[tuple[int, str, int]]) -> None:
    answers(mutated(text, edits))


def answers(text: str) -> None:
    """Every finding is in the text, in one line, and can be shown."""
    file, diagnostics = parse(text, "test.rw")
    made, found = packs.check_packs([file])
    sources = {**made.sources, "test.rw": text}
    for one in (*diagnostics, *found):
        lines = sources[one.span.file].split("\n")
        assert 1 <= one.span.line <= one.span.end_line <= len(lines), one
        assert 1 <= one.span.column <= len(lines[one.span.line - 1]) + 1, one
        assert 1 <= one.span.end_column <= len(lines[one.span.end_line - 1]) + 1, one
        assert re.fullmatch(r"RW\d{3}", one.code)
        assert "\n" not in one.message + one.hint
        assert one.render(sources)


@pytest.mark.parametrize("head", ["-", "silu(", "f32(x) + (", "silu(x) |> silu_mul("])
def test_the_deepest_text_that_is_read_is_checked(head: str) -> None:
    counted = 2 if head in ("f32(x) + (", "silu(x) |> silu_mul(") else 1
    times = 190 // counted
    body = head * times + "x" + ")" * (times if "(" in head else 0)
    _, found = checked(f"fusion f(x: f32[T, D]) = {body}\n")
    assert all(d.code != "RW130" for d in found)


def test_a_definition_that_explodes_is_refused() -> None:
    text = "def d0(x: f32[*B, D]) = x * 2.0\n" + "".join(
        f"def d{n}(x: f32[*B, D]) = d{n - 1}(d{n - 1}(x) + {n}.0)\n" for n in range(1, 20)
    )
    _, found = checked(text + "fusion f(x: f32[T, D]) = d19(x)\n")
    assert {d.code for d in found} == {"RW130"}


def test_sizes_are_sizes() -> None:
    f = op("op f(x: lowp[T, 2*D]) -> lowp[T, D]\n  = x[..., :D]\n")
    (piece,) = f.equations[0].outputs
    assert isinstance(piece, Prim)
    assert isinstance(piece.params[2], Size)
    assert not isinstance(piece, Nothing)


@pytest.mark.parametrize("bounds", ["0:12", "3:12", "-12:", "-12:5", "2:-3", ":8", "-5:-1", "1:9:3", "::2"])
def test_a_constant_slice_is_cut_at_the_axis(bounds: str) -> None:
    made = op(f"fusion f(x: f32[T, 8]) = x[..., {bounds}]")
    start, stop, step = (int(b) if b else None for b in (*bounds.split(":"), "")[:3])
    assert str(made.results[0].type) == f"f32[T, {len(range(8)[start:stop:step])}]"


def test_a_slice_beyond_the_axis_is_the_whole() -> None:
    one, two = (op(f"fusion f(x: f32[T, D]) = x[..., :{end}]").equations[0].outputs for end in ("2*D", "D"))
    assert one == two
