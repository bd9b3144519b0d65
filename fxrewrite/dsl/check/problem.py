"""How a check refuses: one diagnostic, raised where the fault is seen and caught once for each part of an item."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fxrewrite.dsl.diagnostics import Diagnostic, Related
from fxrewrite.dsl.syntax import Span

VARIANT = re.compile(r"(?<=\w)#\d+")  # `D#2`, the second D of an item: to a reader it is the D of the op at hand


class Problem(Exception):
    """A fault of the item at hand."""

    def __init__(self, code: str, message: str, span: Span, hint: str = "", related: Iterable[Related] = ()):
        super().__init__(message)
        message, hint = (VARIANT.sub("", text) for text in (message, hint))
        self.diagnostic = Diagnostic(code, message, span, hint, tuple(related))


class Broken(Exception):
    """An item uses another one that was refused already: said once, there."""


def closest(name: str, known: Iterable[str]) -> str:
    """A hint that names what is spelled almost like `name`, or nothing."""
    import difflib  # only a mistake pays for it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""
