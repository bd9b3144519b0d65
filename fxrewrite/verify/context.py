"""The check `context`: the rules of a pack inside random programs, on and off.

Left sides of its rules, written op by op, share operands with one another and with other ops, views, copies and writes;
any value may be returned. The graph runs op by op before and after, and everything that can be seen stays bit for bit.
A few are also compiled by Inductor (`compiled.py`): left sides alone, and programs.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from fxrewrite.dsl.core import Program as Rules
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import record
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.compiled import compiled_is_admitted, compiled_is_close
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.graph_script import Failed
from fxrewrite.verify.graph_text import call_of
from fxrewrite.verify.graphs import copied, quiet
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.programs import Builder, Impossible, Program, shrunk
from fxrewrite.verify.rewriting import observed, pass_of, why_off
from fxrewrite.verify.same import moved, wrong_metadata
from fxrewrite.verify.sites import Site, Subject
from fxrewrite.verify.surroundings import AROUND, Chain, between
from fxrewrite.verify.written import NoGraph

__all__ = ["in_context", "program_of"]
KINDS = ("functional",) * 5 + ("as it is",) * 2 + ("dynamic",)
GRAPHS = {"quick": (4, 0), "ci": (50, 2), "deep": (200, 10), "fuzz": (8, 0)}  # of a pack: run op by op, compiled


class NotCaptured(Exception):
    """Torch makes no graph of a program, or none that runs."""


def in_context(
    rules: Rules, pack: str, profile: Profile, pass_: RewritePass | None = None, seed: int = 0,
    only: Mapping[str, Any] | None = None,
) -> Finding:  # fmt: skip
    """Do the rules of a pack leave random programs as they were? `only`: the case of a failure, alone."""
    pass_ = pass_ or pass_of(rules)
    chains = _chains(rules, pack, pass_)
    tried, fired = 0, Counter[str]()

    def finding(outcome: Any, reason: str = "", script: str | None = None, case: Any = None) -> Finding:
        often = ", ".join(f"{n} {c}" for n, c in fired.most_common(8))
        return Finding("context", pack, outcome, reason, cases=tried, script=script, closest=often, case=case)

    if not chains:
        return finding("not run", "no rule of it has a left side that can be written here")
    for number in _numbers(profile, 0, seed, only):
        program = program_of(chains, number)
        try:
            fired.update(checked(program, pass_, pack))
        except NotCaptured:
            continue
        except AssertionError as error:
            small = shrunk(program, lambda p: _fails(p, pass_, pack))
            reason = f"program {number}: {error}"
            return finding("failed", reason, _script(small, pass_, pack, reason), {"program": number})
        tried += 1
    for number in _numbers(profile, 1, seed, only):
        chain = chains[number % len(chains)]
        program = program_of([chain] if number % 2 else chains, number, writes=False)
        try:
            if number % 2:
                compiled_is_admitted(chain.claim, chain.site, pass_)
            else:
                compiled_is_close(program, pass_)
        except AssertionError as error:
            case = {"compiled": number}
            reason = f"compiled, program {number}: {error}"
            return finding("failed", reason, _script(program, pass_, pack, reason), case)
        tried += 1
    return finding("passed" if fired else "not run", "" if fired else "no rule fired in any program")


def _numbers(profile: Profile, kind: int, seed: int, only: Mapping[str, Any] | None) -> Sequence[int]:
    """The numbers of the programs that are run op by op (0), or compiled (1)."""
    if only is not None:
        number = only.get(("program", "compiled")[kind])
        return [number] if isinstance(number, int) else []
    count = GRAPHS[profile.name][kind]
    return range(seed * count, (seed + 1) * count)


# ---- programs


@frozen
class Spelled:
    """The left side of a rule, of a claim, as a chain of statements."""

    claim: Claim
    site: Site

    def __call__(self, b: Builder) -> None:
        """Append it, on values that there are and new ones; its results may be returned."""
        names: dict[Node, str] = {}
        for node in self.site.graph.nodes:
            if node.op == "placeholder":
                names[node] = _operand(b, node.meta["val"])
            elif node.op == "output":
                b.results += [names[n] for n in node.args[0]]
            elif node.target is operator.getitem:
                names[node] = b.let(f"{names[node.args[0]]}[{node.args[1]}]")
            elif isinstance(node.meta["val"], tuple | list):
                count = len(node.meta["val"])
                names |= _results(node, b.let(call_of(node, names), count) if count > 1 else [])
            else:
                made = b.let(call_of(node, names))
                names[node] = between(b, made, 0.04)


def _results(node: Node, made: Sequence[str]) -> dict[Node, str]:
    """The results of a node with several: its `getitem`s index a list of them."""
    return {node: "[" + ", ".join(made) + "]"}


def _operand(b: Builder, val: Tensor) -> str:
    """A value of the type of an operand: one that there is, or a new input."""
    shape = tuple(int(n) for n in val.shape)
    if b.chance(0.4):
        try:
            return b.pick(lambda v: v.dtype == val.dtype and tuple(v.shape) == shape)
        except Impossible:
            pass
    return b.input(val.dtype, shape)


def _chains(rules: Rules, pack: str, pass_: RewritePass) -> Sequence[Spelled]:
    """A chain for each rule of a pack whose left side is a graph of numbers."""
    found = [c for c in claims(rules) if c.kind == "rule" and c.name.startswith(f"{pack}.")]
    return [chain for claim in found for chain in _chain(claim, pass_)]


def _chain(claim: Claim, pass_: RewritePass) -> list[Spelled]:
    subject = Subject.of(claim)
    if why_off(pass_, subject.rule) is not None:
        return []
    try:
        site = subject.site()
    except NoGraph:
        return []
    whole = not site.constants and all(t.dtype.is_floating_point and t.numel() for t in site.inputs)
    return [Spelled(claim, site)] if whole else []


def program_of(chains: Sequence[Chain], seed: int, writes: bool = True) -> Program:
    """The program of a number: one to three left sides, that of rule `seed` among them, and what surrounds them."""
    draw = Random(seed)
    b = Builder(draw, rows=6)
    todo = [chains[seed % len(chains)], *(draw.choice(chains) for _ in range(draw.randint(0, 2)))]
    with torch.no_grad():
        for chain in todo:
            while writes and b.chance(0.4):
                _attempt(b, draw.choice(AROUND))
            _attempt(b, chain)
        while writes and b.chance(0.5):
            _attempt(b, draw.choice(AROUND))
    outputs = [r for r in dict.fromkeys(b.results) if b.chance(0.9)] or b.results[-1:]
    draw.shuffle(outputs)
    return Program(draw.choice(KINDS) if writes else "functional", tuple(b.inputs), tuple(b.statements), tuple(outputs))


def _attempt(b: Builder, chain: Chain) -> None:
    """A chain, again where what was put in between fits no longer."""
    for _ in range(3):
        with suppress(Impossible):
            chain(b)
            return


# ---- graphs


def captured(fn: Callable[..., Any], args: Sequence[Tensor], how: str) -> GraphModule:
    """The graph of `fn(*args)` by `make_fx`: as it is, functional, or functional with free rows."""
    fn = fn if how == "as it is" else functionalize(fn, remove="mutations")
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv() if how == "dynamic" else None)
    try:
        with mode, quiet():
            fakes = [
                mode.from_tensor(a, symbolic_context=_free_rows(a), source=ConstantSource(f"x{i}"))
                if how == "dynamic"
                else mode.from_tensor(a)
                for i, a in enumerate(args)
            ]
            with torch.no_grad(), enable_python_dispatcher():
                gm: Any = make_fx(fn, decomposition_table=select_decomp_table())(*fakes)
    except Exception as error:
        raise NotCaptured(f"{type(error).__name__}: {error}") from error
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def _free_rows(a: Tensor) -> StatelessSymbolicContext[Any, Any]:
    free = [DimDynamic.DYNAMIC if i == 0 and a.ndim > 1 else DimDynamic.STATIC for i in range(a.ndim)]
    return StatelessSymbolicContext(dynamic_sizes=free)


def checked(program: Program, pass_: RewritePass, pack: str = "") -> list[str]:
    """The rules that fired. AssertionError where anything moved; NotCaptured where there is no graph."""
    if not program.outputs:
        raise NotCaptured("nothing is returned")
    return rewritten_alike(program.function(), program.arguments(), program.how, pass_, pack)


def rewritten_alike(
    fn: Callable[..., Any], args: Sequence[Tensor], how: str, pass_: RewritePass, pack: str = ""
) -> list[str]:
    """`checked`, of a function."""
    gm = captured(fn, args, how)
    constants = dict(gm.named_buffers())
    try:
        before = observed(gm.graph, args, constants)
    except Exception as error:
        raise NotCaptured(f"{type(error).__name__}: {error}") from error
    with record() as log:
        try:
            pass_.rewrite(gm.graph, lambda plan: not pack or plan.found.rule.pack == pack)
        except Exception as error:
            raise AssertionError(f"the engine raised {type(error).__name__}: {error}") from error
    if not log.fired():
        return []
    gm.graph.lint()
    ranks = any(e.full_name in _ranked(pass_) for e in log.events if e.fired)
    found = (None if ranks else wrong_metadata(gm.graph)) or moved(before, observed(gm.graph, args, constants))
    assert found is None, found
    return list(log.fired())


def _script(program: Program, pass_: RewritePass, pack: str, reason: str) -> str:
    """A program that failed as a script: its graph before and after, and itself."""
    args, rules = program.arguments(), pass_.engine.program
    gm = captured(program.function(), args, program.how)
    graph, constants = copied(gm.graph), dict(gm.named_buffers())
    with suppress(Exception):  # where the engine raises, there is no graph after
        pass_.rewrite(gm.graph, lambda plan: plan.found.rule.pack == pack)
    meta = {"check": "context", "how": program.how}
    span = rules.packs[pack].span if pack in rules.packs else None
    return Failed(pack, reason, meta, graph, gm.graph, args, constants, span, program.source()).script(rules)


def replayed_program(program: Callable[..., Any], args: Sequence[Tensor], how: str, pack: str, rules: Rules) -> str:
    """How a program of a script fails now; empty where it does not. Raises NotCaptured."""
    try:
        rewritten_alike(program, args, how, pass_of(rules), pack)
    except AssertionError as error:
        return str(error)
    return ""


def _ranked(pass_: RewritePass) -> set[str]:
    """The rules about several ranks: sizes that they foresee are of more ranks than run here."""
    return {n for n, r in pass_.engine.active.items() if any(a.type == "group" for a in r.attributes)}


def _fails(program: Program, pass_: RewritePass, pack: str) -> bool:
    try:
        checked(program, pass_, pack)
    except NotCaptured:
        return False
    except Exception:  # noqa: BLE001 (whatever it raises, it fails)
        return True
    return False
