"""`fxrewrite bisect PROGRAM`: name the first site whose rewrite moves the result of a program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from fxrewrite.cli.options import (
    Misuse,
    called,
    console,
    end,
    first_line,
    json_option,
    load_program,
    load_rules,
    print_json,
    resolved,
    settings,
)

QUIET = 5.0  # seconds before progress is shown
ROWS = 12  # of the table of errors


@click.command("bisect")
@click.argument("program")
@click.option("--inputs", help="module:function, which returns the tuple of arguments; else those of the program.")
@click.option("--rtol", type=click.FloatRange(0), help="Compare with a tolerance relative to each element.")
@click.option("--atol", type=click.FloatRange(0), help="Compare with an absolute tolerance.")
@click.option("--compare", help="module:function of (before, after), true where they are as good as equal.")
@settings
@json_option
def command(
    program: str, inputs: str | None, rtol: float | None, atol: float | None, compare: str | None, config: Any,
    as_json: bool,
) -> None:  # fmt: skip
    """Run PROGRAM op by op with and without rewrites, and find the first site that moves its result.

    PROGRAM is as for `apply`. Results are compared bit for bit, unless --rtol, --atol or --compare say otherwise. The
    exit code is 1 where the result moves.
    """
    if compare is not None and (rtol, atol) != (None, None):
        raise Misuse("--compare decides alone", "leave out --rtol and --atol")
    from fxrewrite.lowering.backend import make_pass
    from fxrewrite.verify.bisect import Unsteady, bisect
    from fxrewrite.verify.comparison import CompareFailed

    rules = load_rules(config, as_json)
    subject = capture(program, inputs, rules)
    said, same = comparison(rtol, atol, compare, subject)
    try:
        verdict = bisect(subject, make_pass(config, rules), same, progress())
    except Unsteady as error:
        hint = "compare with --rtol and --atol, or with --compare"
        raise Misuse(f"{program} gives another result in each run: {error}", hint) from error
    except CompareFailed as error:
        raise Misuse(str(error)) from error
    except ValueError as error:
        raise Misuse(f"the program cannot be read: {first_line(error)}") from error
    if as_json:
        print_json({"program": program, "comparison": said, **to_json(verdict)})
    else:
        console().print("\n".join(text(verdict, program, said, rules.sources)))
    end(verdict.difference is not None)


def capture(source: str, inputs: str | None, rules: Any) -> Any:
    """The program with its inputs, run once. Raises Misuse where it has none, or does not run on them."""
    from fxrewrite.verify.captured import captured

    program = load_program(source, rules)
    found: tuple[Any, Any] | None = program.example_inputs
    if inputs is not None:
        args = called(inputs, "the tuple of arguments")
        found = (tuple(args) if isinstance(args, tuple | list) else (args,), {})
    if found is None:
        raise Misuse(f"{source} holds no inputs", "give some: --inputs module:function, which returns the arguments")
    try:
        subject = captured(program, *found)
        subject.run()
    except Exception as error:
        raise Misuse(f"{source} does not run on its inputs: {first_line(error)}") from error
    return subject


def comparison(rtol: float | None, atol: float | None, compare: str | None, subject: Any) -> tuple[str, Any]:
    """The comparison, and what it is called."""
    from fxrewrite.verify.comparison import bitwise, by_function, within

    if compare is not None:
        return compare, by_function(resolved(compare), compare, subject)
    if (rtol, atol) == (None, None):
        return "bit for bit", bitwise
    return f"rtol {rtol or 0:g}, atol {atol or 0:g}", within(rtol or 0, atol or 0)


def progress() -> Callable[[str], None]:
    """Lines on the error stream, once it takes long."""
    start, waiting = time.monotonic(), list[str]()

    def say(line: str) -> None:
        waiting.append(line)
        if time.monotonic() - start > QUIET:
            click.echo("\n".join(waiting), file=sys.stderr)
            waiting.clear()

    return say


# ---- what is shown


def text(verdict: Any, program: str, said: str, sources: Any) -> list[str]:
    """Lines for a person."""
    from fxrewrite.patterns.explain import counted as number

    fired = f"{number(verdict.sites, 'site')} of {number(verdict.rules, 'rule')} fired"
    counted = f"{fired}; {verdict.runs} runs of the model"
    if verdict.sites == 0 and verdict.difference is None:
        return [f"nothing fires: `fxrewrite explain all {program}`, with the same options, says why"]
    if verdict.difference is None:
        return [f"the result does not move ({said}): {counted}"]
    if verdict.culprit is None:
        how = verdict.unfired or verdict.difference
        return [
            f"the result moves ({said}) though no rule fires: {how}",
            "  calls of declared ops become what their providers are; `fxrewrite packs` shows those",
            counted,
        ]
    return [
        *culprit(verdict.culprit, said, sources),
        *errors(verdict.culprit.layers),
        f"{counted}, {verdict.steps} of them to search",
    ]


def culprit(found: Any, said: str, sources: Any) -> list[str]:
    """The site, how the result moves, and whether it is alone."""
    from fxrewrite.dsl.diagnostics import underline
    from fxrewrite.patterns.explain import counted

    event = found.event
    lines = [f"{event.full_name} at {event.site}" + (f"  {event.source}" if event.source else "")]
    if event.span is not None:
        lines += [f"  {event.span}", *("  " + line for line in underline(event.span, sources))]
    lines.append(f"  moves the result ({said}): {found.difference}")
    others = len(found.before)
    lines += (
        [f"  with the {counted(others, 'site')} before it on, and this one off, it does not move"] if others else []
    )
    if found.rest is None:
        lines.append("  with every other site on, and this one off, it does not move")
    else:
        lines.append(f"  this one off and every other on, it moves still: {found.rest}")
    return [*lines, f"  to turn the rule off: --flag {event.full_name}=off", ""]


def errors(found: Any) -> list[str]:
    """A table of the values that differ, the first and the last of them."""
    from fxrewrite.verify.layers import differing

    rows = differing(found)
    if not found:
        return []
    lines = [f"{len(found)} values are in both graphs, {len(rows)} differ" + (", in order:" if rows else "")]
    left = len(rows) - ROWS
    shown = rows if left <= 0 else [*rows[: ROWS - 1], None, rows[-1]]
    if rows:
        wide = max(len(x.node) for x in shown if x is not None)
        lines.append(f"  {'value':{wide}}  largest error  rms error / rms")
        for x in shown:
            row = f"  ... {left} more" if x is None else f"  {x.node:{wide}}  {x.largest:<13.4g}  {x.rms:<15.4g}"
            lines.append((row + (f"  {x.source}" if x is not None else "")).rstrip())
    return [*lines, ""]


def to_json(verdict: Any) -> dict[str, Any]:
    """A JSON object."""
    from attrs import asdict

    found = verdict.culprit
    out = {n: getattr(verdict, n) for n in ("rules", "sites", "runs", "steps", "difference", "unfired")}
    if found is None:
        return {**out, "culprit": None}
    shown = {
        **found.event.to_json(),
        "difference": found.difference,
        "before": [asdict(site) for site in found.before],
        "rest": found.rest,
        "layers": [x.to_json() for x in found.layers],
    }
    return {**out, "culprit": shown}
