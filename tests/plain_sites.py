"""The default packs as plain Inductor patterns, and what they and the engine find in one graph.

there = plain_sites(gm)            # (rule, output nodes) -> the match; the graph stays as it is
here = Ours.read(gm)               # what the engine matches in the same graph
here.has(site), row_of_extra(there[site]), here.rows(there)

python tests/plain_sites.py 500    # the table of `docs/plain-patterns.md`, of so many random programs
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from attrs import define, field, frozen
from torch._functorch.compile_utils import fx_graph_cse
from torch._inductor.pattern_matcher import CallFunction, Match, PatternMatcherPass
from torch.fx import GraphModule, Node

import random_chains
import random_graphs
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config, rule_status
from fxrewrite.lowering.engine import Engine, truth_of
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.lowering.plain import Emitted, emit
from fxrewrite.patterns.dialect import BOOKKEEPING, CASTS, CONVERT
from fxrewrite.patterns.values import Value
from fxrewrite.patterns.views import Found, Sweep

aten = torch.ops.aten
ELEMENTWISE = {aten.add.Tensor, aten.add.Scalar, aten.mul.Tensor, aten.div.Tensor, aten.sub.Tensor}
Site = tuple[str, tuple[Node, ...]]  # a rule and the nodes of its outputs


@cache
def default_pass() -> RewritePass:
    """The default packs."""
    return make_pass(make_config(["default"], providers=["op"], strict=True))


def engine() -> Engine:
    """Their engine."""
    return default_pass().engine


@cache
def emitted() -> Emitted:
    """The file of the default packs."""
    program, config = engine().program, engine().config
    return emit(program, [r for r in program.rules if rule_status(program, r, config).on], ["default"])


def loaded(text: str, name: str = "emitted_patterns") -> ModuleType:
    """A text as a module."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look for it
        spec.loader.exec_module(module)
    return module


# ---- plain patterns


@frozen
class _Entry:
    """A registered pattern. `needs`: how many nodes of which ops; `keys`: where the pass looks for it."""

    entry: Any
    keys: tuple[tuple[str, Any], ...]
    needs: Mapping[frozenset[Any], int]

    def may_match(self, have: Mapping[Any, int]) -> bool:
        """Are there as many nodes of each op?"""
        return all(sum(have.get(t, 0) for t in ops) >= n for ops, n in self.needs.items())


class Registered:
    """Every pattern of the emitted file, registered once; `found` is what the last graph had."""

    def __init__(self, module: ModuleType) -> None:
        self.found: dict[Site, Match] = {}
        whole = PatternMatcherPass()
        module.register(whole, self._note)
        keys: dict[int, list[tuple[str, Any]]] = {}
        entries = {id(e): e for of_key in whole.patterns.values() for e in of_key}
        for key, of_key in whole.patterns.items():
            for e in of_key:
                keys.setdefault(id(e), []).append(key)
        self.entries = [_Entry(e, tuple(keys[i]), _needs(e.pattern)) for i, e in entries.items()]

    def _note(self, rule: Any, pattern: Any, match: Match, **captured: Any) -> None:
        nodes = tuple(n for n in match.output_nodes() if n is not None)
        self.found.setdefault((rule.name, nodes), match)

    def sites(self, gm: GraphModule) -> dict[Site, Match]:
        """The sites of one graph, which stays as it is."""
        have = Counter(n.target for n in gm.graph.nodes if n.op == "call_function")
        some = PatternMatcherPass()
        for e in self.entries:
            if e.may_match(have):
                for key in e.keys:
                    some.patterns[key].append(e.entry)
        self.found = {}
        if some.patterns:
            some.apply(gm.graph)
        return self.found


def _needs(pattern: Any) -> Counter[frozenset[Any]]:
    seen: dict[int, Any] = {}

    def visit(p: Any) -> None:
        parts = p.outputs if hasattr(p, "outputs") else getattr(p, "args", p if isinstance(p, list | tuple) else ())
        if id(p) not in seen:
            seen[id(p)] = p
            for part in parts:
                visit(part)

    visit(pattern)
    return Counter(frozenset(p.fns) for p in seen.values() if isinstance(p, CallFunction))


@cache
def registered() -> Registered:
    """The patterns of the default packs, registered."""
    return Registered(loaded(emitted().text))


def plain_sites(gm: GraphModule) -> dict[Site, Match]:
    """Every site of a plain pattern of the default packs."""
    return registered().sites(gm)


# ---- ours


@frozen
class Ours:
    """What the engine matches: by rule and the values of its outputs."""

    sweep: Sweep
    found: Mapping[tuple[str, tuple[Any, ...]], Found]

    @classmethod
    def read(cls, gm: GraphModule) -> Ours:
        """Read a graph as it is, without the clean-up."""
        sweep = Sweep(engine().library)
        sweep.truth = truth_of(gm.graph)
        sweep.read(gm.graph)
        sweep.match_rules()
        outputs = {id(f): tuple(tuple(o) if isinstance(o, list) else o for o in f.outputs) for f in sweep.found}
        return cls(sweep, {(f.rule.full_name, outputs[id(f)]): f for f in sweep.found})

    def key(self, site: Site) -> tuple[str, tuple[Any, ...]]:
        """A site by the values of its outputs."""
        return site[0], tuple(self.sweep.table.of_node[n] for n in site[1])

    def has(self, site: Site) -> bool:
        """Does the engine match there?"""
        return self.key(site) in self.found

    def rows(self, there: Iterable[Site]) -> Counter[str]:
        """The sites that plain patterns lack, by the first reason that is true of them."""
        have = {self.key(site) for site in there}
        return Counter(row_of_missing(f) for key, f in self.found.items() if key not in have)


# ---- what tells them apart


def row_of_extra(match: Match) -> str | None:
    """The row of `docs/holes.md` for a site that only the plain pattern has; None where none explains it."""
    for node in match.nodes:
        if _unnamed(node):
            return "U1"
        if node.target in ELEMENTWISE and any(type(a) is bool for a in node.args):
            return "U6"
    return None


def _unnamed(node: Node) -> bool:
    """Has it an argument by name that is not the default, and that patterns of elementwise ops do not name?"""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not node.kwargs:
        return False
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    return any(n not in ("correction", "keepdim") and v != defaults.get(n) for n, v in node.kwargs.items())


def row_of_missing(found: Found) -> str:
    """Why plain patterns lack a site that the engine has: the first that is true of it."""
    rule = next(r for r in emitted().rules if r.rule is found.rule or r.rule.full_name == found.rule.full_name)
    if rule.why:
        return f"not said: {rule.why.split(':')[0]}"
    values = _inside(found)
    nodes = [n for v in values for n in v.nodes]
    return next(row for row, is_true in _ROWS.items() if is_true(found, values, nodes))


def _inside(found: Found) -> list[Value]:
    """The values between operands and outputs."""
    ends = {id(v) for v in found.bindings.values() if isinstance(v, Value)}
    ends |= {id(x) for v in found.bindings.values() if isinstance(v, list) for x in v}
    outputs = [x for o in found.outputs for x in (o if isinstance(o, list) else [o])]
    seen: dict[int, Value] = {}
    todo = list(outputs)
    while todo:
        v = todo.pop()
        if isinstance(v, Value) and id(v) not in seen and (id(v) not in ends or v in outputs):
            seen[id(v)] = v
            todo += v.args
    return list(seen.values())


def _users_outside(found: Found, values: list[Value], nodes: list[Node]) -> bool:
    inside = set(nodes)
    outputs = {n for o in found.outputs for x in (o if isinstance(o, list) else [o]) for n in x.nodes}
    return any(u not in inside for n in inside - outputs for u in n.users)


_ROWS: dict[str, Callable[[Found, list[Value], list[Node]], bool]] = {
    "S13": lambda f, vs, ns: any(isinstance(o, Value) and not any(n.users for n in o.nodes) for o in f.outputs),
    "S2": lambda f, vs, ns: any(
        isinstance(f.bindings.get(a.name), Value) for a in f.rule.attributes if a.type == "float"
    ),
    "S7, other casts": lambda f, vs, ns: any(n.target in CASTS and n.target is not CONVERT for n in ns),
    "S10": lambda f, vs, ns: any(u.target in BOOKKEEPING for n in ns for u in n.users),
    "S6": lambda f, vs, ns: any(len(v.nodes) > 1 for v in vs),
    "S8": lambda f, vs, ns: any(v.carried for v in f.views) or any(not v.nodes and v.source for v in vs),
    "S5": _users_outside,
    "S3": lambda f, vs, ns: any(v.op == "to" and not v.nodes for v in vs),
    "S4": lambda f, vs, ns: True,
}
WORDS = {
    "S13": "an output that nobody uses",
    "S2": "a number that is an input of the graph",
    "S7, other casts": "the casts of another dialect",
    "S10": "bookkeeping that counts as a user",
    "S6": "one value in two nodes",
    "S8": "a view between two ops",
    "S5": "a value inside that has another user",
    "S3": "a cast that the graph leaves to promotion",
    "S4": "another spelling, or one that was left out",
}


@define
class Compared:
    """Sums over graphs. `lacking`: row -> sites that only the engine has; `extra`: that only plain patterns have."""

    graphs: int = 0
    plain: int = 0
    ours: int = 0
    lacking: Counter[str] = field(factory=Counter)
    extra: Counter[str] = field(factory=Counter)

    def add(self, gm: GraphModule) -> None:
        """Compare one graph. Raises AssertionError for a site that only a plain pattern has and no row explains."""
        there, here = plain_sites(gm), Ours.read(gm)
        self.graphs += 1
        self.plain += len(there)
        self.ours += len(here.found)
        self.lacking += here.rows(there)
        for site, match in there.items():
            if not here.has(site):
                row = row_of_extra(match)
                assert row is not None, f"only a plain pattern of {site[0]} is found at {site[1]}:\n{gm.graph}"
                self.extra[row] += 1

    def table(self) -> str:
        """For `docs/plain-patterns.md`."""
        lines = [
            f"{self.graphs} graphs: plain patterns have {self.plain} sites, the engine {self.ours}",
            *(f"| {row} | {WORDS.get(row, '')} | {n} |" for row, n in self.lacking.most_common()),
            *(f"only plain: {row} {n}" for row, n in self.extra.most_common()),
        ]
        return "\n".join(lines)


def random_graphs_of(seed: int) -> list[GraphModule]:
    """A random program captured, and the same graph with equal nodes merged, as training graphs have them; none where
    torch cannot capture it.
    """
    program = random_chains.program_of(seed)
    how = "functional" if program.how == "dynamic" else program.how  # sizes that are free take six times as long
    try:
        gm = random_graphs.CAPTURES[how](program.function(), program.arguments())
    except Exception:  # noqa: BLE001 (what torch raises for a program that it cannot capture)
        return []
    return [gm, GraphModule(gm, fx_graph_cse(gm.graph))]


def main() -> None:
    """Print the table of random graphs."""
    compared = Compared()
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 500):
        for gm in random_graphs_of(seed):
            compared.add(gm)
    print(compared.table())


if __name__ == "__main__":
    main()
