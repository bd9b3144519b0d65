"""The command line, `fxrewrite VERB`.

A verb is a file of this package with a click command called `command`, and a line of `VERBS`. Only the verb that is
asked for is imported: help, `check` and `fmt` start without torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

import click

from fxrewrite.cli.exits import MISUSE

VERBS: dict[str, str] = {
    "check": "Check files of rules; without files, the shipped packs.",
    "fmt": "Lay out files of rules in the canonical way.",
    "apply": "Rewrite an exported program and report each site.",
    "explain": "Say for one rule where it fires in a program, and why not elsewhere.",
    "expect": "Hold what fires in programs against the counts that a file pins.",
    "verify": "Prove rules, forms and providers on hostile inputs.",
    "bisect": "Name the first site whose rewrite moves the result of a program.",
    "kernel": "Print the kernel that is generated for an op.",
    "packs": "Show what is on and why, and the providers of this machine.",
    "draft": "Write the .rw text of a Python function's graph, as a start for an author.",
    "demo": "Compile four models with the rules and account for every site.",
}


class Verbs(click.Group):
    """Commands that are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now."""
        return import_module(f"{__name__}.{cmd_name}").command if cmd_name in VERBS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb of a command line; one that is misspelt gets a suggestion."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from fxrewrite.dsl.check.problem import closest

            hint = closest(args[0], VERBS) or f"one of {', '.join(VERBS)}"
            ctx.fail(f"no such verb `{args[0]}`; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fxrewrite")
def cli() -> None:
    """Kernel fusion for torch.compile, one line a fusion."""


def main() -> None:
    """Run the command line. Exit code 0, 1 for findings, 2 for misuse and for output that cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file may be called by bytes that are no text
    try:
        cli(prog_name="fxrewrite", standalone_mode=True)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be written would fail again at exit
        sys.stderr.write(f"fxrewrite: {error.strerror or error}\n")
        sys.exit(MISUSE)
