"""Reports for people: each rule with its sites, sites that are alike as one group, the nearest to firing first; with
the place in the rule and the lines of the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from attrs import frozen

from fxrewrite.dsl.diagnostics import underline
from fxrewrite.dsl.syntax import Span
from fxrewrite.patterns.events import LOWERED, OFF, SERVED, Event, Log

FEW = 3  # with more rules than this, those that came nowhere near get one line each
LINES = 3  # lines of the model shown for one group
NAMES = 3  # names shown in one line

PLAIN = 'cached, not run (what the cold runs said of them is stored with `backend="fxrewrite"` only)'


@frozen
class Group:
    """Sites of a rule that are alike: they differ in their nodes alone, as those of the layers of a model do."""

    events: tuple[Event, ...]

    @property
    def first(self) -> Event:
        """The event that stands for all."""
        return self.events[0]

    @property
    def said(self) -> str:
        """The reason, with what was expected and found, in one line."""
        e = self.first
        if e.fired:
            return "fired" + (f" (provider: {e.by})" if e.by else "")
        said = f"{e.reason} {e.by}" if e.by else e.reason
        said += f": expected {e.expected}" if e.expected else ""
        return said + (f"{',' if e.expected else ':'} found {e.found}" if e.found else "")

    @property
    def lines(self) -> dict[str, list[str]]:
        """The sites by the line of the model that they come from."""
        out: dict[str, list[str]] = defaultdict(list)
        for e in self.events:
            out[e.source].append(e.site)
        return out


@frozen
class Chapter:
    """A rule with the events of its sites."""

    name: str
    events: tuple[Event, ...]

    @property
    def fired(self) -> int:
        """How many sites fired."""
        return sum(e.fired for e in self.events)

    @property
    def head(self) -> str:
        """The name, and how many of its sites fired."""
        if all(e.reason in (LOWERED, SERVED) for e in self.events):
            return f"{self.name}  {counted(len(self.events), 'call')}"
        providers = sorted({e.by for e in self.events if e.fired and e.by})
        by = f"  (provider: {', '.join(providers)})" if providers else ""
        return f"{self.name}  {self.fired} of {len(self.events)} sites{by}"

    @property
    def is_absent(self) -> bool:
        """Does no site have more than the first op of the rule, or its last?"""
        return all(not e.fired and e.reason == "other op" for e in self.events)

    @property
    def rank(self) -> tuple[int, tuple[int, int]]:
        """What fires most first, then what came nearest."""
        return -self.fired, min(e.rank for e in self.events)

    @property
    def groups(self) -> list[Group]:
        """The sites that did not fire, alike together, the nearest first and of these the most frequent."""
        return sorted(_alike(e for e in self.events if not e.fired), key=lambda g: (g.first.rank, -len(g.events)))

    @property
    def firings(self) -> list[Group]:
        """The sites that fired, by provider."""
        return _alike(e for e in self.events if e.fired)


def _alike(events: Iterable[Event]) -> list[Group]:
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for e in events:
        place = None if e.reason in OFF else e.span  # of rules that are off the places differ
        groups[(e.reason, e.by, e.expected, e.found, place, e.hint, e.nearest)].append(e)
    return [Group(tuple(g)) for g in groups.values()]


def chapters(log: Log, rule: str | None = None) -> list[Chapter]:
    """The rules that have sites, in the order of a report."""
    by_rule: dict[str, list[Event]] = defaultdict(list)
    for e in log.of(rule):
        if e.reason not in OFF:
            by_rule[e.full_name].append(e)
    return sorted((Chapter(n, tuple(es)) for n, es in by_rule.items()), key=lambda c: (c.rank, c.name))


def rules_off(log: Log, rule: str | None = None) -> list[Group]:
    """The rules that take no part, together where the reason is the same."""
    return _alike(e for e in log.of(rule) if e.reason in OFF)


def nearest(log: Log, rule: str, sites: int) -> list[Group]:
    """Of the sites of a rule (`pack.rule`) that did not fire the nearest groups: together `sites`, or all."""
    found: list[Group] = []
    for group in Chapter(rule, tuple(e for e in log.events if e.full_name == rule)).groups:
        if sum(len(g.events) for g in found) < sites:
            found.append(group)
    return found


# ---- text


def group_text(group: Group, log: Log) -> list[str]:
    """The lines of one group, as a report has them."""
    return _off(group, False) if group.first.reason in OFF else _group(group, log, True, False)


def render(log: Log, rule: str | None = None, every: bool = False) -> str:
    """The report of a log; of one rule where `rule` names it ("norm_quant.rms_norm_fp8" or "rms_norm_fp8").

    `every`: no site is left out.
    """
    off = rules_off(log, rule)
    lines = _chapters(log, rule, every)
    nothing = not lines
    lines += [line for group in off for line in _off(group, every)]
    if log.hits:
        lines.append(f"{counted(log.hits, 'compilation')}: cached, not run (the code came from Inductor's cache)")
        lines += _cold(log, rule, every)
    if log.plain_hits:
        lines.append(f"{counted(log.plain_hits, 'graph')} under plain Inductor: {PLAIN}")
    if nothing and not off and not log.cached:
        lines.append(f"no site of {rule}" if rule else "no rule has a site in these graphs")
    return "\n".join(lines).rstrip()


def _cold(log: Log, rule: str | None, every: bool) -> list[str]:
    """What the runs said that the code in the cache comes from."""
    lines = _chapters(Log(log.stored, sources=log.sources), rule, every)
    return ["cached (from the cold run):", *("  " + line if line else "" for line in lines)] if lines else []


def _chapters(log: Log, rule: str | None, every: bool) -> list[str]:
    found = chapters(log, rule)
    lines: list[str] = []
    absent: list[str] = []
    for chapter in found:
        if len(found) > FEW and chapter.is_absent:
            missing = sorted({e.expected.removeprefix("a ") for e in chapter.events})
            absent.append(f"{chapter.name}  0 of {len(chapter.events)} sites: no {' and no '.join(missing)}")
        else:
            lines += [*_chapter(chapter, log, every), ""]
    return lines + ([*absent, ""] if absent else [])


def _chapter(chapter: Chapter, log: Log, every: bool) -> list[str]:
    lines = [chapter.head]
    shown: Span | None = None
    for group in chapter.groups:
        lines += _group(group, log, group.first.span != shown, every)
        shown = group.first.span
    return lines


def _group(group: Group, log: Log, with_place: bool, every: bool) -> list[str]:
    e, count = group.first, len(group.events)
    lines: list[str] = []
    if e.span is not None and with_place:
        lines += [f"  {e.span}", *("  " + line for line in underline(e.span, log.sources))]
    lines.append(f"    {group.said}  [{f'{count} sites alike' if count > 1 else '1 site'}]")
    places = list(group.lines.items())
    for source, sites in places if every else places[:LINES]:
        lines.append("      " + "  ".join(filter(None, (source, "at " + named(sites, len(sites) if every else NAMES)))))
    if not every and len(places) > LINES:
        lines.append(f"      ... and {counted(len(places) - LINES, 'line')} more")
    lines += [f"    nearest: {e.nearest}"] if e.nearest else []
    lines += [f"    hint: {e.hint}"] if e.hint else []
    return lines


def _off(group: Group, every: bool) -> list[str]:
    e = group.first
    names = [e.full_name for e in group.events]
    verb = "are" if len(names) > 1 else "is"
    return [
        f"{named(names, len(names) if every else NAMES)} {verb} off: {e.found or e.reason}",
        *([f"  hint: {e.hint}"] if e.hint else []),
    ]


def named(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def counted(n: int, what: str) -> str:
    """`1 site`, `2 sites`."""
    return f"{n} {what}{'s' if n != 1 else ''}"
