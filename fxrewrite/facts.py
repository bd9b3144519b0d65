"""Natives of the shipped vocabulary: facts about values that conditions cannot spell."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.core import BINARY, UNARY

PER_ELEMENT = frozenset((*UNARY, *BINARY, "to", "clamp"))
DEEPEST = 64  # steps from a value to what it is made of


def doubled(x: Any) -> bool | None:
    """Are the two halves of the last axis equal? None where that does not show.

    `x`: a value of a graph, followed back through elementwise steps and reshapes that keep the last axis to the `cat`
    of one value with itself, as Hugging Face makes its cos and sin; or a tensor, which is compared.
    """
    if not hasattr(x, "op"):
        half, rest = divmod(x.shape[-1], 2)
        return not rest and bool((x[..., :half] == x[..., half:]).all())
    for _ in range(DEEPEST):
        if x.op == "cat":
            return True if len(x.args) == 2 and x.args[0] is x.args[1] and x.attrs == (-1,) else None
        below = [a for a in x.args if hasattr(a, "op")]
        keeps = x.op in PER_ELEMENT or (x.op == "reshape" and below[0].shape[-1:] == x.shape[-1:])
        if not keeps or len(below) != 1:
            return None
        x = below[0]
    return None
