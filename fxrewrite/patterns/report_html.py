"""A report as one HTML page that needs nothing else: each rule with its sites, and the graph around one of those that
are alike, before and after. Colours say the kind of a reason, its words stand beside them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from attrs import frozen

from fxrewrite.dsl.diagnostics import underline
from fxrewrite.patterns.drawing import around, svg
from fxrewrite.patterns.events import LOWERED, OFF, SERVED, Event, Log
from fxrewrite.patterns.explain import FEW, Chapter, Group, chapters, counted, rules_off
from fxrewrite.patterns.snapshot import Snapshot

STYLE = Path(__file__).with_name("report.css")
SQUARES = 200  # sites shown as squares in one line; the others are counted
PLACES = 12  # lines of the model shown for one group
FIRED = "fired"
KINDS = {  # reason -> its class, which has a colour
    FIRED: "fired", SERVED: "fired", LOWERED: "choice", "kept: no faster provider here": "choice",
    "provider missing": "choice", "not proved": "choice", "outside token range": "choice", "eaten by": "choice",
    "shared value": "graph", "mutation between": "graph", "effect order": "graph", "cycle": "graph",
    "strides": "type", "shape": "type", "dtype": "type", "guard false": "type", "guard unknown": "type",
    "other constant": "other", "other op": "other", "rule failed": "failed", **dict.fromkeys(OFF, "off"),
}  # fmt: skip
LEGEND = {
    "fired": "fired", "choice": "matched, and left: provider, proof, token range, another rule",
    "graph": "the graph forbids it: other users, writes, order", "type": "types, sizes or conditions differ",
    "other": "another op or constant stands there", "failed": "the rule failed", "off": "off",
}  # fmt: skip


KEY = (
    "In drawings a heavy frame is the site, or what was written for it; a thin one in the same colour is what the rule "
    "matched; a broken one is what the reason tells of; ⋮ stands above a node that reads more than is drawn."
)


def page(log: Log, title: str, rule: str | None = None) -> str:
    """The page for a log, of one rule where it is named. Drawings are there if it was recorded with `graphs`."""
    found, off = chapters(log, rule), rules_off(log, rule)
    sites = [e for c in found for e in c.events]
    fired = sum(e.fired for e in sites)
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{counted(len(found), 'rule')} with {counted(len(sites), 'site')} in {counted(log.graphs, 'graph')}: "
        f"{fired} fired.</p>",
        _legend({_kind(e) for e in sites}),
        f"<p class='off'>{KEY}</p>" if log.drawn else "",
        _overview(found),
        *(_chapter(c, log, drawn=len(found) <= FEW or not c.is_absent) for c in found),
        *(f"<p class='off'>{escape(line)}</p>" for line in _off_lines(off)),
    ]
    return PAGE.format(title=escape(title), style=STYLE.read_text(encoding="utf-8"), body="\n".join(body))


PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style></head>
<body>
{body}
</body></html>
"""


def _kind(e: Event) -> str:
    return KINDS[FIRED if e.fired else e.reason]


def _legend(kinds: set[str]) -> str:
    items = "".join(
        f"<li><span class='square {kind}'></span> {escape(said)}</li>" for kind, said in LEGEND.items() if kind in kinds
    )
    return f"<ul class='legend'>{items}</ul>"


# ---- every rule in one table


def _overview(found: list[Chapter]) -> str:
    rows = "".join(
        f"<tr><th scope='row'><a href='#{_anchor(c)}'>{escape(c.name)}</a></th>"
        f"<td class='count'>{c.fired} of {len(c.events)}</td><td class='strip'>{_squares(c)}</td></tr>"
        for c in found
    )
    return f"<table><thead><tr><th>rule</th><th>fired</th><th>sites</th></tr></thead><tbody>{rows}</tbody></table>"


def _squares(c: Chapter) -> str:
    groups = [*c.firings, *c.groups]
    squares = [
        f"<a class='square {_kind(e)}' href='#{_anchor(c, i)}' title='{escape(_square_title(e), quote=True)}'></a>"
        for i, group in enumerate(groups)
        for e in group.events
    ]
    rest = len(squares) - SQUARES
    return "".join(squares[:SQUARES]) + (f" and {rest} more" if rest > 0 else "")


def _square_title(e: Event) -> str:
    return f"{e.site}: {FIRED if e.fired else e.reason} {e.by}".rstrip()


def _anchor(c: Chapter, group: int | None = None) -> str:
    name = "".join(x if x.isalnum() or x in "._-" else "-" for x in c.name)
    return name if group is None else f"{name}-{group}"


# ---- one rule


def _chapter(c: Chapter, log: Log, drawn: bool) -> str:
    groups = [*c.firings, *c.groups]
    inner = "\n".join(_group(c, i, group, log, drawn) for i, group in enumerate(groups))
    opened = "" if c.is_absent else " open"
    return (
        f"<details class='rule' id='{_anchor(c)}'{opened}><summary><h2>{escape(c.head)}</h2></summary>{inner}</details>"
    )


def _group(c: Chapter, i: int, group: Group, log: Log, drawn: bool) -> str:
    e, kind = group.first, _kind(group.first)
    count = f"{len(group.events)} sites alike" if len(group.events) > 1 else "1 site"
    notes = [f"<p><b>{word}</b> {_code(text)}</p>" for word, text in (("nearest", e.nearest), ("hint", e.hint)) if text]
    return "\n".join(
        [
            f"<section class='{kind}' id='{_anchor(c, i)}'>",
            f"<h3><span class='chip'>{escape(FIRED if e.fired else e.reason)}</span> {escape(_rest(group))} "
            f"<small>{count}</small></h3>",
            _rule_text(e, log),
            *notes,
            _places(group),
            _drawings(group, log) if drawn else "",
            "</section>",
        ]
    )


def _rest(group: Group) -> str:
    """What is said of a group beside the reason, which is shown by itself."""
    return group.said.removeprefix(FIRED if group.first.fired else group.first.reason).lstrip(": ")


def _code(text: str) -> str:
    """Text with what stands in backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _rule_text(e: Event, log: Log) -> str:
    if e.span is None:
        return ""
    lines = [str(e.span), *underline(e.span, log.sources)]
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _places(group: Group) -> str:
    """The sites by the line of the model, the first lines open to view."""
    places = [
        f"<li>{f'<code>{escape(source)}</code> at ' if source else ''}{escape(', '.join(sites))}</li>"
        for source, sites in group.lines.items()
    ]
    rest = places[PLACES:]
    more = f"<details><summary>{counted(len(rest), 'line')} more</summary><ul>{''.join(rest)}</ul></details>"
    return f"<ul class='places'>{''.join(places[:PLACES])}</ul>{more if rest else ''}"


def _off_lines(off: list[Group]) -> list[str]:
    return [f"{e.full_name} is off: {e.found or e.reason}" + (f" (hint: {e.hint})" if e.hint else "")
            for group in off for e in group.events]  # fmt: skip


# ---- the graph around a site


@frozen
class Pair:
    """The graph of a site before and after, and the nodes that count in each, with their classes."""

    before: Snapshot
    after: Snapshot
    old: dict[str, str]
    new: dict[str, str]


def _drawings(group: Group, log: Log) -> str:
    """Before and after for the first of the sites."""
    if log.drawn is None or not group.first.site:
        return ""
    e = group.first
    pair = _pair(e, log)
    shown = [_figure("before", pair.before, pair.old, e)]
    if pair.new:
        shown.append(_figure("after", pair.after, pair.new, e))
    return f"<div class='graphs'>{''.join(shown)}</div>"


def _pair(e: Event, log: Log) -> Pair:
    assert log.drawn is not None
    before, after = log.drawn[e.graph]
    taker = e if e.fired else _taker(e, log)
    old = dict.fromkeys(taker.matched if taker is not None else (), "match")
    old |= dict.fromkeys(e.nodes, "about") | {e.site: "site"}
    new = dict.fromkeys(taker.written, "written") if taker is not None else {}
    return Pair(
        before, after, {n: c for n, c in old.items() if n in before}, {n: c for n, c in new.items() if n in after}
    )


def _taker(e: Event, log: Log) -> Event | None:
    """The firing that took the site."""
    return next((f for f in log.events if f.fired and f.graph == e.graph and e.site in f.matched), None)


def _figure(when: str, graph: Snapshot, classes: dict[str, str], e: Event) -> str:
    whole = not {"match", "written"}.isdisjoint(classes.values())
    drawn = svg(around(graph, classes, whole), classes, f"the graph around {e.site}, {when}")
    return f"<figure><figcaption>{when}</figcaption><div class='scroll'>{drawn}</div></figure>"
