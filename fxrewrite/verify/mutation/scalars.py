"""Numbers, sizes, dtypes and attributes that stand where another one should: the operators on scalars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from fxrewrite.dsl import core, dims
from fxrewrite.dsl.core import Apply, Attribute, Dtype, Lit, Ref, Size
from fxrewrite.dsl.wording import said, text

# What is taken for what: a wider or narrower neighbour.
DTYPES = {
    "f32": ("bf16",),
    "bf16": ("f16", "f32"),
    "f16": ("bf16", "f32"),
    "e4m3fn": ("e5m2", "e4m3fnuz"),
    "e4m3fnuz": ("e4m3fn",),
    "e5m2": ("e4m3fn",),
    "i8": ("u8",),
}
NUDGE = 1 + 2.0**-7  # about a step of bf16
LAYOUTS = ("row", "col")


@frozen
class Scope:
    """The attributes that an item may name."""

    attributes: tuple[Attribute, ...] = ()

    def type_of(self, name: str) -> str | None:
        """The type of an attribute in scope."""
        return next((a.type for a in self.attributes if a.name == name), None)

    def like(self, name: str) -> Iterator[str]:
        """Other attributes of the same type."""
        type_ = self.type_of(name)
        yield from (a.name for a in self.attributes if a.type == type_ and a.name != name)


def shown(x: Any) -> str:
    """A scalar as the text of a rule has it."""
    if isinstance(x, Apply) and x.op in ("list", "shape_list"):
        return "[" + ", ".join(str(a) if isinstance(a, dims.Dim | dims.Star) else shown(a) for a in x.args) + "]"
    if isinstance(x, core.Number):
        return shown(x.value)
    if isinstance(x, Lit):
        return shown_value(x.value)
    return x.name if isinstance(x, Ref) else "_" if isinstance(x, core.Wild) else said(x)


def shown_value(value: Any) -> str:
    """A value as the text of a rule has it."""
    return "[" + ", ".join(map(shown_value, value)) + "]" if isinstance(value, tuple) else text(value)


def others(x: Any, scope: Scope) -> Iterator[Any]:
    """What may stand for a scalar by mistake."""
    if isinstance(x, Lit):
        yield from (Lit(v) for v in other_values(x.value))
    elif isinstance(x, Ref):
        yield from (Ref(n) for n in scope.like(x.name))
        if scope.type_of(x.name) == "float":
            yield Apply("*", (x, Lit(10.0)))
    elif isinstance(x, Size):
        yield from (Size(dims.add(x.dim, dims.constant(n))) for n in (1, -1))
        yield from (Size(d) for d in _halved(x.dim))
    elif isinstance(x, Dtype):
        yield from map(Dtype, DTYPES.get(x.name, ()))
    elif isinstance(x, Apply):
        yield from _applied(x, scope)


def other_values(value: Any) -> Iterator[Any]:
    """Neighbours of a value, and what it is often confused with."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (v for v in (value * 10, value * NUDGE, -value if abs(value) > 1e-3 else 0.0) if v != value)
        if value == 0.0:
            yield 1e-3
    elif isinstance(value, Dtype):
        yield from map(Dtype, DTYPES.get(value.name, ()))
    elif isinstance(value, str) and value in LAYOUTS:
        yield from (v for v in LAYOUTS if v != value)
    elif isinstance(value, tuple):
        yield from _other_lists(value)


def _other_lists(value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if len(value) > 1 and value[0] != value[1]:
        yield (value[1], value[0], *value[2:])
    for other in other_values(value[-1]) if value else ():
        yield (*value[:-1], other)


def _halved(dim: dims.Dim) -> Iterator[dims.Dim]:
    """`2*D` taken for `D`, and back."""
    if dim.name is not None:
        yield dims.scale(dim, 2)
    elif dim.terms and not dim.const and len(dim.terms) == 1 and dim.terms[0][1] == 2:
        yield dims.Dim(((dim.terms[0][0], 1),))


def _applied(x: Apply, scope: Scope) -> Iterator[Any]:
    if x.op == "neg":
        yield x.args[0]
    elif x.op == "finfo.max":
        yield from (Apply("*", (x, Lit(f))) for f in (0.5, 2.0))
        yield Apply("finfo.smallest_normal", x.args)
    elif x.op in ("list", "shape_list"):
        yield from (Apply(x.op, a) for a in _other_elements(x.args))
    elif x.op == "//":
        yield Apply("//", (x.args[0], Apply("*", (x.args[1], Lit(2)))))
    elif x.op == "compose":
        yield Apply("compose", x.args[::-1])
    elif x.op == "shape" and len(x.args) == 2:
        yield from (Apply("shape", (x.args[0], a)) for a in others(x.args[1], scope))


def _other_elements(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """A list with its last two elements exchanged."""
    if len(items) > 1 and items[-1] != items[-2]:
        yield (*items[:-2], items[-1], items[-2])
