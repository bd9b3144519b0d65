"""`fxrewrite expect`: hold what fires in programs against the counts that a file pins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fxrewrite.cli.exits import ABSENT, MISUSE
from fxrewrite.cli.options import Misuse, console, end, json_option, print_json

DEFAULT = "expect.toml"


@click.command("expect")
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT)
@click.option("--update", is_flag=True, help="Write the counts of now into the file.")
@json_option
def command(file: Path, update: bool, as_json: bool) -> None:
    """Rewrite each program that FILE pins, and compare how often each rule fires.

    FILE is ./expect.toml where it is not given. The exit code is 1 where a count is another than the pinned one; under
    it stands what came nearest to firing at the sites that were lost. --update writes the counts into FILE.
    """
    from fxrewrite.dsl.diagnostics import RuleError
    from fxrewrite.verify.pins import read_pins

    try:
        run(read_pins(file), update, as_json)
    except RuleError as error:
        if as_json:
            print_json({"errors": [d.to_json() for d in error.diagnostics]})
        else:
            click.echo(str(error), err=True)
        sys.exit(MISUSE)


def run(file: Any, update: bool, as_json: bool) -> None:
    """Compare every pin and tell. Raises RuleError where a pin means nothing here."""
    import torch
    from attrs import evolve

    from fxrewrite.cli.replace import replace
    from fxrewrite.verify.expect import chosen, compare, updated
    from fxrewrite.verify.pins import written

    release = torch.__version__.partition("+")[0]
    out = console()
    done: list[Any] = []
    for pin, note in chosen(file.pins, release):
        done.append(compare(*rewritten_pin(file, pin, update), note))
        if not as_json:
            out.print("\n".join(done[-1].text()))
    changed = sum(bool(c.changes) for c in done)
    text = written(evolve(file, pins=updated(file.pins, done, release)))
    if update and text != file.text:
        try:
            replace(file.path, text)
        except OSError as error:
            raise Misuse(f"{file.path} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"file": str(file.path), "torch": release, "updated": update, "models": [c.to_json() for c in done]})
    elif update:
        out.print(f"{file.path} is {'up to date' if text == file.text else 'written'}")
    elif changed:
        name = "" if str(file.path) == DEFAULT else f" {file.path}"
        out.print(f"\n{changed} of {len(done)} models changed; where that is meant: fxrewrite expect{name} --update")
    end(bool(changed) and not update)


def rewritten_pin(file: Any, pin: Any, update: bool) -> tuple[Any, Any]:
    """A pin, its rules by their full names, and the log of the rewrite. Raises RuleError; for an update not for rules
    that are no more.
    """
    from fxrewrite.cli.options import load_program, rewritten

    folder = file.path.parent
    config, rules = configured(file, pin, folder)
    pin = with_full_names(file, pin, rules, update)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # a module beside the file is found, wherever the command is run
    program = str(folder / pin.program) if pin.program.endswith(".pt2") else pin.program
    try:
        return pin, rewritten(load_program(program, rules), rules, config)
    except Misuse as error:
        raise file.wrong("RW503", error.message, error.hint, pin, pin.program) from error


def configured(file: Any, pin: Any, folder: Path) -> tuple[Any, Any]:
    """The configuration of a pin, and its rules."""
    from fxrewrite.dsl.diagnostics import RuleError
    from fxrewrite.lowering.config import ConfigError, load_program, make_config

    given = {"providers": ["op"], **pin.settings}
    if "packs" in given:
        given["packs"] = [str(folder / p) if p.endswith(".rw") else p for p in given["packs"]]
    if "tokens" in given:
        given["tokens"] = (*given["tokens"], None)[:2]
    try:
        config = make_config(**given)
        return config, load_program(config)
    except ConfigError as error:
        about = next((k for k in pin.settings if k in str(error)), None)
        raise file.wrong("RW502", str(error), "", pin, about) from error
    except RuleError as error:
        absent = next((d for d in error.diagnostics if d.code in ABSENT), None)
        if absent is None:
            raise
        raise file.wrong(absent.code, absent.message, absent.hint, pin, "packs") from error


def with_full_names(file: Any, pin: Any, rules: Any, update: bool) -> Any:
    """A pin with each rule as `pack.rule`. Raises RuleError for one that its packs do not have, unless it will go."""
    from attrs import evolve

    from fxrewrite.dsl.check.problem import closest

    fired: dict[str, int] = {}
    for name, count in pin.fired.items():
        called = rules.rules_called(name)
        if len(called) != 1 and not update:
            hint = closest(name, rules.rule_names()) or "`fxrewrite packs` lists those of the packs"
            if called:
                hint = f"write one of {', '.join(r.full_name for r in called)}"
            raise file.wrong(
                "RW504", f"{'no' if not called else 'more than one'} rule is called {name}", hint, pin, name
            )
        fired[called[0].full_name if len(called) == 1 else name] = count
    return evolve(pin, fired=fired)
