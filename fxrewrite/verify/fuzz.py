"""Verification that goes on with new seeds until time is over: claims on hostile inputs, properties, random programs.

Each round is one seed, for all checks in turn. A check that failed rests; so does one that a seed changes nothing of
(both sides are one definition, or it cannot be tried here).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from attrs import define, evolve, field

from fxrewrite.verify.findings import Counts, Finding
from fxrewrite.verify.runner import Check, Plan, finding, make_checks
from fxrewrite.verify.workers import DIED, shared

GRAPHS_OF_RULES = ("static", "fires", "perturbed")  # the same in each round
Task = tuple[int, int]  # the number of a check, a seed


@define
class Fuzzing:
    """A run until `deadline` (of `time.monotonic`). `seed`: of the round that goes on. `found`: by the name of a check,
    all its rounds together."""

    plan: Plan
    deadline: float
    jobs: int = 1
    listed: tuple[Check, ...] = field(init=False)
    sources: Mapping[str, str] = field(init=False)
    seed: int = field(init=False)
    rounds: int = 0  # begun
    found: dict[str, Finding] = field(factory=dict[str, Finding])

    def __attrs_post_init__(self) -> None:
        self.listed, self.sources = _checks(self.plan)
        self.seed = self.plan.seed

    def steps(self) -> Iterator[Finding]:
        """What each check comes to in each round; `found` is up to date when it comes."""
        alone = self.jobs <= 1
        source = map(partial(_done, self.listed), self.tasks()) if alone else self._shared()
        for (index, seed), one in source:
            name = self.listed[index].name
            if one.outcome == "failed":
                one = evolve(one, reason=f"{one.reason}, seed {seed}")
            self.found[name] = merged(self.found[name], one) if name in self.found else one
            yield one

    def tasks(self) -> Iterator[Task]:
        """Checks in turn, round by round, until time is over or every one rests."""
        while True:
            open_ = [i for i, c in enumerate(self.listed) if self._open(c)]
            if not open_:
                return
            self.rounds += 1
            for index in open_:
                if time.monotonic() >= self.deadline:
                    return
                if self._open(self.listed[index]):
                    yield index, self.seed
            self.seed += 1

    def _open(self, check: Check) -> bool:
        return check.name not in self.found or self.found[check.name].outcome == "passed"

    def _shared(self) -> Iterator[tuple[Task, Finding]]:
        def died(task: Task) -> tuple[Task, Finding]:
            check = self.listed[task[0]]
            return task, Finding(check.kind, check.subject, "not run", DIED, span=check.span)

        return shared(self.tasks(), partial(_worker, self.plan), self.jobs, died)


def merged(a: Finding, b: Finding) -> Finding:
    """Two rounds of one check."""
    counts = dict(a.counts)
    for name, c in b.counts:
        counts[name] = counts.get(name, Counts()) + c
    worst = b if b.outcome == "failed" else a
    return evolve(worst, cases=a.cases + b.cases, counts=tuple(counts.items()), seconds=a.seconds + b.seconds)


def _checks(plan: Plan) -> tuple[tuple[Check, ...], Mapping[str, str]]:
    checks = make_checks(plan)
    return tuple(c for c in checks.listed if c.kind not in GRAPHS_OF_RULES), checks.program.sources


def _done(listed: tuple[Check, ...], task: Task) -> tuple[Task, Finding]:
    index, seed = task
    return task, finding(evolve(listed[index], seed=seed))


def _worker(plan: Plan) -> Callable[[Task], tuple[Task, Finding]]:
    torch.set_num_threads(1)
    return partial(_done, _checks(plan)[0])
