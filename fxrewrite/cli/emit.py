"""`fxrewrite check --emit inductor`: the rules that are on as a file of plain Inductor patterns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fxrewrite.dsl.core import Program
from fxrewrite.lowering.config import make_config, rule_status
from fxrewrite.lowering.plain import Emitted, Plain, cut_text
from fxrewrite.lowering.plain import emit as plain_file
from fxrewrite.lowering.providers import unknown_names

INDENT = "  "


def emit(named: Sequence[str], program: Program, out: Path | None, provider: str | None) -> None:
    """Write the file to `out`, else to standard output; say what is in it. `provider`: what is put in where it serves.

    Raises click.UsageError where the file cannot be written, and for a provider that no op has.
    """
    unknown = [] if provider is None else unknown_names(program, [provider])
    if unknown:
        raise click.UsageError(unknown[0])
    config = make_config(named)
    rules = [r for r in program.rules if rule_status(program, r, config).on]
    emitted = plain_file(program, rules, [Path(n).name for n in named], provider=provider)
    if out is None:
        click.echo(emitted.text, nl=False)
    else:
        try:
            out.write_text(emitted.text, encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"{out} cannot be written: {error.strerror}") from error
    click.echo(summary(emitted, out, provider), err=out is None)


def summary(emitted: Emitted, out: Path | None, provider: str | None = None) -> str:
    """What was written, what is left out, and which rules plain patterns do not say."""
    said = [r for r in emitted.rules if r.families]
    silent = [r for r in emitted.rules if not r.families]
    cut = [r for r in said if r.cut or r.more]
    where = f"{out}: " if out is not None else ""
    served = sum(len(f.orders) for r in said for f in r.families if f.first.spelled.served)
    lines = [f"{where}{_counted(len(said), 'rule')} in {_counted(sum(r.count for r in said), 'plain pattern')}"]
    if provider is not None:
        lines.append(f"{served} of them put in {provider}, the others torch.ops.fxrewrite")
    if cut:
        lines += ["", "spellings left out, the most unusual ones:"]
        lines += [f"{INDENT}{r.rule.full_name}: {cut_text(r)}, {r.count} written" for r in cut]
    if silent:
        lines += ["", "not said by plain patterns:"]
        lines += [f"{INDENT}{_place(r)}{r.rule.full_name}: {r.why}" for r in silent]
    return "\n".join(lines)


def _place(r: Plain) -> str:
    return f"{r.rule.span}: " if r.rule.span is not None else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
