"""What is mutated of a program, subject by subject, and the benches on which each subject is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import process_time
from typing import Any

from attrs import define, evolve, field, frozen

from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import OpDef, Program, TorchCall
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.eager import registered_op
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.mutation.bench import Bench, Starved, benches
from fxrewrite.verify.mutation.cases import mutants_of_case, mutants_of_definition
from fxrewrite.verify.mutation.kernels import mutants_of_kernel
from fxrewrite.verify.mutation.mutant import Kind, Mutant, numbered
from fxrewrite.verify.mutation.rules import mutants_of_rule
from fxrewrite.verify.mutation.trying import (
    EngineCheck,
    Fate,
    State,
    engine_checks,
    try_definition,
    try_form,
    try_kernel,
    try_rule,
)
from fxrewrite.verify.profiles import QUICK
from fxrewrite.verify.straight import Recording

TRIED = evolve(
    QUICK, name="mutation", cases=48, aimed=8
)  # inputs of a claim: those of `quick`, and as many again, more of them aimed
SHAPES = 12  # inputs whose attributes say which steps a kernel may do wrong
RELATED = 4  # claims by which a definition is tried


@frozen
class Subject:
    """A rule, form or op by its name, and what is mutated of it."""

    kind: Kind
    name: str


@frozen
class Tried:
    """A mutant and what became of it, as plain values."""

    id: str
    kind: Kind
    subject: str
    operator: str
    what: str
    where: str
    state: State
    why: str = ""
    seconds: float = field(default=0.0, eq=False)


def subjects(program: Program, own: Callable[[Claim], bool]) -> list[Subject]:
    """Everything of a program that is mutated: rules, their kernels, forms and providers, definitions of ops."""
    mine = [c for c in claims(program) if own(c)]
    rules = [c for c in mine if c.kind == "rule"]
    ops = list(dict.fromkeys(c.op.name for c in mine if c.kind == "form" and not c.op.is_fusion))
    found = [Subject("rule", c.name) for c in rules] + [Subject("kernel", c.name) for c in rules]
    found += [Subject("form", c.name) for c in mine if c.kind in ("form", "impl")]
    return found + [Subject("definition", name) for name in ops]


@define
class Workshop:
    """A program and the claims about it; benches of claims are kept while one subject is tried."""

    program: Program
    seed: int
    by_name: dict[str, Claim] = field(init=False)
    kept: dict[str, list[Bench]] = field(factory=dict[str, list[Bench]])
    passed: dict[str, list[EngineCheck]] = field(factory=dict[str, "list[EngineCheck]"])

    def __attrs_post_init__(self) -> None:
        self.by_name = {f"{'rule' if c.kind == 'rule' else 'form'} {c.name}": c for c in claims(self.program)}

    def bench(self, claim: Claim) -> list[Bench]:
        """The benches of a claim."""
        if claim.name not in self.kept:
            if len(self.kept) >= KEPT:
                self.kept.pop(next(iter(self.kept)))
            self.kept[claim.name] = benches(claim, TRIED, self.seed)
        return self.kept[claim.name]

    def claim(self, subject: Subject) -> Claim:
        """The claim that a rule, a kernel or a form is about."""
        return self.by_name[f"{'form' if subject.kind == 'form' else 'rule'} {subject.name}"]

    def engine(self, claim: Claim) -> list[EngineCheck]:
        """The checks of the engine that a rule passes as it is."""
        if claim.name not in self.passed:
            self.passed = {claim.name: engine_checks(claim)}
        return self.passed[claim.name]

    def untried(self, claim: Claim) -> str:
        """Why nothing of a claim can be tried here; empty where something can."""
        said = _absent(claim)
        for bench in self.bench(claim) if not said else ():
            try:
                if next(bench.indices(), None) is not None:
                    return ""
                said = said or next((s.said for s in bench.base.values()), "no inputs")
            except Starved as error:
                said = said or str(error)
        return said or "no inputs"


KEPT = 6


def _absent(claim: Claim) -> str:
    """The torch op that a claim calls and this process has not; empty where it has all."""
    for call in walk(claim.candidate.outputs):
        try:
            if isinstance(call, TorchCall):
                registered_op(call.op)
        except EvaluationError as error:
            return str(error)
    return ""


def mutants_of(subject: Subject, shop: Workshop) -> Iterator[Mutant]:
    """The mutants of a subject, numbered."""
    program = shop.program
    if subject.kind == "definition":
        return numbered(mutants_of_definition(program.ops[subject.name], program))
    claim = shop.claim(subject)
    if subject.kind == "rule":
        rule = next(r for r in program.rules if r.full_name == subject.name and r.span == claim.span)
        return numbered(mutants_of_rule(rule, program))
    if subject.kind == "form":
        return numbered(mutants_of_case(claim.op, claim.candidate, program))
    return numbered(_of_kernel(claim, shop))


def _of_kernel(claim: Claim, shop: Workshop) -> Iterator[Mutant]:
    base = shop.bench(claim)
    bench = base[0] if len(base) == 1 else base[1]
    try:
        sides = [bench.side("expected", i) for i in islice(bench.indices(), SHAPES)]
    except Starved:
        sides = []
    return mutants_of_kernel(claim, [s for s in sides if isinstance(s, Recording)])


def try_subject(subject: Subject, shop: Workshop, wanted: Callable[[Mutant], bool], most: int = 0) -> Iterator[Tried]:
    """What became of the mutants of a subject that are wanted; of `most` of them, spread, unless that is 0."""
    listed = [m for m in mutants_of(subject, shop) if wanted(m)]
    if most and len(listed) > most:
        listed = [listed[i * len(listed) // most] for i in range(most)]
    untried = shop.untried(shop.claim(subject)) if listed and subject.kind != "definition" else ""
    for mutant in listed:
        began = process_time()
        found = Fate("not run", untried) if untried else _safely(mutant, subject, shop)
        seconds = process_time() - began
        yield Tried(
            mutant.id, mutant.kind, mutant.subject, mutant.operator, f"{mutant.place}: {mutant.what}", mutant.where,
            found.state, found.why, seconds,
        )  # fmt: skip


def _safely(mutant: Mutant, subject: Subject, shop: Workshop) -> Fate:
    """The fate of a mutant; one on which the verifier itself raises ends nothing."""
    try:
        return _fate(mutant, subject, shop)
    except Exception as error:  # noqa: BLE001 (a rule that no text states may raise anything, anywhere)
        return Fate("refused", f"{type(error).__name__}: {error}".split("\n")[0])


def _fate(mutant: Mutant, subject: Subject, shop: Workshop) -> Fate:
    if subject.kind == "definition":
        related = ((c, shop.bench(c)) for c in _related(shop.program.ops[subject.name], shop))
        return try_definition(mutant, shop.program, related)
    claim = shop.claim(subject)
    if subject.kind == "rule":
        return try_rule(mutant, shop.program, shop.bench(claim), lambda: shop.engine(claim))
    if subject.kind == "form":
        return try_form(mutant, claim.op, claim.kind, shop.program, shop.bench(claim))
    return try_kernel(mutant, shop.bench(claim))


def _related(op: OpDef, shop: Workshop) -> list[Claim]:
    """The claims of which one side reads the definition of an op and the other does not, its own forms first."""
    found: list[Claim] = []
    for claim in sorted(shop.by_name.values(), key=lambda c: (c.op.name != op.name, c.kind == "rule")):
        if len(found) < RELATED and _reads(claim, op.name, shop.program) and not shop.untried(claim):
            found.append(claim)
    return found


def _reads(claim: Claim, name: str, program: Program) -> bool:
    own = claim.reference.outputs if claim.reference is not None else ()
    reference = reached(own, program) if own else reached_by(claim.op, program) | {claim.op.name}
    return (name in reference) != (name in reached(claim.candidate.outputs, program))


def reached(terms: Any, program: Program) -> set[str]:
    """The ops whose definitions terms read."""
    found: set[str] = set()
    for call in calls_of(terms):
        if call.op not in found:
            found |= {call.op} | reached_by(program.ops[call.op], program)
    return found


def reached_by(op: OpDef, program: Program) -> set[str]:
    """The ops whose definitions the equations of an op read."""
    return reached(tuple(e.outputs for e in op.equations), program)
