"""What happened at each site, as data. Everything a person sees is a view of these events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from attrs import asdict, define, field, frozen

from fxrewrite.dsl.diagnostics import span_json
from fxrewrite.dsl.syntax import Span

LOWERED, SERVED = "lowered to primitives", "served by"  # of a call that no rule took

REASONS = (
    "other op", "other constant", "guard false", "guard unknown", "shared value", "mutation between", "effect order",
    "cycle", "dtype", "shape", "strides", "eaten by", "pack off", "level", "outside token range",
    "loses in this bucket", "provider missing", "kept: no faster provider here", "not proved", "rule failed",
    "graph not functional", "missing op", "missing native", "not matched yet", "schema", "not applied",
    "cached, not run", LOWERED, SERVED,
)  # fmt: skip


@frozen
class Event:
    """One rule at one site, or one call of a declared op (`rule` is its torch name) that no rule took.

    `site`: the node. `fired`, or the `reason` (one of `REASONS`), with what the rule `expected` there and what was
    `found`. `span`: the sub-expression of the rule that this is about. `source`: the line of the model. `by`: the
    provider that was put in, or the rule that ate the site. `graph`: the number of the graph in this recording, from 0.
    """

    pack: str | None
    rule: str
    site: str
    fired: bool
    reason: str = ""
    expected: str = ""
    found: str = ""
    span: Span | None = None
    source: str = ""
    hint: str = ""
    by: str = ""
    graph: int = 0

    @property
    def full_name(self) -> str:
        """`pack.rule`."""
        return f"{self.pack}.{self.rule}" if self.pack else self.rule

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        out = asdict(self, filter=lambda a, _: a.name != "span")
        return {**out, "span": span_json(self.span) if self.span else None}


@define
class Log:
    """The events of a recording, and the seconds that each stage took.

    `seconds`: parse, compile (rules), read (values and views), match, rewrite. `graphs`: how many graphs were seen.
    `sources`: text of the rule files, by name, for carets.
    """

    events: list[Event] = field(factory=list)
    seconds: Counter[str] = field(factory=Counter)
    graphs: int = 0
    cached: int = 0
    sources: dict[str, str] = field(factory=dict, repr=False)

    def fired(self) -> Counter[str]:
        """How often each rule fired, by `rule` name."""
        return Counter(e.rule for e in self.events if e.fired)

    def missed(self, rule: str | None = None) -> list[Event]:
        """The events of sites that did not fire."""
        return [e for e in self.events if not e.fired and (rule is None or rule in (e.rule, e.full_name))]

    def report(self, rule: str | None = None, every: bool = False) -> str:
        """Text for a person: each rule with its sites, fired and not, and why not; with `every`, all of its sites."""
        from fxrewrite.patterns.explain import render

        return render(self, rule, every)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every event."""
        return {
            "graphs": self.graphs,
            "cached": self.cached,
            "fired": dict(self.fired()),
            "seconds": dict(self.seconds),
            "events": [e.to_json() for e in self.events],
        }


_logs: ContextVar[tuple[Log, ...]] = ContextVar("fxrewrite_logs", default=())


@contextmanager
def record() -> Iterator[Log]:
    """Collect the events of every rewrite inside the `with` block."""
    log = Log()
    token = _logs.set((*_logs.get(), log))
    try:
        yield log
    finally:
        _logs.reset(token)


def recording() -> tuple[Log, ...]:
    """The logs that are open."""
    return _logs.get()


def source_line(node: Any) -> str:
    """The line of the model that a node comes from, `file:line: text`, or nothing."""
    trace = node.meta.get("stack_trace") if node is not None else None
    if not trace:
        return ""
    lines = [text.strip() for text in trace.strip().split("\n")]
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].startswith('File "'):
            parts = lines[i].split(", ")
            name = parts[0][6:-1].replace("\\", "/").rsplit("/", 1)[-1]
            number = parts[1].removeprefix("line ") if len(parts) > 1 else "?"
            code = lines[i + 1] if i + 1 < len(lines) else ""
            return f"{name}:{number}  {code}"
    return ""
