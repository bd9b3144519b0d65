"""Inputs for claims: every claim gets some, they satisfy what it requires, and they are as hostile as they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given as drawn
from hypothesis import settings
from torch import Generator, Tensor

from fxrewrite.dsl import core, digest, dims, packs
from fxrewrite.dsl.core import Program, Sample
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify import aimed, inputs
from fxrewrite.verify.assign import Space, Starved
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.dynamic import division
from fxrewrite.verify.layouts import LAYOUTS, placed
from fxrewrite.verify.profiles import QUICK, Profile, profile_named
from fxrewrite.verify.samples import samples_of
from fxrewrite.verify.shaped import EVERY, Given, Shaped
from fxrewrite.verify.straight import record_side
from fxrewrite.verify.strategies import acceptance, cases, claim_strategy, left_out, planned, signature_strategy
from op_samples import has_meaning

PROGRAM = packs.load()
CLAIMS = list(claims(PROGRAM))
FEW = Profile("few", cases=8, rows=16, examples=5, wide=False, aimed=1)
ACCEPTED = 0.9
NO_INPUTS = {"rotate/complex": "the type of `z`"}  # what no dtype of the language is


def named(name: str, program: Program = PROGRAM) -> Claim:
    return next(c for c in claims(program) if c.name == name)


def claim_of(text: str) -> Claim:
    """The claim of the one form in a text."""
    file, diagnostics = parse(text, "mine.rw")
    assert not diagnostics
    return next(c for c in claims(packs.load([file])) if c.span is not None and c.span.file == "mine.rw")


def is_evaluated(claim: Claim) -> bool:
    """Has its reference a meaning in this process?"""
    called = [t.call.op for t in (claim.reference or core.Case("", ())).outputs if isinstance(t, core.Result)]
    ops = [PROGRAM.ops[n] for n in called] or [claim.op]
    return all(o.name not in PROGRAM.ops or has_meaning(PROGRAM, o) for o in ops)


def tensors(given: Given) -> Iterator[Tensor]:
    for operand in given.operands:
        yield from (t for t in (operand if isinstance(operand, list) else [operand]) if isinstance(t, Tensor))


# ---- every claim


def tried(profile: Profile) -> Counter[str]:
    """How many cases of all claims were made, and how many refused; no claim below the share that must be accepted."""
    total: Counter[str] = Counter()
    for claim in CLAIMS:
        if claim.name in NO_INPUTS:
            with pytest.raises(Starved, match=NO_INPUTS[claim.name]):
                next(cases(claim, profile, 0))
            continue
        made = list(cases(claim, profile, 0))
        assert len(made) == profile.cases, claim.name
        if is_evaluated(claim):
            found = acceptance(claim, made)
            assert found.accepted >= min(ACCEPTED * found.tried, found.tried - 1), (claim.name, found.refused)
            total += Counter(tried=found.tried, refused=found.tried - found.accepted)
    return total


def test_every_claim_has_inputs_that_it_is_for(record_property: Any) -> None:
    total = tried(FEW)
    record_property("refused", f"{total['refused']} of {total['tried']}")
    assert total["tried"] > 700 and total["refused"] <= 0.01 * total["tried"], total


@pytest.mark.slow
def test_every_claim_has_inputs_in_the_quick_profile(record_property: Any) -> None:
    total = tried(QUICK)
    record_property("refused", f"{total['refused']} of {total['tried']}")
    assert total["refused"] <= 0.01 * total["tried"], total


def test_cases_are_the_same_for_a_seed_and_others_for_another() -> None:
    claim = named("norm_quant.add_rms_norm_fp8")
    one, again, other = (list(cases(claim, FEW, seed)) for seed in (0, 0, 1))
    assert [g.label for g in one] == [g.label for g in again] != [g.label for g in other]
    for a, b in zip(one, again):
        assert all(same_bits(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))


def same_bits(a: Tensor, b: Tensor) -> bool:
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.clone(memory_format=torch.contiguous_format).view(integers), b.contiguous().view(integers))


def test_quick_covers_rows_widths_dtypes_attributes_and_operands() -> None:
    claim = named("norm_quant.rms_norm_fp8_static")
    made = list(cases(claim, QUICK, 0))
    x = [g.operands[0] for g in made]
    assert {1, 64, 100, 128} <= {t.shape[-1] for t in x if t.shape[:-1] == (256,)}
    assert any(t.shape[-1] >= 384 for t in x)
    assert {0, 1, 2, 3, 127, 128, 129} <= {t.shape[0] for t in x if t.ndim == 2}
    weights = {None if g.operands[1] is None else (g.operands[0].dtype, g.operands[1].dtype) for g in made}
    assert None in weights and (torch.bfloat16, torch.float32) in weights
    for name in ("late", "recip"):
        assert {g.attributes[name] for g in made} == {False, True}
    assert len({(g.attributes["late"], g.attributes["recip"]) for g in made}) == 4, "two attributes go in step"
    assert {g.attributes["eps"] for g in made} >= {1e-6, 1e-5}
    assert sum("aimed at" in g.label for g in made) == QUICK.aimed
    assert sum(g.label.startswith(EVERY) for g in made) >= 5
    assert any(not t.is_contiguous() for g in made for t in tensors(g))


def test_the_wide_profiles_have_the_width_of_a_model() -> None:
    made = cases(named("norm_quant.rms_norm_fp8_group"), profile_named("ci"), 0)
    assert any(next(made).operands[0].shape[-1] == 4096 for _ in range(20))


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="write one of quick, ci, deep"):
        profile_named("fast")


# ---- what may be left out, and what is one of a few


def choices(claim: Claim) -> dict[str, set[Any]]:
    """The optional operands (is it given?), and the attributes that are a bool, one of a closed set, or optional."""
    found: dict[str, set[Any]] = {}
    for v in Space.of(claim).variables:
        a = claim.op.attribute(v.name)
        closed = a is not None and (a.type == "bool" or (a.type in ("str", "layout") and a.domain is not None))
        if v.kind == "present" or (v.kind == "attribute" and closed):
            found[v.name] = set(v.values)
        elif v.kind == "attribute" and None in v.values:
            found[v.name] = {False, True} if len(v.values) > 1 else {False}
    return found


def chosen(claim: Claim, made: Shaped) -> dict[str, Any]:
    """What a case has of these."""
    given = {n: o is not None for n, o in zip(made.names, made.operands)}
    optional = {a.name for a in claim.op.attributes if a.optional and a.domain is None and a.type != "bool"}
    return {**given, **{n: v is not None if n in optional else v for n, v in made.attributes.items()}}


def lacking(claim: Claim) -> dict[str, set[Any]]:
    """The choices that no case of the quick profile has."""
    lacks = choices(claim)
    for _, made in planned(claim, QUICK, 0):
        has = chosen(claim, made)
        lacks = {name: left for name, values in lacks.items() if (left := values - {has[name]})}
        if not lacks:
            break
    possible = {n: {v for v in values if is_possible(claim, n, v)} for n, values in lacks.items()}
    return {name: values for name, values in possible.items() if values}


def is_possible(claim: Claim, name: str, value: Any) -> bool:
    """Is there a case with this choice? A weight that a kernel needs is always given, say."""
    space = Space.of(claim)
    alone = tuple(evolve(v, values=(value,)) if v.name == name else v for v in space.variables)
    try:
        evolve(space, variables=alone).choose(Random(0), restarts=3)
    except Starved:
        return False
    return True


WITH_CHOICES = ("norm_quant.add_rms_norm_fp8", "rms_norm/ir", "quant_fp8_group/torch", "quant_nvfp4/linear")


@pytest.mark.parametrize("name", WITH_CHOICES)
def test_quick_has_every_choice(name: str) -> None:
    claim = named(name)
    assert choices(claim) and not lacking(claim)


def test_optional_numbers_are_none_in_a_third_of_the_cases() -> None:
    made = [m.attributes["vs"] for _, m in planned(named("norm_quant.add_rms_norm_fp8"), QUICK, 1)]
    assert 6 <= made.count(None) <= 10 and len(set(made)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_quick_has_every_choice_of_every_shipped_claim(part: int) -> None:
    every = list(claims(packs.load(packs.shipped())))
    lacks = {c.name: found for c in every[part::2] if c.name not in NO_INPUTS and (found := lacking(c))}
    assert not lacks


# ---- relations


RELATIONS = {
    "act_quant.fused_silu_quant": lambda g, at: g[0].shape[-1] % 2 == 0,
    "norm_quant.rms_norm_fp8_group": lambda g, at: g[0].shape[-1] % at["G"] == 0,
    "norm_quant.rms_norm_nvfp4": lambda g, at: g[0].shape[-1] % 16 == 0,
    "norm_quant.rms_norm_mxfp8": lambda g, at: g[0].shape[-1] % 32 == 0,
    "norm_quant.rms_norm_fp8": lambda g, at: not at["narrow"] or g[2] is None,
    "quant_fp8_group_packed/custom": lambda g, at: g[0].shape[-1] % (4 * at["G"]) == 0,
    "quant_fp8_group/torch_ue8m0": lambda g, at: at["smin"] >= 1.2e-10 and at["qeps"] == 0.0 and at["ue8m0"],
    "rms_norm/custom": lambda g, at: g[1] is None or g[1].dtype == g[0].dtype,
    "rotate/hf": lambda g, at: g[1].shape[-1] == g[0].shape[-1],
    "rope/custom": lambda g, at: (
        g[1].shape[-1] % at["Dh"] == 0 and int(g[0].max()) < len(g[3]) and int(g[0].min()) >= 0
    ),
    "noop.permute_same": lambda g, at: [p % g[0].ndim for p in at["p"]] == list(range(g[0].ndim)),
    "noop.reshape_same": lambda g, at: at["s"] == tuple(g[0].shape),
    "noop.cast_same": lambda g, at: DTYPES[at["t"].name] == g[0].dtype,
}


@pytest.mark.parametrize("name", RELATIONS)
def test_inputs_satisfy_what_the_definition_requires(name: str) -> None:
    for given in cases(named(name), FEW, 3):
        if all(t.numel() for t in tensors(given)):
            assert RELATIONS[name](given.operands, given.attributes), given.label


def test_literals_of_conditions_and_their_neighbours_are_tried() -> None:
    claim = claim_of(
        "op within(x: lowp[*B, D]; eps: float) -> lowp[*B, D]\n"
        "  = to(f32(x) + eps, x.dtype)\n"
        "  requires eps <= 0.125, D >= 24\n"
        "  form turned = to(eps + f32(x), x.dtype)\n"
    )
    space = Space.of(claim)
    values = next(v.values for v in space.variables if v.name == "eps")
    assert {0.125, math.nextafter(0.125, 0.0), math.nextafter(0.125, 1.0)} <= {*values}
    assert {23, 24, 25} <= {*next(v.values for v in space.variables if v.name == "D")}
    chosen = [space.choose(Random(seed)) for seed in range(30)]
    assert all(c.attributes["eps"] <= 0.125 and c.dims["D"] >= 24 for c in chosen)


def test_what_starves_a_claim_is_named() -> None:
    claim = named("norm_quant.rms_norm_fp8_group")
    condition = core.Apply(">", (core.Size(dims.name("D")), core.Lit(10**9)))
    starving = evolve(claim, op=evolve(claim.op, requires=(condition,)))
    with pytest.raises(Starved) as raised:
        next(cases(starving, FEW, 0))
    assert raised.value.condition == "D > 1000000000" and raised.value.span == claim.op.span
    assert "D > 1000000000" in str(raised.value)


def test_guards_that_only_a_graph_can_tell_are_listed() -> None:
    assert left_out(named("noop.scatter_cover")) == {"fresh(e)": "who else reads a value"}
    assert left_out(named("rms_norm_fp8/vllm")) == {"sm >= 89": "the machine"}
    assert set(left_out(named("noop.clone_dead")).values()) >= {"the graph", "the host"}


def test_lists_have_one_to_three_elements() -> None:
    made = list(cases(named("norm_quant.rms_norm_fp8_static_each"), QUICK, 0))
    assert {len(g.operands[2]) for g in made} == {1, 2, 3}


# ---- Hypothesis


@settings(max_examples=25, deadline=None, database=None)
@drawn(shaped=signature_strategy(PROGRAM.ops["quant_fp8_group"], {"G": 64}, PROGRAM))
def test_strategies_draw_what_the_signature_admits(shaped: Shaped) -> None:
    (x,) = shaped.operands
    assert shaped.attributes["G"] == 64 and x.shape[-1] % 64 == 0 and len(x.shape) == 2
    assert x.dtype in ("bf16", "f16", "f32") and x.layout in LAYOUTS


@settings(max_examples=10, deadline=None, database=None)
@drawn(shaped=claim_strategy(named("norm_quant.add_rms_norm_fp8")))
def test_strategies_of_claims_share_sizes_and_dtypes(shaped: Shaped) -> None:
    x, r, w, _ = shaped.operands
    assert (x.dtype, x.shape) == (r.dtype, r.shape) and (w is None or w.shape == x.shape[-1:])


# ---- layouts


STRIDES = {  # of a [5, 8] tensor
    "contiguous": ((8, 1), 0), "sliced": ((24, 1), 8), "offset": ((8, 1), 3), "transposed": ((1, 5), 0),
    "strided": ((16, 2), 0), "broadcast": ((0, 1), 0),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.int64, torch.bool])
def test_layouts_have_the_strides_that_they_name(layout: str, dtype: torch.dtype) -> None:
    x = torch.arange(40).remainder(2).reshape(5, 8).float().add(1).to(dtype)
    y = placed(x, layout)
    assert (y.stride(), y.storage_offset()) == STRIDES[layout] and y.shape == x.shape
    want = x[:1].expand(5, 8) if layout == "broadcast" else x
    assert torch.equal(y.double(), want.double())


def test_every_layout_is_tried() -> None:
    labels = " ".join(g.label for g in cases(named("rms_norm/aten"), QUICK, 0))
    assert all(layout in labels for layout in LAYOUTS if layout != "contiguous")


# ---- values


@pytest.mark.parametrize("kind", inputs.KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn])
def test_kinds_are_finite_but_where_they_say_so(kind: str, dtype: torch.dtype) -> None:
    x = inputs.values(kind, (64, 32), dtype, Generator().manual_seed(0)).float()
    if kind in inputs.SPECIAL and dtype != torch.float8_e4m3fn:
        bad = (~x.isfinite()).sum(-1)
        assert bad.max() == 1 and 10 < int(bad.sum()) < 54, "one a row, in half of the rows"
    elif kind not in inputs.SPECIAL:
        assert x.isfinite().all()
    assert inputs.values(kind, (0, 4), dtype, Generator().manual_seed(0)).shape == (0, 4)


def test_kinds_are_what_they_are_called() -> None:
    g = Generator().manual_seed(1)
    make = lambda kind, shape=(64, 64): inputs.values(kind, shape, torch.bfloat16, g).float()  # noqa: E731
    assert (make("zero rows").abs().amax(-1) == 0).sum() > 8
    assert (make("signed zeros") == 0).all() and make("signed zeros").signbit().any()
    assert (make("integers").frac() == 0).all() and make("integers").abs().max() <= 8
    assert make("subnormal").abs().amax() < 2.0**-126
    first, last = make("amax first").abs(), make("amax last").abs()
    assert (first[:, 1:].amax(-1) * 4 <= first[:, 0]).all() and (last.argmax(-1) == 63).all()
    assert (first[1:, 1] > first[:-1, 0]).any(), "neighbours are larger"
    top = make("amax is a code").abs().amax(-1)
    mantissas = {float(m) for m in torch.frexp(top)[0]}
    assert 0.875 in mantissas and mantissas <= {math.frexp(t)[0] for t in (448, 240, 57344, 6, 127, 224)}


def test_every_kind_stands_in_a_mixed_tensor() -> None:
    x = inputs.mixed((256, 64), torch.float32, Generator().manual_seed(0))
    assert x.isnan().any(-1).sum() >= 2 and x.isinf().any(-1).sum() >= 4
    assert ((x.mean(-1) - 300).abs() < 2).sum() >= 5, "offset"
    assert (x == 0).all(-1).any() and (x.abs().amax(-1) > 1e29).any() and (x[0] != x[1]).any()


def test_indices_are_in_range_and_differ_where_they_must() -> None:
    g = Generator().manual_seed(0)
    found = inputs.integers((6,), torch.int64, g, below=9, distinct=True)
    assert found.unique().numel() == 6 and found.max() < 9
    many = inputs.integers((500,), torch.int64, g, below=3, distinct=False)
    assert many.min() == 0 and many.max() == 2


# ---- scales


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_a_tie_scale_separates_division_from_the_reciprocal(dtype: torch.dtype) -> None:
    y = inputs.values("normal", (256, 64), torch.bfloat16, Generator().manual_seed(3))
    top = torch.finfo(dtype).max
    code = lambda v: v.clamp(-top, top).to(dtype).float()  # noqa: E731
    aligned = differing = 0
    for seed in range(8):
        s = aimed.tie_scale(y, inputs.grid(dtype), Generator().manual_seed(seed))
        assert s is not None
        scale = torch.tensor(s, dtype=torch.float32)
        ratio = y.float() / scale
        aligned += bool(torch.isin(ratio.abs(), inputs.midpoints(inputs.grid(dtype))).any())
        differing += bool((code(ratio) != code(y.float() * scale.reciprocal())).any())
    assert aligned == 8 and differing >= 6, "random scales show none of this"


def test_a_scale_near_a_tie_is_not_on_it() -> None:
    y = torch.full((4, 4), 1.5)
    s = aimed.tie_scale(y, inputs.grid(torch.float8_e4m3fn), Generator().manual_seed(0), near=True)
    assert s is not None
    nearest = (1.5 / s - inputs.midpoints(inputs.grid(torch.float8_e4m3fn))).abs().min() / (1.5 / s)
    assert 0 < nearest < 2.0**-12


def test_no_scale_is_aimed_at_zeros() -> None:
    assert aimed.tie_scale(torch.zeros(3), inputs.grid(torch.float8_e4m3fn), Generator()) is None


def test_aimed_cases_separate_division_from_the_reciprocal_behind_a_norm() -> None:
    claim = named("norm_quant.add_rms_norm_fp8_static")
    aims = [g for seed in range(4) for g in cases(claim, QUICK, seed) if "aimed at" in g.label]
    differing = 0
    for given in aims:
        codes = [
            claim.expected(Torch(), given.operands, {**given.attributes, "recip": recip})["out0"].float()
            for recip in (False, True)
        ]
        differing += not torch.equal(*codes)
    assert differing >= len(aims) // 3, (differing, len(aims))


# ---- samples


def test_samples_reach_the_core_and_change_no_digest() -> None:
    op = PROGRAM.ops["quant_fp8_static"]
    assert op.samples == (Sample("s", (), "log_uniform", 1e-4, 10.0), Sample("D", (64, 4096)))
    bare = evolve(PROGRAM, ops={**PROGRAM.ops, op.name: evolve(op, samples=())})
    assert digest.of_op(bare, op.name) == digest.of_op(PROGRAM, op.name)
    assert digest.of_whole_ops(bare) == digest.of_whole_ops(PROGRAM)


def test_samples_of_called_ops_are_those_of_a_fusion() -> None:
    found = samples_of(PROGRAM, PROGRAM.ops["rms_norm_fp8_group"])
    assert found["G"].values == (64, 128) and found["eps"].values == (1e-6, 1e-5)
    scale = samples_of(PROGRAM, PROGRAM.ops["silu_mul_fp8_static"])["s"]
    assert (scale.distribution, scale.a, scale.b) == ("log_uniform", 1e-4, 10.0)


def test_samples_are_drawn() -> None:
    claim = claim_of(
        "op sampled(x: lowp[*B, D], s: f32[1]; k: float) -> f32[*B, D]\n"
        "  = f32(x) * s * k\n"
        "  form turned = s * f32(x) * k\n"
        "  sample s ~ uniform(3, 4), x ~ normal(50, 1), k in {2.5, 3.5}, D in {40}\n"
    )
    made = list(cases(claim, QUICK, 0))
    assert {2.5, 3.5} <= {g.attributes["k"] for g in made}
    assert any(3 <= float(g.operands[1]) <= 4 for g in made)
    assert any(t.numel() and (t.float().mean() - 50).abs() < 1 for t in (g.operands[0] for g in made))
    assert 40 in next(v.values for v in Space.of(claim).variables if v.name == "D")


@pytest.mark.parametrize(
    ("name", "seeds", "least"),
    [
        ("norm_quant.rms_norm_fp8", 3, 10),
        ("norm_quant.add_rms_norm_fp8_tensor", 10, 3),
        ("act_quant.fused_silu_quant", 3, 10),
    ],
)
def test_rows_are_aimed_at_ties_of_the_scales_that_they_make(name: str, seeds: int, least: int) -> None:
    """Behind a norm or an activation: `x / s` is a tie there, and the code of `x * (1 / s)` another one in one of eight
    or so. A tensor has one scale, and so few ties a case."""
    claim = named(name)
    differing = 0
    for given in (g for seed in range(seeds) for g in cases(claim, QUICK, seed) if " ties, " in g.label):
        recording = record_side(claim.expected, given.operands, given.attributes)
        found = division(recording)
        assert found is not None and int(found.ties(recording).sum()) >= int(given.label.split()[2])
        codes = (found.groups(recording) / found.scales(recording)).float()
        product = (found.groups(recording).float() * found.scales(recording).float().reciprocal()).float()
        differing += int((rounded_to(codes, found.codes) != rounded_to(product, found.codes)).sum())
    assert differing >= least, differing


def rounded_to(x: Tensor, codes: Tensor) -> Tensor:
    return x.clamp(-codes[-1], codes[-1]).to(torch.float8_e4m3fn if codes[-1] == 448 else torch.float8_e4m3fnuz).float()
