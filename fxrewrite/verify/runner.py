"""All checks of a program in one list, run here or by several processes. The command and the pytest plugin share it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from attrs import evolve, field, frozen

from fxrewrite.dsl.core import Program
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.dsl.registered import standing_in
from fxrewrite.dsl.sources import named, shipped_folder, vocabulary_sources
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.config import load_program, machine_facts, make_config
from fxrewrite.verify.assign import Starved
from fxrewrite.verify.case_json import from_json, to_json
from fxrewrite.verify.claims import Claim, NotThisCase, claims
from fxrewrite.verify.context import in_context
from fxrewrite.verify.counterexample import script
from fxrewrite.verify.device import CPU, DeviceLost, answers, existing_device
from fxrewrite.verify.equal import CHECKS, check_equal
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fires import fires
from fxrewrite.verify.kept import Kept, digest, of_check
from fxrewrite.verify.kernel_claims import kernel_claims
from fxrewrite.verify.perturb import perturbed
from fxrewrite.verify.profiles import CI, QUICK, Profile, profile_named
from fxrewrite.verify.properties import Declared, check_property, properties, property_profile
from fxrewrite.verify.ranked import SIZES, is_ranked, ranked_claims, ranked_profile
from fxrewrite.verify.shrink import shrink
from fxrewrite.verify.stand_ins import stand_ins
from fxrewrite.verify.static import static
from fxrewrite.verify.strategies import Given, cases
from fxrewrite.verify.workers import DIED, Last, shared

KEPT = ", kept"  # behind the label of a case that failed before


@frozen
class Plan:
    """What to verify: packs, by name or path; a profile; `only`: parts of the names of checks. `seed` of all inputs.

    `vocabulary`: the ops that every file sees, too. `device`: where what is under test runs. `modules` are imported
    first: they register ops and kernels. `kept`: failures of earlier runs, which are tried first.
    """

    packs: tuple[str, ...]
    profile: str = "quick"
    seed: int = 0
    only: tuple[str, ...] = ()
    vocabulary: bool = False
    device: str = CPU
    modules: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()


@frozen
class Check:
    """One check of one subject. `run` gives its finding for a seed; what raises is a fault of the verifier.

    `again` tries the case of a failure alone; None: it tries the same in each run. `kept`: failures to try first;
    `text`: a digest of what is claimed now.
    """

    kind: str
    subject: str
    run: Callable[[int], Finding]
    span: Span | None = None
    seed: int = 0
    again: Callable[[Mapping[str, Any]], Finding] | None = None
    kept: tuple[Kept, ...] = ()
    text: str = ""
    profile: str = ""
    stand_ins: Mapping[str, Callable[..., Any]] = field(factory=dict[str, Callable[..., Any]], eq=False, repr=False)

    @property
    def name(self) -> str:
        """`subject:kind`, as pytest and `--only` name it."""
        return f"{self.subject}:{self.kind}"


@frozen
class Checks:
    """The checks of a plan, and the program that they are about."""

    program: Program
    listed: tuple[Check, ...]


def make_checks(plan: Plan) -> Checks:
    """Every check of a plan. Raises RuleError where the packs are wrong, ValueError for an unknown profile, and
    NoDevice."""
    device = existing_device(plan.device)
    for module in plan.modules:
        import_module(module)
    config = make_config(packs=plan.packs)
    program, facts = load_program(config), machine_facts(config)
    profile = profile_named(plan.profile)
    own = own_claims(plan)
    subjects = [evolve(c, facts=facts) if c.kind == "impl" else c for c in claims(program) if own(c)]
    subjects = [evolve(c, device=device) for c in (*subjects, *filter(own, kernel_claims(program, device)))]
    listed = [check for claim in subjects for check in _of_claim(claim, profile, plan)]
    listed += _of_properties(program, own, profile, plan)
    listed += _of_packs(program, subjects, profile) if device == CPU else []
    wanted = [c for c in listed if not plan.only or any(part in c.name for part in plan.only)]
    functions = stand_ins(program)
    placed = (evolve(c, stand_ins=functions) if _of_rules(c) else c for c in wanted)
    return Checks(program, tuple(_with_kept(c, program, plan) for c in placed))


def _of_rules(check: Check) -> bool:
    """Is it about a rule, or a pack? Forms, providers (`op/form`) and properties are about the ops themselves."""
    return "/" not in check.subject


def _with_kept(check: Check, program: Program, plan: Plan) -> Check:
    kept = tuple(of_check(plan.kept, check.name)) if check.again is not None else ()
    return evolve(check, seed=plan.seed, kept=kept, text=digest(program, check.span), profile=plan.profile)


@frozen
class Running:
    """A run: how many checks it has, their findings as they come, and the texts of the files."""

    total: int
    findings: Iterator[Finding]
    sources: dict[str, str]


def begin(plan: Plan, jobs: int = 1) -> Running:
    """Run a plan, `jobs` processes sharing its checks. Raises as `make_checks` does."""
    checks = make_checks(plan)
    count = len(checks.listed)
    alone = jobs <= 1 or count < jobs
    findings = map(finding, checks.listed) if alone else _shared(plan, checks, jobs)
    return Running(count, findings, checks.program.sources)


@contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN is off: its bf16 products read numbers below the normal ones as zero, and with K = 100 (torch 2.13) a NaN
    of one row reaches the next."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextmanager
def without_warnings_of_nothing() -> Iterator[None]:
    """Torch warns of the variance of no elements, which is an input like any other here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"var\(\): degrees of freedom")
        yield


def finding(check: Check) -> Finding:
    """What a check came to, with the seconds that it took. Failures that are kept come first; one that passes is kept
    no longer if the text has changed."""
    began = perf_counter()
    found = None
    for kept in check.kept:
        found = _outcome(check, partial(_again, check, kept))
        if found.outcome == "failed":
            break
        if kept.text != check.text:
            kept.drop()
    if found is None or found.outcome != "failed":
        found = _outcome(check, lambda: check.run(check.seed))
    found = evolve(found, span=found.span or check.span, seconds=perf_counter() - began)
    return evolve(found, case=_case(check, found)) if found.outcome == "failed" else found


def _again(check: Check, kept: Kept) -> Finding:
    """A failure once more: its case, or all that its seed gives."""
    assert check.again is not None
    return check.run(kept.seed) if kept.case is None else check.again(kept.case)


def _case(check: Check, found: Finding) -> dict[str, Any] | None:
    """What is kept of a failure."""
    if check.again is None:
        return None
    case = None if found.case is None else dict(found.case)
    return {"name": check.name, "seed": check.seed, "profile": check.profile, "text": check.text, "case": case}


def _outcome(check: Check, run: Callable[[], Finding]) -> Finding:
    try:
        with without_onednn(), without_warnings_of_nothing(), standing_in(check.stand_ins):
            return run()
    except (EvaluationError, NotThisCase, Starved, DeviceLost) as error:
        return Finding(check.kind, check.subject, "not run", str(error), span=check.span)
    except Exception as error:  # noqa: BLE001  a fault of the verifier is told, and the other checks go on
        reason = f"the check raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return Finding(check.kind, check.subject, "not run", reason, span=check.span)


def _shared(plan: Plan, checks: Checks, jobs: int) -> Iterator[Finding]:
    """The findings by several processes, each of which makes the checks of the plan for itself."""

    def died(index: int) -> Finding:
        check = checks.listed[index]
        return Finding(check.kind, check.subject, "not run", DIED, span=check.span)

    return shared(range(len(checks.listed)), partial(_worker, plan), jobs, died)


def _worker(plan: Plan) -> Callable[[int], Any]:
    torch.set_num_threads(1)
    listed = make_checks(plan).listed

    def do(index: int) -> Any:
        found = finding(listed[index])
        return found if answers(plan.device) else Last(found)

    return do


# ---- what is checked of one claim


def own_claims(plan: Plan) -> Callable[[Claim], bool]:
    """Is a claim one of the files that the plan names?"""
    vocabulary = shipped_folder().resolve() / "vocab"
    files = {s.name for s in named(plan.packs)}
    files |= {f"patterns/vocab/{Path(p).name}" for p in plan.packs if Path(p).resolve().parent == vocabulary}
    if plan.vocabulary:
        files |= {s.name for s in vocabulary_sources()}
    return lambda claim: claim.span is None or claim.span.file in files


def _of_claim(claim: Claim, profile: Profile, plan: Plan) -> Iterator[Check]:
    """The checks of a claim. One about groups of ranks is tried over several numbers of ranks, all on the CPU; graphs
    are made on the CPU, too, and are no matter of another device."""
    if is_ranked(claim) and claim.device != CPU:
        return
    if is_ranked(claim):
        for ranked in ranked_claims(claim, SIZES[:3] if profile is QUICK else SIZES):
            of_ranks = ranked_profile(profile, ranked.size)
            yield _check_equal(f"equal, {ranked.label}", ranked, of_ranks, plan)
    else:
        yield _check_equal("equal", claim, profile, plan)
    if claim.kind == "rule" and claim.device == CPU:
        yield Check("static", claim.name, lambda seed: static(claim), claim.span)
        yield Check("fires", claim.name, lambda seed: fires(claim, profile), claim.span)
        yield Check(
            "perturbed", claim.name, lambda seed: perturbed(claim, profile), claim.span,
            again=lambda case: perturbed(claim, CI, only=case["graph"]),
        )  # fmt: skip


def _check_equal(kind: str, claim: Claim, profile: Profile, plan: Plan) -> Check:
    def run(seed: int) -> Finding:
        return _equal(claim, cases(claim, profile, seed), plan, small=False)

    def again(case: Mapping[str, Any]) -> Finding:
        given = from_json(case)
        kept = evolve(given, label=f"{given.label.removesuffix(KEPT)}{KEPT}")
        return _equal(claim, [kept], plan, small=True)

    return Check(kind, claim.name, run, claim.span, again=again)


def _equal(claim: Claim, given: Iterable[Given], plan: Plan, small: bool) -> Finding:
    """A claim on cases. `small`: they were shrunk before."""
    try:
        found, failure = check_equal(claim, given)
    except Starved as error:
        return Finding(CHECKS[claim.kind], claim.name, "not run", str(error), span=error.span or claim.span)
    if failure is None:
        return found
    smaller = failure if small else shrink(failure)
    reason, case = f"{smaller.reason} ({smaller.trial.given.label})", to_json(smaller.trial.given)
    return evolve(found, reason=reason, script=script(smaller, claim.program.sources, plan.modules), case=case)


def _of_properties(program: Program, own: Callable[[Claim], bool], profile: Profile, plan: Plan) -> Iterator[Check]:
    """Those of definitions on the CPU; of what runs on the device, there."""
    for declared in properties(program):
        on_device = declared.provider is not None
        claim = declared.claim
        if own(evolve(claim, span=claim.op.span)) and (on_device or plan.device == CPU):
            placed = evolve(declared, claim=evolve(claim, device=plan.device)) if on_device else declared
            run = partial(_property, placed, profile)
            yield Check("property", declared.subject, run, claim.op.span, again=lambda case, run=run: run(case["seed"]))


def _of_packs(program: Program, subjects: Iterable[Claim], profile: Profile) -> Iterator[Check]:
    for name in dict.fromkeys(c.op.name.partition(".")[0] for c in subjects if c.kind == "rule"):
        if name in program.packs:
            yield _check_context(program, name, profile)


def _check_context(program: Program, pack: str, profile: Profile) -> Check:
    return Check(
        "context", pack, lambda seed: in_context(program, pack, profile, seed=seed), program.packs[pack].span,
        again=lambda case: in_context(program, pack, profile, only=case),
    )  # fmt: skip


def _property(declared: Declared, profile: Profile, seed: int) -> Finding:
    found = check_property(declared, cases(declared.claim, property_profile(profile), seed), seed)
    return evolve(found, case={"seed": seed}) if found.outcome == "failed" else found
