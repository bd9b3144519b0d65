"""Operands as the generator of kernels is given them. Needs no kernels, which need not be installed."""

from __future__ import annotations

from typing import Any

import sympy
from attrs import frozen

from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.dsl.syntax import Span

ROWS = sympy.Symbol("T", integer=True, positive=True)  # how many rows there are


class NotExpressible(EvaluationError):
    """A part of a definition that no row-wise kernel expresses. `span`: its place in the text."""

    def __init__(self, reason: str, span: Span | None = None):
        super().__init__(reason if span is None else f"{reason} ({span.file}:{span.line})")
        self.span = span


@frozen
class Given:
    """An operand: the short name of its dtype, and its sizes; `ROWS` for all leading axes together."""

    dtype: str
    shape: tuple[Any, ...]
