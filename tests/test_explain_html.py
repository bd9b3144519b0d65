"""The page of a report: whole in itself, well formed, the same facts as the text, and drawings of the graph."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch import Tensor
from torch.nn import functional as F

from explained import explained, low
from fxrewrite.cli.explain import command
from fxrewrite.patterns.drawing import MOST, around, svg
from fxrewrite.patterns.events import REASONS, Log
from fxrewrite.patterns.explain import chapters
from fxrewrite.patterns.layered import layout
from fxrewrite.patterns.report_html import FIRED, KINDS, LEGEND, STYLE, page
from fxrewrite.patterns.snapshot import Drawn, Snapshot

VOID = {"meta", "rect", "path"}
RULES = "pack p level O1\nfusion two(x) = silu(x) |> gelu\nfusion off(x) level O3 = gelu(x) |> gelu\n"


class Elements(HTMLParser):
    """Elements by tag with their attributes, and the text; raises where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, tag: str, attribute: str) -> list[str]:
        """What an attribute is on each element of a tag that has it."""
        return [str(a[attribute]) for t, a in self.found if t == tag and attribute in a]


def model(x: Tensor) -> tuple[Tensor, ...]:
    shared = F.silu(x + 1)
    return F.gelu(F.silu(x)), F.gelu(shared), shared.tanh(), F.silu(x + 2).tanh()


@cache
def log() -> Log:
    return explained(RULES, model, (low(4, 64),), graphs=True)


def test_the_page_is_whole_in_itself() -> None:
    text = page(log(), "a <title> & more")
    found = Elements(text)
    assert text.startswith("<!doctype html>") and "a <title> & more" in found.text
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.found}
    assert "url(" not in text and "http" not in text and "@import" not in text
    ids = found.values("section", "id") + found.values("details", "id")
    assert len(ids) == len(set(ids))
    assert {href.removeprefix("#") for href in found.values("a", "href")} == set(ids)


def test_every_site_is_a_square_of_its_kind() -> None:
    found = Elements(page(log(), "sites"))
    squares = [a for tag, a in found.found if tag == "a" and "square" in (a.get("class") or "")]
    (chapter,) = chapters(log())
    kinds = {e.site: KINDS[FIRED if e.fired else e.reason] for e in chapter.events}
    assert {(a.get("title") or "").partition(":")[0]: str(a["class"]).split()[1] for a in squares} == kinds
    assert sorted(kinds.values()) == ["fired", "graph", "other"]


def test_it_says_what_the_text_says() -> None:
    said = Elements(page(log(), "words")).text.replace("`", "")
    for group in chapters(log())[0].groups:
        reason = group.first.reason
        assert f"{reason} {group.said.removeprefix(reason + ': ')}" in said
        assert group.first.hint.replace("`", "") in said
    assert "p.off is off: it needs O3, and the level is O2" in said
    assert "fusion two(x) = silu(x) |> gelu" in said and "^^^^" in said


def test_the_graph_around_a_site_before_and_after() -> None:
    text = page(log(), "graphs")
    sections = re.findall(r"<section class='(\w+)'.*?</section>", text, re.S)
    assert sections == ["fired", "graph", "other"]
    fired, shared, other = re.findall(r"<section .*?</section>", text, re.S)
    assert re.findall(r"<figcaption>(\w+)", fired) == ["before", "after"]
    assert re.findall(r"<figcaption>(\w+)", shared) == re.findall(r"<figcaption>(\w+)", other) == ["before"]
    before, after = re.findall(r"<svg.*?</svg>", fired, re.S)
    assert 'class="node site"' in before and 'class="node match"' in before and ">exp<" in before
    assert 'class="node written"' in after and re.search(r">two(_\w+)?<", after) and ">exp<" not in after
    assert 'class="node about"' in shared and "<title>tanh: tanh bf16[4, 64]</title>" in shared


def test_without_drawings_there_are_none() -> None:
    plain = explained(RULES, model, (low(4, 64),))
    assert plain.drawn is None and "<svg" not in page(plain, "plain")


def test_every_kind_has_a_colour_in_both_lights_and_words() -> None:
    assert KINDS.keys() == {FIRED, *REASONS} and set(KINDS.values()) == LEGEND.keys()
    style = STYLE.read_text(encoding="utf-8")
    light, dark = style.split("prefers-color-scheme: dark")
    for kind in LEGEND:
        assert f"--{kind}: #" in light and f"--{kind}: #" in dark and f".{kind} {{ --kind: var(--{kind}); }}" in style


# ---- drawings


def chain(length: int) -> Snapshot:
    return {f"n{i}": Drawn(f"n{i}", "neg", "f32[4]", (f"n{i - 1}",) if i else ()) for i in range(length)}


def test_a_drawing_of_a_large_graph_is_small() -> None:
    graph = chain(100)
    part = around(graph, ["n50"], whole=False)
    assert (
        len(part) == MOST and {"n49", "n50", "n51"} <= part.keys() and list(part) == sorted(part, key=list(graph).index)
    )
    assert around(graph, ["n50"], whole=True).keys() == {"n49", "n50", "n51"}
    assert svg(part, {}, "a chain").count("⋮") == 1


def test_boxes_do_not_overlap_and_inputs_stand_above() -> None:
    inputs = {f"n{i}": [f"n{j}" for j in {i // 2, i // 3, i - 1} if 0 <= j < i] for i in range(24)}
    placed = layout({n: (n, "bf16[4, 64]") for n in inputs}, inputs)
    at = {b.name: b for b in placed.boxes}
    for a in placed.boxes:
        assert a.x >= 0 and a.x + a.width <= placed.width + 0.01 and a.y + a.height <= placed.height + 0.01
        assert all(at[i].y + at[i].height < a.y for i in inputs[a.name])
        for b in placed.boxes:
            apart = a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
            assert a is b or apart, (a, b)


def test_names_are_text_and_no_markup() -> None:
    drawn = svg({"a<b": Drawn("a<b", "<op>", "", ())}, {"a<b": "site"}, 'quoted "label"')
    assert "<op>" not in drawn and "&lt;op&gt;" in drawn and "&quot;label&quot;" in drawn


# ---- the command


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = run("norm_quant", "factories:norm_quant", "--providers", "op", "--html", str(path))
    assert (done.exit_code, done.stdout) == (0, f"written: {path}\n")
    found = Elements(path.read_text(encoding="utf-8"))
    assert "norm_quant in factories:norm_quant" in found.text and "norm_quant.rms_norm_fp8  1 of 1 sites" in found.text
    assert "act_quant" not in found.text
    assert "factories.py:" in found.text


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (["rms_nrm_fp8"], "no rule is called 'rms_nrm_fp8'", "did you mean `rms_norm_fp8`?"),
        (["norm_qant"], "no rule is called 'norm_qant'", "did you mean `norm_quant`?"),
        (["rms_norm_fp8", "--html", "no/such/folder/x.html"], "no/such/folder/x.html cannot be written", ""),
    ],
)
def test_misuse_is_one_line_and_a_hint_that_leads_on(arguments: list[str], said: str, hint: str) -> None:
    done = run(arguments[0], "factories:norm_quant", "--providers", "op", *arguments[1:])
    assert done.exit_code == 2 and said in done.stderr and hint in done.stderr
    if hint:
        assert run(hint.split("`")[1], "factories:norm_quant", "--providers", "op").exit_code == 0
