"""`fxrewrite fmt FILES...`: files of rules in their canonical layout, in place or as what would change."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

import click
from attrs import evolve, frozen

from fxrewrite.cli.exits import ABSENT, FINDINGS, MISUSE
from fxrewrite.cli.folders import expanded
from fxrewrite.cli.replace import replace
from fxrewrite.cli.stdin import STDIN, STDIN_NAME, stdin
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.format import Unfaithful, format_text
from fxrewrite.dsl.sources import Source, read

SCHEMA = 1  # of the JSON object; it grows only by new members


@frozen
class Outcome:
    """What became of a file: its text before and after, and why it is left alone, if it is.

    `before` has the line ends of the file. `failure` is no fault of the text, but of the disk or of the formatter.
    """

    name: str
    before: str = ""
    after: str = ""
    findings: tuple[Diagnostic, ...] = ()
    failure: str = ""

    @property
    def changes(self) -> bool:
        """Is there another text to write?"""
        return self.before != self.after

    @property
    def is_stdin(self) -> bool:
        """Is it standard input?"""
        return self.name == STDIN_NAME


@click.command("fmt")
@click.argument("files", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Write nothing; name the files that would change, and end with code 1.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change, and end with code 1.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(files: tuple[str, ...], check: bool, diff: bool, as_json: bool) -> None:
    """Lay out FILES (.rw files, or folders of them) in the one canonical way; `-` is standard input.

    Files are written in place, standard input to standard output. No meaning changes: what is written reads as the same
    rules with the same comments. A file with a syntax error is reported and left alone. The exit code is 1 where a file
    is wrong, or would change under --check or --diff; 2 where one cannot be read or written.
    """
    dry = check or diff
    outcomes = [_formatted(name) for name in expanded(files, (STDIN,))]
    if not dry:
        outcomes = [_written(outcome) for outcome in outcomes]
    if as_json:
        click.echo(json.dumps(as_object(outcomes, dry, diff), indent=2))
    else:
        _say(outcomes, dry, diff)
    sys.exit(_exit_code(outcomes, dry))


# ---- one file


def _formatted(name: str) -> Outcome:
    source = stdin() if name == STDIN else read(Path(name))
    shown = source.name
    if source.trouble is not None:
        return Outcome(shown, findings=(source.trouble,))
    try:
        done = format_text(source.text.replace("\r\n", "\n"), shown)
    except Unfaithful as error:
        return Outcome(shown, failure=f"a fault of fxrewrite fmt: {error}; it is left alone")
    if done.diagnostics:
        return Outcome(shown, source.text, source.text, done.diagnostics)
    before = source.text if name == STDIN else _with_its_line_ends(source)
    if before is None:
        return Outcome(shown, failure=f"cannot read {shown}: something else is writing it")
    return Outcome(shown, before, done.text)


def _with_its_line_ends(source: Source) -> str | None:
    """The text of a file as it lies on the disk; None where it is no longer the one that was read."""
    try:
        text = Path(source.name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.replace("\r\n", "\n") == source.text else None


def _written(outcome: Outcome) -> Outcome:
    if outcome.is_stdin or not outcome.changes:
        return outcome
    try:
        replace(Path(outcome.name), outcome.after)
    except OSError as error:
        failure = f"cannot write {outcome.name}: {error.strerror}"
        return evolve(outcome, after=outcome.before, failure=failure)
    return outcome


# ---- what is said


def _say(outcomes: Sequence[Outcome], dry: bool, diff: bool) -> None:
    """Findings and changed files on standard output, or on the error stream where a formatted text goes to that."""
    is_filter = not dry and any(outcome.is_stdin for outcome in outcomes)
    for outcome in outcomes:
        blocks = [d.render({outcome.name: outcome.before}) for d in outcome.findings]
        if outcome.failure:
            blocks.append(f"fxrewrite: {outcome.failure}")
        for block in blocks:
            click.echo(block + "\n", err=is_filter)
        if outcome.is_stdin and not dry:
            if not (outcome.findings or outcome.failure):
                click.echo(outcome.after, nl=False)
        elif outcome.changes and diff:
            click.echo(as_diff(outcome), nl=False)
        elif outcome.changes:
            click.echo(f"{'would format' if dry else 'formatted'} {outcome.name}", err=is_filter)
    click.echo(_summary(outcomes, dry), err=is_filter or diff)


def _summary(outcomes: Sequence[Outcome], dry: bool) -> str:
    wrong = sum(1 for o in outcomes if o.findings or o.failure)
    changed = sum(1 for o in outcomes if o.changes)
    listed = [f"{changed} {'would change' if dry else 'formatted'}"] if changed else []
    listed += [f"{wrong} left alone"] if wrong else []
    return f"{len(outcomes)} file{'' if len(outcomes) == 1 else 's'}: {', '.join(listed) or 'nothing to change'}"


def as_diff(outcome: Outcome) -> str:
    """What would change in a file, as a unified diff."""
    lines = unified_diff(_lines(outcome.before), _lines(outcome.after), outcome.name, f"{outcome.name} (formatted)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*(line + "\n" for line in lines), *([last] if last else [])]


def as_object(outcomes: Sequence[Outcome], dry: bool, diff: bool) -> dict[str, Any]:
    """Files, those that changed or would, findings and failures, as a JSON object; diffs and texts by file."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "files": [o.name for o in outcomes],
        "changed": [o.name for o in outcomes if o.changes],
        "findings": [d.to_json() for o in outcomes for d in o.findings],
        "failures": [{"file": o.name, "message": o.failure} for o in outcomes if o.failure],
    }
    if diff:
        found["diff"] = {o.name: as_diff(o) for o in outcomes if o.changes}
    if not dry:
        found["text"] = {o.name: o.after for o in outcomes if o.is_stdin}
    return found


def _exit_code(outcomes: Sequence[Outcome], dry: bool) -> int:
    if any(o.failure or any(d.code in ABSENT for d in o.findings) for o in outcomes):
        return MISUSE
    return FINDINGS if any(o.findings or (dry and o.changes) for o in outcomes) else 0
