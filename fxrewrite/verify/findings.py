"""Findings: what one check of one claim came to. Text, JSON, SARIF and pytest's reports are views of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from fxrewrite.dsl.syntax import Span

Outcome = Literal["passed", "failed", "trivial", "not run"]
# Which code a failure of a check carries.
CODES = {
    "form": "RW408",
    "equal": "RW601",
    "provider": "RW602",
    "fires": "RW603",
    "perturbed": "RW603",
    "property": "RW226",
    "context": "RW605",
    "static": "RW606",
    "site": "RW607",
    "model": "RW608",
}


@frozen
class Counts:
    """How many elements of an output had one admissible value, two, or more, over all cases of a check."""

    one: int = 0
    two: int = 0
    more: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.one + other.one, self.two + other.two, self.more + other.more)


@frozen
class Finding:
    """The outcome of a check.

    `check`: static, form, fires, equal, provider, property, context; of a model site, model. `subject`: the rule
    (`pack.rule`), the form (`op/form`) or the model. `provider`: what was judged, where it is not the definition.
    `cases`: how many inputs or graphs were tried. `trivial`: both sides are one definition, which proves nothing.
    `not run`: `reason` says why; not proved. `closest`: of what passed, what came nearest to a fault. `script`: a
    counterexample that runs alone. `site`: the node of a model. `case`: what fails again, as JSON (`kept.py`).
    """

    check: str
    subject: str
    outcome: Outcome
    reason: str = ""
    provider: str | None = None
    cases: int = 0
    counts: tuple[tuple[str, Counts], ...] = ()
    closest: str = ""
    span: Span | None = field(default=None, eq=False)
    script: str | None = field(default=None, eq=False, repr=False)
    seconds: float = field(default=0.0, eq=False)
    site: str = ""
    case: Mapping[str, Any] | None = field(default=None, eq=False, repr=False)

    @property
    def code(self) -> str | None:
        """The code of a failure."""
        return CODES[self.check] if self.outcome == "failed" else None
