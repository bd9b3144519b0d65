"""`fxrewrite packs`: what is on and what decided that, and which providers this machine has for each op."""

from __future__ import annotations

from typing import Any

import click

from fxrewrite.cli.options import Misuse, console, json_option, load_rules, print_json, settings
from fxrewrite.cli.providers import device, providers_of
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.sources import shipped


@click.command("packs")
@click.argument("name", required=False)
@settings
@json_option
def command(name: str | None, config: Any, as_json: bool) -> None:
    """Show the effective configuration: packs, rules, providers, and whether generated code keeps roundings.

    With NAME, an op, fusion or rule of any shipped pack: its docs, types, attributes and guards, how it is spelled,
    what can run it on this machine, and what uses it.
    """
    if name is not None and name in shipped():
        raise Misuse(f"{name} is a pack", f"`fxrewrite packs --packs {name}` shows it")
    rules = load_rules(config, as_json)
    if name is not None:
        from fxrewrite.cli import entry

        described = entry.describe(name, config.packs, config)
        print_json(described) if as_json else entry.show(console(), described)
        return
    found = describe(rules, config)
    if as_json:
        print_json(found)
        return
    show(found)


def describe(rules: Any, config: Any) -> dict[str, Any]:
    """Everything that `packs` shows, as a JSON object."""
    from torch._inductor import config as inductor

    from fxrewrite.cli import off_packs
    from fxrewrite.dsl import packs as files
    from fxrewrite.lowering.config import check_flags
    from fxrewrite.lowering.generated import unavailable
    from fxrewrite.lowering.providers import unknown_names

    emitted = sorted({call.op for r in rules.rules for call in calls_of(r.right)})
    return {
        "level": config.level,
        "flags": dict(config.flags),
        "tokens": config.tokens,
        "packs": [_pack(rules, name, config) for name in _names(rules)],
        "providers": {
            "order": list(config.providers),
            "device": device(),
            "not_generated": unavailable(device()) or "",
            "ops": {name: providers_of(rules, rules.ops[name], config) for name in emitted},
        },
        "keeps_roundings": bool(inductor.emulate_precision_casts),
        "shipped": {name: name in files.DEFAULT for name in files.shipped()},
        "off": off_packs.describe((*_names(rules), *config.packs), config),
        "warnings": [*check_flags(rules, config), *unknown_names(rules, config.providers)],
    }


def _names(rules: Any) -> list[str | None]:
    """Packs with rules, in order."""
    return list(dict.fromkeys(r.pack for r in rules.rules))


def _pack(rules: Any, name: str | None, config: Any) -> dict[str, Any]:
    from fxrewrite.lowering.config import rule_status

    pack = rules.packs.get(name or "")
    shown: list[dict[str, Any]] = []
    for rule in (r for r in rules.rules if r.pack == name):
        status = rule_status(rules, rule, config)
        shown.append(
            {
                "rule": rule.name,
                "on": status.on,
                "reason": status.reason,
                "by": status.by,
                "level": rule.level or (pack.level if pack else None),
                "flag": rule.flag or (pack.flag if pack else None),
                "place": str(rule.span) if rule.span is not None else "",
            }
        )
    return {
        "pack": name,
        "file": pack.file if pack else "",
        "level": pack.level if pack else None,
        "flag": pack.flag if pack else None,
        "stage": pack.stage if pack else "fuse",
        "rules": shown,
    }


# ---- as text


def show(found: dict[str, Any]) -> None:
    """The configuration as text."""
    from fxrewrite.cli import off_packs

    out = console()
    shipped = ", ".join(name + ("" if default else " (not in default)") for name, default in found["shipped"].items())
    out.print(f"level {found['level']}, shipped packs: {shipped}")
    for warning in found["warnings"]:
        out.print(f"warning: {warning}")
    for pack in found["packs"]:
        _show_pack(out, pack)
    off_packs.show(out, found["off"])
    _show_providers(out, found["providers"])
    out.print("\nroundings")
    if found["keeps_roundings"]:
        out.print("  code that Inductor generates keeps every declared rounding (emulate_precision_casts is on)")
    else:
        out.print("  code that Inductor generates may skip declared 16-bit roundings inside a kernel;")
        out.print("  torch._inductor.config.emulate_precision_casts = True keeps them")


def _show_pack(out: Any, pack: dict[str, Any]) -> None:
    head = [f"pack {pack['pack']}", f"level {pack['level'] or 'none'}"]
    head += [f"flag {pack['flag']}"] if pack["flag"] else []
    head += [f"stage {pack['stage']}"] if pack["stage"] != "fuse" else []
    out.print("\n" + "  ".join([*head, pack["file"]]))
    width = max((len(r["rule"]) for r in pack["rules"]), default=0)
    for rule in pack["rules"]:
        out.print(f"  {'on ' if rule['on'] else 'off'}  {rule['rule']:{width}}  {rule['by']}")


def _show_providers(out: Any, providers: dict[str, Any]) -> None:
    out.print(f"\nproviders on {providers['device']}, in this order: {', '.join(providers['order'])}")
    width = max(map(len, providers["ops"]), default=0)
    everywhere = [providers["not_generated"], f"none is registered for {providers['device']}"]
    for op, known in providers["ops"].items():
        off = [f"{c['name']}: {c['reason']}" for c in known if not c["on"] and c["reason"] not in everywhere]
        out.print("  " + f"{op:{width}}  {', '.join(c['name'] for c in known if c['on'])}".rstrip())
        for line in off:
            out.print(f"  {'':{width}}  not {line}")
    if not any(c["on"] for known in providers["ops"].values() for c in known if c["name"] == "kernel"):
        out.print(f"  no hand-written kernel is registered for {providers['device']}")
    if providers["not_generated"]:
        out.print(f"  no kernel is generated: {providers['not_generated']}")
