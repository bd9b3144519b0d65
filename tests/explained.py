"""What a report says of a text of rules on a graph.

log = explained("fusion two(x) = silu(x) |> gelu", fn, args)     # the registered op is the provider
assert misses(log, "two") == "shared value: expected ..."         # the nearest miss
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from capture import make_fx_graph
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import rewrite
from fxrewrite.patterns.events import Event, Log, record
from fxrewrite.patterns.explain import chapters, rules_off

NAME = "my.rw"


def explained(
    text: str, fn: Callable[..., Any] | GraphModule, args: Sequence[Any] = (), graphs: bool = False, **settings: Any
) -> Log:
    """The log of `text` on a trace of `fn(*args)`, or on a copy of a graph. `packs`: others beside it."""
    file, wrong = parse(text, NAME)
    assert not wrong, "\n".join(d.render({NAME: text}) for d in wrong)
    gm = copy.deepcopy(fn) if isinstance(fn, GraphModule) else make_fx_graph(fn, args)
    packs = [*settings.pop("packs", ()), file]
    with record(graphs) as log:
        rewrite(gm, packs, **{"providers": ["op"], "strict": True, **settings})
    return log


def miss(log: Log, rule: str) -> Event:
    """The nearest miss of a rule."""
    (chapter,) = chapters(log, rule)
    return chapter.groups[0].first


def said(log: Log, rule: str) -> str:
    """What is said of the nearest miss of a rule."""
    (chapter,) = chapters(log, rule)
    return chapter.groups[0].said


def off(log: Log, rule: str) -> Event:
    """The event of a rule that takes no part."""
    (group,) = rules_off(log, rule)
    return group.first


def low(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Numbers of a 16-bit dtype."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)
