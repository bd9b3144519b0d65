"""What raises while a graph is rewritten: it is off for the rest of that graph, with one line in the log; strict mode
raises."""

from __future__ import annotations

import logging
from typing import Any

from attrs import define, field
from torch.fx import Node

from fxrewrite.dsl.core import OpDef, RuleDef
from fxrewrite.dsl.registered import NativeFailed
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.plan import Refusal
from fxrewrite.patterns.events import Event, source_line
from fxrewrite.patterns.forms import Pattern

logger = logging.getLogger("fxrewrite")


class RuleFailure(Exception):
    """A rule, a form or a provider raised in strict mode."""


@define
class Failures:
    """Of one graph. `off`: the rules, forms (`op.form`) and providers (`op.impl`) that failed, and how."""

    strict: bool = False
    off: dict[str, str] = field(factory=dict[str, str])

    def note(self, name: str, span: Span | None, error: Exception) -> str:
        """Turn off what raised; how it failed. Raises RuleFailure in strict mode."""
        if isinstance(error, RuleFailure):
            raise error
        said = how(error)
        if self.strict:
            raise RuleFailure(f"{name} ({span}): {said}") from error
        if name not in self.off:
            self.off[name] = said
            logger.warning("%s (%s) is off: %s", name, span, said)
        return said

    def of_pattern(self, pattern: Pattern, error: Exception) -> str:
        """The same, of a rule or a form that raised while it was matched."""
        return self.note(pattern.name, _place(pattern), error)


def failed_event(rule: RuleDef, node: Node | None, found: str) -> Event:
    """That a rule raised at a node."""
    site, source = (node.name, source_line(node)) if node is not None else ("", "")
    return Event(rule.pack, rule.name, site, False, "rule failed", found=found, span=rule.left_span, source=source)


def how(error: Exception) -> str:
    """One line on what was raised."""
    if isinstance(error, Refusal):
        return error.found
    said = str(error) if isinstance(error, NativeFailed) else f"{type(error).__name__}: {error}"
    return said.split("\n")[0]


def _place(pattern: Pattern) -> Span | None:
    owner: Any = pattern.owner
    if isinstance(owner, RuleDef):
        return owner.span
    assert isinstance(owner, OpDef)
    cases = (*owner.equations, *owner.forms)
    return next((c.span for c in cases if f"{owner.name}.{c.name}" == pattern.name), None)
