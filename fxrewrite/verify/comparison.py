"""How the results of two runs of a model may be compared: bit for bit, within tolerances, or by the user's function.

Each comparison gets the results before and after, and says how they differ, or None where they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxrewrite.verify.captured import Captured, Results
from fxrewrite.verify.same import difference

Compare = Callable[[Results, Results], str | None]


class CompareFailed(Exception):
    """The comparison itself raised, or gave no answer."""


def bitwise(before: Results, after: Results) -> str | None:
    """Equal bits, dtypes, shapes and strides; one NaN is as good as another."""
    return _each(before, after, difference)


def within(rtol: float, atol: float) -> Compare:
    """|after - before| <= atol + rtol * |before| for each element, in float64; equal NaNs; what is no tensor equal."""

    def differ(a: Any, b: Any) -> str | None:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return difference(a, b)
        wide = torch.complex128 if a.dtype.is_complex else torch.float64
        x, y = a.to(wide), b.to(wide)
        wrong = ~torch.isclose(y, x, rtol=rtol, atol=atol, equal_nan=True)
        if not wrong.any():
            return None
        at = tuple(int(i) for i in wrong.nonzero()[0])
        share = wrong.double().mean().item()
        return f"{share:.2%} of {a.dtype}{list(a.shape)} outside, first at {at}: {x[at].item()} became {y[at].item()}"

    return lambda before, after: _each(before, after, differ)


def by_function(function: Callable[[Any, Any], Any], name: str, program: Captured) -> Compare:
    """The user's `function(before, after)` of what the model returns: true where they are as good as equal."""

    def compare(before: Results, after: Results) -> str | None:
        try:
            found = function(program.shown(before.outputs), program.shown(after.outputs))
            if found is None:
                raise CompareFailed(f"{name} returned None: return True or False")
            return None if bool(found) else f"{name} says no"
        except CompareFailed:
            raise
        except Exception as error:
            raise CompareFailed(f"{name} raised {type(error).__name__}: {error}".split("\n")[0]) from error

    return compare


def _each(before: Results, after: Results, differ: Callable[[Any, Any], str | None]) -> str | None:
    for kind in ("outputs", "written"):
        a, b = getattr(before, kind), getattr(after, kind)
        if len(a) != len(b):
            return f"{len(a)} {kind} became {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            found = differ(x, y)
            if found is not None:
                return f"{'output' if kind == 'outputs' else 'what is written to input'} {i}: {found}"
    return None
