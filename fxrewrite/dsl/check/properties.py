"""`property` clauses: operands that rows follow, effects and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.core import Attribute, OperandInfo

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

PROPERTIES = ("rowwise", "elementwise", "commutative", "writes", "reads", "collective")
EFFECTS = ("writes", "reads", "collective")


@frozen
class Properties:
    """The row-wise operands, those of them that are elementwise, effects (kind, key), and two operands that may be
    exchanged.
    """

    rowwise: tuple[str, ...]
    elementwise: tuple[str, ...]
    effects: tuple[tuple[str, str], ...]
    swaps: tuple[str, ...]


def properties(
    checker: Checker,
    found: tuple[syntax.Property, ...],
    name: str,
    operands: tuple[OperandInfo, ...],
    attributes: tuple[Attribute, ...],
) -> Properties:
    """What properties say. Raises Problem: RW226 for an unknown one, RW202, RW204, RW208, RW310 for what they name."""
    rowwise: tuple[str, ...] = ()
    elementwise: tuple[str, ...] = ()
    effects: list[tuple[str, str]] = []
    swaps: tuple[str, ...] = ()
    for prop in found:
        place = checker.places.word(prop.span, prop.name)
        if prop.name not in PROPERTIES:
            hint = closest(prop.name, PROPERTIES) or f"one of {', '.join(PROPERTIES)}"
            raise Problem("RW226", f"unknown property `{prop.name}`", place, hint)
        _names(checker, prop, name, operands, attributes)
        _count(prop, place, operands)
        if prop.name in ("rowwise", "elementwise"):
            rowwise = tuple(dict.fromkeys((*rowwise, *prop.names)))
            elementwise += prop.names if prop.name == "elementwise" else ()
        elif prop.name in EFFECTS:
            effects += [(prop.name, n) for n in prop.names]
        else:
            swaps = prop.names
    return Properties(rowwise, tuple(dict.fromkeys(elementwise)), tuple(effects), swaps)


def _names(
    checker: Checker,
    prop: syntax.Property,
    item: str,
    operands: tuple[OperandInfo, ...],
    attributes: tuple[Attribute, ...],
) -> None:
    """RW202 for a name that the op does not have, RW208 for one said twice, RW310 for one of the wrong type."""
    tensors = {o.name for o in operands if o.kind == "tensor"}
    groups = {a.name for a in attributes if a.type == "group"}
    known = {o.name for o in operands} | {a.name for a in attributes}
    for i, n in enumerate(prop.names):
        at = checker.places.word(prop.span, n)
        if n not in known:
            hint = closest(n, known) or f"its operands: {', '.join(sorted(o.name for o in operands))}"
            raise Problem("RW202", f"`{n}` is no operand of {item}", at, hint)
        if n in prop.names[:i]:
            again = checker.places.word(prop.span, n, prop.names[: i + 1].count(n) - 1)
            raise Problem("RW208", f"`{n}` is named twice in this property", again, "remove one")
        if prop.name == "collective" and n not in groups:
            raise Problem("RW310", f"`{n}` is no group of ranks", at, f"declare it so: `; {n}: group`")
        if prop.name not in EFFECTS and n not in tensors:
            hint = f"its tensors: {', '.join(sorted(tensors))}"
            raise Problem("RW310", f"`{n}` is no tensor: {prop.name} is about tensors", at, hint)


def _count(prop: syntax.Property, place: syntax.Span, operands: tuple[OperandInfo, ...]) -> None:
    """RW204 where a property names too few operands, or, of two that swap, another number."""
    if prop.name == "commutative" and len(prop.names) != 2:
        message = f"commutative names two operands that may be swapped, not {len(prop.names)}"
        raise Problem("RW204", message, place, "`commutative(x, y)`")
    if not prop.names:
        first = operands[0].name if operands else "x"
        raise Problem("RW204", f"{prop.name} names what it is about", place, f"`{prop.name}({first})`")
