"""The page of the contract says what the table of primitives says."""

from __future__ import annotations

import re

from doc_blocks import DOCS
from fxrewrite.dsl.core import PRIMITIVES
from fxrewrite.verify.primitives import TABLE

PAGE = (DOCS / "contract.md").read_text()


def test_the_page_has_the_slack_of_each_primitive() -> None:
    rows = [re.split(r"(?<!\\)\|", line)[1:4] for line in PAGE.splitlines() if line.startswith("| `")]
    said = {
        name: (slack.strip().replace(r"\|", "|"), exact.strip().replace(r"\|", "|"))
        for names, slack, exact in rows
        for name in re.findall(r"`(\w+)`", names)
        if name in PRIMITIVES
    }
    assert said == {p.name: (p.slack, p.exact) for p in TABLE.values()}


def test_each_primitive_has_a_meaning_on_sets() -> None:
    assert set(TABLE) == set(PRIMITIVES)
