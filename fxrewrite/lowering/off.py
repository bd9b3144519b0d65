"""Events of the rules that take no part: by the settings, or because this build lacks what they name."""

from __future__ import annotations

from collections.abc import Iterable

from fxrewrite.dsl.core import Program, RuleDef
from fxrewrite.lowering.config import Config, Status, rule_status
from fxrewrite.patterns.events import Event
from fxrewrite.patterns.forms import Off
from fxrewrite.patterns.hints import import_hint, level_hint, switch_hint


def off_events(program: Program, config: Config, lacking: Iterable[Off]) -> list[Event]:
    """One event for each rule that is off. `lacking`: forms and rules that this build cannot have."""
    rules = {r.full_name: r for r in program.rules}
    statuses = {name: rule_status(program, r, config) for name, r in rules.items()}
    off = [_of_settings(program, rules[name], s) for name, s in statuses.items() if not s.on]
    return off + [_of_build(rules[o.name], o) for o in lacking if o.name in statuses and statuses[o.name].on]


def _of_settings(program: Program, rule: RuleDef, status: Status) -> Event:
    return Event(
        rule.pack, rule.name, "", False, status.reason, found=status.by, span=rule.left_span,
        hint=_hint(program, rule, status),
    )  # fmt: skip


def _of_build(rule: RuleDef, off: Off) -> Event:
    hint = import_hint(off.detail.split(" ")[0]) if off.reason == "missing op" else ""
    return Event(rule.pack, rule.name, "", False, off.reason, found=off.detail, span=off.span, hint=hint)


def _hint(program: Program, rule: RuleDef, status: Status) -> str:
    """What turns a rule on that the level or a flag turned off."""
    if status.reason == "level":
        pack = program.packs.get(rule.pack or "")
        level = rule.level or (pack.level if pack else None)
        return switch_hint(rule.full_name, True) if level in (None, "none", "O0") else level_hint(level)
    if status.reason == "pack off" and status.by.startswith("flag "):
        return switch_hint(rule.full_name, True)
    return ""
