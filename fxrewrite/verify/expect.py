"""What fires in a program against what is pinned: the counts that changed, and what came nearest at the sites lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from fxrewrite.patterns.events import Log
from fxrewrite.patterns.explain import Group, counted, group_text, nearest
from fxrewrite.verify.pins import Pin


@frozen
class Change:
    """A rule whose count is another than the pinned one. `near`: the sites that may be those that it lost."""

    rule: str
    expected: int
    found: int
    near: tuple[Group, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `nearest` holds an event of each group."""
        near = [{"sites": len(g.events), **g.first.to_json()} for g in self.near]
        return {"rule": self.rule, "expected": self.expected, "found": self.found, "nearest": near}


@frozen
class Compared:
    """One program: its pin, the rules that fired, and what of that is not as pinned. `note`: on the pin's torch."""

    pin: Pin
    counts: Counter[str]
    changes: tuple[Change, ...]
    log: Log
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "program": self.pin.program,
            "torch": self.pin.torch,
            "settings": dict(self.pin.settings),
            "note": self.note,
            "fired": dict(self.counts),
            "changes": [c.to_json() for c in self.changes],
        }

    def text(self) -> list[str]:
        """Lines for a person."""
        packs = self.pin.settings.get("packs")
        head = self.pin.program + (f"  ({', '.join(packs)})" if packs else "")
        if not self.changes:
            said = f"{counted(len(self.counts), 'rule')}, {counted(self.counts.total(), 'site')}"
            return [f"{head}: as pinned, {said}", *self._note()]
        lines = [head, *self._note()]
        for change in self.changes:
            lines.append(f"  {change.rule}: {change.expected} pinned, {change.found} fired")
            for group in change.near:
                lines += ["  " + line for line in group_text(group, self.log)]
        return lines

    def _note(self) -> list[str]:
        return [f"  {self.note}"] if self.note else []


def compare(pin: Pin, log: Log, note: str = "") -> Compared:
    """Hold a recording of the rewrite against its pin."""
    counts = Counter(e.full_name for e in log.events if e.fired)
    rules = sorted({*counts, *pin.fired})
    pairs = [(rule, pin.fired.get(rule, 0), counts[rule]) for rule in rules]
    changes = tuple(
        Change(rule, n, found, tuple(nearest(log, rule, n - found))) for rule, n, found in pairs if n != found
    )
    return Compared(pin, counts, changes, log, note)


def chosen(pins: Sequence[Pin], release: str) -> list[tuple[Pin, str]]:
    """The pins that are compared on a release of torch, each with a note where it was written on another one.

    Of the pins of one program under one configuration the one that fits the release, else the last.
    """
    groups: dict[str, list[Pin]] = {}
    for pin in pins:
        groups.setdefault(repr((pin.program, sorted(pin.settings.items()))), []).append(pin)
    found: list[tuple[Pin, str]] = []
    for alike in groups.values():
        pin = next((p for p in alike if p.fits(release)), alike[-1])
        beside = " (the last of several, none of which is of this release)" if len(alike) > 1 else ""
        found.append((pin, "" if pin.fits(release) else f"pinned on torch {pin.torch}, compared on {release}{beside}"))
    return found


def updated(pins: Sequence[Pin], compared: Sequence[Compared], release: str) -> tuple[Pin, ...]:
    """The pins with what fires now. Where several are of other releases only, one of this release is added."""
    fresh = {c.pin.index: c.pin.with_counts(c.counts, release) for c in compared}
    found: list[Pin] = []
    for pin in pins:
        new = fresh.get(pin.index, pin)
        alike = [p for p in pins if (p.program, p.settings) == (pin.program, pin.settings)]
        if pin.index in fresh and len(alike) > 1 and not pin.fits(release):
            found += [pin, evolve(new, above="", index=None)]
        else:
            found.append(new)
    return tuple(found)
