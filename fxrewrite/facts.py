"""Natives of the shipped vocabulary: facts about values that conditions cannot spell."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.core import BINARY, UNARY

PER_ELEMENT = frozenset((*UNARY, *BINARY, "to", "clamp", "aten.cos", "aten.sin", "aten.clone"))
DEEPEST = 64  # steps from a value to what it is made of


def doubled(x: Any) -> bool | None:
    """Are the two halves of the last axis equal? None where that does not show.

    `x`: a value of a graph, followed back through elementwise steps and reshapes that keep the last axis to the `cat`
    of one value with itself, as Hugging Face makes its cos and sin, or to the copy along a new axis that Inductor makes
    of such a `cat`; or a tensor, which is compared.
    """
    if not hasattr(x, "op"):
        half, rest = divmod(x.shape[-1], 2)
        if rest:
            return False
        a, b = x[..., :half], x[..., half:]
        return bool(((a == b) | (a != a) & (b != b)).all())  # NaN beside NaN is equal, too
    for _ in range(DEEPEST):
        below = [a for a in x.args if hasattr(a, "op")]
        if x.op == "cat":
            return True if len(below) == 2 and below[0] is below[1] and x.attrs == (-1,) else None
        if x.op == "reshape" and _twice(below[0], x.shape[-1]):
            return True
        keeps = x.op in PER_ELEMENT or (x.op == "reshape" and below[0].shape[-1:] == x.shape[-1:])
        if not keeps or len(below) != 1:
            return None
        x = below[0]
    return None


def _twice(x: Any, width: Any) -> bool:
    """Is it [.., 2, width / 2], the same along the axis of 2?"""
    while x.op == "aten.clone":
        x = x.args[0]
    spread = x.op == "expand" and len(x.shape) > 1 and x.shape[-2] == 2 and 2 * x.shape[-1] == width
    return spread and x.args[0].shape[-2:] == (1, x.shape[-1])
