"""`fxrewrite check [FILES...]`: what is wrong with files of rules, as text with carets, JSON, SARIF or annotations."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fxrewrite.cli.exits import ABSENT, FINDINGS, MISUSE
from fxrewrite.cli.folders import expanded
from fxrewrite.cli.stdin import STDIN, stdin
from fxrewrite.dsl import packs
from fxrewrite.dsl.annotations import as_annotations
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.sarif import as_sarif

SCHEMA = 1  # of the JSON object; it grows only by new members
FORMATS = ("text", "json", "sarif", "github")


@click.command("check")
@click.argument("files", nargs=-1)
@click.option("--format", "how", type=click.Choice(FORMATS), default="text", help="How findings are written.")
@click.option("--json", "how", flag_value="json", help="The same as --format json.")
@click.option("--explain", "rule", metavar="RULE", help="Say what was concluded of one rule or fusion (text or JSON).")
@click.option("--notes", is_flag=True, help="Show notes as text too: what is legal and perhaps not meant.")
@click.option("--bind", is_flag=True, help="Import torch, and check calls of its ops against its own schemas.")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Import MODULE, which registers ops; --bind."
)
@click.option("--emit", type=click.Choice(("inductor",)), help="Write the rules as plain patterns of Inductor.")
@click.option("--provider", metavar="NAME", help="With --emit: the `impl` that is put in where it serves.")
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE.py", help="Where --emit writes.")
def command(
    files: tuple[str, ...],
    how: str,
    rule: str | None,
    notes: bool,
    bind: bool,
    modules: tuple[str, ...],
    emit: str | None,
    provider: str | None,
    out: str | None,
) -> None:
    """Check FILES: .rw files, folders of them, names of shipped packs, or - for standard input. Without FILES, the
    shipped packs.

    Files are checked together, beside the vocabulary and the packs that they `use`. The exit code is 1 where something
    is wrong, 2 where a file cannot be read.
    """
    named = expanded(files, (*packs.shipped(), STDIN)) or list(packs.shipped())
    if STDIN in named and (bind or modules or emit or rule is not None):
        raise click.UsageError("standard input is checked only: give a file to --bind, --import, --emit and --explain")
    if rule is not None:
        from fxrewrite.cli.conclusions import explain

        if how not in ("text", "json"):
            raise click.UsageError("--explain writes text or JSON")
        if bind or modules or emit:
            raise click.UsageError("--explain tells what the text means: leave --bind, --import and --emit out")
        explain(named, rule, how == "json")
        return
    if (out is not None or provider is not None) and emit is None:
        raise click.UsageError("--out and --provider are for what --emit writes: add --emit inductor")
    if emit is not None and how != "text":
        raise click.UsageError("--emit writes Python, and text about it: leave --format out")
    bind = bind or bool(modules)
    if bind:
        from fxrewrite.cli.bind import check_bound

        program, found = check_bound(named, modules, everything=not files)
    else:
        program, found = _with_stdin(named) if STDIN in named else packs.check_packs(named)
    shown = [d for d in found if notes or bind or how != "text" or d.severity != "note"]
    wrong = any(d.severity == "error" for d in found)
    if emit is None or wrong:
        click.echo(_formatted(how, named, program, shown) + (_unknown(found) if shown != found else ""))
    else:
        from fxrewrite.cli.emit import emit as emit_file

        if shown:
            click.echo(_formatted(how, named, program, shown), err=True)
        emit_file(named, program, None if out is None else Path(out), provider)
    if any(d.code in ABSENT for d in found):
        sys.exit(MISUSE)
    sys.exit(FINDINGS if wrong else 0)


def _with_stdin(named: Sequence[str]) -> tuple[Program, list[Diagnostic]]:
    """The same, `-` being what is given on standard input."""
    source = stdin()
    if source.trouble is not None:
        return packs.check_packs([])[0], [source.trouble]
    file, wrong = parse(source.text, source.name)
    program, found = packs.check_packs([file if n == STDIN else n for n in named])
    return program, [*wrong, *found]


def _formatted(how: str, named: Sequence[str], program: Program, found: Sequence[Diagnostic]) -> str:
    if how == "json":
        return json.dumps(as_object(named, program, found), indent=2)
    if how == "sarif":
        from importlib.metadata import version  # slow to import

        return json.dumps(as_sarif(found, version("fxrewrite")), indent=2)
    return as_annotations(found) if how == "github" else as_text(named, program, found)


def as_text(named: Sequence[str], program: Program, found: Sequence[Diagnostic]) -> str:
    """Every finding with its line and carets, and one line that sums them up."""
    blocks = [d.render(program.sources) for d in found]
    return "\n\n".join([*blocks, _summary(named, program, found)])


def _summary(named: Sequence[str], program: Program, found: Sequence[Diagnostic]) -> str:
    checked = _counted(len(named), "file")
    if not found:
        return f"{checked}: {_counted(len(program.ops), 'op')}, {_counted(len(program.rules), 'rule')}, nothing wrong"
    kinds = Counter(d.severity for d in found)
    listed = ", ".join(_counted(kinds[k], k) for k in ("error", "warning", "note") if kinds[k])
    places = len({d.span.file for d in found})
    return f"{checked}: {listed}" + (f" in {places} of them" if len(named) > 1 else "")


def _unknown(found: Sequence[Diagnostic]) -> str:
    """How many torch ops could not be checked, where the notes that say it are not shown."""
    count = sum(d.code == "RW228" for d in found)
    said = "the schema of 1 torch op is" if count == 1 else f"the schemas of {count} torch ops are"
    return f"\n{said} not known here: --notes names them, --bind asks torch" if count else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_object(named: Sequence[str], program: Program, found: Sequence[Diagnostic]) -> dict[str, Any]:
    """The findings and what was checked, as a JSON object."""
    return {
        "schema": SCHEMA,
        "files": list(named),
        "ops": sorted(program.ops),
        "rules": [r.full_name for r in program.rules],
        "findings": [d.to_json() for d in found],
    }
