"""The rules as one custom graph pass of Inductor, with a uuid derived from what they mean."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

import fxrewrite
from fxrewrite.dsl import digest, registered
from fxrewrite.dsl.core import Program, Result
from fxrewrite.dsl.deep import deep_terms
from fxrewrite.lowering import generated, library
from fxrewrite.lowering.config import Config
from fxrewrite.lowering.engine import Engine, Run
from fxrewrite.lowering.off import off_events
from fxrewrite.lowering.plan import Allows
from fxrewrite.lowering.providers import registered_kernels
from fxrewrite.patterns.events import cache_hits, recording
from fxrewrite.patterns.forms import Off
from fxrewrite.patterns.groups import groups_of_torch

logger = logging.getLogger("fxrewrite")
UNTRACED = (
    "no rule fires on %s: a graph there is not functional, it may write to its values and nothing tells their types; "
    "put the pass on `post_grad_custom_pre_pass`, where `fxrewrite.inductor_options(...)` has it"
)


class RewritePass(CustomGraphPass):
    """`pass_(graph)` rewrites an FX graph in place. `calls` counts the graphs that it has seen."""

    def __init__(self, program: Program, config: Config, seconds: Counter[str] | None = None):
        self.engine = Engine.make(program, config, seconds)
        self.calls = 0
        self.reported = False
        self.warned = False  # that it stands where graphs are not traced yet
        if "op" in config.providers:  # code that comes from a cache names these ops before this pass has run
            for rule in self.engine.active.values():
                for t in rule.right:
                    if isinstance(t, Result):
                        library.op_for(program, t.call.op)
        if "generated" in config.providers:
            generated.register(program)

    def __call__(self, graph: Graph) -> None:
        """Rewrite `graph` in place. An error stops it, with a line in the log; strict mode raises it."""
        self.rewrite(graph)

    def rewrite(self, graph: Graph, allows: Allows | None = None) -> Run | None:
        """The same, with `allows` at the sites that it allows, and what was done; None where an error stopped it."""
        self.calls += 1
        for log in recording():
            log.waiting.discard(id(self))
        if not self.warned and is_untraced(graph):
            self.warned = True
            logger.warning(UNTRACED, untraced_hook())
        try:
            run = self.engine.run(graph, allows)
        except Exception as error:
            if self.engine.config.strict:
                raise
            said = f"{type(error).__name__}: {error}".split("\n")[0]
            logger.warning("rewriting of a graph stopped, what was rewritten stays: %s", said)
            return None
        self._log(run)
        return run

    def __deepcopy__(self, memo: Any) -> RewritePass:
        return self  # Inductor copies its configuration; the pass itself never changes

    def uuid(self) -> Any:
        """What Inductor's caches key the pass by: equal for rules that mean the same, with the same ops and kernels."""
        for log in recording():
            log.waiting.add(id(self))
            log.counted = cache_hits() if log.counted is None else log.counted
        return self.state()

    def state(self) -> str:
        """The same, by whom it may be asked without any compilation."""
        off = sorted((o.name, o.detail) for o in self.off())
        names = self.engine.config.providers
        kernels = [*(registered_kernels() if "kernel" in names else []), "generated" in names and generated.state()]
        with deep_terms():
            proofs = self.engine.providers.proof_state()
            return hashlib.sha256(repr((self._uuid, kernels, off, groups_of_torch(), proofs)).encode()).hexdigest()

    @cached_property
    def _uuid(self) -> str:
        program, config = self.engine.program, self.engine.config
        rules = [evolve(r, level=None, flag=None, is_named=True) for r in self.engine.active.values()]  # they are on
        meaning = digest.of(program, rules), digest.of_whole_ops(program)
        settings = (
            config.level == "O0", config.providers, config.allow_relaxed, config.allow_unproved, config.tokens,
            config.strict, sorted(config.groups.items()), config.replicated,
        )  # fmt: skip
        versions = (fxrewrite.__version__, torch.__version__, sorted(self.engine.providers.facts.items()))
        natives = [registered.state_of(source) for source in registered.named(_parts(program))]
        text = repr((meaning, settings, versions, natives, _engine_digest()))
        return hashlib.sha256(text.encode()).hexdigest()

    def _log(self, run: Run) -> None:
        logs = recording()
        for log in logs:
            number = log.graphs
            log.graphs += 1
            log.seconds.update(run.seconds)
            log.sources.update(self.engine.program.sources)
            if not self.reported:
                log.seconds.update(self.engine.seconds)
            if number == 0:
                log.events += off_events(self.engine.program, self.engine.config, self.off())
            log.events += [evolve(e, graph=number) for e in run.events]
            if log.drawn is not None:
                log.drawn.append((run.drawn[0], run.drawn[1]))
        self.reported = self.reported or bool(logs)

    def off(self) -> list[Off]:
        """Forms and rules that do not take part in this build."""
        return [*self.engine.library.off, *self.engine.cleanup.off]


def is_untraced(graph: Graph) -> bool:
    """Is it a graph as Dynamo has it: calls, and nothing said of what they give?"""
    calls = [n for n in graph.nodes if n.op.startswith("call_")]
    return bool(calls) and not any("val" in n.meta for n in calls)


def untraced_hook() -> str:
    """The hook of Inductor that such a graph comes from."""
    name = "pre_grad_custom_pass"
    return f"`{name}`" if getattr(inductor_config, name, None) is not None else "this graph"


def _parts(program: Program) -> list[Any]:
    """Every term and condition of a program."""
    rules = [(r.left, r.right, r.guards, r.prefer, r.decreasing) for r in program.rules]
    cases = [c for op in program.ops.values() for c in (*op.equations, *op.forms, *op.impls)]
    spelled = [(c.outputs, c.guards, c.pins, tuple(t for _, t in c.named)) for c in cases]
    return [*rules, *spelled, *(op.requires for op in program.ops.values()), *(p.when for p in program.packs.values())]


def _engine_digest() -> str:
    """The source of the engine itself: another version of it may write other graphs."""
    root = Path(inspect.getfile(fxrewrite)).parent
    digest_ = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest_.update(path.read_bytes())
    return digest_.hexdigest()
