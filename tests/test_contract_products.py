"""Products: the right ones are far from what clause 11 allows, the wrong ones are caught where it can tell them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import products
from benchmarks.settings import SMALL


@pytest.mark.slow
def test_right_products_are_admitted_and_wrong_ones_are_not() -> None:
    """For K = 256; `python -m benchmarks products` has the widths up to 4096."""
    right, wrong = products.run(SMALL)
    assert all(goal.met for goal in right.goals), list(right.lines())
    caught = {row[0]: row[2] / row[1] for row in wrong.rows}
    assert min(caught.values()) >= 0.9, caught
    assert caught["without the last term"] == caught["rounded after each 32nd part"] == 1.0
