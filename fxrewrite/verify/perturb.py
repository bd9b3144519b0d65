"""The check `perturbed`: graphs next to the left side of a rule. Each fires or stays as the types say, and is right.

Quick tries every variant of operands and attributes, and a sample of the edits; the other profiles try all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from zlib import crc32

from attrs import evolve, frozen

from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.verify.bounds import of_guards
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.edits import Edit, Expected, edits
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fires import Fault, beyond_the_graph, finding
from fxrewrite.verify.profiles import QUICK, Profile
from fxrewrite.verify.rewriting import Rewriting, can_be_hosted, pass_of, rewritten, why_not, why_off
from fxrewrite.verify.same import moved
from fxrewrite.verify.sites import Site, Subject
from fxrewrite.verify.variants import variants
from fxrewrite.verify.written import NoGraph, spellings

SAMPLE = 8  # edits of a rule that quick tries, beside those that decide


@frozen
class Perturbation:
    """A graph next to a left side, by what is done to it, and what must come of it."""

    name: str
    expected: Expected
    make: Callable[[], Site]


def perturbed(claim: Claim, profile: Profile, pass_: RewritePass | None = None, only: str = "") -> Finding:
    """Does the rule do what the types say on every graph next to its left side? `only`: part of their names."""
    pass_ = pass_ or pass_of(claim.program)
    subject = Subject.of(claim)
    off = why_off(pass_, subject.rule)
    if off is not None:
        return finding(claim, "perturbed", "not run", off)
    try:
        base = subject.site()
        done = rewritten(pass_, subject.rule, base.graph, base.inputs, base.constants)
    except NoGraph as error:
        return finding(claim, "perturbed", "not run", str(error))
    if done.fired != 1:
        why = beyond_the_graph(subject)
        near = why or f"it does not fire on its left side: {why_not(pass_, subject.rule, base.graph)}"
        return finding(claim, "perturbed", "not run", near)
    before = done.before
    tried, faults, failed = 0, list[Fault](), list[str]()
    for one in perturbations(subject, base, profile, pass_):
        if only not in one.name:
            continue
        try:
            site = one.make()
            done = rewritten(pass_, subject.rule, site.graph, site.inputs, site.constants)
        except NoGraph:
            continue
        if not done.fired and not can_be_hosted(site.graph):
            continue
        tried += 1
        said = wrong(one, done, before)
        if said is not None:
            failed.append(one.name)
            near = "" if done.fired else why_not(pass_, subject.rule, site.graph)
            faults.append(Fault(f"{one.name}: {said}", site, done, near))
    if not faults:
        return finding(claim, "perturbed", "passed", cases=tried)
    more = "".join(f"; {f.what}" for f in faults[1:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
    script = faults[0].script(claim, check="perturbed", name=failed[0])
    found = finding(claim, "perturbed", "failed", faults[0].reason + more, tried, script)
    return evolve(found, case={"graph": failed[0]})


def wrong(one: Perturbation, done: Rewriting, before: list[object]) -> str | None:
    """What a rule does that it must not, or does not do that it must."""
    if done.fault is not None:
        return done.fault
    if one.expected == "fires" and done.fired != 1:
        return "must fire and does not" if not done.fired else f"fires {done.fired} times"
    if one.expected == "stays" and done.fired:
        return "must not fire and does"
    if one.expected == "other" and done.fired and moved(before, done.before) is None:
        return "fires as if nothing had been changed"
    return None


def perturbations(subject: Subject, base: Site, profile: Profile, pass_: RewritePass) -> Iterator[Perturbation]:
    """Everything that is tried in a profile."""
    yield from (
        Perturbation(v.name, v.expected, v.make)
        for v in (*variants(subject, base.setting, 1 if profile is QUICK else 2), *of_guards(subject))
    )
    found = [_of(e, base) for e in edits(subject, base)]
    if profile is not QUICK:
        yield from found
        yield from _of_forms(subject, pass_)
        return
    yield from (p for p in found if p.expected in ("fires", "stays"))
    open_ = [p for p in found if p.expected not in ("fires", "stays")]
    yield from Random(crc32(subject.claim.name.encode())).sample(open_, min(SAMPLE, len(open_)))


def _of(edit: Edit, base: Site) -> Perturbation:
    return Perturbation(edit.name, edit.expected, lambda: edit.site(base))


def _of_forms(subject: Subject, pass_: RewritePass) -> Iterator[Perturbation]:
    """The arguments of the torch ops that forms are written as, where their kernels are the definition bit for bit."""
    for spelling in spellings(subject.program, subject.rule.left):
        if not spelling.how.startswith("form"):
            continue
        try:
            site = subject.site(spelling)
            done = rewritten(pass_, subject.rule, site.graph, site.inputs, site.constants)
        except NoGraph:
            continue
        if done.fault is not None:
            continue
        for edit in edits(subject, site):
            if " = " in edit.name:
                yield Perturbation(f"{spelling}, {edit.name}", "right", lambda e=edit, s=site: e.site(s))
