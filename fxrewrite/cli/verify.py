"""`fxrewrite verify [PACKS...]`: proves every rule, form and provider that can be tried on this machine."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from fxrewrite.cli.exits import ABSENT, FINDINGS, MISUSE
from fxrewrite.cli.folders import expanded
from fxrewrite.dsl.packs import check_packs, shipped
from fxrewrite.verify.profiles import PROFILES

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.mutation.subjects import Tried
    from fxrewrite.verify.report import Report
    from fxrewrite.verify.runner import Plan

FORMATS = ("text", "json", "sarif", "github")
FOLDER = ".fxrewrite/counterexamples"


@click.command("verify")
@click.argument("packs", nargs=-1)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="quick", help="How much is tried.")
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
@click.option("--device", default="cpu", metavar="DEVICE", help="Where what is under test runs: cpu, cuda.")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Import MODULE, which registers ops or kernels."
)
@click.option("--mutate", is_flag=True, help="Break what is verified on purpose, and say which checks see it.")
@click.option("--sample", default=0, metavar="N", help="With --mutate: about N mutants, spread; 0 is all.")
@click.option("--replay", type=click.Path(dir_okay=False), metavar="FILE", help="Try a counterexample again.")
def command(
    packs: tuple[str, ...], profile: str, only: tuple[str, ...], seed: int, strict: bool, jobs: int, how: str,
    everything: bool, counterexamples: str, device: str, modules: tuple[str, ...], mutate: bool, sample: int,
    replay: str | None,
) -> None:  # fmt: skip
    """Verify PACKS: .rw files, folders of them, or names of shipped packs. Without PACKS, all shipped packs.

    The exit code is 1 where something failed (with --strict: or could not be tried), 2 where a file cannot be read.
    """
    named = tuple(map(str, expanded(packs, shipped()) or list(shipped())))
    _stop_at_errors(named)
    if modules:
        from fxrewrite.cli.bind import imported

        imported(modules)
    _stop_without(device)
    if replay is not None:
        from fxrewrite.verify.replay import replayed

        text, holds = replayed(named, Path(replay))
        click.echo(text)
        sys.exit(0 if holds else FINDINGS)
    from fxrewrite.verify.report import formatted
    from fxrewrite.verify.runner import Plan

    plan, jobs = Plan(named, profile, seed, only, not packs, device, modules), jobs or os.cpu_count() or 1
    if mutate:
        sys.exit(_mutate(plan, jobs, sample, how))
    report = _run(plan, jobs, Path(counterexamples))
    click.echo(formatted(report, how, everything))
    bad = ("failed", "not run") if strict else ("failed",)
    sys.exit(FINDINGS if report.stopped or any(f.outcome in bad for f in report.findings) else 0)


def _mutate(plan: Plan, jobs: int, sample: int, how: str) -> int:
    """Write the mutation score; 1 where the run was stopped."""
    from fxrewrite.verify.mutation.report import Score, as_json, as_text
    from fxrewrite.verify.mutation.score import begin_mutation

    began, found = time.monotonic(), list["Tried"]()
    running = begin_mutation(plan, jobs, sample)

    def told(done: int) -> str:
        killed = sum(t.state == "killed" for t in found)
        return f"{done} of {running.total} subjects, {len(found)} mutants, {killed} killed"

    stopped = _collected(running.tried, found.extend, told)
    score = Score(tuple(found), time.monotonic() - began, stopped)
    click.echo(as_json(score) if how == "json" else as_text(score))
    return FINDINGS if stopped else 0


def _collected(source: Iterable[Any], keep: Callable[[Any], None], told: Callable[[int], str]) -> bool:
    """Keep everything that comes, with a line on a terminal that is written over. True where Ctrl-C ended it: what was
    done is kept."""
    began, shown, stopped = time.monotonic(), sys.stderr.isatty(), False
    try:
        for done, one in enumerate(source, 1):
            keep(one)
            if shown:
                click.echo(f"\r\033[K{told(done)}, {time.monotonic() - began:.0f} s", nl=False, err=True)
    except KeyboardInterrupt:
        stopped = True
    if shown:
        click.echo("\r\033[K", nl=False, err=True)
    return stopped


def _stop_at_errors(named: tuple[str, ...]) -> None:
    program, found = check_packs(named)
    errors = [d for d in found if d.severity == "error"]
    if errors:
        click.echo("\n\n".join(d.render(program.sources) for d in errors), err=True)
        sys.exit(MISUSE if any(d.code in ABSENT for d in errors) else FINDINGS)


def _stop_without(device: str) -> None:
    from fxrewrite.verify.device import NoDevice, existing_device

    try:
        existing_device(device)
    except NoDevice as error:
        click.echo(error.rendered(), err=True)
        sys.exit(MISUSE)


def _run(plan: Plan, jobs: int, folder: Path) -> Report:
    """Run a plan with progress on stderr. Ctrl-C leaves a report of what was done."""
    from fxrewrite.verify.report import Report
    from fxrewrite.verify.runner import begin

    began, found = time.monotonic(), list["Finding"]()
    running = begin(plan, jobs)

    def told(done: int) -> str:
        return f"{done} of {running.total} checks, {sum(f.outcome == 'failed' for f in found)} failed"

    stopped = _collected(running.findings, lambda one: found.append(_kept(one, folder)), told)
    return Report(tuple(found), plan.profile, time.monotonic() - began, running.total, stopped, running.sources)


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
