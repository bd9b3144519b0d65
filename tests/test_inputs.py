"""What inputs reach: integers of the whole range, infinities of both signs, factors that are no scales."""

from __future__ import annotations

import math

import pytest
import torch

from fxrewrite.dsl import packs
from fxrewrite.dsl.parse import parse
from fxrewrite.verify import inputs
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.equal import check_equal
from fxrewrite.verify.profiles import PROFILES, QUICK
from fxrewrite.verify.strategies import cases, cells, mixes_rows


def claim_of(text: str) -> Claim:
    """The claim of the form in a text."""
    file, diagnostics = parse(text, "reach.rw")
    assert not diagnostics
    return next(c for c in claims(packs.load([file])) if c.span is not None and c.span.file == "reach.rw")


def outcome(text: str) -> str:
    """What the quick profile finds of the form in a text."""
    claim = claim_of(text)
    return check_equal(claim, cases(claim, QUICK, 0))[0].outcome


WRONG_ON_INTEGERS = {
    "narrow_product": "op {}(x: i32[*B, D], z: i32[*B, D]) -> i64[*B, D]\n  = to(x, i64) * to(z, i64)\n"
    "  form alt = to(x * z, i64)\n",
    "not_negative": "op {}(x: i32[*B, D]) -> i32[*B, D]\n  = maximum(x, 0)\n  form alt = x * 1\n",
    "by_float": "op {}(x: i32[*B, D]) -> i32[*B, D]\n  = x + 0\n  form alt = to(f32(x), i32)\n",
}


@pytest.mark.parametrize("name", WRONG_ON_INTEGERS)
def test_integers_that_index_nothing_are_of_the_whole_range(name: str) -> None:
    assert outcome(WRONG_ON_INTEGERS[name].format("reach_" + name)) == "failed"


RIGHT_ON_INTEGERS = {
    "exchanged": "op {}(x: {t}[*B, D], z: {t}[*B, D]) -> {t}[*B, D]\n  = x * z - x\n  form alt = z * x - x\n",
    "opposite": "op {}(x: {t}[*B, D], z: {t}[*B, D]) -> {t}[*B, D]\n  = x - z\n  form alt = x + -z\n",
    "signless": "op {}(x: {t}[*B, D]) -> {t}[*B, D]\n  = abs(x)\n  form alt = abs(-x)\n",
}


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("name", RIGHT_ON_INTEGERS)
def test_integers_wrap_on_both_sides(name: str, dtype: str) -> None:
    assert outcome(RIGHT_ON_INTEGERS[name].format(f"reach_{name}_{dtype}", t=dtype)) == "passed"


@pytest.mark.parametrize("profile", ["quick", "ci"])
def test_integers_have_both_signs_and_ends_in_every_profile(profile: str) -> None:
    claim = claim_of(RIGHT_ON_INTEGERS["signless"].format(f"reach_ends_{profile}", t="i32"))
    found = torch.cat([g.operands[0].flatten().long() for g, _ in zip(cases(claim, PROFILES[profile], 0), range(24))])
    for value in (0, 1, -1, 2**24 + 1, -(2**31), 2**31 - 1):
        assert bool((found == value).any()), value


def test_what_is_positions_stays_in_its_bounds() -> None:
    claim = claim_of(
        "op reach_rows(x: f32[T, D], at: i64[N]) -> f32[N, D]\n  = aten.index_select(x, 0, at)\n"
        "  form alt = aten.index_select(x, 0, at) * 1.0\n"
    )
    for given in cases(claim, QUICK, 0):
        x, at = given.operands
        assert at.numel() == 0 or (int(at.min()) >= 0 and int(at.max()) < max(len(x), 1)), given.label


# ---- kinds of values


IN_OTHERS = {"midpoints", "codes", "powers", "zero rows", "mixed", "amax of groups", "sparse"}  # what these show


def test_each_quick_run_has_every_kind_alone() -> None:
    kinds = {c.kind for c in cells(QUICK, mixes_rows=True) if c.rows}
    assert kinds == {*inputs.KINDS} - IN_OTHERS


def test_negative_infinities_reach_what_mixes_rows() -> None:
    text = "op reach_least(x: f32[T, D]) -> f32[T, D]\n  = abs(x)\n  form alt = abs(maximum(x, -3e38))\n"
    assert mixes_rows(claim_of(text)) and outcome(text) == "failed"


# ---- factors


WRONG_ON_FACTORS = {
    "positive": "op {}(x: f32[*B, D], s: f32[1]) -> f32[*B, D]\n  = x * s\n  form alt = x * abs(s)\n",
    "finite": "op {}(x: f32[*B, D], s: f32[1]) -> f32[*B, D]\n  = x + s\n  form alt = x + minimum(s, 1e38)\n",
}


@pytest.mark.parametrize("name", WRONG_ON_FACTORS)
def test_factors_of_no_quantization_are_not_positive_only(name: str) -> None:
    assert outcome(WRONG_ON_FACTORS[name].format("reach_" + name)) == "failed"


def test_factors_have_every_hostile_value() -> None:
    claim = claim_of(WRONG_ON_FACTORS["positive"].format("reach_every"))
    found = torch.cat([g.operands[1].flatten() for g in cases(claim, QUICK, 0)])
    assert {0.0, -0.75, math.inf, -math.inf} <= {*found.tolist()} and bool(found.isnan().any())


def test_scales_of_a_quantization_stay_positive_and_finite() -> None:
    claim = claim_of(
        "op reach_codes(x: f32[*B, D], s: f32[1]) -> e4m3fn[*B, D]\n  = to(clamp(x / s, -448.0, 448.0), e4m3fn)\n"
        "  form alt = to(clamp(x / abs(s), -448.0, 448.0), e4m3fn)\n"
    )
    found = torch.cat([g.operands[1].flatten() for g in cases(claim, QUICK, 0)])
    assert bool((found.isfinite() & (found > 0)).all())
