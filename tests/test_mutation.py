"""The mutation score: operators make what they say, wrong rules die, right ones are told from those nobody can tell."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from fxrewrite.cli.verify import command
from fxrewrite.dsl import core, packs
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Program
from fxrewrite.verify.claims import rule_claim
from fxrewrite.verify.mutation import faults
from fxrewrite.verify.mutation.equivalence import argued, arguments, is_of, refuted
from fxrewrite.verify.mutation.report import Score, as_text, percent
from fxrewrite.verify.mutation.rules import mutants_of_rule
from fxrewrite.verify.mutation.score import begin_mutation
from fxrewrite.verify.mutation.subjects import Subject, Tried, Workshop, mutants_of, subjects, try_subject
from fxrewrite.verify.mutation.trying import SAME
from fxrewrite.verify.rebuild import nodes, replaced
from fxrewrite.verify.runner import Plan
from fxrewrite.verify.straight import Step


@cache
def shop() -> Workshop:
    path = Path(__file__).parent / "mutated.rw"
    return Workshop(packs.load([str(path)]), 0)


@cache
def states(kind: str, name: str, parts: tuple[str, ...] = ("",)) -> dict[str, str]:
    """What was changed of a subject -> what became of it, for the changes whose text holds one of the parts."""
    subject = Subject(kind, name)  # type: ignore[arg-type]
    tried = try_subject(subject, shop(), lambda m: any(p in f"{m.place}: {m.what}" for p in parts))
    return {t.what: t.state for t in tried}


# ---- operators


def test_a_node_is_replaced_wherever_it_stands_and_nothing_else_is_copied() -> None:
    x, y = core.Operand("x", core.UNKNOWN), core.Operand("y", core.UNKNOWN)
    shared, other = core.Prim("exp", (x,)), core.Prim("neg", (y,))
    whole = (core.Prim("add", (shared, other)), core.Prim("mul", (shared, other)))
    changed = replaced(whole, shared, y)
    assert [p.args[0] for p in changed] == [y, y]
    assert all(p.args[1] is other for p in changed)
    assert replaced(whole, core.Prim("exp", (x,)), y) is whole  # an equal object is another node
    assert [n.op for n in nodes(whole)] == ["add", "exp", "neg", "mul"]


def test_mutants_say_what_was_changed_and_where() -> None:
    listed = list(mutants_of(Subject("definition", "mut_gate"), shop()))
    whats = {m.what for m in listed}
    assert {"literal 0.5 -> 5.0 in add", "to(f32) left out", "mul left out", "the bound top of clamp left out"} <= whats
    assert all(m.where.endswith("mutated.rw:3") for m in listed)
    assert len({m.id for m in listed}) == len(listed)
    assert [m.id for m in listed] == [m.id for m in mutants_of(Subject("definition", "mut_gate"), shop())]


def test_every_side_guard_type_and_attribute_of_a_rule_is_changed() -> None:
    gate = mutants_of(Subject("rule", "mutated.mut_gate_fp8"), shop())
    assert {m.operator for m in gate} >= {
        "arguments exchanged", "attribute dropped", "attribute pinned", "attribute ignored", "dtype loosened",
        "another op",
    }  # fmt: skip
    even = [m.what for m in mutants_of(Subject("rule", "mutated.mut_even"), shop())]
    assert {"`D%2 == 0` left out", "stop D -> D + 1 in slice"} <= set(even)


@cache
def shipped() -> Program:
    return packs.load(["act_quant", "norm_quant"])


def test_every_shipped_rule_has_twenty_mutants() -> None:
    """Of its text, or of its text and of its kernel."""
    whole = Workshop(shipped(), 0)
    counts = {r.full_name: sum(1 for _ in mutants_of_rule(r, shipped())) for r in shipped().rules if r.stage == "fuse"}
    few = {name: n + sum(1 for _ in mutants_of(Subject("kernel", name), whole)) for name, n in counts.items() if n < 20}
    assert len(counts) > 45 and len(few) < 5
    assert all(n >= 20 for n in few.values()), few


def test_a_changed_rule_shares_no_term_that_it_should_not() -> None:
    """The change is on one side only, and the rule that it was made of stays as it was."""
    rule = next(r for r in shipped().rules if r.name == "rms_norm_fp8")
    before = rule_claim(shipped(), rule)
    for mutant in mutants_of_rule(rule, shipped()):
        assert mutant.made != rule or any(a.type != b.type for a, b in zip(mutant.made.operands, rule.operands)), (
            mutant.id
        )
        if mutant.place == "right":
            assert mutant.made.left == rule.left, mutant.id
    assert rule_claim(shipped(), rule) == before
    assert any(isinstance(x, core.Call) for x in walk(rule.left))


# ---- faults of kernels


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn], ids=str)
def test_wrong_roundings_are_the_roundings_that_they_say(dtype: torch.dtype) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 3
    short = faults.ROUNDINGS["truncated"](_cast, x, dtype).float()
    assert bool((short.abs() <= x.abs()).all()) and bool((short != x.to(dtype).float()).any())
    ties = (x.to(dtype).float() + faults.ROUNDINGS["truncated"](_cast, x * 1.2, dtype).float()) / 2
    away = faults.ROUNDINGS["half away from zero"](_cast, ties, dtype).float()
    assert bool((away.abs() >= ties.to(dtype).float().abs()).all()) and not torch.equal(away, ties.to(dtype).float())
    twice = faults.ROUNDINGS["done twice"](_cast, x, dtype).float()
    assert 0 < int((twice != x.to(dtype).float()).sum()) < 1024


def test_every_fault_changes_something() -> None:
    x = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(1))
    for op in ("amax", "mean", "sum", "var"):
        step = Step(op, (), (), "f32", (6, 4, 1))
        for fault in faults.faults_of(step, [x]):
            original = faults.primitive(op)
            extra = x.clone()
            extra[0, 0, 0] = torch.nan  # only what ignores NaN is right on numbers
            changed = fault.change(original, extra, (-1,), True)
            same = torch.equal(changed.nan_to_num(9.0), original(extra, (-1,), True).nan_to_num(9.0))
            assert not same, (op, fault.what)


# ---- what becomes of them


WRONG = {
    "right: top=top -> top=2.0 in mut_gate_fp8": "killed",
    "right: x and w exchanged in mut_gate_fp8": "killed",
    "left: top=_ on the left, top=2.0 on the right": "killed",
    "left: mut_gate -> silu_mul": "killed",
    "signature: x: lowp -> real": "refused",
}


def test_wrong_rules_die_and_what_types_refuse_does_not_count() -> None:
    assert states("rule", "mutated.mut_gate_fp8", tuple(WRONG)) == WRONG


def test_an_exchange_that_changes_nothing_is_proved_to_be_the_same_program() -> None:
    rule = next(r for r in shipped().rules if r.name == "add_rms_norm_int8")
    tried = try_subject(
        Subject("rule", rule.full_name), Workshop(shipped(), 0), lambda m: m.what == "x and r exchanged in add_rms_norm"
    )
    assert [(t.state, t.why) for t in tried] == [("equivalent", SAME)]


def test_a_guard_that_is_not_needed_is_not_counted_as_killed() -> None:
    """The rule holds for odd widths too: nothing differs, and nothing proves it."""
    what = "requires: `D%2 == 0` left out"
    assert states("rule", "mutated.mut_even", (what,)) == {what: "never differs"}


def test_a_definition_dies_by_a_form_that_says_otherwise() -> None:
    found = states("definition", "mut_gate")
    assert found["equation: literal 0.5 -> 5.0 in add"] == "killed"
    assert found["equation: to(f32) left out"] in ("killed", "never differs", "survived")
    assert sum(s == "killed" for s in found.values()) >= 0.7 * len(found)


def test_broken_kernels_die() -> None:
    found = states("kernel", "mutated.mut_gate_fp8")
    assert len(found) >= 20
    open_ = {what for what, state in found.items() if state not in ("killed", "equivalent")}
    assert len(open_) <= 0.05 * len(found), open_


# ---- the score and its report


def _tried(name: str, state: str) -> Tried:
    return Tried(f"rule p.r right: {name}", "rule", "p.r", "another literal", f"right: {name}", "p.rw:4", state)  # type: ignore[arg-type]


def test_the_score_counts_faults_that_were_tried() -> None:
    score = Score(tuple(_tried(s, s) for s in ("killed", "never differs", "equivalent", "refused", "not run")))
    assert score.value == 0.5
    assert [t.what for t in score.survivors()] == ["right: never differs"]
    text = as_text(score)
    assert "p.rw:4: right: never differs" in text and "mutation score 50.0 %: 1 of 2 mutants killed" in text
    assert Score(()).value is None and percent(0.99999) == "99.9 %"


def test_an_argument_makes_a_survivor_equivalent_and_is_refuted_by_a_kill() -> None:
    known = {"rule p.* right: never*": "because", "rule * right: killed": "wrong"}
    assert argued(_tried("never differs", "never differs"), known).why == "because"
    assert argued(_tried("other", "survived"), known).state == "survived"
    assert [t.what for t in refuted([_tried("killed", "killed")], known)] == ["right: killed"]
    assert is_of("a [x] b", "a [x] *") and not is_of("a x b", "a [x] *")
    assert all(len(why) > 20 for why in arguments().values())


def test_the_command_writes_the_score(tmp_path: Path) -> None:
    path = tmp_path / "mutated_here.rw"
    path.write_text("rule mut_wide(x: lowp[T, D]): x[..., 0:D] => x requires D <= 4096\n")
    done = CliRunner().invoke(command, [str(path), "--mutate", "--jobs", "1", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["states"]["killed"] >= 5
    assert {m["kind"] for m in found["mutants"]} == {"rule", "kernel"}
    assert "mutation score" in CliRunner().invoke(command, [str(path), "--mutate", "--jobs", "1", "-k", "slice"]).stdout


def test_subjects_of_a_plan_are_those_of_its_files() -> None:
    mine = subjects(shop().program, lambda claim: claim.span is not None and claim.span.file.endswith("mutated.rw"))
    assert {(s.kind, s.name) for s in mine} == {
        ("rule", "mutated.mut_gate_fp8"), ("rule", "mutated.mut_even"), ("kernel", "mutated.mut_gate_fp8"),
        ("kernel", "mutated.mut_even"), ("form", "mut_gate/bounds"), ("definition", "mut_gate"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_sample_of_the_shipped_packs_scores_95() -> None:
    """About 200 mutants, spread over all kinds; those of one run are those of the next."""
    plan = Plan(tuple(map(str, packs.shipped())), vocabulary=True)
    found = [t for some in begin_mutation(plan, jobs=2, sample=200).tried for t in some]
    score = Score(tuple(found))
    assert len([t for t in found if t.state in ("killed", "survived", "never differs")]) >= 80
    assert score.value is not None and score.value >= 0.95, as_text(score)
