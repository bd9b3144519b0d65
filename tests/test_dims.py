"""Sizes as people read them."""

from __future__ import annotations

import pytest

from fxrewrite.dsl import dims
from fxrewrite.dsl.dims import Dim, constant, name

D, E = name("D"), name("E")
HALF = dims.combine("//", D, constant(2))


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (D, "D"),
        (HALF, "D//2"),
        (dims.add(D, HALF, -1), "D - D//2"),
        (dims.add(E, D, -1), "E - D"),
        (dims.scale(HALF, -1), "-D//2"),
        (dims.scale(HALF, 2), "2*(D//2)"),
        (dims.combine("//", HALF, constant(3)), "(D//2)//3"),
        (dims.add(dims.scale(D, 2), constant(-1)), "2*D - 1"),
        (dims.add(constant(1), D, -1), "-D + 1"),
    ],
)
def test_a_size_is_written_as_people_do(dim: Dim, text: str) -> None:
    assert str(dim) == text
