"""A mutant: one thing that is verified, changed in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from attrs import evolve, field, frozen

from fxrewrite.dsl.syntax import Span

Kind = Literal["rule", "form", "definition", "kernel"]
KINDS: tuple[Kind, ...] = ("rule", "form", "definition", "kernel")


@frozen
class Mutant:
    """`what` was changed at `place` of `subject` (`pack.rule`, `op/form`, an op).

    `operator`: the kind of change. `made`: what it came to: a `RuleDef`, a `Case`, an `OpDef`, a `Broken`. `aimed`: the
    condition under which the fault shows, where it is outside what the subject requires. `dead`: as `made`, but what
    was changed cannot be evaluated: tells whether it is reached at all. `proof`: why it is no fault, where the program
    says so. `number` tells mutants of one name apart.
    """

    kind: Kind
    subject: str
    operator: str
    place: str
    what: str
    made: Any = field(eq=False, repr=False)
    aimed: Any = field(eq=False, repr=False, default=None)
    dead: Any = field(eq=False, repr=False, default=None)
    span: Span | None = field(eq=False, repr=False, default=None)
    proof: str = field(eq=False, repr=False, default="")
    number: int = 1

    @property
    def id(self) -> str:
        """The name under which the mutant is remembered: no line numbers, so that it outlives edits around it."""
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.kind} {self.subject} {self.place}: {self.what}{again}"

    @property
    def where(self) -> str:
        """`patterns/x.rw:4`, where it is known."""
        return "" if self.span is None else f"{self.span.file}:{self.span.line}"


def numbered(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """The mutants of a subject; those of one name are numbered in order."""
    seen: Counter[str] = Counter()
    for mutant in mutants:
        seen[mutant.id] += 1
        yield evolve(mutant, number=seen[mutant.id])
