"""A rule around an op that an engine alone computes is tried with a function that stands for it."""

from __future__ import annotations

import pytest

from fxrewrite.dsl import registered
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.runner import Plan, finding, make_checks

RULES = """pack held level O1

native held_fits(layer: str) -> bool from "nowhere.facts:fits"

op held_read(q: lowp[T, D], k: lowp[T, D], layer: str) -> (o: lowp[T, D])
  ref "nowhere.ref:read"
  form theirs  nowhere_lib.read(q, k, layer)
  property reads(layer)

op held_write(k: lowp[T, D], layer: str) -> (done: lowp[0])
  ref "nowhere.ref:write"
  property writes(layer)

fusion held_codes(q, k, layer, s) = quant_fp8_static(held_read(q, k, layer), s)
  requires held_fits(layer)
rule held_swapped(q: lowp[T, D], k: lowp[T, D], layer: str): abs(held_read(q, k, layer)) => held_read(k, q, layer)
fusion held_both(k, layer) = abs(k), held_write(k, layer)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    path = tmp_path_factory.mktemp("held") / "held.rw"
    path.write_text(RULES)
    return {c.name: finding(c) for c in make_checks(Plan((str(path),))).listed}


def test_a_rule_is_tried_whatever_the_op_computes(found: dict[str, Finding]) -> None:
    checks = ("equal", "static", "fires", "perturbed")
    outcomes = [found[f"held.held_codes:{check}"].outcome for check in checks]
    assert outcomes[1:] == ["passed"] * 3 and outcomes[0] in ("passed", "trivial")
    assert found["held.held_swapped:equal"].outcome == "failed", "its operands are told apart"


def test_what_is_about_the_op_itself_is_not_run(found: dict[str, Finding]) -> None:
    assert found["held_read/theirs:equal"].outcome == "not run"
    written = found["held.held_both:equal"]
    assert written.outcome == "not run" and "held_write has no equation here" in written.reason
    assert registered.function(registered.REFS, "nowhere.ref:read") is None, (
        "it stands in while a check runs, no longer"
    )
