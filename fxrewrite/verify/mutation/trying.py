"""Is a mutant caught? The checks that run for its subject are run on it, the likeliest first, until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from attrs import evolve, frozen

from fxrewrite.dsl.core import OpDef, Program
from fxrewrite.verify.claims import Claim, case_claim, rule_claim
from fxrewrite.verify.equal import CannotTry
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fires import fires
from fxrewrite.verify.interpret import Eager
from fxrewrite.verify.judge import every_value
from fxrewrite.verify.mutation.bench import (
    REFUSED,
    WHICH,
    Bench,
    Seen,
    Starved,
    benches,
    judged,
    recorded,
    same_program,
    seen,
)
from fxrewrite.verify.mutation.kernels import broken_results
from fxrewrite.verify.mutation.mutant import Mutant
from fxrewrite.verify.mutation.operators import LAYOUT
from fxrewrite.verify.perturb import perturbed
from fxrewrite.verify.profiles import QUICK, Profile
from fxrewrite.verify.straight import Recording, Straight, walk

State = Literal["killed", "survived", "never differs", "equivalent", "refused", "not run"]
STATES: tuple[State, ...] = ("killed", "survived", "never differs", "equivalent", "refused", "not run")
FEW = 16  # inputs of a claim for other operands
OWN_TYPES = "what the ops of the rule do not take is refused by their own types"
UNSAID = "no form, provider or rule that runs here says otherwise what it is"
NOT_REACHED = "what was changed is not run on any input"
SAME = "the changed step is run, and what is computed is the same program"


@frozen
class Fate:
    """What became of a mutant. `why`: what killed it, why it is equivalent, why it could not be tried."""

    state: State
    why: str = ""


def fate(observed: Iterable[Seen]) -> Fate:
    """The fate of a mutant from what was seen on its inputs; the rest is not looked at once it is wrong."""
    by_what: dict[str, str] = {}
    for one in observed:
        if one.what == "wrong":
            return Fate("killed", one.said)
        by_what.setdefault(one.what, one.said)
    if "no value" in by_what:  # where what it was made of has one: dims or types contradict each other
        return Fate("refused", by_what["no value"])
    if "other values" in by_what:
        return Fate("survived", "it differs, and the contract admits what it gives")
    if "not judged" in by_what:  # it differs there
        return Fate("not run", by_what["not judged"])
    if "same values" in by_what:
        return Fate("never differs")
    if "same program" in by_what:
        return Fate("equivalent", SAME)
    return Fate("not run", by_what.get("not this case", "no inputs"))


# ---- rules, forms and providers


EngineCheck = Callable[[Claim, Profile], Finding]
ENGINE: tuple[EngineCheck, ...] = (fires, perturbed)  # what holds the engine against graphs


def engine_checks(claim: Claim) -> list[EngineCheck]:
    """Those that the unchanged rule passes: what fails without a change says nothing about one."""
    rule = next(r for r in claim.program.rules if r.full_name == claim.name)
    alone = rule_claim(evolve(claim.program, rules=(rule,)), rule)
    return [check for check in ENGINE if check(alone, QUICK).outcome == "passed"]


def try_rule(mutant: Mutant, program: Program, base: list[Bench], engine: Callable[[], Iterable[EngineCheck]]) -> Fate:
    """The fate of a mutant of a rule: by `equal`, then by the engine on graphs, which may see more."""
    found = try_claim(mutant, rule_claim(program, mutant.made), base, _dead_rule(mutant, program))
    if found.state in ("killed", "refused", "not run"):
        return found
    alone = rule_claim(evolve(program, rules=(mutant.made,)), mutant.made)
    for check in engine():
        try:
            finding = check(alone, QUICK)
        except CannotTry:  # the graph before and after differ, and what may differ cannot be told
            continue
        if finding.outcome == "failed":
            return Fate("killed", f"{finding.check}: {finding.reason}")
    return _unseen(mutant, found)


def _unseen(mutant: Mutant, found: Fate) -> Fate:
    """The fate of what no check saw. One program on both sides proves something only where a term was changed."""
    if mutant.operator == "dtype loosened" and found.state in ("equivalent", "never differs"):
        return Fate("refused", OWN_TYPES)
    proved = mutant.dead is not None and mutant.operator != LAYOUT
    return Fate("never differs", found.why) if found.state == "equivalent" and not proved else found


def _dead_rule(mutant: Mutant, program: Program) -> Claim | None:
    return None if mutant.dead is None else rule_claim(program, mutant.dead)


def try_form(mutant: Mutant, op: OpDef, kind: str, program: Program, base: list[Bench]) -> Fate:
    """The fate of a mutant of a form or provider."""
    dead = None if mutant.dead is None else case_claim(program, op, kind, mutant.dead)
    return try_claim(mutant, case_claim(program, op, kind, mutant.made), base, dead)


def try_claim(
    mutant: Mutant, claim: Claim, base: list[Bench], dead: Claim | None, sides: Sequence[str] | None = None
) -> Fate:
    """The fate of a changed claim: on the inputs of the unchanged one, or on its own where it is for others.

    `sides`: those that may be other programs; None where the claim itself says.
    """
    own = base[0].claim
    if _signature(claim) != _signature(own):
        observed = list(_until_wrong(_on_own_inputs(mutant, claim, evolve(base[0].profile, cases=FEW), base[0].seed)))
        refused = next((s.said for s in observed if s.what == "no value"), None)
        found = fate(observed)
        return found if refused is None or found.state == "killed" else Fate("refused", refused)
    if sides is None:
        pairs = (("expected", claim.reference, own.reference), ("claimed", claim.candidate, own.candidate))
        sides = [side for side, changed, unchanged in pairs if changed != unchanged]
    found = fate(_on_base(claim, base, sides))
    if mutant.operator == LAYOUT and found.state == "equivalent" and mutant.kind != "rule":
        return Fate("never differs", found.why)
    if found.state == "equivalent" and dead is not None and not _reached(dead, base, sides):
        return Fate("never differs", NOT_REACHED)
    return found


def _until_wrong(observed: Iterable[Seen]) -> Iterator[Seen]:
    for one in observed:
        yield one
        if one.what == "wrong":
            return


def _signature(claim: Claim) -> Any:
    types = [o.type.dtype for o in claim.op.operands]
    return (
        claim.op.operands,
        types,
        claim.op.attributes,
        claim.op.requires,
        claim.candidate.pins,
        claim.candidate.guards,
    )


def _on_base(claim: Claim, base: list[Bench], sides: Sequence[str]) -> Iterator[Seen]:
    for bench, changed in zip(base, _alike(claim, base)):
        for i in bench.indices():
            pair = {which: _side(bench, changed, which, i, sides) for which in WHICH}
            same = all(_same(pair[which], bench.side(which, i)) for which in WHICH if which in sides)
            yield Seen("same program") if same else seen(bench.claim, pair["expected"], pair["claimed"])


def _same(changed: Recording | str, unchanged: Recording | str) -> bool:
    """Is a changed side the program that it was?"""
    if not isinstance(changed, Recording) or not isinstance(unchanged, Recording):
        return False
    return same_program(changed.program, unchanged.program)


def _side(bench: Bench, changed: Claim, which: Any, index: int, sides: Sequence[str]) -> Recording | str:
    given = bench.given(index)
    assert given is not None
    return recorded(getattr(changed, which), given) if which in sides else bench.side(which, index)


def _alike(claim: Claim, base: list[Bench]) -> list[Claim]:
    """The claim, over as many ranks as each bench."""
    return [b.claim for b in benches(claim, base[0].profile, base[0].seed)]


def _reached(dead: Claim, base: list[Bench], sides: Sequence[str]) -> bool:
    """Is what was changed evaluated on any input?"""
    return any(one.what == "no value" for one in _on_base(dead, base, sides))


def _on_own_inputs(mutant: Mutant, claim: Claim, profile: Profile, seed: int) -> Iterator[Seen]:
    """A claim for other operands: first where only the unchanged one does not hold, then wherever it says it does."""
    aimed = (
        []
        if mutant.aimed is None
        else [evolve(claim, op=evolve(claim.op, requires=(*claim.op.requires, mutant.aimed)))]
    )
    for one in (*aimed, claim):
        for bench in benches(one, profile, seed):
            try:
                for i in range(profile.cases):
                    if bench.given(i) is None:
                        break
                    yield bench.holds(i)
            except (
                Starved,
                AttributeError,
                *REFUSED,
            ) as error:  # a claim that no text states may have no inputs at all
                yield Seen("not this case", str(error))


# ---- definitions


def try_definition(mutant: Mutant, program: Program, related: Iterable[tuple[Claim, list[Bench]]]) -> Fate:
    """The fate of a mutant of an op's equations: by the claims that say otherwise what the op is."""
    fates: list[Fate] = []
    for claim, base in related:
        changed = in_program(claim, program, mutant.made)
        dead = None if mutant.dead is None else in_program(claim, program, mutant.dead)
        found = try_claim(mutant, changed, base, dead, ("expected", "claimed"))
        if found.state == "killed":
            return Fate("killed", f"{claim.name}: {found.why}")
        fates.append(Fate("not run", UNSAID) if found.why == NOT_REACHED else found)
    for state in ("survived", "never differs", "equivalent", "refused"):
        found = next((f for f in fates if f.state == state), None)
        if found is not None:
            return Fate("never differs") if state == "equivalent" else found
    return fates[0] if fates else Fate("not run", UNSAID)


def in_program(claim: Claim, program: Program, op: OpDef) -> Claim:
    """A claim where an op is another one."""
    changed = evolve(claim, program=evolve(program, ops={**program.ops, op.name: op}))
    return evolve(changed, op=op) if claim.kind in ("form", "impl") and claim.op.name == op.name else changed


# ---- kernels


def try_kernel(mutant: Mutant, base: list[Bench]) -> Fate:
    """The fate of a broken kernel: by the judge, against the reference of the claim."""
    found = fate(_kernel_seen(mutant, base))
    proved = mutant.proof and found.state in ("survived", "never differs")
    return Fate("equivalent", mutant.proof) if proved else found


def _kernel_seen(mutant: Mutant, base: list[Bench]) -> Iterator[Seen]:
    unary: dict[Any, tuple[Bench, Straight]] = {}
    for bench in base:
        for i in bench.indices():
            recording = bench.side("expected", i)
            assert isinstance(recording, Recording)
            yield _broken(bench, recording, mutant)
            if len(recording.program.inputs) == 1:
                unary.setdefault(
                    (recording.program.inputs[0][0], len(recording.program.steps)), (bench, recording.program)
                )
    for bench, program in unary.values():
        for inputs in every_value(program):
            yield _broken(bench, Recording(program, inputs, walk(program, inputs, Eager())), mutant)


def _broken(bench: Bench, recording: Recording, mutant: Mutant) -> Seen:
    try:
        written = broken_results(recording, mutant.made)
    except Exception as error:  # noqa: BLE001 (a fault that cannot be carried out raises whatever torch raises)
        return Seen("no value", f"{type(error).__name__}: {error}".split("\n")[0])
    return Seen("not this case", "no such step") if written is None else judged(bench.claim, recording, written)
