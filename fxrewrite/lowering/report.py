"""The events of one run: what fired, what was refused and why, and the near misses; each site of a rule once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import field, frozen
from torch.fx import Node

from fxrewrite.dsl.core import Program, RuleDef, span_of
from fxrewrite.lowering.plan import LARGER, Refusal
from fxrewrite.patterns.events import COMPLETE, Event, source_line
from fxrewrite.patterns.hints import keep_hint, switch_hint
from fxrewrite.patterns.views import Found


@frozen
class Fired:
    """A match that was carried out: by which provider, the nodes that went and those that were written, by name."""

    found: Found
    by: str
    matched: tuple[str, ...]
    written: tuple[str, ...]


@frozen
class Report:
    """`takers`: for each node that a rewrite took, the rule that did."""

    program: Program
    takers: Mapping[Node, str] = field(factory=dict)

    def events(
        self, fired: Iterable[Fired], refused: Iterable[tuple[Found, Refusal]], near: Iterable[Event]
    ) -> list[Event]:
        """One event for each site of each rule."""
        events = [self._fired(f) for f in fired]
        fired_at = {(e.full_name, e.site) for e in events}
        told = [self._refused(found, refusal) for found, refusal in refused]
        events += [e for e in told if (e.full_name, e.site) not in fired_at]
        known = {(e.full_name, e.site) for e in events}
        return events + [e for e in near if (e.full_name, e.site) not in known]

    def _fired(self, f: Fired) -> Event:
        rule = f.found.rule
        return Event(
            rule.pack, rule.name, _site(f.found), True, span=rule.left_span, source=source_line(f.found.site), by=f.by,
            matched=f.matched, written=f.written,
        )  # fmt: skip

    def _refused(self, found: Found, r: Refusal) -> Event:
        rule: RuleDef = found.rule
        eaten = r.reason == "eaten by"
        by = self._taker(found) or r.found if eaten else ""
        hint = r.hint
        if eaten and by != LARGER:
            hint = switch_hint(by, False)
        if r.reason == "shared value":
            hint = keep_hint(rule, r.term, self.program.sources)
        place = (span_of(r.term) if r.term is not None else None) or rule.left_span
        node = found.site if eaten or r.node is None else r.node
        return Event(
            rule.pack, rule.name, _site(found), False, r.reason, r.expected, "" if eaten else r.found, place,
            source_line(node), hint, by, nodes=tuple(n.name for n in r.about), depth=COMPLETE,
        )  # fmt: skip

    def _taker(self, found: Found) -> str:
        """The rule that took the site, or a node of it."""
        nodes = [found.site, *(n for v in found.named for n in v.nodes)]
        nodes += [n for o in found.outputs for v in (o if isinstance(o, list) else [o]) for n in v.nodes]
        return next((self.takers[n] for n in nodes if n in self.takers), "")


def _site(found: Found) -> str:
    return found.site.name if found.site is not None else "?"
