"""The checks `static`, `fires` and `perturbed`: what is right passes, and each fault fails a check by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from capture import make_fx_graph
from fxrewrite.dsl import packs
from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import Dtype, Either, Lit, Number, Prim, Program, Result, RuleDef, Wild
from fxrewrite.dsl.parse import parse
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.compiled import compiled_is_admitted
from fxrewrite.verify.context import in_context
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fires import fires
from fxrewrite.verify.perturb import perturbed
from fxrewrite.verify.profiles import CI, QUICK
from fxrewrite.verify.rebuild import replaced
from fxrewrite.verify.rewriting import pass_of
from fxrewrite.verify.sites import Subject
from fxrewrite.verify.static import static

SHIPPED = ("norm_quant", "act_quant")


@cache
def program() -> Program:
    return packs.load(["default"])


@cache
def shipped() -> dict[str, Claim]:
    return {c.name: c for c in claims(program()) if c.kind == "rule" and c.name.startswith(SHIPPED)}


@pytest.mark.parametrize("name", ["norm_quant.add_rms_norm_fp8_group", "act_quant.swiglu_clamped_fp8"])
def test_graphs_are_those_of_make_fx(name: str) -> None:
    """Run through `make_fx`, the graph is itself again: the tracer takes apart what Inductor does."""
    site = Subject.of(shipped()[name]).site()

    def fn(*tensors: Tensor) -> Any:
        return torch.fx.Interpreter(torch.nn.Module(), graph=site.graph).run(*tensors)

    def ops(graph: Any) -> list[Any]:
        return [n.target for n in graph.nodes if n.op == "call_function"]

    assert ops(make_fx_graph(fn, site.inputs).graph) == ops(site.graph)


@pytest.mark.parametrize("part", [0, 1])
def test_every_shipped_rule_fires_in_each_of_its_spellings(part: int) -> None:
    found = [fires(c, QUICK) for c in list(shipped().values())[part::2]]
    assert {f.outcome for f in found} == {"passed"}, [f.reason for f in found if f.outcome != "passed"]
    assert sum(f.cases for f in found) >= 3 * len(found)


def test_the_same_in_every_perturbation() -> None:
    """Every seventh rule here; `fxrewrite verify` has them all."""
    found = [perturbed(c, QUICK) for c in list(shipped().values())[::7]]
    assert {f.outcome for f in found} == {"passed"}, [f.reason for f in found if f.outcome != "passed"]
    assert sum(f.cases for f in found) >= 20 * len(found)


def test_both_sides_agree_for_all_sizes() -> None:
    found = [static(c) for c in list(shipped().values())[::6]]
    assert {f.outcome for f in found} == {"passed"}, [f.reason for f in found]


# ---- an engine, or a rule, with a fault


RULES = """
fusion vf_sum_of_products(x: lowp[*B, D], y: lowp[*B, D]) = x * y + y requires D % 16 == 0
fusion vf_twice_plus(x: lowp[*B, D], y: lowp[*B, D]) = x * 2.0 + y
fusion vf_difference_times(x: lowp[*B, D], y: lowp[*B, D]) = (x - y) * y
fusion vf_wide_sum(x: lowp[*B, D], y: lowp[*B, D]) = to(f32(x) + f32(y), y.dtype)
fusion vf_total(x: f32[*B, D], y: f32[*B, 1]) = sum(x, -1, keepdim=true) * y
fusion vf_gate_codes(x, s) = silu(x) |> quant_fp8_static(s)
fusion vf_of_one_dtype(x: lowp[*B, D], r: lowp[*B, D], w: real[D]) = rms_norm(x + r, w) * r
"""


@cache
def rules(text: str = RULES) -> Program:
    file, diagnostics = parse(text, "faults.rw")
    assert not diagnostics
    return packs.load(["noop", file])


def claim_of(name: str, of: Program) -> Claim:
    return next(c for c in claims(of) if c.kind == "rule" and c.name.endswith(f".{name}"))


def with_rule(name: str, **changes: Any) -> Program:
    """The rules, one of them changed behind the back of the verifier."""

    def changed(rule: RuleDef) -> RuleDef:
        return evolve(rule, **changes) if rule.name == name else rule

    return evolve(rules(), rules=tuple(map(changed, rules().rules)))


def found_in(name: str, wrong: Program, only: str = "") -> Finding:
    """What the perturbations of a right rule find in an engine that has a wrong one."""
    return perturbed(claim_of(name, rules()), CI, pass_of(wrong), only)


def rule(name: str) -> RuleDef:
    return next(r for r in rules().rules if r.name == name)


@pytest.mark.parametrize("name", [line.split()[1].partition("(")[0] for line in RULES.split("\n") if line])
def test_the_right_rules_pass(name: str) -> None:
    claim = claim_of(name, rules())
    assert [f.outcome for f in (static(claim), fires(claim, QUICK), perturbed(claim, CI))] == ["passed"] * 3


def test_a_dropped_guard() -> None:
    wrong = rules(RULES.replace(" requires D % 16 == 0", ""))
    found = found_in("vf_sum_of_products", wrong, "outside of")
    assert found.outcome == "failed"
    assert "outside of `D%16 == 0`: must not fire and does" in found.reason


def test_a_guard_that_is_too_narrow() -> None:
    """On the bound of the right one it does not fire."""
    wrong = rules(RULES.replace("requires D % 16 == 0", "requires D % 32 == 0"))
    found = found_in("vf_sum_of_products", wrong, "just inside of")
    assert found.outcome == "failed"
    assert "just inside of `D%16 == 0`: D = 16: must fire and does not" in found.reason


@pytest.mark.parametrize(("name", "facts"), [("clone_dead", 2), ("scatter_cover", 1)])
def test_facts_of_a_graph_are_conditions(name: str, facts: int) -> None:
    """`written`, `donated` and `fresh`: the same left side where one of them does not hold."""
    noop = next(c for c in claims(rules()) if c.name == f"noop.{name}")
    found = perturbed(noop, CI, only="a graph outside of")
    assert (found.outcome, found.cases) == ("passed", facts), found.reason
    loose = evolve(rules(), rules=tuple(evolve(r, guards=()) if r.name == name else r for r in rules().rules))
    found = perturbed(noop, CI, pass_of(loose), "a graph outside of")
    assert found.outcome == "failed" and "must not fire and does" in found.reason


def test_a_literal_that_is_not_looked_at() -> None:
    left = rule("vf_twice_plus").left
    number = next(t for t in walk(left) if isinstance(t, Number) and t.value == Lit(2.0))
    wrong = with_rule("vf_twice_plus", left=replaced(left, number, Number(Wild())))
    found = found_in("vf_twice_plus", wrong, "2.0 -> 4.0")
    assert found.outcome == "failed"
    assert "differ" in found.reason
    assert "torch.ops.aten.mul.Tensor(x0, 4.0)" in str(found.script)


def left_in(name: str, text: str) -> Any:
    """The left side of a rule as another text has it."""
    return next(r for r in rules(text).rules if r.name == name).left


def test_operands_exchanged() -> None:
    """Where the engine takes y - x for x - y."""
    left = left_in("vf_difference_times", RULES.replace("(x - y) * y", "(y - x) * y"))
    either = (Either((*rule("vf_difference_times").left, *left)),)
    wrong = with_rule("vf_difference_times", left=either)
    found = found_in("vf_difference_times", wrong, "sub_tensor: operands exchanged")
    assert found.outcome == "failed"
    assert "differ" in found.reason


def test_a_mean_for_a_sum() -> None:
    """Where the engine takes either."""
    left = left_in("vf_total", RULES.replace("sum(x, -1, keepdim=true) * y", "mean(x, -1, keepdim=true) * y"))
    either = (Either((*rule("vf_total").left, *left)),)
    found = found_in("vf_total", with_rule("vf_total", left=either), "aten.mean.dim for aten.sum")
    assert found.outcome == "failed"
    assert "differ" in found.reason


def test_two_dtypes_of_one_class() -> None:
    """Where the engine takes an operand of each: f32(x) + f32(y) is there for any two dtypes."""
    wrong = rules("dtype vf_other = {bf16, f16}\n" + RULES.replace("vf_wide_sum(x: lowp", "vf_wide_sum(x: vf_other"))
    found = found_in("vf_wide_sum", wrong, "x is f16, which is not its dtype")
    assert found.cases == 1
    assert found.outcome == "failed"
    assert "x is f16, which is not its dtype: must not fire and does" in found.reason


def test_a_right_side_of_another_dtype() -> None:
    claim = claim_of("vf_twice_plus", rules())
    wide = evolve(claim.candidate, outputs=(Prim("to", (claim.candidate.outputs[0],), (Dtype("f32"),)),))
    found = static(evolve(claim, candidate=wide))
    assert found.outcome == "failed"
    assert "the left side gives torch.bfloat16, the right side torch.float32" in found.reason


# ---- in context


def test_the_shipped_packs_in_random_programs() -> None:
    for pack in SHIPPED:
        found = in_context(program(), pack, QUICK)
        assert found.outcome == "passed", found.reason
        assert found.cases >= 3


def test_a_wrong_rule_in_random_programs() -> None:
    """It is cut down to a script that shows it."""
    call = calls_of(rule("vf_difference_times").right)[0]
    right = replaced(rule("vf_difference_times").right, call, evolve(call, args=call.args[::-1]))
    found = in_context(rules(), "faults", CI, pass_of(with_rule("vf_difference_times", right=right)))
    assert found.outcome == "failed"
    assert "aten.sub.Tensor" in str(found.script)
    assert str(found.script).partition("def before(")[0].count(" = torch.ops") <= 3


@pytest.mark.slow
def test_a_compiled_left_side_is_held_by_the_contract() -> None:
    claim = shipped()["norm_quant.rms_norm_fp8_static"]
    compiled_is_admitted(claim, Subject.of(claim).site(), pass_of(program()))
    call = calls_of(rule("vf_difference_times").right)[0]
    right = replaced(rule("vf_difference_times").right, call, evolve(call, args=call.args[::-1]))
    claim = claim_of("vf_difference_times", rules())
    with pytest.raises(AssertionError, match="right is"):
        compiled_is_admitted(claim, Subject.of(claim).site(), pass_of(with_rule("vf_difference_times", right=right)))


def test_a_value_that_others_read() -> None:
    left = rule("vf_gate_codes").left
    inner = next(t for t in walk(left) if isinstance(t, Result) and t.call.op == "silu")
    wrong = with_rule("vf_gate_codes", named=(("n", inner),), kept=("n",))
    found = found_in("vf_gate_codes", wrong, "is read by others")
    assert found.outcome == "failed"
    assert "result 0 of silu is read by others: must not fire and does" in found.reason
