"""Matches as entries of an Inductor `PatternMatcherPass`: its mutation regions, stream checks, counters and observers
hold for ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch._inductor.pattern_matcher import (
    FailedMatch,
    GraphPatternEntry,
    Match,
    MatchContext,
    PatternExpr,
    PatternMatcherPass,
    get_mutation_region_id,
)  # fmt: skip
from torch.fx import Graph, Node


class SitePattern(PatternExpr):
    """The sites of one rule. The sweep has matched already: `match` looks the answer up.

    `nodes`: a candidate node -> the nodes that will die with it, itself first.
    """

    op = "call_function"

    def __init__(self, nodes: Mapping[Node, list[Node]]):
        self.nodes = nodes
        self.fns = list({n.target for n in nodes})

    def match(self, node: Node) -> Any:
        """The match of a candidate node, looked up."""
        found = self.nodes.get(node)
        if found is None:
            return FailedMatch("not a site of this rule")
        match = Match(MatchContext([self], graph=node.graph), self)
        match.nodes = list(found)
        match.kwargs = {"node": node}
        return match

    def _match(self, node: Node, ctx: MatchContext) -> Any:
        return self.match(node)


class Entries:
    """At which node of a site Inductor is asked for it: one of an op that is rare, since it looks at every node of that
    op.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.counts: dict[Any, int] = {}

    def of(self, anchor: Node, dying: Iterable[Node]) -> Node:
        """The entry of a site: its anchor, or a node that dies with it."""
        return min({anchor, *dying}, key=lambda n: (self._count(n.target), n))

    def _count(self, target: Any) -> int:
        if target not in self.counts:
            self.counts[target] = len(self.graph.find_nodes(op="call_function", target=target, sort=False))
        return self.counts[target]


def passed_over(node: Node) -> bool:
    """Does Inductor's matcher pass over a node for a dtype that it generates no code for?"""
    from torch._inductor.lowering import fallback_node_due_to_unsupported_type

    return fallback_node_due_to_unsupported_type(node, allow_cpu_inputs=False)


def shown(anchor: Node, dying: Iterable[Node], written: bool) -> list[Node]:
    """The nodes of a site that Inductor is shown, the anchor first.

    It refuses a site with any write in between. In a graph with writes (`written`) what they touch was held against
    each value of the site, so only nodes of another stream are shown beside the anchor.
    """
    others = [n for n in dying if n is not anchor]
    return [anchor, *(n for n in others if not written or _stream(n) != _stream(anchor))]


def _stream(node: Node) -> Any:
    return node.meta.get("custom", {}).get("stream", 0)


def parted(graph: Graph, nodes: Iterable[Node]) -> str | None:
    """What Inductor has against a site of these nodes: a write between them, or that they run on several streams."""
    nodes = list(nodes)
    if len({get_mutation_region_id(graph, n) for n in nodes}) > 1:
        return "a write inside the match"
    return "its nodes run on several streams" if len(set(map(_stream, nodes))) > 1 else None


def apply(graph: Graph, sites: Mapping[str, Mapping[Node, list[Node]]], fire: Callable[[str, Node], None]) -> None:
    """Run one `PatternMatcherPass` with an entry for each rule of `sites` (rule name -> candidate -> dying nodes).

    `fire(rule, node)` edits; it must not raise.
    """
    passes = PatternMatcherPass(pass_name="fxrewrite")
    for rule, nodes in sites.items():
        entry = GraphPatternEntry(
            pattern=SitePattern(nodes), extra_check=lambda match: True,
            handler=lambda match, node, rule=rule: fire(rule, node),
        )  # fmt: skip
        table: Any = passes.patterns
        entry.register(table)
    passes.apply(graph)
