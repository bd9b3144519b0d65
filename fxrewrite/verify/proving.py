"""Proof on first use: a form or `impl` that calls another package's op, tried on few hostile inputs in under a second.

What is tried is what `fxrewrite verify` tries first: every kind of values, scales on ties, widths that divide nothing,
operands of any strides; and each call again in guarded memory.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import thread_time

import torch
from attrs import evolve

from fxrewrite.dsl.deep import deep_terms
from fxrewrite.lowering import owners
from fxrewrite.lowering.proofs import Answer, Question
from fxrewrite.lowering.providers import without_meaning
from fxrewrite.patterns.forms import MissingOp, torch_op
from fxrewrite.verify.assign import Starved
from fxrewrite.verify.claims import Claim, NotThisCase, case_claim
from fxrewrite.verify.device import DeviceLost, brought_back, placed_on
from fxrewrite.verify.equal import REFUSALS, CannotTry, Raises, Refused, Trial, attempt, compare
from fxrewrite.verify.memory import Strided, Watched, strides_for
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.ranked import is_ranked
from fxrewrite.verify.runner import without_onednn
from fxrewrite.verify.same import same_values
from fxrewrite.verify.straight import by_element
from fxrewrite.verify.strategies import Given, cases

PROFILE = Profile("proof", cases=16, rows=256, examples=0, wide=False, aimed=3)  # rows: fewer make the centre uncertain
LEAST = 11  # cases that are tried however long they take: all kinds of values in six shapes, scales on ties, no rows
ENOUGH_S = 1.0  # of computing: after these no further case begins
WATCHED = 2  # cases that are run in guarded memory


def prove(question: Question) -> Answer:
    """Try a claim about another package's op on the device of the question.

    In a thread of its own: no mode, autocast or gradient of the compilation that asks reaches it.
    """
    why = untriable(question)
    if why is not None:
        return Answer("untried", why)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_prove, _claim(question)).result()


def untriable(question: Question) -> str | None:
    """Why nobody can try a claim in this process; None where it can be tried."""
    lacking = without_meaning(question.program, question.op)
    if lacking is not None:
        return f"{lacking} has no definition"
    if is_ranked(_claim(question)):
        return "it needs several ranks"
    device = question.device
    for name in owners.foreign(question.case):
        try:
            op = torch_op(name)
        except MissingOp:
            return f"{name} is not in this build"
        key = torch._C._dispatch_key_for_device(device.type)
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), key):
            return f"{name} has no kernel for {device.type}"
    return None


def _claim(question: Question) -> Claim:
    claim = case_claim(question.program, question.op, question.kind, question.case)
    return evolve(claim, facts=question.facts, device=str(question.device))


def _prove(claim: Claim) -> Answer:
    began, tried, refused, raised = thread_time(), 0, "", ""
    with torch.no_grad(), torch.random.fork_rng(), without_onednn(), deep_terms():
        try:
            for given in cases(claim, PROFILE, seed=0):
                if tried >= LEAST and thread_time() - began > ENOUGH_S:
                    break
                try:
                    wrong = _wrong(claim, given, tried < WATCHED)
                except Refused as error:
                    raised = raised or f"it raises {error} ({given.label})"
                    continue
                except NotThisCase as error:
                    refused = str(error)
                    continue
                tried += 1
                if wrong is not None:
                    return Answer("failed", f"{wrong} ({given.label})", tried)
        except (CannotTry, Starved, DeviceLost) as error:
            return Answer("untried", str(error), tried)
    if tried:
        return Answer("proved", "", tried)
    return Answer("failed", raised, 1) if raised else Answer("untried", f"no inputs are for it: {refused}")


def _wrong(claim: Claim, given: Given, watched: bool) -> str | None:
    """What is wrong with one case. Raises NotThisCase where the claim is not for it, and CannotTry."""
    try:
        trial = attempt(claim, given)
    except Raises as error:
        return f"it raises {error}"
    if trial.wrong and not (trial.verdicts and _equal(trial)):
        return next(iter(trial.wrong.items()))[1]
    try:
        return _fault(claim, trial) if watched else None
    except (NotThisCase, CannotTry, DeviceLost):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  an op may raise anything, and it took these operands before
        return f"it raises {Raises.of(error)}"


def _equal(trial: Trial) -> bool:
    """Is it what the definition gives op by op? Of few elements even its own share off the centre may be too large."""
    written = trial.candidate.results
    return all(same_values(y, written[name].cpu()) for name, y in trial.reference.results.items())


def _fault(claim: Claim, trial: Trial) -> str | None:
    """What a call does to memory that is not its own, or makes of strides, and of memory that it should not look at."""
    operands, attributes = placed_on(trial.given.operands, claim.device), trial.given.attributes
    plain, *others = strides_for(claim)
    watched = Watched(strides=[plain])
    claim.claimed(watched, operands, attributes)
    if watched.faults:
        return watched.faults[0]
    faults: list[str] = []
    for strides in others:
        algebra = Strided(strides)
        try:
            results = claim.claimed(algebra, operands, attributes)
        except RecursionError:
            raise
        except REFUSALS:  # it may refuse them
            continue
        wrong, _ = compare(claim.contract, trial.reference, by_element(brought_back(results)))
        faults += [*algebra.faults, *(f"{said}, its arguments {strides}" for said in wrong.values())]
    return next(iter(faults), None)
