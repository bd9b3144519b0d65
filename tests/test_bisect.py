"""`fxrewrite bisect`: the wrong rule among twenty, and its first site, are named in a few runs of the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import bisected
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering import library
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.verify.bisect import Unsteady, Verdict, bisect
from fxrewrite.verify.captured import Captured, captured
from fxrewrite.verify.comparison import bitwise, within
from fxrewrite.verify.layers import errors

Bisect = Callable[..., Verdict]
STEPS = math.ceil(math.log2(20)) + math.ceil(math.log2(4))  # for one rule of 20, and one site of 4


def pass_of(text: str, providers: tuple[str, ...] = ("op",)) -> RewritePass:
    file, wrong = parse(text, "bisected.rw")
    assert not wrong
    return make_pass(make_config([file], providers=providers))


@pytest.fixture(scope="module")
def chain() -> Captured:
    model, args = bisected.chain()
    return captured(torch.export.export(model, args), args, {})


@pytest.fixture(scope="module")
def half() -> Captured:
    model, args = bisected.half()
    return captured(torch.export.export(model, args), args, {})


# ---- the search


@pytest.mark.parametrize("at", ["relu_ceil", "erf_tanh", "abs_erf"])
def test_the_wrong_rule_of_twenty_and_its_first_site(chain: Captured, at: str) -> None:
    """Wherever it stands among the rules; each is at four sites of the model."""
    first, second = at.split("_")
    wrong = f"rule bisected_wrong_{at}: {second}({first}(x)) => bisected_sigmoid_tanh(x)"
    lines: list[str] = []
    found = bisect(chain, pass_of(bisected.rules(wrong, at)), bitwise, lines.append)
    assert (found.rules, found.sites) == (20, 80)
    culprit = found.culprit
    assert culprit is not None and culprit.event.rule == f"bisected_wrong_{at}"
    sites = [
        n.name for n in chain.gm.graph.nodes if n.name.split("_")[0] == second and n.args[0].name.startswith(first)
    ]
    assert len(sites) == 4 and culprit.event.site == sites[0]
    assert found.steps <= STEPS and found.runs == found.steps + 6
    assert lines.count("run 1: as it is") == 1 and len([x for x in lines if x.startswith("run")]) == found.runs - 1
    assert culprit.rest is not None, "its other three sites are wrong, too"
    assert culprit.event.site in [x.node for x in culprit.layers]
    moved = [x for x in culprit.layers if not x.same]
    assert moved[0].node == sites[0] and moved[0].largest > 0.01 and 0 < moved[0].rms < 10
    assert moved[0].source.startswith("bisected.py:")
    at_first = [x.node for x in culprit.layers].index(sites[0])
    assert all(x.same for x in culprit.layers[:at_first])
    assert len(culprit.before) == 4 * [f"{a}_{b}" for a, b in bisected.PAIRS].index(at)


@pytest.mark.parametrize("sites", [1, 2, 3])
def test_some_sites_may_pass(chain: Captured, sites: int) -> None:
    """With a tolerance that lets so many of the four wrong sites pass, the next one is named."""
    pass_ = pass_of(bisected.rules())
    wrong = [s for s in chain.rewritten(pass_, lambda s: True).sites if s.rule == "bisected.bisected_wrong"]
    before = chain.run().outputs[0]
    after = [chain.run(chain.rewritten(pass_, set(wrong[:n]).__contains__).gm).outputs[0] for n in range(5)]
    error = [(a - before).abs().max().item() for a in after]
    assert error == sorted(error), "each adds to the error"
    found = bisect(chain, pass_, within(0, (error[sites] + error[sites + 1]) / 2))
    assert found.culprit is not None and found.culprit.event.site == wrong[sites].node
    assert [s for s in found.culprit.before if s in wrong] == wrong[:sites] and found.steps <= STEPS


def test_right_rules_do_not_move_the_result(chain: Captured) -> None:
    found = bisect(chain, pass_of(bisected.rules("fusion bisected_erf_tanh(x: f32[*B, D]) = tanh(erf(x))")), bitwise)
    assert found == Verdict(20, 80, 3, 0)


def test_nothing_of_the_program_is_changed(half: Captured) -> None:
    before, inputs = str(half.gm.graph), half.inputs[0].clone()
    bisect(half, pass_of(bisected.rules()), bitwise)
    assert str(half.gm.graph) == before and torch.equal(half.inputs[0], inputs)


def test_one_site_alone_is_to_blame(half: Captured) -> None:
    found = bisect(half, pass_of(bisected.rules()), bitwise)
    assert found.culprit is not None
    assert (found.culprit.event.rule, found.culprit.rest) == ("bisected_wrong", None)
    assert found.culprit.difference.startswith("output 0: ")
    by_node = {x.node: x for x in found.culprit.layers}
    assert by_node["erf"].same and not by_node["tanh"].same and not by_node["slice_2"].same
    assert by_node["tanh"].now.startswith("bisected_relu_erf")


def test_a_rule_of_clean_up_is_found_too(half: Captured) -> None:
    head = "pack bisected_cleanup level O1 stage canonicalize\n"
    text = head + "rule late: slice(slice(x, d, _, _), d, a, b) => slice(x, d, a, b)\n"
    found = bisect(half, pass_of(text), bitwise)
    assert found.culprit is not None and found.culprit.event.rule == "late"
    assert [x.node for x in found.culprit.layers if not x.same] == ["slice_2"]


def test_what_a_model_writes_is_compared() -> None:
    model, args = bisected.writing()
    program = captured(torch.export.export(model, args), args, {})
    found = bisect(program, pass_of(bisected.rules()), bitwise)
    assert found.culprit is not None and "written to input" in found.culprit.difference


def test_a_model_that_draws_draws_the_same(half: Captured) -> None:
    model, args = bisected.drawing()
    program = captured(torch.export.export(model, args), args, {})
    assert bisect(program, pass_of(bisected.rules()), bitwise).difference is None


def test_a_model_that_is_never_the_same() -> None:
    model, args = bisected.counting()
    program = captured(torch.export.export(model, args), args, {})
    with pytest.raises(Unsteady, match="output 0"):
        bisect(program, pass_of(bisected.rules()), bitwise)


IMPL = "fusion bisected_served(x: f32[*B, D]) = tanh(erf(x))\n  impl mine  bisected.{}(x)\n"


def test_a_provider_that_raises(half: Captured) -> None:
    found = bisect(half, pass_of(IMPL.format("refusing"), ("mine",)), bitwise)
    assert found.culprit is not None and found.culprit.difference == "it raised ValueError: no such device"
    assert found.culprit.layers == ()


def test_a_provider_of_a_call_that_no_rule_took() -> None:
    pass_ = pass_of(IMPL.format("shifted").replace("served", "called"), ("mine",))
    library.register(pass_.engine.program)
    model, args = bisected.called()
    program = captured(torch.export.export(model, args), args, {})
    found = bisect(program, pass_, bitwise)
    assert found.culprit is None and found.unfired is not None and found.unfired == found.difference


@pytest.mark.parametrize(
    ("before", "after", "largest", "rms"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
        ([3.0, 4.0], [3.0, 9.0], 5.0, 1.0),
        ([0.0, 0.0], [0.0, 1.0], 1.0, math.inf),
        ([math.nan, math.inf], [math.nan, math.inf], 0.0, 0.0),
        ([math.nan, 1.0], [1.0, 1.0], math.inf, math.inf),
        ([], [], 0.0, 0.0),
    ],
)
def test_errors(before: list[float], after: list[float], largest: float, rms: float) -> None:
    assert errors(torch.tensor(before), torch.tensor(after)) == pytest.approx((largest, rms))
    assert errors(torch.tensor(before), torch.tensor(after).double()) == (math.inf, math.inf)


# ---- the verb


def run(*arguments: str) -> Result:
    command = import_module("fxrewrite.cli.bisect").command
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


@pytest.fixture
def packs(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "rules.rw"
    path.write_text(bisected.rules())
    return "--packs", str(path), "--providers", "op"


def test_the_verb_names_rule_and_site(packs: tuple[str, ...]) -> None:
    result = run("bisected:half", *packs)
    assert result.exit_code == 1 and result.stderr == ""
    assert "rules.bisected_wrong at tanh  bisected.py:" in result.stdout
    assert "rules.rw:15:22\n" in result.stdout and "| " + " " * 21 + "^^^^^^^^^^^^" in result.stdout
    assert "moves the result (bit for bit): output 0: " in result.stdout
    assert "this one off, it does not move" in result.stdout and "--flag rules.bisected_wrong=off" in result.stdout
    assert "  tanh " in result.stdout and "2 sites of 2 rules fired; 7 runs of the model, 1 of them" in result.stdout
    assert run("bisected:half", *packs, "--flag", "rules.bisected_wrong=off").exit_code == 0


def test_the_verb_as_json(packs: tuple[str, ...]) -> None:
    result = run("bisected:half", *packs, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["rules"], found["sites"], found["comparison"]) == (2, 2, "bit for bit")
    culprit = found["culprit"]
    assert (culprit["rule"], culprit["site"], culprit["rest"]) == ("bisected_wrong", "tanh", None)
    assert culprit["before"] == [{"rule": "rules.bisected_relu_erf", "graph": 0, "node": "erf"}]
    assert [x["same"] for x in culprit["layers"]] == [True, False, False, False]
    assert json.loads(run("bisected:half", *packs, "--atol", "9", "--json").stdout)["culprit"] is None


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--atol", "9"), 0, "the result does not move (rtol 0, atol 9)"),
        (("--rtol", "1e-3"), 1, "moves the result (rtol 0.001, atol 0)"),
        (("--compare", "bisected:near"), 1, "moves the result (bisected:near): bisected:near says no"),
        (("--compare", "bisected:near", "--inputs", "bisected:zeros"), 0, "the result does not move (bisected:near)"),
        (("--packs", "noop"), 0, "nothing fires: `fxrewrite explain all bisected:half`"),
    ],
)
def test_how_results_are_compared(packs: tuple[str, ...], options: tuple[str, ...], code: int, said: str) -> None:
    given = ("--providers", "op") if "--packs" in options else packs
    result = run("bisected:half", *given, *options)
    assert result.exit_code == code, result.output
    assert said in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("bisected:half_without_inputs",), "holds no inputs", "--inputs module:function"),
        (("bisected:half", "--inputs", "bisected:zeroes"), "no function 'zeroes'", "`zeros`"),
        (("bisected:half", "--inputs", "bisected:too_wide"), "does not run on its inputs", ""),
        (("bisected:half", "--inputs", "bisected:near"), "bisected:near takes before, after", "takes nothing"),
        (("bisected:half", "--inputs", "factories:raises"), "raised ValueError: no weights here", "factories.py:"),
        (("bisected:half", "--compare", "bisected:nothing"), "returned None", "True or False"),
        (("bisected:half", "--compare", "bisected:raises"), "bisected:raises raised KeyError: 'logits'", ""),
        (("bisected:half", "--compare", "bisected:near", "--atol", "1"), "--compare decides alone", "--rtol"),
        (("bisected:half", "--atol", "-1"), "-1", ""),
        (("bisected:counting",), "another result in each run", "--atol"),
        (("bisected:halve",), "no function 'halve'", "`half`"),
        (("nothing.pt2",), "there is no file nothing.pt2", ""),
        (("bisected:half", "--packs", "nrm_quant"), "no pack is called `nrm_quant`", "`norm_quant`"),
    ],
)
def test_misuse_gets_a_line_and_a_hint(
    packs: tuple[str, ...], arguments: tuple[str, ...], message: str, hint: str
) -> None:
    result = run(*arguments, *(packs if "--packs" not in arguments else ()))
    assert result.exit_code == 2, result.output
    assert message in result.stderr and hint in result.stderr and "Traceback" not in result.output


def test_progress_is_shown_where_it_takes_long(packs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("fxrewrite.cli.bisect"), "QUIET", 0.0)
    lines = run("bisected:half", *packs).stderr.splitlines()
    assert lines[0] == "run 1: as it is" and "run 4: 1 of 2 rules" in lines and "  no difference" in lines


@pytest.mark.slow
def test_a_saved_program(packs: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "half.pt2"
    torch.export.save(torch.export.export(*bisected.half()), path)
    result = run(str(path), *packs)
    assert result.exit_code == 1 and "rules.bisected_wrong at tanh" in result.stdout
