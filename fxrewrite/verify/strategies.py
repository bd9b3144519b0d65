"""What claims are tried on: a list of hostile cases, always the same for a seed, and Hypothesis strategies.

for given in cases(claim, QUICK, seed=0):
    claim.expected(algebra, given.operands, given.attributes)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from attrs import define, field, frozen

from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import MARK, Apply, Case, OpDef, Program
from fxrewrite.dsl.wording import said
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.aimed import aimed
from fxrewrite.verify.assign import RESTARTS, Space, Starved
from fxrewrite.verify.assignment import Assignment
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.layouts import LAYOUTS
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.shaped import EVERY, Given, Shaped, filled, shaped
from fxrewrite.verify.straight import record_side

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Given", "Starved", "acceptance", "cases", "claim_strategy", "left_out", "planned", "signature_strategy"]


@frozen
class Cell:
    """A kind of values, a width and a number of rows.

    `aims`: are scales searched for among the values they meet? `plain`: are attributes at their first values?
    """

    kind: str
    width: int
    rows: int
    aims: bool = False
    plain: bool = False


OFTEN = 4  # how often a value is asked for that never fits
AGAIN = 4  # searches for another choice, where one was found before
HOSTILE = (
    "amax last", "amax first", "scaled midpoints", "nan", "amax is a code", "inf", "-inf", "negative", "integers",
    "huge", "zero groups", "offset", "tiny", "outlier", "mixed magnitudes", "saturating", "subnormal",
    "powers and neighbours",
)  # fmt: skip  # alone; the first matter most
ALIKE = ("signed zeros", "constant")  # alone, too: a row or two show them
APART = tuple(layout for layout in LAYOUTS if layout != "broadcast")  # in which rows differ
COUNTS = (0, 1, 2, 129, 3, 127, 128)  # of tokens


def cells(profile: Profile, mixes_rows: bool) -> list[Cell]:
    """What a profile tries, the most telling first.

    `mixes_rows`: rows share a scale, so that a row of NaN hides the others: kinds stand alone.
    """
    rows = profile.rows
    kinds, alike = cycle(HOSTILE if mixes_rows else (EVERY,)), cycle(ALIKE)
    found = [Cell(next(kinds), w, rows) for w in (128, 64, 100, 1)]
    found += [Cell(next(kinds), 64, rows), Cell(next(kinds), 384, rows // 4)]
    found += [Cell("normal", (64, 100)[i % 2], rows, aims=True, plain=i % 2 == 0) for i in range(profile.aimed)]
    found += [Cell(next(kinds), 4096, 16)] if profile.wide else []
    few = cycle(HOSTILE)
    for n in COUNTS:
        found.append(Cell(next(kinds if mixes_rows else few), 64, rows // 8))
        other = "normal" if n == 0 or not mixes_rows else next(alike if n < 3 else kinds)
        found.append(Cell(other, 64, n))
    widths = cycle((100, 32, 128, 96, 64, 192, 1, 256))
    while len(found) < profile.cases:
        found.append(Cell(next(kinds) if len(found) % 2 else next(few), next(widths), rows // 2))
    return found[: profile.cases]


def mixes_rows(claim: Claim) -> bool:
    """Does a row of some result depend on other rows?"""
    called = [claim.program.ops[c.op] for c in calls_of(claim.candidate.outputs)] if claim.reference else [claim.op]
    return any(not op.rowwise for op in called)


def cases(claim: Claim, profile: Profile, seed: int) -> Iterator[Given]:
    """Inputs for a claim. Raises Starved where no operands satisfy what it requires."""
    for number, (cell, made) in enumerate(planned(claim, profile, seed)):
        given = filled(made, cell.kind, seed, number)
        if cell.aims:
            given = aimed(claim, given, seed + number) or given
        yield given


def planned(claim: Claim, profile: Profile, seed: int) -> Iterator[tuple[Cell, Shaped]]:
    """The cases before they have values. Raises Starved."""
    plan = _Plan(claim, Space.of(claim), Random(f"{seed} {claim.name}"))
    for cell in cells(profile, mixes_rows(claim)):
        yield cell, plan.next(cell)


@define(eq=False)
class _Plan:
    """What has been used of each variable: the next case takes what was used least."""

    claim: Claim
    space: Space
    random: Random
    used: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])
    asked: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]])
    made: int = 0
    last: Assignment | None = None

    def next(self, cell: Cell) -> Shaped:
        """The operands of a cell."""
        wanted: dict[str, Sequence[Any]] = {"rows": (cell.rows,)}
        for v in self.space.variables:
            if v.kind in ("dim", "size", "each"):
                if v.name in self.space.widths:
                    wanted[v.name] = (cell.width,)
            elif v.values:
                first = isinstance(v.values[0], Group) or (isinstance(v.values[0], float) and self.half())
                first |= cell.plain and v.kind == "attribute"
                wanted[v.name] = v.values[:1] if first else self.least(v.name, v.values)
        chosen = self.chosen(wanted)
        self.note(chosen)
        self.made += 1
        varied = LAYOUTS if cell.kind == "normal" and not cell.aims else APART
        layouts = varied if self.half() else LAYOUTS[:1]
        return shaped(self.claim, chosen, lambda: self.layout(layouts))

    def layout(self, layouts: Sequence[str]) -> str:
        """The layout of the next tensor."""
        if len(layouts) == 1:
            return layouts[0]
        found = self.least("layout", layouts)[0]
        self.used["layout", repr(found)] += 1
        return found

    def chosen(self, wanted: Mapping[str, Sequence[Any]]) -> Assignment:
        """A choice; the one before again, where a search finds none of those that there are."""
        try:
            self.last = self.space.choose(self.random, wanted, RESTARTS if self.last is None else AGAIN)
        except Starved:
            if self.last is None:
                raise
        return self.last

    def half(self) -> bool:
        """Is it one of the half of all times?"""
        return self.random.random() < 0.5

    def least(self, name: str, values: Sequence[Any]) -> list[Any]:
        """The values: one that never was before one that was; then those that were used least, by chance, too, so that
        no two variables go in step. `none` stands first in every third case."""
        at = {id(v): (name, repr(v)) for v in values}
        never = {i for i, k in at.items() if not self.used[k] and self.asked[k] < OFTEN}
        found = sorted(values, key=lambda v: -1 if id(v) in never else self.used[at[id(v)]] + 2 * self.random.random())
        if None in values:
            turn = (self.made + crc32(name.encode())) % 3 == 0
            found.sort(key=lambda v: (v is None) != turn)
        self.asked[at[id(found[0])]] += 1
        return found

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


def acceptance(claim: Claim, made: Iterable[Given]) -> Acceptance:
    """Ask the reference of a claim for each case."""
    tried, refused = 0, Counter[str]()
    for given in made:
        tried += 1
        try:
            record_side(claim.expected, given.operands, given.attributes)
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
