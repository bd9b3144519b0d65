"""Claims about groups of ranks: one claim for each number of ranks, and each way in which operands lie on them.

    for ranked in ranked_claims(claim):                    # over 1, 2, 4 and 8 ranks
        record(lambda a, xs: ranked.expected(a, xs, attributes), operands)     # results `h@0`, `h@1`, ...

Operands are those of one rank; what the others have is made of them. An operand under a guard `replicated(r)` is equal
on all ranks. Whether the others are is not said, so both are tried: where they differ, each rank has the same numbers
in other places, or one rank has them all, and the rest zeros, so that a sum over the ranks is what was generated, ties
included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs
import torch
from attrs import evolve, field, frozen
from torch import Tensor

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Apply, Operand, TorchCall
from fxrewrite.dsl.evaluate import Algebra, Bindings
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.straight import Recorded, Recorder
from fxrewrite.verify.world import Ranked, World, at_rank, meets_elsewhere

SIZES = (1, 2, 4, 8)
Way = Literal["moved", "alone", "equal"]
WAYS: tuple[Way, ...] = ("moved", "alone", "equal")


@frozen
class RankedClaim(Claim):
    """A claim over `size` ranks. `way`: how operands that may differ lie on the ranks.

    `expected` and `claimed` call the result `y` of rank 1 `y@1`; their algebra is a `Recorder`.
    """

    size: int = field(default=1, kw_only=True)
    way: Way = field(default="moved", kw_only=True)

    @property
    def label(self) -> str:
        """The number of ranks, and how operands lie on them."""
        return f"{self.size} rank{'s' if self.size > 1 else ''}, {self.way}"

    def _bound(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Bindings:
        assert isinstance(algebra, Recorder)
        same = must_be_equal(self)
        ranked = [self._spread(algebra, x, o.name in same) for o, x in zip(self.op.operands, operands)]
        return super()._bound(World(algebra, self.size), ranked, attributes)

    def _spread(self, recorder: Recorder, x: Any, same: bool) -> Any:
        if isinstance(x, list):
            return [self._spread(recorder, v, same) for v in x]
        if not isinstance(x, Recorded):
            return x
        parts = [x.tensor] * self.size if same else on_ranks(x.tensor, self.size, self.way)
        return Ranked(tuple(recorder.operand(p) for p in parts))

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        named = super()._named(values)
        return {f"{name}@{rank}": at_rank(v, rank) for name, v in named.items() for rank in range(self.size)}


def is_ranked(claim: Claim) -> bool:
    """Is it about groups of ranks?"""
    return any(a.type == "group" for a in claim.op.attributes)


def ranked_claims(claim: Claim, sizes: Iterable[int] = SIZES) -> Iterator[RankedClaim]:
    """The claim over each number of ranks, in each way, its groups pinned.

    One rank has one way, and equal operands are tried on two. There is one claim where ranks meet in an op that is not
    for one process, which says so, and for a fusion, whose two sides are one definition whatever the ranks.
    """
    parts = {name: getattr(claim, name) for name in attrs.fields_dict(Claim)}
    worlds: list[tuple[int, Way]] = [(n, w) for n in sizes for w in _ways(n)]
    if _says_enough(claim):
        worlds = [(2, "moved")]
    for size, way in worlds:
        groups = [(a.name, Group(a.name, size)) for a in claim.op.attributes if a.type == "group"]
        parts["candidate"] = evolve(claim.candidate, pins=(*claim.candidate.pins, *groups))
        parts["facts"] = {**claim.facts, "world": size}
        yield RankedClaim(**parts, size=size, way=way)


def _ways(size: int) -> tuple[Way, ...]:
    return WAYS[:1] if size == 1 else WAYS if size == 2 else WAYS[:2]


def _says_enough(claim: Claim) -> bool:
    """Does one number of ranks say what all of them would?"""
    called = [t.op for t in walk(claim.candidate.outputs) if isinstance(t, TorchCall)]
    made = claim.program.ops.get(claim.name.rpartition(".")[2])
    return any(map(meets_elsewhere, called)) or (claim.kind == "rule" and made is not None and made.is_fusion)


def ranked_profile(profile: Profile, size: int) -> Profile:
    """What is tried over `size` ranks: few rows, since every rank has them, and a sum over n ranks costs 3^n."""
    return evolve(profile, cases=max(4, profile.cases // 8), rows=8 if size < 8 else 16, wide=False)


def must_be_equal(claim: Claim) -> frozenset[str]:
    """The operands that the claim has equal on all ranks."""
    guards = [g for g in (*claim.op.requires, *claim.candidate.guards) if isinstance(g, Apply) and g.op == "replicated"]
    return frozenset(g.args[0].name for g in guards if isinstance(g.args[0], Operand))


def on_ranks(x: Tensor, size: int, way: Way) -> list[Tensor]:
    """What each of `size` ranks has, made of `x`; the first one is `x` unless it is alone on the last."""
    if way == "equal":
        return [x] * size
    if way == "alone" and x.dtype.is_floating_point and x.numel() > 1:
        return [*(torch.zeros(x.shape, dtype=torch.float32).to(x.dtype) for _ in range(size - 1)), x]
    return [moved(x, rank) for rank in range(size)]


def moved(x: Tensor, rank: int) -> Tensor:
    """What another rank has: the same numbers in other rows and columns; a single one is multiplied."""
    if rank == 0:
        return x
    if x.numel() == 1:
        return (x.float() * (1 + rank)).to(x.dtype) if x.dtype.is_floating_point else x.clone()
    turned = x.view(torch.uint8) if x.element_size() == 1 else x
    for axis, n in enumerate(x.shape):
        turned = turned.roll(rank * (n // 3 + 1), axis)
    return turned.view(x.dtype)
