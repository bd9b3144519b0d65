"""Rules on one graph: clean up, read, recognise, plan, fire, and say what happened."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from attrs import define, evolve, field
from torch.fx import Graph, Node

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Apply, Program, Result, RuleDef
from fxrewrite.dsl.deep import deep_terms
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.dsl.wording import said
from fxrewrite.lowering import detours, reused
from fxrewrite.lowering.cleanup import Cleanup
from fxrewrite.lowering.config import Config, machine_facts, rule_status
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.emit import Emitter
from fxrewrite.lowering.failures import Failures, failed_event
from fxrewrite.lowering.library import declared
from fxrewrite.lowering.plan import LARGER, Allows, Plan, Refusal, plan
from fxrewrite.lowering.proofs import Proofs
from fxrewrite.lowering.provide import provide
from fxrewrite.lowering.providers import Providers
from fxrewrite.lowering.replace import fire
from fxrewrite.lowering.report import Fired, Report
from fxrewrite.patterns import hosting
from fxrewrite.patterns.events import Event, recording
from fxrewrite.patterns.forms import Library, Pattern, needed
from fxrewrite.patterns.groups import Groups
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.hints import tokens_hint
from fxrewrite.patterns.near import near_misses
from fxrewrite.patterns.snapshot import Snapshot, snapshot
from fxrewrite.patterns.values import Value
from fxrewrite.patterns.views import Found, Sweep, node_of
from fxrewrite.patterns.writers import Dialect, detect

ROUNDS = 4  # how often losers get a second chance when a winner was refused


@define(eq=False)
class Engine:
    """A program with its settings, ready to rewrite graphs. Holds no state of any graph."""

    program: Program
    config: Config
    library: Library
    cleanup: Cleanup
    active: dict[str, RuleDef]
    providers: Providers
    seconds: Counter[str]
    feeding: frozenset[str]  # rules whose right side another rule may match

    @classmethod
    def make(cls, program: Program, config: Config, seconds: Counter[str] | None = None) -> Engine:
        """Compile the rules that are on."""
        with deep_terms():
            return cls._make(program, config, seconds)

    @classmethod
    def _make(cls, program: Program, config: Config, seconds: Counter[str] | None) -> Engine:
        start = time.perf_counter()
        on = [r for r in program.rules if rule_status(program, r, config).on]
        active = [r for r in on if r.stage == "fuse"]
        cleanup = Cleanup.make(tuple(r for r in on if r.stage == "canonicalize"))
        facts = machine_facts(config)
        proofs = Proofs(program, facts, config.allow_unproved, config.strict)
        library = Library(
            program, tuple(active), lambda p, s: s.sweep.emit_view(p, s), lambda p, s: s.sweep.emit_match(p, s),
            facts, cache(lambda target: declared(program, target)), Groups(config.groups), config.replicated,
            proofs.of_form,
        )  # fmt: skip
        providers = Providers(program, config.providers, config.allow_relaxed, facts, proofs=proofs)
        seconds = Counter() if seconds is None else seconds
        seconds.update({"compile": time.perf_counter() - start})
        feeding = feeding_rules(program, active)
        return cls(program, config, library, cleanup, {r.full_name: r for r in on}, providers, seconds, feeding)

    def run(self, graph: Graph, allows: Allows | None = None) -> Run:
        """Rewrite `graph` in place; with `allows`, only at the sites that it allows."""
        run = Run(self, graph, allows)
        with no_collection(), deep_terms():
            run.execute()
        return run


def feeding_rules(program: Program, active: Iterable[RuleDef]) -> frozenset[str]:
    """The rules after which others may match: all whose right side is more than ops that no rule looks for."""
    active = list(active)
    wanted = needed(program, active)
    return frozenset(
        r.full_name
        for r in active
        if not all(isinstance(t, Result) for t in r.right) or any(c.op in wanted for c in calls_of(r.right))
    )


@contextmanager
def no_collection() -> Any:
    """Many small objects, none of them garbage: the collector would only look at them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@define(eq=False)
class Run:
    """One graph. `fired`: matches carried out; `refused`: match -> why not."""

    engine: Engine
    graph: Graph
    allows: Allows | None = None
    sweep: Sweep = field(init=False)
    dialect: Dialect = field(init=False)
    fake_mode: Any = field(init=False)
    fired: list[tuple[Found, str]] = field(factory=list)  # with the provider
    refused: dict[int, tuple[Found, Refusal]] = field(factory=dict)
    failures: Failures = field(init=False)
    providers: Providers = field(init=False)
    failed: list[Event] = field(factory=list)  # of rules that raised while they were matched
    seconds: Counter[str] = field(factory=Counter)
    events: list[Event] = field(factory=list)
    near: list[Event] = field(factory=list)
    found: list[Found] = field(factory=list)  # every match
    written: set[Node] = field(factory=set)  # by rules
    fell: dict[Node, dict[str, Any]] = field(factory=dict)  # a node that was written -> what had to fall by then
    edits: list[Fired] = field(factory=list)
    takers: dict[Node, str] = field(factory=dict)  # a node that went -> the rule that took it
    drawn: list[Snapshot] = field(factory=list)  # before and after, where a recording draws

    def execute(self) -> None:
        """Clean up, read, match, fire, report."""
        start = time.perf_counter()
        self.failures = Failures(self.engine.config.strict)
        self.providers = evolve(self.engine.providers, failures=self.failures)
        truth = truth_of(self.graph)
        self.dialect, self.fake_mode = detect(self.graph), fake_mode(self.graph)
        cleaned = self.engine.cleanup.run(
            self.graph, lambda table: self._editor(table, truth), truth, bool(recording()), self.failures, self.allows
        )
        self._time("clean up", start)
        limit = len(self.graph.nodes)
        while self._rewrite_once(truth) and len(self.fired) < limit:
            pass
        start = time.perf_counter()
        provided = self._provide()
        self._time("rewrite", start)
        if recording():
            self.events = [*cleaned, *self.failed, *self.told(), *provided]
        self._draw()

    def told(self) -> list[Event]:
        """Events of the matches that fired or were refused, and of the near misses where somebody listened."""
        order = {id(f): i for i, f in enumerate(self.found)}
        edits = sorted(self.edits, key=lambda e: order[id(e.found)])
        return Report(self.engine.program, self.takers).events(edits, self.refused.values(), self.near)

    def _rewrite_once(self, truth: Any) -> bool:
        """Read the graph, match, fire. May what was written be matched by a rule in its turn?"""
        first = not self.found
        start = time.perf_counter()
        self.sweep = Sweep(self.engine.library)
        self.sweep.truth, self.sweep.off, self.sweep.failed = truth, self.failures.off, self._match_failed
        self.sweep.read(self.graph)
        start = self._time("read", start)
        self.sweep.match_rules()
        self._forget(self.sweep.found)
        self.found += self.sweep.found
        self._time("match", start)
        if first:
            if recording():
                self.near = near_misses(self.sweep, self.engine.library)
            self._draw()
        start, before = time.perf_counter(), len(self.fired)
        if self.sweep.found:
            editor = self._editor(self.sweep.table, truth)
            around = detours.make(editor)
            again = reused.detach(editor, self.engine.library)
            self._fuse(list(self.sweep.found))
            reused.settle(again)
            detours.settle(editor, around)
            self.written.update(self.sweep.table.written)
        self._time("rewrite", start)
        return any(f.rule.full_name in self.engine.feeding for f, _ in self.fired[before:])

    def _forget(self, found: list[Found]) -> None:
        """A site that is found again is told of once, as it is now."""
        again = {(f.rule.full_name, f.site) for f in found if f.site is not None}
        old = [id(f) for f, _ in self.refused.values() if (f.rule.full_name, f.site) in again]
        for i in old:
            del self.refused[i]

    def _time(self, stage: str, start: float) -> float:
        now = time.perf_counter()
        self.seconds[stage] += now - start  # type: ignore[assignment]
        return now

    def _draw(self) -> None:
        if any(log.drawn is not None for log in recording()):
            self.drawn.append(snapshot(self.graph))

    def _provide(self) -> list[Event]:
        """Providers for calls of declared ops that no rule took."""
        engine = self.engine
        if engine.config.level == "O0":
            return []
        return provide(
            self.sweep.calls, self.providers, lambda: self._editor(self.sweep.table, self.sweep.truth), self.written
        )

    # ---- fuse

    def _fuse(self, remaining: list[Found]) -> None:
        for _ in range(ROUNDS):
            plans = self._plans(remaining)
            if not plans:
                return
            before = len(self.fired)
            winners = self._choose(plans)
            self._host(winners)
            done = {id(f) for f, _ in self.fired}
            remaining = [p.found for p in plans if id(p.found) not in done and id(p.found) not in self.refused]
            if len(self.fired) > before:
                remaining += self._freed()
            if not remaining or (len(self.fired) == before and len(winners) == len(plans)):
                break
        for found in remaining:
            self.refused.setdefault(id(found), (found, Refusal("eaten by", LARGER)))

    def _freed(self) -> list[Found]:
        """Matches that were refused for a user outside them, which may have gone since: they are planned again."""
        return [f for f, refusal in self.refused.values() if refusal.reason == "shared value"]

    def _plans(self, found: list[Found]) -> list[Plan]:
        plans: list[Plan] = []
        ours = self.sweep.table.written
        for f in found:
            if self._is_off(f):
                continue
            try:
                self._profitable(f)
                p = plan(f, self.sweep.table)
                if self.allows is not None and not self.allows(p):
                    continue
                winner = next((ours[n] for n in p.dead if n in ours), None)
                if winner is not None:
                    raise Refusal("eaten by", winner)  # what it wrote in place of the site is not taken from it
                self._falls(p)
                plans.append(p)
                self.refused.pop(id(f), None)
            except Refusal as refusal:
                self.refused.setdefault(id(f), (f, refusal))  # the first reason is that of the graph as it was
            except Exception as error:  # noqa: BLE001 (whatever a rule raises, the compilation goes on without it)
                self._failed(f, error)
        return plans

    def _falls(self, p: Plan) -> None:
        """`decreasing` of the rule: less than at the firing that wrote what it takes, or refused."""
        measure, name = p.found.rule.decreasing, p.found.rule.full_name
        earlier = [self.fell[n][name] for n in _gone(p) if name in self.fell.get(n, {})]
        if measure is None or not earlier:
            return
        now = self._measured(p)
        if not all(isinstance(n, int | float) for n in (now, *earlier)) or now >= min(earlier):
            raise Refusal("guard false", f"{said(measure)} = {now}", f"{said(measure)} < {earlier[0]}")

    def _measured(self, p: Plan) -> Any:
        find = p.found.bindings.get
        return SiteEnv(lambda n: find(n, UNKNOWN), p.found.pattern.machine, self.sweep.truth).value(
            p.found.rule.decreasing
        )

    def _profitable(self, found: Found) -> None:
        """`prefer` of the rule: for the whole range of token counts, or refused."""
        if not found.rule.prefer:
            return
        low, high = self._tokens(found)
        for condition in found.rule.prefer:
            highest = math.inf if high is None and low is not None else high
            at = [_prefers(condition, found, n) for n in (low, highest)]
            if any(a is not True for a in at) or (low != high and not _is_window(condition)):
                shown = (
                    f"{'an unknown number of' if low is None else low} tokens"
                    if low == high
                    else f"{'?' if low is None else low} to {'any' if high is None else high} tokens"
                )
                hint = "" if low == high and low is not None else tokens_hint(found.rule.prefer)
                raise Refusal("outside token range", shown, said(condition), hint=hint)

    def _tokens(self, found: Found) -> tuple[Any, Any]:
        """The lowest and the highest number of rows of the first operand; None where there is no bound."""
        first = next((v for v in found.bindings.values() if isinstance(v, Value)), None)
        rows: Any = 1
        for d in first.shape[:-1] if first is not None else ():
            rows = rows * d
        if isinstance(rows, int):
            return rows, rows
        return self.engine.config.tokens or (None, None)

    def _choose(self, plans: list[Plan]) -> list[Plan]:
        """The plans that fire: more nodes dying first, then `over`, then order in the pack; none overlaps another."""
        ranked = sorted(plans, key=lambda p: (-len(p.dead), _rank(p.found.rule), p.anchor))
        taken: dict[Node, Plan] = {}
        winners: list[Plan] = []
        for p in ranked:
            mine = {*p.dead, *(o.node for o in p.outputs)}
            rival = next((taken[n] for n in mine if n in taken), None)
            if rival is None:
                winners.append(p)
                taken.update(dict.fromkeys(mine, p))
        return winners

    def _host(self, winners: list[Plan]) -> None:
        by_rule: dict[str, dict[Node, list[Node]]] = {}
        of_node: dict[tuple[str, Node], Plan] = {}
        entries = hosting.Entries(self.graph)
        for p in winners:
            name, anchor = p.found.rule.full_name, entries.of(p.anchor, p.dead)
            by_rule.setdefault(name, {})[anchor] = hosting.shown(anchor, p.dead, bool(self.sweep.table.writes))
            of_node[name, anchor] = p
        hosting.apply(self.graph, by_rule, lambda rule, node: self._fire(of_node.pop((rule, node), None)))
        for (rule, anchor), p in of_node.items():
            self._left(p, anchor, by_rule[rule][anchor])

    def _left(self, p: Plan, anchor: Node, nodes: list[Node]) -> None:
        """A site that Inductor did not hand out."""
        against = None if anchor._erased else hosting.parted(self.graph, nodes)
        if anchor._erased:
            self.refused[id(p.found)] = (p.found, Refusal("eaten by", LARGER))
        elif against is not None:
            self.refused[id(p.found)] = (p.found, Refusal("mutation between", against, node=p.anchor))
        else:  # it passes over nodes of dtypes that it generates no code for, E8M0 among them
            self._fire(p)

    def _fire(self, p: Plan | None) -> None:
        if p is None or self._is_off(p.found):
            return
        try:
            fresh = plan(p.found, self.sweep.table)
            self._write(fresh)
        except Refusal as refusal:
            self.refused[id(p.found)] = (p.found, refusal)
            if refusal.reason == "rule failed":
                self._failed(p.found, refusal)
        except Exception as error:  # noqa: BLE001 (whatever a rule raises, the compilation goes on without it)
            self._failed(p.found, error)

    def _write(self, p: Plan) -> None:
        editor = self._editor(self.sweep.table, self.sweep.truth)
        emitters: list[Emitter] = []

        def emit(editor: Editor, p: Plan) -> list[Any]:
            emitters.append(Emitter(self.engine.program, self.providers, editor, p))
            return emitters[0].outputs()

        rule = p.found.rule
        gone = _gone(p)
        fell = {r: n for node in gone for r, n in self.fell.get(node, {}).items()}
        if rule.decreasing is not None:
            fell[rule.full_name] = self._measured(p)
        fire(p, editor, emit, {"rule": rule.full_name, "span": str(rule.span)})
        by = ", ".join(emitters[0].used)
        self.fired.append((p.found, by))
        self.edits.append(Fired(p.found, by, _names(gone), _names(editor.made)))
        self.takers.update(dict.fromkeys(gone, rule.full_name))
        if fell:
            self.fell.update(dict.fromkeys(editor.made, fell))

    def _editor(self, table: Any, truth: Any) -> Editor:
        return Editor(self.graph, table, self.dialect, self.fake_mode, truth)

    def _is_off(self, found: Found) -> bool:
        """Has the rule of a match failed before? Then it is refused for the same reason."""
        said = self.failures.off.get(found.rule.full_name)
        if said is not None:
            self.refused.setdefault(id(found), (found, Refusal("rule failed", said)))
        return said is not None

    def _failed(self, found: Found, error: Exception) -> None:
        """The rule of a match raised."""
        said = self.failures.note(found.rule.full_name, found.rule.span, error)
        self.refused[id(found)] = (found, Refusal("rule failed", said))

    def _match_failed(self, pattern: Pattern, value: Value, error: Exception) -> None:
        """A rule, or a form, raised while it was matched at a value."""
        said = self.failures.of_pattern(pattern, error)
        if isinstance(pattern.owner, RuleDef):
            self.failed.append(failed_event(pattern.owner, node_of(value), said))


def _names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(n.name for n in nodes)


def _is_window(condition: Any) -> bool:
    """Does a condition that holds at both ends of a range hold in between? `tokens` against a number does."""
    if not isinstance(condition, Apply):
        return True
    if condition.op in ("and", "all"):
        return all(map(_is_window, condition.args))
    plain = [a for a in condition.args if not (isinstance(a, Apply) and a.op == "tokens")]
    return condition.op in ("<", "<=", ">", ">=", "==") and not any(isinstance(a, Apply) for a in plain)


def _gone(p: Plan) -> list[Node]:
    """The nodes that a plan takes, in the order of the graph."""
    return sorted({*p.dead, *(o.node for o in p.outputs)})


def _rank(rule: RuleDef) -> tuple[int, int]:
    return (0 if rule.over else 1, rule.order)


def _prefers(condition: Any, found: Found, tokens: Any) -> Any:
    facts = {**found.pattern.machine, "tokens": UNKNOWN if tokens is None else tokens}
    return SiteEnv(lambda name: found.bindings.get(name, UNKNOWN), facts).holds(condition)


def fake_mode(graph: Graph) -> Any:
    """The fake mode of the values of a graph."""
    for node in graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch._subclasses.FakeTensor):
            return val.fake_mode
    return torch._subclasses.FakeTensorMode()


def truth_of(graph: Graph) -> Callable[[Any], bool | None] | None:
    """What the shape environment of a graph can show about a symbolic condition for its whole range."""
    env = getattr(fake_mode(graph), "shape_env", None)
    if env is None:
        return None

    def truth(condition: Any) -> bool | None:
        found = env._maybe_evaluate_static(condition)
        return None if found is None else bool(found)

    return truth
