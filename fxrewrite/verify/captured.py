"""A captured program with its inputs, run op by op, before and after rules at chosen sites."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves, tree_unflatten

from fxrewrite.lowering.backend import rewrite_by
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.lowering.plan import Plan
from fxrewrite.patterns.events import Log, record

OPS = ("call_function",)
SEED = 0  # before each run, so that what draws random numbers draws the same ones


@frozen
class Site:
    """Where a rule fires: its full name, the number of the graph, and the node by name."""

    rule: str
    graph: int
    node: str


@frozen(eq=False)
class Rewritten:
    """A copy of the graph after rules at some sites.

    `stands_for`: a node that was replaced -> the one in its place. `fired`: what was done, by site. `replaced`: a node
    that a rule wrote -> the one whose place it took, though another rule took its own since.
    """

    gm: GraphModule
    log: Log
    stands_for: Mapping[str, str] = field(factory=dict[str, str])
    fired: Mapping[Site, Plan] = field(factory=dict[Site, Plan])
    replaced: Mapping[str, str] = field(factory=dict[str, str])

    @property
    def sites(self) -> list[Site]:
        """Where rules fired."""
        return [Site(e.full_name, e.graph, e.site) for e in self.log.events if e.fired]


@frozen(eq=False)
class Results:
    """What a run gives. `outputs`: of the graph, flat; `written`: its inputs, but None where it did not write."""

    outputs: tuple[Any, ...]
    written: tuple[Any, ...]


@frozen(eq=False)
class Captured:
    """A graph with the values of its placeholders. `shown`: from the flat outputs to what the model returns."""

    gm: GraphModule
    inputs: tuple[Any, ...]
    shown: Callable[[Sequence[Any]], Any] = tuple

    def run(
        self,
        gm: GraphModule | None = None,
        watch: Callable[[Node, Any], None] | None = None,
        ops: tuple[str, ...] = OPS,
    ) -> Results:
        """Run the graph, or a rewritten copy, on copies of the inputs; `watch` gets each node of `ops` with its
        value."""
        inputs = copy.deepcopy(self.inputs)
        versions = [t._version if isinstance(t, Tensor) else 0 for t in inputs]
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(SEED)
            outputs = _Watched(gm or self.gm, watch, ops).run(*inputs, enable_io_processing=False)
        written = (t if isinstance(t, Tensor) and t._version != v else None for t, v in zip(inputs, versions))
        return Results(tuple(tree_leaves(outputs, is_leaf=lambda leaf: leaf is None)), tuple(written))

    def rewritten(self, pass_: RewritePass, allows: Callable[[Site], bool]) -> Rewritten:
        """A copy of the graph after the rules of a pass at the sites that `allows` allows."""
        gm, plans = copy.deepcopy(self.gm), dict[Site, Plan]()
        with record() as log:

            def allowed(plan: Plan) -> bool:
                node = plan.found.site.name if plan.found.site is not None else "?"
                site = Site(plan.found.rule.full_name, log.graphs, node)
                found = allows(site)
                if found:
                    plans[site] = plan
                return found

            rewrite_by(lambda graph: pass_.rewrite(graph, allowed), gm)
        done = Rewritten(gm, log)
        fired = {s: plans[s] for s in done.sites if s in plans}
        outputs = [o for p in fired.values() for o in p.outputs if o.node._erased]
        pairs = [(o.node, n) for o in outputs for n in o.value.nodes[:1] if n is not o.node]
        stands_for = {old.name: new.name for old, new in pairs if not new._erased}
        return Rewritten(gm, log, stands_for, fired, {new.name: old.name for old, new in pairs})


class _Watched(Interpreter):
    def __init__(self, gm: GraphModule, watch: Callable[[Node, Any], None] | None, ops: tuple[str, ...]):
        super().__init__(gm)
        self.watch, self.ops = watch, ops

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if self.watch is not None and n.op in self.ops:
            self.watch(n, value)
        return value


def captured(program: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Captured:
    """An exported program with these arguments. Raises what torch raises where they do not fit it."""
    specs, tree = program.graph_signature.output_specs, program.call_spec.out_spec

    def shown(outputs: Sequence[Any]) -> Any:
        users = [o for o, s in zip(outputs, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]
        return users if tree is None else tree_unflatten(users, tree)

    inputs = program._graph_module_flat_inputs(tuple(args), dict(kwargs))
    return Captured(program.graph_module, tuple(inputs), shown)
