"""The mutation score: all mutants of a plan, tried here or by several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from random import Random

from attrs import frozen

from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.verify.graphs import quiet
from fxrewrite.verify.mutation.equivalence import argued, arguments
from fxrewrite.verify.mutation.mutant import KINDS, Mutant
from fxrewrite.verify.mutation.subjects import Subject, Tried, Workshop, subjects, try_subject
from fxrewrite.verify.runner import Plan, own_claims

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
    """The subjects by several processes. A torch op may kill one: what was under way is then tried alone."""
    waiting, alone = list(reversed(chosen)), list[Subject]()
    while waiting:
        pool = _pool(plan, jobs)
        under_way: dict[Future[list[Tried]], Subject] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) <= jobs:
                    subject = waiting.pop()
                    under_way[pool.submit(_nth, subject, most)] = subject
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                    del under_way[future]
        except BrokenProcessPool:
            alone += under_way.values()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for subject in alone:
        yield _isolated(plan, subject, most)


def _isolated(plan: Plan, subject: Subject, most: int) -> list[Tried]:
    """A subject in a process of its own."""
    pool = _pool(plan, 1)
    try:
        return pool.submit(_nth, subject, most).result()
    except BrokenProcessPool:
        said = f"{subject.kind} {subject.name}"
        why = "the process died: a torch op that it calls crashes on what it is given"
        return [Tried(said, subject.kind, subject.name, "", "all mutants", "", "not run", why)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool(plan: Plan, jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (plan,))


_PROCESS: dict[str, tuple[Workshop, Plan]] = {}  # of a worker process: the program and what is asked of it


def _start(plan: Plan) -> None:
    import torch

    torch.set_num_threads(1)
    _PROCESS["shop"] = _workshop(plan), plan


def _nth(subject: Subject, most: int) -> list[Tried]:
    return _try(subject, *_PROCESS["shop"], most)
