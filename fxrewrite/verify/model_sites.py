"""A site of a model, on the values that it meets there: which they are, what the rewrite makes of them, and whether
the rule's left side admits that.

The values are those of the graph as it was. The new side is the nodes that the engine wrote, so that operands and
providers are judged as they are in the graph; the left side is the rule's own, on the operands that the match bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch import Tensor
from torch.fx import Node

from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.eager import PRIMITIVES
from fxrewrite.lowering.plan import Output, Plan
from fxrewrite.patterns.dtypes import to_core
from fxrewrite.patterns.events import Event
from fxrewrite.patterns.values import Symbol, Value, values_in
from fxrewrite.verify.captured import Rewritten
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.equal import TORCH_ERRORS, CannotTry, Failure, Raises, attempt, compare
from fxrewrite.verify.findings import Counts, Finding
from fxrewrite.verify.ranked import is_ranked
from fxrewrite.verify.same import same_values
from fxrewrite.verify.shaped import Given
from fxrewrite.verify.straight import Recording, record_side


class Untraced(Exception):
    """A value of the new graph is no value of the graph as it was, nor made of such; the text says which."""


class Gone(Untraced):
    """Nothing that a rule wrote is left."""


@frozen(eq=False)
class Graphs:
    """A graph before and after: the names of its nodes as it was, and the rewritten copy."""

    before: frozenset[str]
    done: Rewritten
    nodes: Mapping[str, Node]
    takers: Mapping[str, str]  # a node that a rule wrote, or of the graph as it was -> what took its place

    @classmethod
    def of(cls, names: Iterable[str], done: Rewritten) -> Graphs:
        """The graph that had nodes of these names."""
        takers = {old: new for new, old in done.replaced.items()}
        return cls(frozenset(names), done, {n.name: n for n in done.gm.graph.nodes}, takers)

    def origin(self, name: str) -> str | None:
        """The node of the graph as it was that has the value of a node: itself, or the one whose place it took."""
        while name not in self.before and name in self.done.replaced:
            name = self.done.replaced[name]
        return name if name in self.before else None

    def now(self, node: Node) -> Node | None:
        """A node that was written, or what took its place since; None where neither is left."""
        name = node.name
        while name not in self.nodes and name in self.takers:
            name = self.takers[name]
        return self.nodes.get(name)


@define(eq=False)
class ModelSite:
    """A rule at a site of a model. `needs`: the nodes of the graph as it was whose values it is judged on.

    `outputs`: what is replaced, with the node that stands there now. `taken`: another rule took some of that since.
    """

    event: Event
    claim: Claim
    plan: Plan
    graphs: Graphs
    outputs: list[tuple[Output, Node]] = field(init=False)
    taken: bool = field(init=False)
    new: list[Node] = field(init=False)  # what computes the new side, in the order of the graph
    needs: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        gone = [(o, self.graphs.now(o.value.nodes[0])) for o in self.plan.outputs if o.node._erased]
        self.outputs = [(o, n) for o, n in gone if n is not None]
        self.taken = any(n is not o.value.nodes[0] for o, n in self.outputs)
        if not self.outputs:
            raise Gone("what it wrote was taken by another rule")
        found = {n for o, _ in self.outputs if (n := self.graphs.origin(o.node.name)) is not None}
        self.new = self._written(found)
        for value in values_in(self.plan.found.bindings.values()):
            self._traced(value, found)
        self.needs = frozenset(found)

    def _leaf(self, node: Node) -> str | None:
        """The node of the graph as it was that a node is read from; None where the site itself computes it."""
        if node.name in self.graphs.before:
            return node.name
        own = node.name in self.event.written or any(node is n for _, n in self.outputs)
        return None if own else self.graphs.origin(node.name)

    def _written(self, found: set[str]) -> list[Node]:
        """The nodes to run; what they read goes into `found`. Raises Untraced."""
        own = [self.graphs.nodes[n] for n in self.event.written if n in self.graphs.nodes]
        todo, run = [*(n for _, n in self.outputs), *own], dict[Node, None]()
        while todo:
            node = todo.pop()
            leaf = self._leaf(node)
            if leaf is not None:
                found.add(leaf)
            elif node not in run:
                run[node] = None
                todo += node.all_input_nodes
        return sorted(run)

    def _traced(self, value: Value, found: set[str]) -> None:
        """Note the nodes that a bound value is read from. Raises Untraced."""
        name = self._name(value)
        if name is not None:
            found.add(name)
            return
        args = list(values_in(value.args))
        if not args or (value.op not in PRIMITIVES):
            raise Untraced(f"an operand, a value of {value.op}, has no node in the graph as it was")
        for a in args:
            self._traced(a, found)

    def _name(self, value: Value) -> str | None:
        """A node of the graph as it was that holds a value."""
        return next((n for n in (self.graphs.origin(node.name) for node in value.nodes) if n is not None), None)

    # ---- on values

    def judged(self, values: Mapping[str, Any]) -> Finding:
        """Is what the new side gives on these values admitted by the left side? Where that cannot be told, it must be
        what the graph as it was gives, bit for bit."""
        try:
            made = run(self.new, self._leaf, values)
        except Exception as error:  # noqa: BLE001 (whatever a kernel raises is a finding)
            return self.finding("failed", f"what was written raises {type(error).__name__}: {error}".split("\n")[0])
        try:
            given = self.given(values)
            reference = record_side(self.claim.expected, given.operands, given.attributes)
            return self._compared(given, reference, self._named(made, reference))
        except (EvaluationError, NotThisCase, Untraced, CannotTry, *TORCH_ERRORS) as error:
            return self._as_it_was(made, values, str(error).split("\n")[0])

    def _as_it_was(self, made: Callable[[Node], Any], values: Mapping[str, Any], why: str) -> Finding:
        """The finding where the left side cannot be judged: passed if no bit moves."""
        before = [(values[n], made(new)) for o, new in self.outputs if (n := self.graphs.origin(o.node.name))]
        same = len(before) == len(self.outputs) and all(same_values(a, b) for a, b in before)
        return self.finding("passed" if same else "not run", "" if same else f"it is not the same bits, and {why}")

    def _compared(self, given: Given, reference: Recording, written: Mapping[str, Tensor]) -> Finding:
        wrong, verdicts = compare(self.claim.contract, outputs_only(reference, written), written)
        counts = tuple((name, v.counts) for name, v in verdicts.items())
        if not wrong:
            return self.finding("passed", counts=counts)
        alone = next((s.op for s in reference.program.steps if s.opaque), None)
        if alone is not None:
            raise CannotTry(f"`{alone}` is a function whose rounding is not declared")
        if self.taken:
            raise CannotTry("another rule took what it wrote")
        said = next(f"{n}: {w}" if not w.startswith(n) else w for n, w in wrong.items())
        return self.finding("failed", said, counts, self._script(given))

    def _script(self, given: Given) -> str | None:
        """A counterexample, where the rule itself fails on these values, not only what serves it here."""
        from fxrewrite.verify.counterexample import script
        from fxrewrite.verify.shrink import shrink

        try:
            trial = attempt(self.claim, given)
        except (NotThisCase, CannotTry, Raises):
            return None
        return script(shrink(Failure(self.claim, trial)), self.claim.program.sources) if trial.wrong else None

    def given(self, values: Mapping[str, Any]) -> Given:
        """The operands and attributes of the left side. Raises Untraced."""
        bindings, op = self.plan.found.bindings, self.claim.op
        operands = [self._bound(bindings.get(o.name), values) for o in op.operands]
        lacking = next((a.name for a in op.attributes if a.name not in bindings), None)
        if lacking is not None:
            raise Untraced(f"the rule takes any `{lacking}`, and the match does not say which")
        attributes = {a.name: _plain(self._bound(bindings[a.name], values)) for a in op.attributes}
        return Given(operands, attributes, f"site {self.event.site}")

    def _bound(self, bound: Any, values: Mapping[str, Any]) -> Any:
        if isinstance(bound, tuple | list):
            return type(bound)(self._bound(b, values) for b in bound)
        return self._tensor(bound, values) if isinstance(bound, Value) else bound

    def _tensor(self, value: Value, values: Mapping[str, Any]) -> Any:
        name = self._name(value)
        if name is not None:
            return values[name]
        args = [self._tensor(a, values) if isinstance(a, Value) else a for a in value.args]
        if value.op == "reshape":
            return args[0].reshape([_size(n) for n in value.shape])
        return PRIMITIVES[value.op](*args, *map(to_core, value.attrs))

    def _named(self, made: Callable[[Node], Any], reference: Recording) -> dict[str, Tensor]:
        """What the new side gives, by output, in the shapes of the left side's results."""
        several = len(self.plan.found.rule.left) > 1
        found: dict[str, Tensor] = {}
        for o, node in self.outputs:
            name = (f"out{o.index}" if several else "out") + ("" if o.element is None else f"[{o.element}]")
            if name in reference.results:
                new, want = made(node), reference.results[name]
                found[name] = new.reshape(want.shape) if new.numel() == want.numel() else new
        return found

    def finding(
        self, outcome: Any, reason: str = "", counts: tuple[tuple[str, Counts], ...] = (), script: str | None = None
    ) -> Finding:
        """What the check of the site came to."""
        source = f" ({self.event.source})" if self.event.source else ""
        said = f"at {self.event.site}{source}: {reason}" if outcome == "failed" else reason
        return Finding(
            "site", self.event.full_name, outcome, said, self.event.by or None, 1, counts, span=self.claim.span,
            script=script, site=self.event.site,
        )  # fmt: skip


def unjudged(event: Event, reason: str) -> Finding:
    """The finding of a site that cannot be judged."""
    return Finding("site", event.full_name, "not run", reason, event.by or None, span=event.span, site=event.site)


def model_site(event: Event, claim: Claim | None, plan: Plan | None, graphs: Graphs) -> ModelSite | Finding | None:
    """The site of a firing; a finding where it cannot be judged; None of a clean-up inside what a later rule took,
    which is judged there."""
    if event.graph or plan is None or claim is None:
        return unjudged(event, "it is in a graph inside the graph, whose values are not recorded")
    if is_ranked(claim):
        return unjudged(event, "it is about several ranks, and one process stands for one")
    try:
        return ModelSite(event, claim, plan, graphs)
    except Gone as error:
        return None if plan.found.rule.stage == "canonicalize" else unjudged(event, str(error))
    except Untraced as error:
        return unjudged(event, str(error))


def run(nodes: list[Node], leaf: Callable[[Node], str | None], values: Mapping[str, Any]) -> Callable[[Node], Any]:
    """Run nodes on copies of the values that they read; what gives the value of each."""
    copies: dict[str, Any] = {}
    env: dict[Node, Any] = {}

    def value(n: Node) -> Any:
        name = leaf(n)
        if n in env or name is None:
            return env[n]
        if name not in copies:  # what writes to it must not write to what others read
            copies[name] = values[name].clone() if isinstance(values[name], Tensor) else values[name]
        return copies[name]

    with torch.no_grad():
        for n in nodes:
            args: Any = torch.fx.map_arg((n.args, n.kwargs), value)
            env[n] = n.target(*args[0], **args[1])  # type: ignore[operator]
    return value


def outputs_only(reference: Recording, written: Mapping[str, Tensor]) -> Recording:
    """The left side without the outputs that nobody reads in the model."""
    program = reference.program
    kept = tuple((n, s) for n, s in program.outputs if n in written)
    return evolve(reference, program=evolve(program, outputs=kept))


def _plain(bound: Any) -> Any:
    """An attribute as claims have it: a number that the graph holds as a 0-d tensor is that number."""
    if isinstance(bound, Tensor):
        return bound.item()
    if isinstance(bound, tuple | list):
        return tuple(map(_plain, bound))
    return _size(bound) if isinstance(bound, Symbol) else to_core(bound)


def _size(n: Any) -> int:
    if not isinstance(n, int):
        raise Untraced(f"the size {n} is not known here")
    return n
