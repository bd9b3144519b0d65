"""What a long run shows while it goes on, and how Ctrl-C ends it: what was done is kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

import click
from attrs import define, field

from fxrewrite.cli.exits import INTERRUPTED


def interruptible(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that ends with its own exit code where Ctrl-C comes before anything is done."""

    @wraps(verb)
    def run(**given: Any) -> None:
        try:
            verb(**given)
        except KeyboardInterrupt:
            click.echo("stopped before anything was tried", err=True)
            sys.exit(INTERRUPTED)

    return run


@define
class Progress:
    """A line on a terminal that is written over, for the time of a `with`. `told`: what it says of what was done.

    Ctrl-C leaves the `with` as if it were done; then `stopped` is true.
    """

    told: Callable[[], str]
    began: float = field(factory=time.monotonic)
    stopped: bool = False

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    def __enter__(self) -> Progress:
        return self

    def step(self) -> None:
        """Something was done."""
        if _is_terminal():
            click.echo(f"\r\033[K{self.told()}, {self.seconds:.0f} s", nl=False, err=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if _is_terminal():
            click.echo("\r\033[K", nl=False, err=True)
        self.stopped = kind is KeyboardInterrupt
        return self.stopped


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None: it was closed
