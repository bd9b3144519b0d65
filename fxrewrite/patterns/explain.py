"""Reports for people: each rule with its sites, and for each reason the place in the rule and the lines of the
model.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fxrewrite.dsl.diagnostics import underline
from fxrewrite.patterns.events import LOWERED, SERVED, Event, Log

FEW = 3  # with more rules than this, those that came nowhere near get one line each
LINES = 3  # lines of the model shown for one reason


def render(log: Log, rule: str | None = None, every: bool = False) -> str:
    """The report of a log; of one rule where `rule` names it ("norm_quant.rms_norm_fp8" or "rms_norm_fp8").

    `every`: no site is left out.
    """
    limit = len(log.events) if every else LINES
    by_rule: dict[str, list[Event]] = defaultdict(list)
    for e in log.events:
        if rule is None or rule in (e.rule, e.full_name):
            by_rule[e.full_name].append(e)
    lines: list[str] = []
    absent: list[str] = []
    for name in sorted(by_rule, key=lambda n: (-sum(e.fired for e in by_rule[n]), n)):
        events = by_rule[name]
        if len(by_rule) > FEW and not any(e.fired or e.reason != "other op" for e in events):
            missing = sorted({e.expected for e in events})
            absent.append(
                f"{name}  0 of {len(events)} sites: no {' and no '.join(m.removeprefix('a ') for m in missing)}"
            )
        else:
            lines += [*_rule(name, events, log, limit), ""]
    lines += [*absent, ""] if absent else []
    if log.cached:
        many = "compilations" if log.cached > 1 else "compilation"
        lines.append(f"{log.cached} {many}: cached, not run (the rewritten code came from Inductor's cache)")
    if not by_rule and not log.cached:
        lines.append(f"no site of {rule}" if rule else "no rule has a site in these graphs")
    return "\n".join(lines).rstrip()


def _rule(name: str, events: list[Event], log: Log, limit: int) -> list[str]:
    fired = [e for e in events if e.fired]
    calls = all(e.reason in (LOWERED, SERVED) for e in events)
    lines = [
        f"{name}  {_count(len(events), 'call')}"
        if calls
        else f"{name}  {len(fired)} of {len(events)} sites" + _by(fired)
    ]
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for e in events:
        if not e.fired:
            groups[(e.reason, e.by, e.expected, _found_kind(e), e.span)].append(e)
    shown = None
    for group in sorted(groups.values(), key=lambda g: str(g[0].span)):
        lines += _group(group, log, group[0].span != shown, limit)
        shown = group[0].span
    return lines


def _by(fired: list[Event]) -> str:
    providers = sorted({e.by for e in fired if e.by})
    return f"  (provider: {', '.join(providers)})" if providers else ""


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''}"


def _found_kind(e: Event) -> str:
    return "" if e.reason == "shared value" else e.found.split(" (")[0]


def _group(group: list[Event], log: Log, with_place: bool, limit: int) -> list[str]:
    e = group[0]
    count = _count(len(group), "site")
    lines: list[str] = []
    if e.span is not None and with_place:
        lines.append(f"  {e.span}")
        lines += ["  " + line for line in underline(e.span, log.sources)]
    said = f"    {e.reason} {e.by}" if e.by else f"    {e.reason}"
    if e.expected:
        said += f": expected {e.expected}"
    if e.found and not e.by:
        said += f"{',' if e.expected else ':'} found {e.found}"
    lines.append(f"{said}  [{count}]")
    for shown in group[:limit]:
        lines.append(f"      {shown.site}  {shown.source}".rstrip())
    if len(group) > limit:
        lines.append(f"      ... and {len(group) - limit} more")
    if e.hint:
        lines.append(f"    hint: {e.hint}")
    return lines
