"""Failures that are kept: tried first with whatever seed, dropped once mended; and `--fuzz`, which finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from attrs import evolve
from click.testing import CliRunner, Result

from fxrewrite.cli import cli
from fxrewrite.cli import verify as command
from fxrewrite.dsl.core import Dtype
from fxrewrite.patterns.groups import Group
from fxrewrite.verify import runner
from fxrewrite.verify.case_json import from_json, to_json
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fuzz import Fuzzing
from fxrewrite.verify.runner import Plan, make_checks
from fxrewrite.verify.same import bits
from fxrewrite.verify.shaped import Given

RARE = """pack rare level O1

op rare_op(x: f32[*B, D]) -> f32[*B, D]
  = (abs(x) + abs(x)) * (clamp(x - 1.2345678, 0.0, 1.0) * clamp(1.2345698 - x, 0.0, 1.0) * 1e20 + 1.0)

rule rare_window(x: f32[*B, D]): abs(x) * 2.0 => rare_op(x)
"""  # wrong between 1.2345678 and 1.2345698 alone
CHECK = "rare.rare_window:equal"


@pytest.fixture
def folder(files_here: Callable[[dict[str, str]], Path]) -> Path:
    return files_here({"rare.rw": RARE})


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int]:
    """A seed on which the rule fails, and one on which it does not."""
    path = tmp_path_factory.mktemp("rare") / "rare.rw"
    path.write_text(RARE)
    (check,) = make_checks(Plan((str(path),), only=(CHECK,))).listed
    outcomes = {s: runner.finding(evolve(check, seed=s)).outcome for s in range(60)}
    failing = [s for s, o in outcomes.items() if o == "failed"]
    assert 0 < len(failing) < 20, "it is to fail on a rare seed"
    return failing[0], next(s for s, o in outcomes.items() if o == "passed")


def verify(*args: str) -> Result:
    return CliRunner().invoke(cli, ["verify", "--jobs", "1", "rare.rw", "-k", CHECK, *args], catch_exceptions=False)


def test_a_failure_of_a_rare_seed_fails_again_with_another(folder: Path, seeds: tuple[int, int]) -> None:
    rare, other = map(str, seeds)
    assert verify("--seed", other).exit_code == 0
    assert verify("--seed", rare).exit_code == 1
    (kept,) = (folder / ".fxrewrite" / "failures").iterdir()
    assert json.loads(kept.read_text())["seed"] == int(rare)
    again = verify("--seed", other)
    assert again.exit_code == 1 and "kept)" in again.output, again.output
    assert verify("--seed", other).output.count(", kept") == 1, "its label does not grow"


def test_a_mended_one_is_dropped_and_one_of_the_same_text_stays(folder: Path, seeds: tuple[int, int]) -> None:
    rare, other = map(str, seeds)
    verify("--seed", rare)
    (kept,) = (folder / ".fxrewrite" / "failures").iterdir()
    case = json.loads(kept.read_text())
    case["case"] = to_json(Given([torch.ones(2, 3)], {}, "no fault"))
    kept.write_text(json.dumps(case))
    assert verify("--seed", other).exit_code == 0 and kept.exists(), "it passes, and nothing was changed"
    (folder / "rare.rw").write_text(RARE.replace("1.2345698", "1.0"))
    assert verify("--seed", other).exit_code == 0 and kept.exists(), "the text of the rule is the same"
    (folder / "rare.rw").write_text(RARE.replace("1.2345698", "1.0").replace("abs(x) * 2.0", "2.0 * abs(x)"))
    assert verify("--seed", other).exit_code == 0 and not kept.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 2, "name": "x"}', "\x00"])
def test_a_damaged_file_is_a_line(folder: Path, seeds: tuple[int, int], text: str) -> None:
    failures = folder / ".fxrewrite" / "failures"
    failures.mkdir(parents=True)
    (failures / "x.json").write_text(text)
    result = verify("--seed", str(seeds[1]))
    assert result.exit_code == 0
    assert result.stderr.count("x.json is ignored: ") == 1 and result.stderr.count("\n") == 1


def test_a_damaged_case_does_not_stop_the_check(folder: Path, seeds: tuple[int, int]) -> None:
    verify("--seed", str(seeds[0]))
    (kept,) = (folder / ".fxrewrite" / "failures").iterdir()
    case = json.loads(kept.read_text())
    case["case"]["tensors"][0]["bytes"] = "AAAA"
    kept.write_text(json.dumps(case))
    assert verify("--seed", str(seeds[1])).exit_code == 0
    assert verify("--seed", str(seeds[0])).exit_code == 1


def test_cases_are_kept_bit_for_bit() -> None:
    odd = torch.tensor([float("nan"), -0.0, 1e-40, float("inf")])
    operands = [
        odd, odd.to(torch.bfloat16), torch.zeros(2, 0), torch.randn(4, 6).t(), torch.ones(1, 3).expand(5, 3), None,
        [torch.arange(3), odd], odd.to(torch.float8_e4m3fn), "layer",
    ]  # fmt: skip
    attributes = {"eps": 1e-6, "qt": Dtype("e4m3fn"), "g": Group("tp", 2), "order": (1, 0), "n": 3, "wide": True}
    found = from_json(json.loads(json.dumps(to_json(Given(operands, attributes, "odd")))))
    assert dict(found.attributes) == attributes and found.label == "odd"
    assert found.operands[6][1] is found.operands[0], "one tensor stays one"
    pairs = [*zip(operands, found.operands), (operands[6][0], found.operands[6][0])]  # type: ignore[index]
    tensors = [(a, b) for a, b in pairs if isinstance(a, torch.Tensor)]
    assert len(tensors) == 7
    for a, b in tensors:
        assert (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(bits(a), bits(b))
        assert a.stride() == b.stride()


# ---- fuzz


def test_fuzz_goes_on_with_new_seeds_until_one_fails(folder: Path, seeds: tuple[int, int]) -> None:
    plan = Plan(("rare.rw",), only=(CHECK,), seed=seeds[1])
    fuzzing = Fuzzing(plan, float("inf"))
    rounds = list(fuzzing.steps())  # it ends: the only check fails, and rests
    assert [f.outcome for f in rounds] == ["passed"] * (len(rounds) - 1) + ["failed"] and len(rounds) > 1
    (found,) = fuzzing.found.values()
    assert f"seed {plan.seed + len(rounds) - 1}" in found.reason and found.cases == sum(f.cases for f in rounds)


def test_fuzz_ends_with_its_time_and_says_its_seeds(folder: Path, seeds: tuple[int, int]) -> None:
    result = verify("--fuzz", "0.02", "--seed", str(seeds[1]))
    assert f"(fuzz, 1 rounds from seed {seeds[1]}, " in result.output or "rounds from seed" in result.output
    assert verify("--fuzz", "0").output.startswith("0 checks (fuzz, ")


# ---- Ctrl-C


def test_ctrl_c_writes_what_was_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def findings() -> Iterator[Finding]:
        yield Finding("equal", "rare.rare_window", "passed", cases=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "begin", lambda plan, jobs: runner.Running(5, findings(), {}))
    result = verify()
    assert (result.exit_code, "stopped: 1 of 5 checks" in result.output) == (130, True), result.output


def test_ctrl_c_before_anything_was_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_stop_at_errors", interrupted)
    result = verify()
    assert (result.exit_code, result.stderr) == (130, "stopped before anything was tried\n")
