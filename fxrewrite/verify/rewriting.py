"""One rule of a program on one graph: does it fire, and does everything that can be seen stay as it was?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor
from torch.fx import Graph

from fxrewrite.dsl.core import Program, RuleDef
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import Status, make_config, rule_status
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import record
from fxrewrite.patterns.hosting import passed_over
from fxrewrite.verify.graphs import copied, run
from fxrewrite.verify.same import moved, wrong_metadata
from fxrewrite.verify.written import NoGraph

RANKS = 2  # of the group that graphs name: packs that need several are on, and one rank stands for all
PROVIDERS = ("op",)  # the registered op, which evaluates the definition: a site never stays for want of a kernel


@frozen
class Rewriting:
    """What a rule did to a graph. `fired`: how often; `fault`: what is wrong; `graph`: as it is now."""

    before: list[Any]
    after: list[Any]
    fired: int
    fault: str | None
    graph: Graph | None = field(default=None, repr=False)


class _Held:
    """A program as a key: two of equal text are two."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __hash__(self) -> int:
        return id(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.program is self.program


def pass_of(program: Program) -> RewritePass:
    """The pass of all rules of a program, whatever their level, made once."""
    return _pass_of(_Held(program))


@lru_cache(maxsize=4)
def _pass_of(held: _Held) -> RewritePass:
    flags = {r.full_name: True for r in held.program.rules}
    config = make_config(  # inputs are equal on all ranks: there is one; what forms claim has checks of its own
        flags=flags, providers=PROVIDERS, strict=True, groups={"": RANKS}, replicated=["*"], allow_unproved=True
    )
    return make_pass(config, held.program)


def why_off(pass_: RewritePass, rule: RuleDef) -> str | None:
    """Why a rule takes no part here, or None."""
    status: Status = rule_status(pass_.engine.program, rule, pass_.engine.config)
    if not status.on:
        return f"{status.reason}: {status.by}"
    return next((f"{o.reason}: {o.detail}" for o in pass_.off() if o.name == rule.full_name), None)


def rewritten(
    pass_: RewritePass, rule: RuleDef, graph: Graph, inputs: Sequence[Tensor], constants: Mapping[str, Tensor],
    metadata: bool = False,
) -> Rewriting:  # fmt: skip
    """A copy of `graph` after `rule` alone, with what it computes before and after on copies of the inputs.

    The outputs are followed by the inputs, which the graph may have written. `metadata`: look at that too. Raises
    NoGraph where the graph itself does not run here.
    """
    try:
        before = observed(graph, inputs, constants)
    except Exception as error:
        said = str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"
        raise NoGraph(f"it does not run here: {said}") from error
    changed = copied(graph)
    try:
        fired = _count(pass_, rule, changed)
        changed.lint()
    except Exception as error:  # noqa: BLE001 (whatever the engine raises is what is looked for)
        return Rewriting(before, [], 0, f"the engine raised {type(error).__name__}: {error}", changed)
    if not fired:
        return Rewriting(before, before, 0, None, changed)
    try:
        after = observed(changed, inputs, constants)
    except Exception as error:  # noqa: BLE001 (a graph that was written and does not run is what is looked for)
        return Rewriting(before, [], fired, f"what was written does not run: {error}", changed)
    fault = moved(before, after) or (wrong_metadata(changed) if metadata else None)
    return Rewriting(before, after, fired, fault, changed)


def observed(graph: Graph, inputs: Sequence[Tensor], constants: Mapping[str, Tensor]) -> list[Any]:
    """What a run leaves: the outputs, then the inputs."""
    given = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) for t in inputs]
    return [*run(graph, given, constants), *given]


def _count(pass_: RewritePass, rule: RuleDef, graph: Graph) -> int:
    if rule.stage == "canonicalize":
        with record() as log:
            pass_.rewrite(graph, lambda plan: plan.found.rule.full_name == rule.full_name)
        return Counter(e.full_name for e in log.events if e.fired)[rule.full_name]
    done = pass_.rewrite(graph, lambda plan: plan.found.rule.full_name == rule.full_name)
    return 0 if done is None else sum(f.rule.full_name == rule.full_name for f, _ in done.fired)


def can_be_hosted(graph: Graph) -> bool:
    """Is there a node at which Inductor's matcher, which hosts the rules, asks for a site?"""
    return not all(passed_over(n) for n in graph.nodes if n.op == "call_function")


def why_not(pass_: RewritePass, rule: RuleDef, graph: Graph) -> str:
    """What the nearest site of a rule in a graph lacks, and the graph, as text."""
    changed = copied(graph)
    with record() as log:
        try:
            pass_.rewrite(changed, lambda plan: plan.found.rule.full_name == rule.full_name)
        except Exception as error:  # noqa: BLE001 (strict mode: what it raises is the reason)
            return f"{type(error).__name__}: {error}"
    missed = sorted(log.missed(rule.full_name), key=lambda e: e.rank)
    if not missed:
        return "no site: the first op of the left side was not recognised"
    near = missed[0]
    return f"{near.reason}: expected {near.expected or '?'}, found {near.found or '?'} (at {near.site})"
