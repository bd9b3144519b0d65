"""The check `fires`: the left side of a rule, in each of its spellings, is found and replaced, and nothing moves."""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Apply
from fxrewrite.dsl.wording import said
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.equal import compare
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.graph_script import Failed
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.ranked import is_ranked
from fxrewrite.verify.rewriting import Rewriting, pass_of, rewritten, why_not, why_off
from fxrewrite.verify.same import retyped, wrong_metadata
from fxrewrite.verify.sites import Site, Subject
from fxrewrite.verify.straight import record_side
from fxrewrite.verify.written import NoGraph, Spelling, spellings

OF_A_GRAPH = ("fresh", "donated", "written", "replicated")


@frozen
class Fault:
    """A graph that a rule does not do with as it should."""

    what: str
    site: Site
    done: Rewriting
    near: str = ""

    @property
    def reason(self) -> str:
        """What was expected and what happened."""
        return f"{self.what}; nearest miss: {self.near}" if self.near else self.what

    def script(self, claim: Claim, **meta: str) -> str:
        """The graph before and after as a script. `meta`: how it is found again."""
        site, after = self.site, self.done.graph if self.done.fired else None
        failed = Failed(claim.name, self.reason, meta, site.graph, after, site.inputs, site.constants, claim.span)
        return failed.script(claim.program)


def fires(claim: Claim, profile: Profile, pass_: RewritePass | None = None) -> Finding:
    """Does the rule fire exactly once on its left side, written in each spelling, and is what comes out right? Every
    `profile` tries the same."""
    pass_ = pass_ or pass_of(claim.program)
    subject = Subject.of(claim)
    off = why_off(pass_, subject.rule)
    if off is not None:
        return finding(claim, "fires", "not run", off)
    tried, lacking = 0, ""
    for spelling in spellings(subject.program, subject.rule.left):
        try:
            fault = fault_of(subject, spelling, pass_)
        except NoGraph as error:
            lacking = lacking or f"{spelling}: {error}"
            continue
        tried += 1
        if fault is not None:
            return finding(claim, "fires", "failed", fault.reason, tried, fault.script(claim, check="fires"))
    if not tried:
        return finding(claim, "fires", "not run", lacking)
    return finding(claim, "fires", "passed", cases=tried)


def finding(
    claim: Claim, check: str, outcome: Any, reason: str = "", cases: int = 0, script: str | None = None
) -> Finding:
    """The finding of a check of a rule."""
    return Finding(check, claim.name, outcome, reason, cases=cases, script=script, span=claim.span)


def fault_of(subject: Subject, spelling: Spelling, pass_: RewritePass) -> Fault | None:
    """What is wrong with what the rule makes of its left side. Raises NoGraph where it cannot be written so."""
    site, rule, ranked = subject.site(spelling), subject.rule, is_ranked(subject.claim)
    done = rewritten(pass_, rule, site.graph, site.inputs, site.constants, metadata=not ranked)
    if done.fired == 1 and (done.fault is None or admitted(subject.claim, site, done) is None):
        return None
    if done.fault is not None:
        return Fault(f"{spelling}: {done.fault}", site, done)
    if spelling.op and not spelling.whole:
        # no graph has both: what Inductor takes apart, and what a form leaves whole
        return fault_of(subject, evolve(spelling, whole=True), pass_)
    elsewhere = beyond_the_graph(subject)
    if elsewhere is not None and (ranked or not done.fired):
        raise NoGraph(elsewhere)
    near = why_not(pass_, rule, site.graph)
    if not done.fired and near.startswith("outside token range"):
        raise NoGraph(near)
    what = "does not fire" if not done.fired else f"fires {done.fired} times"
    return Fault(f"{spelling}: {what}", site, done, near)


def beyond_the_graph(subject: Subject) -> str | None:
    """Why a rule may not fire on its left side alone, though nothing is wrong."""
    if is_ranked(subject.claim):
        return "it is about several ranks, and one process stands for one"
    elsewhere = next((g for g in subject.rule.guards if asks_the_graph(g)), None)
    return None if elsewhere is None else f"`{said(elsewhere)}` is a fact of a larger graph"


def asks_the_graph(guard: Any) -> bool:
    """Is it a condition that only the graph around the left side can meet?"""
    return any(isinstance(x, Apply) and x.op in OF_A_GRAPH for x in walk(guard)) and getattr(guard, "op", "") != "not"


def admitted(claim: Claim, site: Site, done: Rewriting) -> str | None:
    """What of the outputs the left side does not admit. They may differ in bits where its spelling or the right side
    is another program."""
    setting = site.setting
    found = retyped(done.before, done.after) or (None if done.graph is None else wrong_metadata(done.graph))
    if found is not None:
        return found
    reference = record_side(claim.expected, setting.operands, setting.assignment.attributes)
    if not reference.results or len(reference.results) > len(done.after):
        return done.fault
    for outputs in (done.before, done.after):
        wrong, _ = compare(claim.contract, reference, dict(zip(reference.results, outputs)))
        alone = next((s.op for s in reference.program.steps if s.opaque), None)
        if wrong and alone:
            raise NoGraph(f"`{alone}` is a function whose rounding is not declared, and another spelling of it differs")
        if wrong:
            return next(f"{name}: {said}" for name, said in wrong.items())
    return None
