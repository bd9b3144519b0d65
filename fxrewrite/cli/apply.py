"""`fxrewrite apply PROGRAM`: rewrite an exported program, say what happened at each site, and write the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fxrewrite.cli.options import (
    Misuse,
    console,
    end,
    first_line,
    json_option,
    load_program,
    load_rules,
    print_json,
    rewritten,
    settings,
)


@click.command("apply")
@click.argument("program")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Where to write: FILE.pt2, or any other name for text."
)
@settings
@json_option
def command(program: str, output: str | None, config: Any, as_json: bool) -> None:
    """Rewrite PROGRAM and report each site.

    PROGRAM is a .pt2 file of torch.export.save, or module:function, a Python function that returns (model, args) or an
    ExportedProgram. The exit code is 1 where a rule is wrong or failed.
    """
    rules = load_rules(config, as_json)
    loaded = load_program(program, rules)
    log = rewritten(loaded, rules, config)
    if output is not None:
        write(loaded, Path(output))
    failed = any(e.reason == "rule failed" for e in log.events)
    if as_json:
        print_json({"program": program, "output": output, **log.to_json()})
        end(failed)
    out = console()
    out.print(log.report())
    if output is not None:
        out.print(f"\nwritten: {output}" + (f"  ({LOADING})" if output.endswith(".pt2") and log.fired() else ""))
    end(failed)


LOADING = "where it is loaded, fxrewrite.register_ops(packs) goes first"


def write(program: Any, path: Path) -> None:
    """Write a program: `.pt2` with torch.export.save, else the graph as text. Raises Misuse where that fails."""
    import torch

    try:
        if path.suffix == ".pt2":
            torch.export.save(program, path)
        else:
            path.write_text(program.graph_module.print_readable(print_output=False) + "\n", encoding="utf-8")
    except Exception as error:
        hint = "" if isinstance(error, OSError) else "any name that does not end in .pt2 takes the graph as text"
        raise Misuse(f"{path} cannot be written: {first_line(error)}", hint) from error
