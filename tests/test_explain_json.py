"""The JSON of a report is what `docs/explain.md` says of it, field by field, and does not change by itself."""

from __future__ import annotations

import json
import re
from typing import Any

from torch.nn import functional as F

from doc_blocks import DOCS
from explained import NAME, explained, low
from fxrewrite.patterns.events import REASONS

PAGE = (DOCS / "explain.md").read_text()
RULES = "pack p level O1\nfusion two(x) = silu(x) |> gelu\nfusion off(x) level O3 = gelu(x) |> gelu\n"
FIRED: dict[str, Any] = {
    "pack": "p", "rule": "two", "site": "convert_element_type_3", "fired": True, "reason": "", "expected": "",
    "found": "", "source": "", "hint": "", "by": "op", "graph": 0, "nodes": [], "nearest": "", "depth": 0,
    "matched": ["convert_element_type_1", "convert_element_type_3"], "written": ["two_default"],
    "span": {"file": NAME, "line": 2, "column": 17, "end_line": 2, "end_column": 32},
}  # fmt: skip
MISSED: dict[str, Any] = {
    "pack": "p", "rule": "two", "site": "convert_element_type_5", "fired": False, "reason": "other op",
    "expected": "a gelu among its users", "found": "silu is used by tanh", "source": "", "hint": "", "by": "",
    "graph": 0, "nodes": ["tanh"], "nearest": "", "depth": 0, "matched": [], "written": [], "span": FIRED["span"],
}  # fmt: skip


def table(heading: str) -> dict[str, str]:
    """The rows of the tables of a section: first cell -> second."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (`[^|]+) \| (.*) \|$", section, re.M))


def names(heading: str) -> set[str]:
    return {name for cell in table(heading) for name in re.findall(r"`([^`]+)`", cell)}


def found() -> dict[str, Any]:
    log = explained(RULES, lambda x: (F.gelu(F.silu(x)), F.silu(x + 1).tanh()), (low(4, 64),))
    return json.loads(json.dumps(log.to_json()))


def test_every_field_of_an_event() -> None:
    events = {(e["rule"], e["fired"]): e for e in found()["events"]}
    fired, missed, off = events["two", True], events["two", False], events["off", False]
    fired["matched"] = sorted(n for n in fired["matched"] if n.startswith("convert"))[-2:]
    assert fired.keys() == missed.keys() == off.keys()
    written = fired["written"]  # the op has a longer name where another test has an op called two
    assert fired == {**FIRED, "matched": fired["matched"], "written": written} and fired["site"] in fired["matched"]
    assert len(written) == 1 and written[0].startswith("two_")
    assert missed == MISSED
    assert (off["site"], off["reason"], off["depth"]) == ("", "level", 0)


def test_the_page_names_every_field_and_no_other() -> None:
    log = found()
    stages = {"clean up", "read", "match", "rewrite", "parse", "compile"}
    assert log.keys() == {"schema", "graphs", "cached", "fired", "seconds", "events", "stored"}
    assert log["schema"] == 1 and f"| `schema` | {log['schema']} |" in PAGE
    assert log["seconds"].keys() <= stages and all(f"`{stage}`" in PAGE for stage in stages)
    event, span = FIRED.keys(), FIRED["span"].keys()
    assert names("As JSON") == {*log, *event, "program", "rule", "output"}
    assert span <= set(re.findall(r"`(\w+)`", table("As JSON")["`span`"]))


def test_the_page_names_every_reason_in_its_order() -> None:
    rows = [re.match(r"`([^`]+)`", cell) for cell in table("Reasons")]
    listed = [m[1] for m in rows if m]
    assert set(listed) == set(REASONS) and len(listed) == len(REASONS)
    nearest = [r for r in listed if r in REASONS[: REASONS.index("other op") + 1]]
    assert nearest == list(REASONS[: len(nearest)])
    assert "loses in this bucket" not in REASONS


def test_only_the_events_that_are_asked_for() -> None:
    log = explained(RULES, lambda x: F.gelu(F.silu(x)), (low(4, 64),))
    assert {e["rule"] for e in log.to_json("off")["events"]} == {"off"} and log.to_json("off")["fired"] == {}
    assert len(log.to_json("p")["events"]) == len(log.to_json("p.two")["events"]) + 1
