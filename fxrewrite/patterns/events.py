"""What happened at each site, as data. Everything a person sees is a view of these events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, define, field, frozen
from torch._dynamo.utils import counters

from fxrewrite.dsl.diagnostics import span_json
from fxrewrite.dsl.syntax import Span
from fxrewrite.patterns.snapshot import Snapshot

SCHEMA = 1  # of the JSON: it grows when a field goes or changes its meaning, not when one comes
LOWERED, SERVED = "lowered to primitives", "served by"  # of a call that no rule took
OFF = ("missing native", "missing op", "schema", "not applied", "pack off", "level")  # of a rule
REASONS = (  # from the nearest miss to the farthest
    "kept: no faster provider here", "provider missing", "not proved", "outside token range", "eaten by", "strides",
    "effect order", "cycle", "mutation between", "shared value", "rule failed", "guard unknown", "guard false", "shape",
    "dtype", "other constant", "other op", *OFF, LOWERED, SERVED,
)  # fmt: skip
COMPLETE = 1000  # the depth of a match that was found whole and then refused
TORCH = str(Path(torch.__file__).parent)


def _of_the_list(event: Any, attribute: Any, reason: str) -> None:
    if reason and reason not in REASONS:
        raise ValueError(f"{reason!r} is no reason of the closed list")


@frozen
class Event:
    """One rule at one site, or one call of a declared op (`rule` is its torch name) that no rule took, or a rule that
    takes no part (`site` is empty, the reason one of `OFF`).

    `site`: the node. `fired`, or the `reason` (one of `REASONS`), with what the rule `expected` there and what was
    `found`. `span`: the sub-expression of the rule that this is about. `source`: the line of the model. `hint`: what
    to type so that it fires. `by`: the provider that was put in, or the rule that ate the site. `graph`: the number of
    the graph in this recording, from 0. `nodes`: those that `found` tells of. `nearest`: of an op that was not
    recognised, how far its best form came. `depth`: how much of the rule had matched. `matched`: the nodes that went;
    `written`: those that came.
    """

    pack: str | None
    rule: str
    site: str
    fired: bool
    reason: str = field(default="", validator=_of_the_list)
    expected: str = ""
    found: str = ""
    span: Span | None = None
    source: str = ""
    hint: str = ""
    by: str = ""
    graph: int = 0
    nodes: tuple[str, ...] = ()
    nearest: str = ""
    depth: int = 0
    matched: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[int, int]:
        """How near a site came to firing: less is nearer."""
        return REASONS.index(self.reason) if self.reason else -1, -self.depth

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
    `hits`: compilations of our backend whose code came from a cache; `stored`: what their cold runs had said.
    `waiting`: passes whose key a cache has asked for, until they run; `counted`: the hits of Inductor's cache when it
    first did, `known` those that are in `hits`, `ended` all when the recording ended. `sources`: text of the rule
    files, by name, for carets.
    `drawn`: each graph before and after, where it was asked for.
    """

    events: list[Event] = field(factory=list)
    seconds: Counter[str] = field(factory=Counter)
    graphs: int = 0
    hits: int = 0
    waiting: set[int] = field(factory=set, repr=False)
    counted: int | None = field(default=None, repr=False)
    known: int = field(default=0, repr=False)
    ended: int | None = field(default=None, repr=False)
    stored: list[Event] = field(factory=list)
    sources: dict[str, str] = field(factory=dict, repr=False)
    drawn: list[tuple[Snapshot, Snapshot]] | None = field(default=None, repr=False)

    @property
    def plain_hits(self) -> int:
        """Graphs whose code came from a cache under plain Inductor, which does not say which graphs they were."""
        if self.counted is None:
            return 0
        now = cache_hits() if self.ended is None else self.ended
        return max(now - self.counted - self.known, len(self.waiting))

    @property
    def cached(self) -> int:
        """Compilations of our backend, and graphs under plain Inductor, whose code came from a cache."""
        return self.hits + self.plain_hits

    def fired(self) -> Counter[str]:
        """How often each rule fired, by `rule` name."""
        return Counter(e.rule for e in self.events if e.fired)

    def missed(self, rule: str | None = None) -> list[Event]:
        """The events of sites that did not fire."""
        return [e for e in self.of(rule) if not e.fired]

    def of(self, rule: str | None) -> list[Event]:
        """The events of a rule, by `pack.rule` or `rule`, or of a pack; all for None."""
        return _of(self.events, rule)

    def report(self, rule: str | None = None, every: bool = False) -> str:
        """Text for a person: each rule with its sites, fired and not, and why not; with `every`, all of its sites."""
        from fxrewrite.patterns.explain import render

        return render(self, rule, every)

    def to_json(self, rule: str | None = None) -> dict[str, Any]:
        """A JSON object with every event, or those of a rule or pack (`docs/explain.md` tells of each field)."""
        events = self.of(rule)
        return {
            "schema": SCHEMA,
            "graphs": self.graphs,
            "cached": self.cached,
            "fired": dict(Counter(e.rule for e in events if e.fired)),
            "seconds": dict(self.seconds),
            "events": [e.to_json() for e in events],
            "stored": [e.to_json() for e in _of(self.stored, rule)],
        }


def _of(events: list[Event], rule: str | None) -> list[Event]:
    return [e for e in events if rule is None or rule in (e.rule, e.full_name, e.pack)]


_logs: ContextVar[tuple[Log, ...]] = ContextVar("fxrewrite_logs", default=())


@contextmanager
def record(graphs: bool = False) -> Iterator[Log]:
    """Collect the events of every rewrite inside the `with` block; with `graphs` also each graph before and after."""
    log = Log(drawn=[] if graphs else None)
    token = _logs.set((*_logs.get(), log))
    try:
        yield log
    finally:
        log.ended = cache_hits()
        _logs.reset(token)


def cache_hits() -> int:
    """How many graphs Inductor has taken from its cache in this process."""
    return counters["inductor"]["fxgraph_cache_hit"]


def recording() -> tuple[Log, ...]:
    """The logs that are open."""
    return _logs.get()


# ---- the model


def source_line(node: Any) -> str:
    """The line of the model that a node comes from, `file:line  text`, or nothing."""
    return "  ".join(filter(None, _source(node)))


def source_place(node: Any) -> str:
    """`file:line` of the model, or nothing."""
    return _source(node)[0]


def _source(node: Any) -> tuple[str, str]:
    """Place and text of the innermost line that is not of torch itself; where all are, of the innermost."""
    trace = node.meta.get("stack_trace") if node is not None else None
    lines = [text.strip() for text in (trace or "").strip().split("\n")]
    frames = [i for i, line in enumerate(lines) if line.startswith('File "')]
    if not frames:
        return "", ""
    at = next((i for i in reversed(frames) if not lines[i].startswith(f'File "{TORCH}')), frames[-1])
    file, number, *_ = [*lines[at].split(", "), "line ?"]
    name = file[6:-1].replace("\\", "/").rsplit("/", 1)[-1]
    code = lines[at + 1] if at + 1 < len(lines) and at + 1 not in frames else ""
    return f"{name}:{number.removeprefix('line ')}", code
