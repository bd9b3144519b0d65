"""`fxrewrite explain RULE PROGRAM`: every site of a rule in an exported program, fired or not, and why."""

from __future__ import annotations

from pathlib import Path
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

ALL = "all"


@click.command("explain")
@click.argument("rule")
@click.argument("program")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page with the graph around the sites.")
@settings
@json_option
def command(rule: str, program: str, html: str | None, config: Any, as_json: bool) -> None:
    """Say of each site of RULE in PROGRAM whether it fires, or why not.

    RULE is `pack.rule`, `rule`, a pack, or `all`. PROGRAM is as for `apply`.
    """
    rules = load_rules(config, as_json)
    packs = {r.pack for r in rules.rules if r.pack}
    if rule != ALL and rule not in packs and not rules.rules_called(rule):
        hint = closest(rule, {*rules.rule_names(), *packs}) or "`fxrewrite packs` lists them"
        raise Misuse(f"no rule is called {rule!r}", hint)
    chosen = None if rule == ALL else rule
    log = rewritten(load_program(program, rules), rules, config, graphs=html is not None)
    if html is not None:
        write_page(log, f"{rule} in {program}", chosen, Path(html))
    if as_json:
        print_json({"program": program, "rule": rule, **log.to_json(chosen)})
        return
    console().print(f"written: {html}" if html is not None else log.report(chosen, every=chosen is not None))


def write_page(log: Any, title: str, rule: str | None, path: Path) -> None:
    """Write a log as a page. Raises Misuse where that fails."""
    from fxrewrite.patterns.report_html import page

    try:
        path.write_text(page(log, title, rule), encoding="utf-8")
    except OSError as error:
        raise Misuse(f"{path} cannot be written: {error.strerror}") from error
