"""What was said of a compilation whose code Inductor's caches keep, for the reports of those that the caches answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, fields
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

from fxrewrite.dsl import private_cache
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import OFF, SCHEMA, Event

KEPT = 256  # compilations; those that were asked for longest ago go
MOST = 2000  # events of one
PLAIN = (str, int, float, bool, type(None))


class ColdRun(CustomGraphPass):
    """The pass of one compilation. It keeps what is said of its graphs, that of the backward pass included, which may
    come late. `graphs`: how many it has seen; none where a cache answered.
    """

    def __init__(self, pass_: RewritePass, key: str):
        self.pass_, self.key = pass_, key
        self.graphs = 0
        self.events: list[Event] = []

    def __call__(self, graph: Graph) -> None:
        """Rewrite `graph` in place, as the pass does."""
        number, self.graphs = self.graphs, self.graphs + 1
        run = self.pass_.rewrite(graph)
        if run is not None and caching():
            told = [e for e in run.events or run.told() if e.reason not in OFF]
            self.events += [evolve(e, graph=number) for e in told[: MOST - len(self.events)]]
            store(self.key, self.events)

    def __deepcopy__(self, memo: Any) -> ColdRun:
        return self

    def uuid(self) -> Any:
        """That of the pass."""
        return self.pass_.uuid()


def caching() -> bool:
    """Does anything keep code that is compiled now?"""
    return not inductor_config.force_disable_caches and bool(
        inductor_config.fx_graph_cache or functorch_config.enable_autograd_cache
    )


def key(pass_: RewritePass, gm: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """A name for a compilation: equal for the same rules, graph and inputs in any process."""
    graphs = [str(m.graph) for m in gm.modules() if isinstance(m, GraphModule)]
    given = [_described(i) for i in inputs]
    plain = sorted((k, v) for k, v in options.items() if isinstance(v, PLAIN))
    text = repr((SCHEMA, pass_.state(), graphs, given, plain, torch.is_grad_enabled()))
    return f"cold-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _described(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return str(x)
    strides = x.stride() if x.layout is torch.strided else None
    return str((x.dtype, tuple(x.shape), strides, x.device, x.requires_grad))


def store(name: str, events: Sequence[Event]) -> None:
    """Keep the events of a compilation."""
    private_cache.store(name, [e.to_json() for e in events])
    private_cache.prune("cold-*.json", KEPT)


def load(name: str) -> list[Event]:
    """The events that were stored under a name; none where nothing was, or what lies there are no events."""
    stored = private_cache.load(name)
    if not isinstance(stored, list):
        return []
    try:
        return [_event(e) for e in stored]
    except (TypeError, ValueError, KeyError):
        return []


def _event(stored: dict[str, Any]) -> Event:
    """The event of a JSON object. Raises TypeError, ValueError or KeyError where it is none."""
    span = None if stored["span"] is None else Span(**stored["span"])
    names = {n: tuple(stored[n]) for n in ("nodes", "matched", "written")}
    event = Event(**{**stored, **names, "span": span})
    parts = [*(getattr(event, a.name) for a in fields(Event)), *(x for n in names.values() for x in n)]
    if not all(isinstance(x, (*PLAIN, tuple, Span)) for x in parts) or not isinstance(event.rule, str):
        raise TypeError("no event")
    return event
