"""Sizes that only the members of an `each` have: conditions on them hold for every member, at the match and after."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fxrewrite
from capture import make_fx_graph, run
from fxrewrite.dsl.parse import parse
from fxrewrite.patterns.events import record
from graph_checks import assert_same

X = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
PLAIN = "fusion members(x: f32[T, D], *b: f32[D, N]) = *q where t = abs(x), each q = t @ b\n  requires {}\n"
CASES = """def by_width(t: f32[T, D], b: f32[D, N])
  = t @ b           when N > 40
  = (t @ b) * 2.0   when N <= 40
fusion members(x: f32[T, D], *b: f32[D, N]) = *q where t = abs(x), each q = by_width(t, b)
"""


def plain(x: Tensor, *weights: Tensor) -> Any:
    return [torch.abs(x) @ b for b in weights]


def second_doubled(x: Tensor, a: Tensor, b: Tensor) -> Any:
    return torch.abs(x) @ a, (torch.abs(x) @ b) * 2.0


def fires(text: str, fn: Any, *widths: int) -> bool:
    """Does the rule fire where the weights have these widths? The graph computes what it did."""
    weights = [torch.randn(64, n, generator=torch.Generator().manual_seed(n)) for n in widths]
    gm = make_fx_graph(fn, (X, *weights))
    before = run(gm)
    file, wrong = parse(text, "each.rw")
    assert not wrong
    with record() as log:
        fxrewrite.rewrite(gm, [file], providers=["op"], strict=True)
    assert_same(before, run(gm))
    return bool(log.fired())


@pytest.mark.parametrize(
    ("condition", "widths", "fired"),
    [
        ("N % 32 == 0", (32, 64), True),
        ("N % 32 == 0", (32, 33), False),
        ("N % 32 == 0", (33, 32), False),
        ("N > T", (33, 5, 8), True),
        ("N > T", (33, 5, 4), False),
        ("N > T, D == 64", (33, 5), True),
        ("N > T, D == 65", (33, 5), False),
    ],
)
def test_a_condition_on_the_size_of_a_member(condition: str, widths: tuple[int, ...], fired: bool) -> None:
    assert fires(PLAIN.format(condition), plain, *widths) == fired


@pytest.mark.parametrize(
    ("fn", "widths", "fired"),
    [
        (plain, (64, 48), True),
        (plain, (64, 32), False),  # the second would have to be doubled
        (plain, (32, 64), False),
        (second_doubled, (64, 32), True),
        (second_doubled, (32, 32), False),
    ],
)
def test_a_case_that_the_size_of_a_member_decides(fn: Any, widths: tuple[int, ...], fired: bool) -> None:
    assert fires(CASES, fn, *widths) == fired
