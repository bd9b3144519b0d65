"""The shipped packs that a configuration does not load: how each is turned on, and what of it does not match yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve


def describe(loaded: Iterable[str | None], config: Any) -> list[dict[str, Any]]:
    """For each shipped pack that is not loaded: its rules, and those that would stay off beside the reason."""
    from fxrewrite.dsl import packs as files
    from fxrewrite.lowering.config import rule_status

    absent = [name for name in files.shipped() if name not in set(loaded)]
    if not absent:
        return []
    program, _ = files.check_packs(files.shipped())
    found: list[dict[str, Any]] = []
    for name in absent:
        pack = program.packs[name]
        asked = {pack.flag: True} if pack.flag and pack.level is None else {}
        on = evolve(config, flags={**config.flags, **asked}, level=max(config.level, pack.level or "O2", "O2"))
        rules = [r for r in program.rules if r.pack == name]
        statuses = {r.name: rule_status(program, r, on) for r in rules}
        found.append(
            {
                "pack": name,
                "level": pack.level,
                "flag": pack.flag,
                "rules": list(statuses),
                "turn_on": _turn_on(name, pack),
                "stays_off": {n: {"reason": s.reason, "by": s.by} for n, s in statuses.items() if not s.on},
            }
        )
    return found


def _turn_on(name: str, pack: Any) -> str:
    """What to write."""
    text = f'packs=["default", "{name}"]'
    if pack.level in (None, "none"):
        return text + (f", flags={{{pack.flag!r}: True}}".replace("'", '"') if pack.flag else "")
    return text + (f', level="{pack.level}"' if pack.level > "O2" else "")


def show(out: Any, packs: list[dict[str, Any]]) -> None:
    """Two lines for a pack, and one for each reason that keeps rules off."""
    if packs:
        out.print("\nshipped, and off")
    width = max((len(p["pack"]) for p in packs), default=0)
    for p in packs:
        count = len(p["rules"])
        out.print(f"  {p['pack']:{width}}  {count} rule{'' if count == 1 else 's'}; on with {p['turn_on']}")
        by_reason: dict[str, list[str]] = {}
        for rule, status in p["stays_off"].items():
            by_reason.setdefault(status["by"], []).append(rule)
        for by, rules in by_reason.items():
            which = "all of them" if len(rules) == count else ", ".join(rules)
            out.print(f"  {'':{width}}  still off: {which}: {by}")
