"""`fxrewrite explain RULE PROGRAM`: every site of one rule in an exported program, fired or not, and why."""

from __future__ import annotations

from typing import Any

import click

from fxrewrite.cli.options import (
    Misuse,
    console,
    json_option,
    load_program,
    load_rules,
    print_json,
    rewritten,
    settings,
)
from fxrewrite.dsl.check.problem import closest


@click.command("explain")
@click.argument("rule")
@click.argument("program")
@settings
@json_option
def command(rule: str, program: str, config: Any, as_json: bool) -> None:
    """Say of each site of RULE in PROGRAM whether it fires, or why not.

    RULE is `pack.rule` or `rule`. PROGRAM is as for `apply`.
    """
    from fxrewrite.lowering.config import rule_status

    rules = load_rules(config, as_json)
    chosen = rules.rules_called(rule)
    if not chosen:
        hint = closest(rule, rules.rule_names()) or "`fxrewrite packs` lists them"
        raise Misuse(f"no rule is called {rule!r}", hint)
    log = rewritten(load_program(program, rules), rules, config)
    off = {r.full_name: s for r in chosen if not (s := rule_status(rules, r, config)).on}
    if as_json:
        events = [e for e in log.to_json()["events"] if rule in (e["rule"], f"{e['pack']}.{e['rule']}")]
        reasons = {name: {"reason": s.reason, "by": s.by} for name, s in off.items()}
        print_json({"program": program, "rule": rule, "off": reasons, "events": events})
        return
    out = console()
    for name, status in off.items():
        out.print(f"{name} is off: {status.by}; --flag {name}=on turns it on")
    if len(off) < len(chosen):
        out.print(log.report(rule, every=True))
