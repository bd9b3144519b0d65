"""Rules on standard input, which `-` names."""

from __future__ import annotations

import sys

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.sources import Source
from fxrewrite.dsl.syntax import Span

STDIN = "-"
STDIN_NAME = "<stdin>"


def stdin() -> Source:
    """What is given on standard input."""
    here = Span(STDIN_NAME, 1, 1, 1, 1)
    if sys.stdin is None:  # a process may be started without one
        return Source(STDIN_NAME, trouble=Diagnostic("RW001", f"cannot read {STDIN_NAME}: it is closed", here))
    try:
        return Source(STDIN_NAME, sys.stdin.buffer.read().decode("utf-8"))
    except UnicodeDecodeError:
        return Source(STDIN_NAME, trouble=Diagnostic("RW131", f"{STDIN_NAME} is not UTF-8 text", here))
