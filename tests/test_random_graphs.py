"""A thousand random programs, rewritten: `random_graphs.py` has the property, `random_chains.py` what they are made of.

A failure prints a short script; saved beside the tests, it shows the failure by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.fx import Node

import random_graphs
from fxrewrite.lowering import plan
from fxrewrite.verify.programs import shrunk
from random_chains import FEATURED, program_of
from random_graphs import Tally, check_seed, failure

BLOCK = 100
SHARE_WITH_SITE = 0.6


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_moves(block: int) -> None:
    tally = Tally()
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check_seed(seed, tally)
    assert tally.graphs >= 0.97 * BLOCK, tally
    assert tally.with_site >= SHARE_WITH_SITE * tally.graphs, tally
    assert FEATURED.keys() <= tally.fired.keys(), "each rule of the test fires somewhere"


def outlived(dead: set[Node], captures: set[Node], effects: Any = None) -> set[Node]:
    """What dies with a match, were nothing kept for users outside it."""
    todo = list(dead)
    while todo:
        new = {a for a in todo.pop().all_input_nodes if a.op == "call_function"} - dead - captures
        dead |= new
        todo += new
    return dead


MUTANTS: dict[str, Callable[..., Any]] = {"_exclusive": lambda *_: None, "dying": outlived}


@pytest.mark.parametrize("name", MUTANTS)
def test_an_engine_that_ignores_other_users_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, name, MUTANTS[name])
    found = next(filter(None, map(failure, map(program_of, range(2 * BLOCK)))), "")
    assert "computed twice" in found or "a second run fires" in found


def test_a_failure_is_cut_down_to_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the first operand of a product lost, the script would have no other statement."""
    program = program_of(3)
    assert len(program.statements) > 4
    small = shrunk(program, lambda p: any(" - " in s.text for s in p.statements))
    assert len(small.statements) == 1 and len(small.outputs) == 1
    checked: list[str] = []
    monkeypatch.setattr(random_graphs, "check", lambda fn, args, how: checked.append(how))
    exec(small.script("random_graphs"), {})
    assert checked == [small.how]


def test_a_number_is_always_the_same_program() -> None:
    assert [program_of(seed).script("random_graphs") for seed in range(20)] == [
        program_of(seed).script("random_graphs") for seed in range(20)
    ]
