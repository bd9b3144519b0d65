"""The check `fires`: the left side of a rule, in each of its spellings, is found and replaced, and nothing moves."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from attrs import evolve, frozen

from fxrewrite.dsl.core import Case
from fxrewrite.dsl.evaluate import Env
from fxrewrite.dsl.scalars import holds
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.verify.assign import Starved
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.equal import compare
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.rewriting import Rewriting, pass_of, rewritten, shown, why_not, why_off
from fxrewrite.verify.sites import NoGraph, Setting, Site, Spelling, plain, rule_of, site_of, spellings
from fxrewrite.verify.straight import record

CODE = "RW503"


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

    def script(self) -> str:
        """The graph before and after, as code."""
        before = shown(self.site.graph, self.site.constants, self.site.inputs)
        after = "" if self.done.graph is None else shown(self.done.graph, self.site.constants, ())
        return f"# {self.reason}\n\n{before}\n\n# after the rule\n\n{after}"


def fires(claim: Claim, profile: Profile, pass_: RewritePass | None = None) -> Finding:
    """Does the rule fire exactly once on its left side, written in each spelling, and is what comes out right?"""
    began = perf_counter()
    pass_ = pass_ or pass_of(claim.program)
    off = why_off(pass_, rule_of(claim))
    if off is not None:
        return finding(claim, "fires", began, "not run", off)
    tried, lacking = 0, ""
    for spelling in spellings(claim):
        try:
            site = written_site(claim, spelling)
        except NoGraph as error:
            lacking = lacking or f"{spelling}: {error}"
            continue
        tried += 1
        fault = fault_of(claim, spelling, site, pass_)
        if fault is not None:
            return finding(claim, "fires", began, "failed", fault.reason, tried, fault.script())
    if not tried:
        return finding(claim, "fires", began, "not run", lacking)
    return finding(claim, "fires", began, "passed", cases=tried)


def finding(
    claim: Claim, check: str, began: float, outcome: Any, reason: str = "", cases: int = 0, script: str | None = None
) -> Finding:
    """The finding of a check of a rule."""
    return Finding(
        check, claim.name, outcome, reason, cases=cases, script=script, span=claim.span,
        code=CODE if outcome == "failed" else None, seconds=perf_counter() - began,
    )  # fmt: skip


def fault_of(claim: Claim, spelling: Spelling, site: Site, pass_: RewritePass) -> Fault | None:
    """What is wrong with what the rule makes of its left side."""
    rule = rule_of(claim)
    done = rewritten(pass_, rule, site.graph, site.inputs, site.constants, metadata=True)
    if done.fired == 1 and done.fault is None:
        return None
    if done.fired == 1 and admitted(claim, site, done) is None:
        return None
    if done.fault is not None:
        return Fault(f"{spelling}: {done.fault}", site, done)
    if (
        spelling.op and not spelling.whole
    ):  # no graph has both: what Inductor decomposes, and what the form leaves whole
        try:
            return fault_of(
                claim, evolve(spelling, whole=True), written_site(claim, evolve(spelling, whole=True)), pass_
            )
        except NoGraph:
            pass
    said = "does not fire" if not done.fired else f"fires {done.fired} times"
    return Fault(f"{spelling}: {said}", site, done, near=why_not(pass_, rule, site.graph))


def admitted(claim: Claim, site: Site, done: Rewriting) -> str | None:
    """What of the outputs the left side does not admit. They may differ in bits where its spelling or the right side
    is another program."""
    setting = site.setting
    reference = record(lambda a, xs: claim.expected(a, xs, setting.assignment.attributes), setting.operands)
    if not reference.results or len(reference.results) > len(done.after):
        return done.fault
    for outputs in (done.before, done.after):
        wrong, _ = compare(claim.contract, reference, dict(zip(reference.results, outputs)))
        if wrong:
            return next(f"{name}: {said}" for name, said in wrong.items())
    return None


def written_site(claim: Claim, spelling: Spelling) -> Site:
    """The left side in a spelling, on operands that it is for. Raises NoGraph."""
    said: NoGraph | None = None
    for wanted in _wanted(claim, spelling):
        try:
            return site_of(claim, Setting.of(claim, plain(claim, wanted)), spelling)
        except Starved as error:
            said = said or NoGraph(str(error))
        except NoGraph as error:
            said = said or error
    raise said or NoGraph("no operands")


def _wanted(claim: Claim, spelling: Spelling) -> Iterator[dict[str, Any]]:
    """What to choose so that a spelling stands for the op: its pins; then without one or the other operand."""
    rows = {"rows": (r,)} if (r := rows_for(claim)) is not None else {}
    if not spelling.op or not spelling.how.startswith("form"):
        yield rows
        return
    form: Case = next(f for f in claim.program.ops[spelling.op].forms if spelling.how == f"form {f.name}")
    pins = {**rows, **{n: ((False,) if v is None and _is_operand(claim, n) else (v,)) for n, v in form.pins}}
    yield pins
    for o in claim.op.operands:
        if o.optional:
            yield {**pins, o.name: (False,)}


def _is_operand(claim: Claim, name: str) -> bool:
    return any(o.name == name for o in claim.op.operands)


def rows_for(claim: Claim) -> int | None:
    """A number of tokens that the rule prefers; None where any will do."""
    prefer = rule_of(claim).prefer
    for rows in (6, 64, 256, 1024, 2048, 1):
        if holds(prefer, Env(facts={"tokens": rows})) is not False:
            return rows if rows != 6 else None
    return None
