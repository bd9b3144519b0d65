"""The left side of a rule as a graph: in each of its spellings, on operands of a chosen type.

subject = Subject.of(claim)
site = subject.site(Spelling("silu", "form sigmoid"))     # traced, with one op as one of its forms
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch import Tensor
from torch.fx import Graph, Node

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import PRIMITIVES, Apply, Dtype, Lit, OpDef, Operand, Prim, Program, Result, RuleDef, Wild
from fxrewrite.dsl.evaluate import Bindings, EvaluationError, bind, evaluate_terms
from fxrewrite.dsl.scalars import Env, holds
from fxrewrite.verify.assign import Space, Starved
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.graphs import Recorder, trace
from fxrewrite.verify.rebuild import replaced
from fxrewrite.verify.settings import Setting, Wanted, plain
from fxrewrite.verify.written import NoGraph, Spelling, Written, as_graphs, form_of, spelled

AS_DEFINED = Spelling()
WILD = {"shape": (-1,), "dim": 0, "start": 0, "step": 1, "dtype": Dtype("f32")}  # what stands for `_`
Before = Callable[[str, Tensor], Tensor]
TOKENS = (6, 64, 256, 1024, 2048, 1)


@frozen(eq=False)
class Site:
    """The left side as a graph on real inputs. `outputs`: how many are of the rule, what is kept comes behind them.

    `inner`: the values between its ops, by what they are called: exclusive to the match. `origins`: node -> the term.
    """

    graph: Graph
    setting: Setting
    inputs: tuple[Tensor, ...]
    constants: Mapping[str, Tensor]
    origins: Mapping[str, Any]
    inner: Mapping[str, str]
    outputs: int

    def node(self, name: str) -> Node:
        """A node by name."""
        return next(n for n in self.graph.nodes if n.name == name)

    def on(self, graph: Graph) -> Site:
        """The same of a graph that was changed."""
        return evolve(self, graph=graph)


@define(eq=False)
class Subject:
    """A rule whose left side is made into graphs. `program`: what has no graph of its own is a call in it."""

    claim: Claim
    rule: RuleDef
    program: Program
    space: Space
    rows: Wanted
    settings: dict[str, Setting] = field(factory=dict[str, Setting])

    @classmethod
    def of(cls, claim: Claim) -> Subject:
        """The subject of the claim of a rule."""
        rule = next(r for r in claim.program.rules if r.full_name == claim.name)
        rule = evolve(rule, left=without_wilds(rule.left))
        return cls(claim, rule, as_graphs(claim.program, rule.left), Space.of(claim), _rows(rule))

    def setting(self, wanted: Wanted | None = None) -> Setting:
        """Operands and attributes, plain but for what is wanted. Raises NoGraph where there are none."""
        wanted = {**self.rows, **(wanted or {})}
        key = repr(sorted(wanted.items()))
        if key not in self.settings:
            try:
                self.settings[key] = Setting.of(self.claim, plain(self.space, wanted))
            except Starved as error:
                raise NoGraph(str(error)) from error
        return self.settings[key]

    def site(self, spelling: Spelling = AS_DEFINED, setting: Setting | None = None) -> Site:
        """The left side in a spelling, on operands that it stands for. Raises NoGraph."""
        program, said = spelled(self.program, spelling), None
        if setting is not None:
            return self.traced(setting, program, spelling.whole)
        for wanted in self._wanted(spelling):
            try:
                return self.traced(self.setting(wanted), program, spelling.whole)
            except NoGraph as error:
                said = said or error
        raise said or NoGraph("no operands")

    def _wanted(self, spelling: Spelling) -> Iterator[Wanted]:
        """What to choose so that a spelling stands for the op: its pins; then without one or the other operand."""
        yield {}
        if not spelling.how.startswith("form"):
            return
        operands = {o.name for o in self.claim.op.operands}
        pinned = form_of(self.program, spelling).pins
        pins = {n: ((False,) if v is None and n in operands else (v,)) for n, v in pinned}
        yield pins
        yield from ({**pins, o.name: (False,)} for o in self.claim.op.operands if o.optional)

    def traced(
        self, setting: Setting, program: Program | None = None, whole: bool = False, op: OpDef | None = None,
        before: Before | None = None,
    ) -> Site:  # fmt: skip
        """The left side on given operands. `op`: another signature. `before`: what the graph makes of its inputs before
        they are operands, by name. Raises NoGraph where it has no value on them."""
        rule = self.rule
        kept = [t for n, t in rule.named if n in rule.kept]
        inner: dict[str, str] = {}
        counted = [0]

        inside = rule.stage == "canonicalize"  # inputs and outputs of a graph have memory of their own, which stays
        before = before or (usual(rule) if inside else None)
        names = setting.names(self.claim.op)

        def fn(recorder: Recorder, fakes: Sequence[Tensor]) -> list[Tensor]:
            algebra = Written(recorder, self.claim.program, inside)
            fakes = fakes if before is None else list(map(before, names, fakes))
            operands, attributes = setting.filled(fakes), setting.assignment.attributes
            bindings = bind(program or self.program, op or self.claim.op, operands, attributes, algebra)
            left = _flat(evaluate_terms(rule.left, bindings))
            inner.update(_inner(rule, bindings, recorder))
            counted[0] = len(left)
            outputs = [*left, *_flat(evaluate_terms(kept, bindings))]
            return [t.neg() for t in outputs] if inside else outputs

        inputs = setting.tensors()
        try:
            made = trace(fn, inputs, whole)
        except (EvaluationError, RuntimeError, TypeError, ValueError, IndexError) as error:
            raise NoGraph(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        return Site(made.graph, setting, tuple(inputs), made.constants, made.origins, inner, counted[0])


def usual(rule: RuleDef) -> Before:
    """Results of an op, and memory that nobody has written where the rule asks for that."""
    fresh = {o.name for g in rule.guards if (o := fact(g, "fresh")) is not None}
    return lambda name, t: torch.empty_like(t) if name in fresh else t.neg()


def fact(guard: Any, name: str) -> Operand | None:
    """The operand of which a condition asks a fact of the graph, or its contrary."""
    guard = guard.args[0] if isinstance(guard, Apply) and guard.op == "not" else guard
    asked = isinstance(guard, Apply) and guard.op == name and isinstance(guard.args[0], Operand)
    return guard.args[0] if asked else None


def without_wilds(left: Any) -> Any:
    """A left side with a value for each `_` among the parameters of primitives."""
    for prim in [t for t in walk(left) if isinstance(t, Prim) and any(isinstance(p, Wild) for p in t.params)]:
        names = PRIMITIVES[prim.op][PRIMITIVES[prim.op].index(";") + 1 :]
        params = tuple(Lit(WILD.get(n)) if isinstance(p, Wild) else p for n, p in zip(names, prim.params))
        left = replaced(left, prim, evolve(prim, params=params))
    return left


def _rows(rule: RuleDef) -> Wanted:
    """A number of tokens that the rule prefers."""
    for rows in TOKENS:
        if holds(rule.prefer, Env(facts={"tokens": rows})) is not False:
            return {"rows": (rows,)}
    return {}


def _flat(values: Sequence[Any]) -> list[Tensor]:
    return [x for v in values for x in (v if isinstance(v, list | tuple) else [v])]


def _inner(rule: RuleDef, bindings: Bindings, recorder: Recorder) -> Iterator[tuple[str, str]]:
    """The results of ops that are neither outputs nor kept."""
    kept = [t for n, t in rule.named if n in rule.kept]
    names = {id(t): n for n, t in rule.named}
    stays = {id(v) for t in (*rule.left, *kept) for v in _flat([bindings.done.get(id(t))])}
    stays |= {id(v) for v in _flat(list(bindings.operands.values()))}
    for term in walk(rule.left, conditions=False):
        value = bindings.done.get(id(term)) if isinstance(term, Result) else None
        if isinstance(value, Tensor) and id(value) not in stays and id(value) in recorder.nodes:
            label = names.get(id(term)) or f"result {term.index} of {term.call.op}"
            yield label, recorder.nodes[id(value)].name
