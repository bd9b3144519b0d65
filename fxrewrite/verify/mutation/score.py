"""The mutation score: all mutants of a plan, tried here or by several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from attrs import frozen

from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.verify.graphs import quiet
from fxrewrite.verify.mutation.equivalence import argued, arguments
from fxrewrite.verify.mutation.mutant import KINDS, Mutant
from fxrewrite.verify.mutation.subjects import Subject, Tried, Workshop, subjects, try_subject
from fxrewrite.verify.runner import Plan, own_claims
from fxrewrite.verify.workers import DIED, shared

EACH = 4  # mutants of a subject in a sample


@frozen
class Running:
    """A run: how many subjects it has, and what became of their mutants, as it comes, subject by subject."""

    total: int
    tried: Iterator[list[Tried]]


def begin_mutation(plan: Plan, jobs: int = 1, sample: int = 0) -> Running:
    """Mutate the packs of a plan. `sample`: about so many mutants, spread over all kinds; 0 is all.

    Raises RuleError where the packs are wrong.
    """
    shop = _workshop(plan)
    chosen = _sampled(_subjects(plan, shop), plan.seed, sample)
    most = EACH if sample else 0
    alone = jobs <= 1 or len(chosen) < jobs
    found = (_try(s, shop, plan, most) for s in chosen) if alone else _shared(plan, chosen, most, jobs)
    return Running(len(chosen), found)


def _workshop(plan: Plan) -> Workshop:
    return Workshop(load_program(make_config(packs=plan.packs)), plan.seed)


def _subjects(plan: Plan, shop: Workshop) -> list[Subject]:
    return [s for s in subjects(shop.program, own_claims(plan)) if not plan.only or _may_match(s, plan.only)]


def _may_match(subject: Subject, only: tuple[str, ...]) -> bool:
    name = f"{subject.kind} {subject.name}"
    return any(part in name or part.startswith(name) for part in only)


def _sampled(found: list[Subject], seed: int, sample: int) -> list[Subject]:
    """As many subjects of each kind as give so many mutants; all of them where `sample` is 0."""
    if not sample:
        return found
    random, chosen = Random(seed), list[Subject]()
    for kind in KINDS:
        of_kind = [s for s in found if s.kind == kind]
        random.shuffle(of_kind)
        chosen += of_kind[: -(-sample // (EACH * len(KINDS)))]
    return chosen


def _try(subject: Subject, shop: Workshop, plan: Plan, most: int) -> list[Tried]:
    known = arguments()
    with quiet():  # mutants of wrong shapes are meant
        return [argued(t, known) for t in try_subject(subject, shop, _wanted(plan), most)]


def _wanted(plan: Plan) -> Callable[[Mutant], bool]:
    return lambda mutant: not plan.only or any(part in mutant.id for part in plan.only)


def _shared(plan: Plan, chosen: list[Subject], most: int, jobs: int) -> Iterator[list[Tried]]:
    """The subjects by several processes."""
    return shared(chosen, partial(_worker, plan, most), jobs, _died)


def _died(subject: Subject) -> list[Tried]:
    said = f"{subject.kind} {subject.name}"
    return [Tried(said, subject.kind, subject.name, "", "all mutants", "", "not run", DIED)]


def _worker(plan: Plan, most: int) -> Callable[[Subject], list[Tried]]:
    import torch

    torch.set_num_threads(1)
    shop = _workshop(plan)
    return lambda subject: _try(subject, shop, plan, most)
