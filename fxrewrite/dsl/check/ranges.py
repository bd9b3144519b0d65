"""Conditions on sizes that no sizes meet: `D < 0`, `D // 2 == 3` with `D == 8`, `T > D` with `T <= D`.

Every dim is 1 or more. A comparison of whole numbers bounds a sum of dims; bounds are handed on between sums, their
dims and what is made of them (`//`, `%`, `*`, `up`) until one is empty, or for a few rounds: what is not refuted by
that counts as possible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Apply, Attribute, Lit, Ref, Scalar, Size
from fxrewrite.dsl.dims import Atom, Compound, Dim

Range = tuple[float, float]  # both ends are in it; the infinite ones apart, they are whole
Terms = tuple[tuple[Atom, int], ...]
Test = tuple[Terms, Range]

EVERY: Range = (-math.inf, math.inf)
POSITIVE = ("rows", "numel", "bytes", "world", "group.size", "shape")
MAX_CASES, ROUNDS = 32, 6
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def unmet(conds: Iterable[Scalar], attributes: Mapping[str, Attribute]) -> tuple[Scalar, ...] | None:
    """As few of the conditions as can be that no sizes meet together; None where sizes may."""
    left = [*conds]
    if not _refuted(left, attributes):
        return None
    for condition in [*left]:
        rest = [c for c in left if c is not condition]
        if _refuted(rest, attributes):
            left = rest
    return tuple(left)


def _refuted(conds: list[Scalar], attributes: Mapping[str, Attribute]) -> bool:
    """Is every way in which these could hold impossible?"""
    ways = [_cases(c, True, attributes) for c in conds]
    ways = [w for w in ways if w != [[]]]
    if not ways or math.prod(map(len, ways)) > MAX_CASES:
        return False
    return all(_Ranges(attributes).refute([*itertools.chain(*chosen)]) for chosen in itertools.product(*ways))


# ---- conditions as bounds of sums


def _cases(condition: Scalar, holds: bool, attributes: Mapping[str, Attribute]) -> list[list[Test]]:
    """The ways in which a condition can hold (or not), each as tests; [[]] where it says nothing of sizes."""
    if not isinstance(condition, Apply):
        return [[]] if condition != Lit(not holds) else []
    if condition.op == "not":
        return _cases(condition.args[0], not holds, attributes)
    if condition.op in ("and", "or"):
        left, right = (_cases(a, holds, attributes) for a in condition.args)
        if (condition.op == "and") != holds:
            return [*left, *right]
        return [[*a, *b] for a in left for b in right] if len(left) * len(right) <= MAX_CASES else [[]]
    test = _test(condition, holds, attributes)
    return [[]] if test is None else [[test]]


def _test(condition: Apply, holds: bool, attributes: Mapping[str, Attribute]) -> Test | None:
    """A comparison of whole numbers as the bounds of a sum of dims; None for what is none."""
    op = condition.op if holds else _INVERSE.get(condition.op)
    if op is None or op not in _WITHIN:
        return None
    left, right = condition.args
    if isinstance(left, Lit):
        left, right, op = right, left, _MIRRORED.get(op, op)
    sum_, other = _whole(left, attributes), _whole(right, attributes)
    if sum_ is None:
        return None
    if other is not None:
        difference = dims.add(sum_, other, -1)
        return _scaled(difference.terms, _WITHIN[op](-difference.const))
    if isinstance(right, Lit) and isinstance(right.value, float) and math.isfinite(right.value):
        low, high = _WITHIN[op](right.value)
        return _scaled(sum_.terms, (low - sum_.const, high - sum_.const))
    return None


def _whole(x: Any, attributes: Mapping[str, Attribute]) -> Dim | None:
    """A whole number as a sum; what is made of a tensor or of the machine is a name of its own."""
    if isinstance(x, Size):
        return x.dim
    if isinstance(x, Lit):
        return dims.constant(x.value) if type(x.value) is int else None
    if isinstance(x, Ref):
        found = attributes.get(x.name)
        return dims.name(x.name) if found is not None and found.type == "int" and not found.optional else None
    if not isinstance(x, Apply):
        return None
    if x.op == "neg" or (x.op in ("+", "-", "*", "//", "%") and len(x.args) == 2):
        parts = [_whole(a, attributes) for a in x.args]
        if None in parts:
            return None
        first, *others = (p for p in parts if p is not None)
        return dims.combine(x.op, first, others[0]) if others else dims.scale(first, -1)
    return dims.name(f"{x.op}?{x}") if x.op in POSITIVE and (x.op != "shape" or len(x.args) == 2) else None


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WITHIN: dict[str, Callable[[float], Range]] = {  # the whole numbers that compare so with a number
    "<": lambda n: (-math.inf, math.ceil(n) - 1),
    "<=": lambda n: (-math.inf, math.floor(n)),
    ">": lambda n: (math.floor(n) + 1, math.inf),
    ">=": lambda n: (math.ceil(n), math.inf),
    "==": lambda n: (math.ceil(n), math.floor(n)),
}


def _scaled(terms: Terms, within: Range) -> Test:
    """The test with a sum that equal sums share: the first coefficient is positive, and no number divides them all."""
    if not terms:
        return terms, within
    divisor = math.gcd(*(c for _, c in terms)) * (1 if terms[0][1] > 0 else -1)
    low, high = within if divisor > 0 else within[::-1]
    return tuple((a, c // divisor) for a, c in terms), (_up(low, divisor), _down(high, divisor))


# ---- bounds of sums, handed on


@define(eq=False, repr=False)
class _Ranges:
    """The range of every atom and of every sum that a test is about."""

    attributes: Mapping[str, Attribute]
    sums: dict[Terms, Range] = field(factory=dict[Terms, Range])
    atoms: dict[Atom, Range] = field(factory=dict[Atom, Range])

    def refute(self, tests: list[Test]) -> bool:
        """Can no sizes meet all of these?"""
        for terms, within in tests:
            self.sums[terms] = _both(self.sums.get(terms, EVERY), within)
        for _ in range(ROUNDS):
            before = (dict(self.sums), dict(self.atoms))
            for terms in self.sums:
                if self.bound(terms):
                    return True
            if before == (self.sums, self.atoms):
                return False
        return False

    def bound(self, terms: Terms) -> bool:
        """Hand on the range of a sum to its atoms and back; is one of them empty?"""
        within = self.sums[terms] = _both(self.sums[terms], self.sum(terms))
        if _empty(within):
            return True
        for atom, coefficient in terms:
            rest = self.sum(tuple(t for t in terms if t[0] != atom))
            low, high = within[0] - rest[1], within[1] - rest[0]
            low, high = (low, high) if coefficient > 0 else (high, low)
            mine = _both(self.atom(atom), (_up(low, coefficient), _down(high, coefficient)))
            if _empty(mine):
                return True
            self.atoms[atom] = mine
            if isinstance(atom, Compound) and self.inside(atom, mine):
                return True
        return False

    def inside(self, atom: Compound, within: Range) -> bool:
        """`n // k` bounds n where k is a number; is that empty?"""
        by = atom.right.number
        if atom.op != "//" or by is None or by < 1 or not atom.left.terms:
            return False
        low, high = within[0] * by - atom.left.const, within[1] * by + by - 1 - atom.left.const
        terms, scaled = _scaled(atom.left.terms, (low, high))
        have = _both(self.sum(terms), scaled)
        if len(terms) == 1 and terms[0][1] == 1:
            self.atoms[terms[0][0]] = have
        return _empty(have)

    def sum(self, terms: Terms) -> Range:
        """The range of a sum, from those of its atoms."""
        low, high = self.sums.get(terms, EVERY)
        least: float = 0
        most: float = 0
        for atom, coefficient in terms:
            ends = [e * coefficient for e in self.atom(atom)]
            least, most = least + min(ends), most + max(ends)
        return max(low, least), min(high, most)

    def atom(self, atom: Atom) -> Range:
        """The range of a dim or of what is made of dims."""
        known = self.atoms.get(atom, EVERY)
        if isinstance(atom, Compound):
            return _both(known, _made(atom.op, self.dim(atom.left), self.dim(atom.right)))
        return _both(known, self.name(atom))

    def dim(self, dim: Dim) -> Range:
        """The range of an integer expression."""
        low, high = self.sum(dim.terms)
        return low + dim.const, high + dim.const

    def name(self, name: str) -> Range:
        """The range of a name before anything is said of it."""
        attribute = self.attributes.get(name)
        if attribute is not None:
            whole = [v for v in attribute.domain or () if type(v) is int]
            return (min(whole), max(whole)) if whole and len(whole) == len(attribute.domain or ()) else EVERY
        return (1, math.inf) if name[0].isupper() or name.partition("?")[0] in POSITIVE else EVERY


def _made(op: str, left: Range, right: Range) -> Range:
    """The range of `left op right`, for a right side of 1 or more."""
    low, high = right
    if low < 1:
        return EVERY
    if op == "*":
        ends = [a * b if a else 0 for a in left for b in right]
        return (min(ends), max(ends)) if left[0] >= 0 else EVERY
    if op == "//":
        if left[0] < 0:
            return EVERY
        return 0 if math.isinf(high) else _down(left[0], high), _down(left[1], low)
    if op == "%":
        if low == high and left[0] == left[1] and math.isfinite(left[0]):
            return (left[0] % low, left[0] % low)
        return (left[0], left[1]) if left[0] >= 0 and left[1] < low else (0, high - 1)
    if low == high and math.isfinite(left[0]):  # up(n, m)
        return _up(left[0], low) * low, _up(left[1], low) * low
    return left[0], math.inf


def _both(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), min(a[1], b[1])


def _empty(a: Range) -> bool:
    return a[0] > a[1]


def _up(x: float, divisor: float) -> float:
    """`x / divisor`, rounded up."""
    return -_down(-x, divisor)


def _down(x: float, divisor: float) -> float:
    """`x / divisor`, rounded down."""
    return x // divisor if math.isfinite(x) else x if divisor > 0 else -x
