"""A claim on its inputs, made once for all mutants of a subject, and what a mutant does there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import define, field, frozen
from torch import Tensor

from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.equal import CannotTry, compare
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.ranked import is_ranked, ranked_claims
from fxrewrite.verify.same import same_values
from fxrewrite.verify.straight import Recorder, Recording, Slot, Step, Straight, record_side
from fxrewrite.verify.strategies import Given, Starved, cases

RANKS = (2, 4)  # over how many a claim about ranks is tried
COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum"))
REFUSED = (
    RuntimeError,
    IndexError,
    TypeError,
    ValueError,
    AssertionError,
    ZeroDivisionError,
    KeyError,
)  # torch's own, and ours

HOLDS = ("same program", "same values", "other values")
Which = Literal["expected", "claimed"]
WHICH: tuple[Which, ...] = ("expected", "claimed")
Side = Callable[[Recorder, Sequence[Any], Mapping[str, Any]], dict[str, Any]]
What = Literal["wrong", "same program", "same values", "other values", "no value", "not judged", "not this case"]


@frozen
class Seen:
    """What a mutant does on one input: `said` where it is wrong, or has no value."""

    what: What
    said: str = ""


@define
class Bench:
    """The inputs of a claim and what both of its sides give on them; each made when it is first asked for."""

    claim: Claim
    profile: Profile
    seed: int
    made: list[Given] = field(factory=list[Given])
    sides: dict[tuple[str, int], Recording | str] = field(factory=dict[tuple[str, int], "Recording | str"])
    base: dict[int, Seen] = field(factory=dict[int, "Seen"])
    source: Iterator[Given] | None = None

    def given(self, index: int) -> Given | None:
        """An input by number; None after the last one. Raises Starved."""
        if self.source is None:
            self.source = iter(cases(self.claim, self.profile, self.seed))
        while len(self.made) <= index:
            found = next(self.source, None)
            if found is None:
                return None
            self.made.append(found)
        return self.made[index]

    def side(self, which: Which, index: int) -> Recording | str:
        """What the unchanged claim gives on an input, or why it has no value there."""
        key = (which, index)
        if key not in self.sides:
            given = self.given(index)
            assert given is not None
            self.sides[key] = recorded(getattr(self.claim, which), given)
        return self.sides[key]

    def holds(self, index: int) -> Seen:
        """What comes of the unchanged claim on an input."""
        if index not in self.base:
            self.base[index] = seen(self.claim, self.side("expected", index), self.side("claimed", index))
        return self.base[index]

    def indices(self) -> Iterator[int]:
        """The numbers of the inputs on which the unchanged claim holds. Raises Starved."""
        for i in range(self.profile.cases):
            if self.given(i) is None:
                return
            if self.holds(i).what in HOLDS:
                yield i


def benches(claim: Claim, profile: Profile, seed: int) -> list[Bench]:
    """A bench of a claim; of one about ranks, one for each number of ranks and way of lying on them."""
    if not is_ranked(claim):
        return [Bench(claim, profile, seed)]
    return [Bench(c, profile, seed) for c in ranked_claims(claim, RANKS)]


def recorded(side: Side, given: Given) -> Recording | str:
    """A side of a claim as steps, or why it has no value. Raises NotThisCase."""
    try:
        return record_side(side, given.operands, given.attributes)
    except NotThisCase as error:
        return f"not this case: {error}"
    except (EvaluationError, *REFUSED) as error:
        return str(error).split("\n")[0] or type(error).__name__


def seen(claim: Claim, reference: Recording | str, candidate: Recording | str) -> Seen:
    """What comes of a claim on two recordings."""
    for found in (reference, candidate):
        if isinstance(found, str):
            outside = found.startswith("not this case")
            return Seen("not this case" if outside else "no value", found)
    assert isinstance(reference, Recording) and isinstance(candidate, Recording)
    if same_program(reference.program, candidate.program):
        return Seen("same program")
    return judged(claim, reference, candidate.results)


def judged(claim: Claim, reference: Recording, written: Mapping[str, Tensor]) -> Seen:
    """What was written, held against the reference."""
    wanted = reference.results
    if all(n in written and same_values(t, written[n]) for n, t in wanted.items()) and not _is_bitwise(claim):
        return Seen("same values")
    try:
        wrong, _ = compare(claim.contract, reference, written)
    except CannotTry as error:
        return Seen("not judged", str(error))
    if wrong:
        return Seen("wrong", next(f"{n}: {said}" for n, said in wrong.items()))
    return Seen("same values" if _is_bitwise(claim) else "other values")


def _is_bitwise(claim: Claim) -> bool:
    return claim.contract is not None and claim.contract.kind == "bitwise"


# ---- when two programs are one


def same_program(a: Straight, b: Straight) -> bool:
    """Are both the same steps, the order of independent ones and of arguments that may be swapped aside?"""
    if a.inputs != b.inputs or len(a.outputs) != len(b.outputs):
        return False
    known: dict[Any, int] = {}
    ours, theirs = (_numbered(program, known) for program in (a, b))
    return [ours[s] for _, s in a.outputs] == [theirs[s] for _, s in b.outputs]


def _numbered(program: Straight, known: dict[Any, int]) -> list[int]:
    """A number for the value of each slot: equal numbers are equal values. Opaque steps are as their text says."""
    numbers = list(range(len(program.inputs)))
    for slot, step in enumerate(program.steps, len(program.inputs)):
        key = _key(program, slot, step, numbers)
        numbers.append(known.setdefault(key, len(known) + len(program.inputs)))
    return numbers


def _key(program: Straight, slot: int, step: Step, numbers: list[int]) -> Any:
    args = [("slot", numbers[a.index]) if isinstance(a, Slot) else (type(a).__name__, a) for a in step.args]
    if step.op in COMMUTATIVE:
        args.sort(key=str)
    opaque = None if step.opaque is None else step.text or (id(program), slot)
    return step.op, tuple(args), step.params, step.dtype, step.shape, opaque


__all__ = ["Bench", "Seen", "Starved", "benches", "judged", "recorded", "same_program", "seen"]
