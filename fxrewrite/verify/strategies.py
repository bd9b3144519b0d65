"""What claims are tried on: a list of hostile cases, always the same for a seed, and Hypothesis strategies.

for given in cases(claim, QUICK, seed=0):
    claim.expected(algebra, given.operands, given.attributes)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Any

from attrs import define, field, frozen

from fxrewrite.verify.aimed import aimed
from fxrewrite.verify.assign import Space, Starved
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.domains import Group
from fxrewrite.verify.layouts import LAYOUTS
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.shaped import EVERY, Given, Shaped, filled, shaped

__all__ = ["Given", "Starved", "cases"]


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
        made = plan.next(cell, number)
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
    used: Counter[tuple[str, Any]] = field(factory=Counter[tuple[str, Any]])

    def next(self, cell: Cell, number: int) -> Shaped:
        """The operands of a cell."""
        wanted: dict[str, Sequence[Any]] = {"rows": (cell.rows,)}
        for v in self.space.variables:
            if v.kind in ("dim", "size", "each"):
                if v.name in self.space.widths:
                    wanted[v.name] = (cell.width,)
            elif v.values and isinstance(v.values[0], Group):
                wanted[v.name] = v.values[:1]
            elif v.values:
                plain = number % 2 == 0 and isinstance(v.values[0], float)
                wanted[v.name] = v.values[:1] if plain else self.least(v.name, v.values)
        chosen = self.space.choose(self.random, wanted)
        self.used.update((n, v) for n, v in (*chosen.attributes.items(), *chosen.dtypes.items()))
        self.used.update((n, False) for n in chosen.absent)
        present = [v.name for v in self.space.variables if v.kind == "present" and v.name not in chosen.absent]
        self.used.update((n, True) for n in present)
        turn = count(number // 2)
        return shaped(self.claim, chosen, lambda: LAYOUTS[next(turn) % len(LAYOUTS)] if number % 2 else LAYOUTS[0])

    def least(self, name: str, values: Sequence[Any]) -> list[Any]:
        """The values, those that were used least first."""
        return sorted(values, key=lambda v: self.used[name, v])
