"""`fxrewrite verify [PACKS...]`: proves every rule, form and provider that can be tried on this machine."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from random import randrange
from typing import TYPE_CHECKING

import click
from attrs import evolve

from fxrewrite.cli.counterexamples import earlier, kept
from fxrewrite.cli.exits import ABSENT, FINDINGS, INTERRUPTED, MISUSE
from fxrewrite.cli.folders import expanded
from fxrewrite.cli.options import LISTED, SWITCH
from fxrewrite.cli.progress import Progress, interruptible
from fxrewrite.dsl.packs import check_packs, shipped
from fxrewrite.verify.profiles import FUZZ, PROFILES

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.mutation.subjects import Tried
    from fxrewrite.verify.report import Report
    from fxrewrite.verify.runner import Plan

FORMATS = ("text", "json", "sarif", "github")
FOLDER = ".fxrewrite/counterexamples"


def _minutes(context: click.Context, parameter: click.Parameter, minutes: float | None) -> float | None:
    if minutes is not None and not 0 <= minutes < math.inf:
        raise click.BadParameter(f"{minutes} is no number of minutes", context, parameter)
    return minutes


@click.command("verify")
@click.argument("packs", nargs=-1)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="quick", help="How much is tried.")
@click.option(
    "-k", "only", multiple=True, metavar="TEXT", help="Only checks whose name holds TEXT (a rule, op or check)."
)
@click.option("--seed", type=int, help="Of all inputs: 0; with --fuzz, of the first round: a new one.")
@click.option("--strict", is_flag=True, help="What could not be tried fails too.")
@click.option("--jobs", type=click.IntRange(0), default=0, metavar="N", help="Processes; 0 is one a core.")
@click.option("--format", "how", type=click.Choice(FORMATS), default="text", help="How findings are written.")
@click.option("--json", "how", flag_value="json", help="The same as --format json.")
@click.option("--all", "everything", is_flag=True, help="List what passed, too.")
@click.option("--counterexamples", type=click.Path(file_okay=False), default=FOLDER, help="Where scripts go.")
@click.option("--device", default="cpu", metavar="DEVICE", help="Where what is under test runs: cpu, cuda.")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Import MODULE, which registers ops or kernels."
)
@click.option("--model", metavar="PROGRAM", help="Judge each site of a model on its real inputs: as for `apply`.")
@click.option("--inputs", help="With --model: module:function, which returns the arguments; else those of PROGRAM.")
@click.option("--providers", callback=LISTED, help="With --model: providers in order; kernel, op if not said.")
@click.option("--level", default="O2", show_default=True, help="With --model: O0 (nothing) to O3.")
@click.option(
    "--flag", "flags", multiple=True, type=SWITCH, help="With --model: a flag, pack or pack.rule, name=on or =off."
)
@click.option("--fuzz", type=float, callback=_minutes, metavar="MINUTES", help="Go on with new seeds for so long.")
@click.option("--mutate", is_flag=True, help="Break what is verified on purpose, and say which checks see it.")
@click.option("--sample", default=0, metavar="N", help="With --mutate: about N mutants, spread; 0 is all.")
@click.option("--replay", type=click.Path(dir_okay=False), metavar="FILE", help="Try a counterexample again.")
@interruptible
def command(
    packs: tuple[str, ...], profile: str, only: tuple[str, ...], seed: int | None, strict: bool, jobs: int, how: str,
    everything: bool, counterexamples: str, device: str, modules: tuple[str, ...], model: str | None,
    inputs: str | None, providers: tuple[str, ...] | None, level: str, flags: tuple[tuple[str, bool], ...],
    fuzz: float | None, mutate: bool, sample: int, replay: str | None,
) -> None:  # fmt: skip
    """Verify PACKS: .rw files, folders of them, or names of shipped packs. Without PACKS, all shipped packs.

    The exit code is 1 where something failed (with --strict: or could not be tried), 2 where a file cannot be read, 130
    where Ctrl-C ended it: what was done by then is written.
    """
    named = tuple(map(str, expanded(packs, shipped()) or list(shipped())))
    _stop_at_errors(named)
    if modules:
        from fxrewrite.cli.bind import imported

        imported(modules)
    _stop_without(device)
    if model is not None:
        from fxrewrite.cli.verify_model import Asked, verify_model
        from fxrewrite.verify.report import formatted

        asked = Asked(model, inputs, providers or (), level, flags)
        report = verify_model(asked, named, Path(counterexamples))
        click.echo(formatted(report, how, everything))
        sys.exit(_code(report, strict))
    if replay is not None:
        from fxrewrite.verify.replay import replayed

        text, holds = replayed(named, Path(replay))
        click.echo(text)
        sys.exit(0 if holds else FINDINGS)
    from fxrewrite.verify.report import formatted
    from fxrewrite.verify.runner import Plan

    folder, jobs = Path(counterexamples), jobs or os.cpu_count() or 1
    plan = Plan(named, profile, seed or 0, only, not packs, device, modules)
    if mutate:
        sys.exit(_mutate(plan, jobs, sample, how))
    plan = evolve(plan, kept=earlier(folder))
    if fuzz is not None:
        new = randrange(2**31) if seed is None else seed
        report = _fuzz(evolve(plan, profile=FUZZ.name, seed=new), jobs, fuzz, folder)
    else:
        report = _run(plan, jobs, folder)
    if only and not report.total:
        click.echo(f"fxrewrite verify: no check has {' or '.join(f'`{o}`' for o in only)} in its name", err=True)
        sys.exit(MISUSE)
    click.echo(formatted(report, how, everything))
    sys.exit(_code(report, strict))


def _code(report: Report, strict: bool) -> int:
    """The exit code of a report."""
    bad = ("failed", "not run") if strict else ("failed",)
    if report.stopped:
        return INTERRUPTED
    return FINDINGS if any(f.outcome in bad for f in report.findings) else 0


def _mutate(plan: Plan, jobs: int, sample: int, how: str) -> int:
    """Write the mutation score; the exit code."""
    from fxrewrite.verify.mutation.report import Score, as_json, as_text
    from fxrewrite.verify.mutation.score import begin_mutation

    found = list["Tried"]()
    done = total = 0

    def told() -> str:
        killed = sum(t.state == "killed" for t in found)
        return f"{done} of {total} subjects, {len(found)} mutants, {killed} killed"

    with Progress(told) as progress:
        running = begin_mutation(plan, jobs, sample)
        total = running.total
        for tried in running.tried:
            found += tried
            done += 1
            progress.step()
    score = Score(tuple(found), progress.seconds, progress.stopped)
    click.echo(as_json(score) if how == "json" else as_text(score))
    return INTERRUPTED if progress.stopped else 0


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

    found, sources = list["Finding"](), dict[str, str]()
    total = 0
    with Progress(lambda: f"{len(found)} of {total} checks, {_failed(found)} failed") as progress:
        running = begin(plan, jobs)
        total, sources = running.total, running.sources
        for one in running.findings:
            found.append(kept(one, folder))
            progress.step()
    return Report(tuple(found), plan.profile, progress.seconds, total, progress.stopped, sources)


def _fuzz(plan: Plan, jobs: int, minutes: float, folder: Path) -> Report:
    """Go on with new seeds until time is over, or Ctrl-C."""
    from fxrewrite.verify.fuzz import Fuzzing
    from fxrewrite.verify.report import Report

    fuzzing: Fuzzing | None = None
    done = 0

    def told() -> str:
        found = list(fuzzing.found.values()) if fuzzing is not None else []
        cases = sum(f.cases for f in found)
        return f"fuzz: seed {fuzzing.seed if fuzzing else '-'}, {done} checks, {cases} cases, {_failed(found)} failed"

    with Progress(told) as progress:
        fuzzing = Fuzzing(plan, time.monotonic() + minutes * 60, jobs)
        for one in fuzzing.steps():
            kept(one, folder)
            done += 1
            progress.step()
    found = tuple(kept(f, folder) for f in fuzzing.found.values()) if fuzzing is not None else ()
    total, sources = (len(fuzzing.listed), fuzzing.sources) if fuzzing is not None else (0, {})
    rounds, cases = fuzzing.rounds if fuzzing is not None else 0, sum(f.cases for f in found)
    said = f"fuzz, {rounds} rounds from seed {plan.seed}, {cases} cases"
    return Report(found, said, progress.seconds, total, progress.stopped, sources)


def _failed(found: list[Finding]) -> int:
    return sum(f.outcome == "failed" for f in found)
