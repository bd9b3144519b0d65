"""`fxrewrite verify [PACKS...]`: proves every rule, form and provider that can be tried on this machine."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

from fxrewrite.cli.exits import ABSENT, FINDINGS, MISUSE
from fxrewrite.cli.folders import expanded
from fxrewrite.dsl.packs import check_packs, shipped

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.mutation.subjects import Tried
    from fxrewrite.verify.report import Report
    from fxrewrite.verify.runner import Plan

FORMATS = ("text", "json", "sarif", "github")
PROFILES = ("quick", "ci", "deep")
FOLDER = ".fxrewrite/counterexamples"


@click.command("verify")
@click.argument("packs", nargs=-1)
@click.option("--profile", type=click.Choice(PROFILES), default="quick", help="How much is tried.")
@click.option(
    "-k", "only", multiple=True, metavar="TEXT", help="Only checks whose name holds TEXT (a rule, op or check)."
)
@click.option("--seed", default=0, help="Of all inputs.")
@click.option("--strict", is_flag=True, help="What could not be tried fails too.")
@click.option("--jobs", default=0, metavar="N", help="Processes; 0 is one a core.")
@click.option("--format", "how", type=click.Choice(FORMATS), default="text", help="How findings are written.")
@click.option("--json", "how", flag_value="json", help="The same as --format json.")
@click.option("--all", "everything", is_flag=True, help="List what passed, too.")
@click.option("--counterexamples", type=click.Path(file_okay=False), default=FOLDER, help="Where scripts go.")
@click.option("--mutate", is_flag=True, help="Break what is verified on purpose, and say which checks see it.")
@click.option("--sample", default=0, metavar="N", help="With --mutate: about N mutants, spread; 0 is all.")
@click.option("--replay", type=click.Path(dir_okay=False), metavar="FILE", help="Try a counterexample again.")
def command(
    packs: tuple[str, ...], profile: str, only: tuple[str, ...], seed: int, strict: bool, jobs: int, how: str,
    everything: bool, counterexamples: str, mutate: bool, sample: int, replay: str | None,
) -> None:  # fmt: skip
    """Verify PACKS: .rw files, folders of them, or names of shipped packs. Without PACKS, all shipped packs.

    The exit code is 1 where something failed (with --strict: or could not be tried), 2 where a file cannot be read.
    """
    named = tuple(map(str, expanded(packs, shipped()) or list(shipped())))
    _stop_at_errors(named)
    if replay is not None:
        from fxrewrite.verify.replay import replayed

        text, holds = replayed(named, Path(replay))
        click.echo(text)
        sys.exit(0 if holds else FINDINGS)
    from fxrewrite.verify.report import formatted
    from fxrewrite.verify.runner import Plan

    if mutate:
        plan = Plan(named, profile, seed, only, vocabulary=not packs)
        sys.exit(_mutate(plan, jobs or os.cpu_count() or 1, sample, how))
    report = _run(
        Plan(named, profile, seed, only, vocabulary=not packs), jobs or os.cpu_count() or 1, Path(counterexamples)
    )
    click.echo(formatted(report, how, everything))
    bad = ("failed", "not run") if strict else ("failed",)
    sys.exit(FINDINGS if report.stopped or any(f.outcome in bad for f in report.findings) else 0)


def _mutate(plan: Plan, jobs: int, sample: int, how: str) -> int:
    """Write the mutation score; 1 where the run was stopped."""
    from fxrewrite.verify.mutation.report import Score, as_json, as_text
    from fxrewrite.verify.mutation.score import begin_mutation

    began, found, stopped, done = time.monotonic(), list["Tried"](), False, 0
    running = begin_mutation(plan, jobs, sample)
    try:
        for tried in running.tried:
            found, done = found + tried, done + 1
            _mutants_progress(done, running.total, found, began)
    except KeyboardInterrupt:
        stopped = True
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    score = Score(tuple(found), time.monotonic() - began, stopped)
    click.echo(as_json(score) if how == "json" else as_text(score))
    return FINDINGS if stopped else 0


def _mutants_progress(done: int, total: int, found: list[Tried], began: float) -> None:
    if sys.stderr.isatty():
        killed, spent = sum(t.state == "killed" for t in found), time.monotonic() - began
        said = f"{done} of {total} subjects, {len(found)} mutants, {killed} killed, {spent:.0f} s"
        click.echo(f"\r\033[K{said}", nl=False, err=True)


def _stop_at_errors(named: tuple[str, ...]) -> None:
    program, found = check_packs(named)
    errors = [d for d in found if d.severity == "error"]
    if errors:
        click.echo("\n\n".join(d.render(program.sources) for d in errors), err=True)
        sys.exit(MISUSE if any(d.code in ABSENT for d in errors) else FINDINGS)


def _run(plan: Plan, jobs: int, folder: Path) -> Report:
    """Run a plan with progress on stderr. Ctrl-C leaves a report of what was done."""
    from fxrewrite.verify.report import Report
    from fxrewrite.verify.runner import begin

    began, found, stopped = time.monotonic(), list["Finding"](), False
    running = begin(plan, jobs)
    try:
        for one in running.findings:
            found.append(_kept(one, folder))
            _progress(len(found), running.total, found, began)
    except KeyboardInterrupt:
        stopped = True
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    return Report(tuple(found), plan.profile, time.monotonic() - began, running.total, stopped, running.sources)


def _progress(done: int, total: int, found: list[Finding], began: float) -> None:
    """One line that is written over, on a terminal."""
    if sys.stderr.isatty():
        failed = sum(f.outcome == "failed" for f in found)
        spent = time.monotonic() - began
        click.echo(f"\r\033[K{done} of {total} checks, {failed} failed, {spent:.0f} s", nl=False, err=True)


def _kept(found: Finding, folder: Path) -> Finding:
    """The finding with its counterexample in a file: `script` is then the path."""
    if found.script is None:
        return found
    path = folder / (re.sub(r"\W+", "_", f"{found.subject}_{found.check}") + ".py")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(found.script)
    except OSError as error:
        click.echo(f"cannot write {path}: {error.strerror}", err=True)
        return evolve(found, script=None)
    return evolve(found, script=str(path))
