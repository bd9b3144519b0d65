"""What claims are tried on: a list of hostile cases, always the same for a seed, and Hypothesis strategies.

for given in cases(claim, QUICK, seed=0):
    claim.expected(algebra, given.operands, given.attributes)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import MARK, Apply, Case, OpDef, Program
from fxrewrite.dsl.wording import said
from fxrewrite.lowering.eager import Torch
from fxrewrite.verify.aimed import aimed
from fxrewrite.verify.assign import Assignment, Space, Starved
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.domains import Group
from fxrewrite.verify.layouts import LAYOUTS
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.shaped import EVERY, Given, Shaped, filled, shaped

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Given", "Starved", "acceptance", "cases", "claim_strategy", "left_out", "signature_strategy"]


@frozen
class Cell:
    """A kind of values, a width and a number of rows. `aims`: are scales searched for among the values they meet?"""

    kind: str
    width: int
    rows: int
    aims: bool = False


HOSTILE = (
    "scaled midpoints", "amax is a code", "nan", "inf", "zero groups", "signed zeros", "amax of groups", "huge", "tiny",
    "integers", "amax last", "subnormal", "outlier", "offset", "mixed magnitudes", "powers and neighbours",
)  # fmt: skip  # alone, for what mixes rows; the first matter most
COUNTS = (0, 1, 2, 129, 3, 127, 128)  # of tokens


def cells(profile: Profile) -> list[Cell]:
    """What a profile tries, the most telling first."""
    rows = profile.rows
    found = [Cell(EVERY, w, rows) for w in (128, 64, 100, 1)]
    found += [Cell("scaled midpoints", 64, rows), Cell(EVERY, 384, rows // 4)]
    found += [Cell("normal", (64, 100)[i % 2], rows, aims=True) for i in range(profile.aimed)]
    found += [Cell(EVERY, 4096, 16)] if profile.wide else []
    few = [Cell(k, 64, 8) for k in HOSTILE]
    counts = [Cell("normal", 64, n) for n in COUNTS]
    found += [c for pair in zip(few, counts) for c in pair] + few[len(counts) :]
    width = 0
    while len(found) < profile.cases:
        width += 1
        found += [Cell(EVERY, (100, 32, 128, 96, 64, 192, 1, 256)[width % 8], rows // 2)]
    return found[: profile.cases]


def cases(claim: Claim, profile: Profile, seed: int) -> Iterator[Given]:
    """Inputs for a claim. Raises Starved where no operands satisfy what it requires."""
    plan = _Plan(claim, Space.of(claim), Random(f"{seed} {claim.name}"))
    for number, cell in enumerate(cells(profile)):
        made = plan.next(cell)
        given = filled(claim, made, cell.kind, seed, number)
        if cell.aims:
            given = aimed(claim, given, seed + number) or given
        yield given


@define(eq=False)
class _Plan:
    """What has been used of each variable: the next case takes what was used least."""

    claim: Claim
    space: Space
    random: Random
    used: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])

    def next(self, cell: Cell) -> Shaped:
        """The operands of a cell."""
        wanted: dict[str, Sequence[Any]] = {"rows": (cell.rows,)}
        for v in self.space.variables:
            if v.kind in ("dim", "size", "each"):
                if v.name in self.space.widths:
                    wanted[v.name] = (cell.width,)
            elif v.values:
                first = isinstance(v.values[0], Group) or (isinstance(v.values[0], float) and self.half())
                wanted[v.name] = v.values[:1] if first else self.least(v.name, v.values)
        chosen = self.space.choose(self.random, wanted)
        self.note(chosen)
        layouts = LAYOUTS if self.half() else LAYOUTS[:1]
        return shaped(self.claim, chosen, lambda: self.random.choice(layouts))

    def half(self) -> bool:
        """Is it one of the half of all times?"""
        return self.random.random() < 0.5

    def least(self, name: str, values: Sequence[Any]) -> list[Any]:
        """The values, those that were used least first; by chance, too, so that no two variables go in step."""
        return sorted(values, key=lambda v: self.used[name, repr(v)] + 2 * self.random.random())

    def note(self, chosen: Assignment) -> None:
        """What has been used once more."""
        present = {v.name: v.name not in chosen.absent for v in self.space.variables if v.kind == "present"}
        used = {**chosen.attributes, **chosen.dtypes, **present}
        self.used.update((n, repr(v)) for n, v in used.items())


# ---- Hypothesis


def signature_strategy(op: OpDef, pins: Mapping[str, Any], program: Program | None = None) -> SearchStrategy[Shaped]:
    """Sizes, dtypes, attributes and layouts for an op, some of them fixed. `program`: where the ops are that it calls.

    Drawing raises Starved where nothing satisfies what the op requires.
    """
    known = program or Program({op.name: op}, (), {}, {})
    return claim_strategy(Claim("op", op.name, known, op, Case("op", (), tuple(pins.items())), span=op.span))


def claim_strategy(claim: Claim) -> SearchStrategy[Shaped]:
    """Sizes, dtypes, attributes and layouts for a claim; what comes first of each is the simplest."""
    from hypothesis import strategies as st

    space = Space.of(claim)
    variables = [v for v in space.variables if v.values and v.name != space.rows]

    @st.composite
    def draw_shaped(draw: Any) -> Shaped:
        wanted: dict[str, Any] = {v.name: (draw(st.sampled_from(v.values)),) for v in variables if v.kind != "each"}
        wanted["rows"] = (draw(st.sampled_from((1, 2, 5, 0, 127, 128, 129))),)
        chosen = space.choose(Random(draw(st.integers(0, 2**16))), wanted)
        return shaped(claim, chosen, lambda: draw(st.sampled_from(LAYOUTS)))

    return draw_shaped()


# ---- what is refused, and what is not asked


@frozen
class Acceptance:
    """How many of the cases that were made a claim is for. `refused`: why not, with how many."""

    tried: int
    accepted: int
    refused: Mapping[str, int]

    @property
    def rate(self) -> float:
        """The share that it is for; 1 of none."""
        return self.accepted / self.tried if self.tried else 1.0


def acceptance(claim: Claim, made: Iterable[Given]) -> Acceptance:
    """Ask the reference of a claim for each case."""
    tried, refused = 0, Counter[str]()
    for given in made:
        tried += 1
        try:
            claim.expected(Torch(), given.operands, given.attributes)
        except (NotThisCase, ValueError, RuntimeError, IndexError) as error:
            refused[str(error).splitlines()[0]] += 1
    return Acceptance(tried, tried - sum(refused.values()), refused)


GRAPH_ONLY = {  # facts that no operands show, and what shows them
    "tokens": "the site", "sm": "the machine", "rocm": "the machine", "world": "the process group",
    "fresh": "who else reads a value", "donated": "the host", "written": "the graph", "replicated": "the other ranks",
    "same_layout": "the layout that a compiler chooses",
}  # fmt: skip


def left_out(claim: Claim) -> dict[str, str]:
    """The guards that inputs do not have to satisfy, as text, and what decides them."""
    found: dict[str, str] = {}
    for condition in (*claim.op.requires, *claim.candidate.guards):
        for x in walk(condition):
            if isinstance(x, Apply) and x.op in GRAPH_ONLY:
                found[said(condition)] = GRAPH_ONLY[x.op]
            elif isinstance(x, Apply) and x.op.startswith(MARK):
                found[said(condition)] = f"the native {x.op.removeprefix(MARK)}"
    return found
