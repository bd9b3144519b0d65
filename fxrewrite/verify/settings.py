"""What a left side is applied to: operands of chosen types, as they are in a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

from attrs import frozen
from torch import Tensor

from fxrewrite.dsl.core import OpDef
from fxrewrite.verify.assign import Assignment, Space
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.shaped import filled, shaped

Wanted = Mapping[str, Sequence[Any]]
RANKED = {"rows": (6,), "length": (3,)}  # what a plain setting has, where it may
USUAL = (64, 128, 32, 16, 8, 4)


@frozen(eq=False)
class Setting:
    """What a left side is applied to."""

    assignment: Assignment
    operands: tuple[Any, ...]

    @classmethod
    def of(cls, claim: Claim, assignment: Assignment) -> Setting:
        """Operands of the types of a choice: normal numbers, a row of zeros, a tiny and a huge one among them."""
        given = filled(shaped(claim, assignment), "normal", crc32(claim.name.encode()), 0)
        return cls(assignment, tuple(map(_varied, given.operands)))

    def tensors(self) -> list[Tensor]:
        """The tensors among the operands."""
        return [t for o in self.operands for t in (o if isinstance(o, list) else [o]) if isinstance(t, Tensor)]

    def names(self, op: OpDef) -> list[str]:
        """The operand of `op` that each of these tensors is of."""
        return [
            info.name
            for info, o in zip(op.operands, self.operands)
            for t in (o if isinstance(o, list) else [o])
            if isinstance(t, Tensor)
        ]

    def filled(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The operands, with other tensors in the place of theirs."""
        given = iter(tensors)
        return [
            [next(given) for _ in o] if isinstance(o, list) else next(given) if isinstance(o, Tensor) else o
            for o in self.operands
        ]


def plain(space: Space, wanted: Wanted) -> Assignment:
    """Small sizes, present operands, first values, but for what is wanted. Raises `assign.Starved`."""
    first = {v.name: USUAL if v.kind == "dim" else v.values for v in space.variables if v.kind != "star"}
    return space.choose(Random(0), {**first, **RANKED, **wanted})


def _varied(operand: Any) -> Any:
    if not isinstance(operand, Tensor) or operand.ndim < 2 or operand.shape[0] < 4 or not operand.numel():
        return operand
    if operand.dtype.is_floating_point and operand.element_size() > 1:
        operand[0] = 0.0
        operand[1] *= 1e-7
        operand[2] *= 1e3
    return operand
