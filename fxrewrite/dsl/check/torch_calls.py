"""Calls of torch ops against their schemas: which arguments there are, what is written, how many values return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.core import Lit, Nothing, TorchCall
from fxrewrite.dsl.schemas.schema import Schema

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator

NEAREST_LAST = ("RW204", "RW211", "RW222", "RW307")  # the nearest overload is the one whose fault comes last here


@frozen
class Given:
    """What a call gives for one argument: its text and value, its name where it goes by keyword, `out` or `mut`.

    `absent`: the name of what may be `none` there.
    """

    text: Any
    value: Any = None
    name: str | None = None
    mark: str = ""
    absent: str | None = None

    @property
    def is_none(self) -> bool:
        """Is it `none`, so that there is nothing to write to?"""
        return isinstance(self.value, Nothing) or self.value == Lit(None)


@frozen
class TorchOp:
    """A call of a torch op. `results`: where it stands alone as a form or provider, the results of that op."""

    func: str
    at: syntax.Span
    given: tuple[Given, ...]
    rest: bool = False
    results: tuple[str, ...] | None = None


def overloads(elab: Elaborator, func: str, at: syntax.Span) -> tuple[Schema, ...]:
    """The schemas that a dotted name stands for; none where nothing is known of it. RW205 where there is no such op."""
    if "." not in func:
        raise Problem("RW205", f"`{func}` is no torch op", at, "a torch op has a dotted name, as `aten.silu`")
    op, overload = _named(func)
    space, _, name = op.partition(".")
    known = elab.checker.schemas
    elab.checker.remark(op, at)
    found = known.find(op)
    if not found:
        if known.is_complete(space):
            hint = closest(op, [f"{space}.{n}" for n in known.names(space)]) or _elsewhere(name)
            raise Problem("RW205", f"{space} has no op `{name}`", at, hint)
        return ()
    if overload is None:
        return found
    fitting = tuple(s for s in found if s.overload == overload)
    if not fitting:
        have = [s.overload or "default" for s in found]
        hint = closest(func, [f"{op}.{o}" for o in have]) or f"its overloads: {', '.join(have)}"
        raise Problem("RW205", f"{op} has no overload `{overload}`", at, hint)
    return fitting


def _named(func: str) -> tuple[str, str | None]:
    """`namespace.name`, and the overload as a schema has it: None where every overload is meant."""
    space, name, *overload = func.split(".")
    return f"{space}.{name}", None if not overload else "" if overload == ["default"] else ".".join(overload)


def _elsewhere(name: str) -> str:
    return f"`fxrewrite check --bind` asks the torch that is installed, which may have `{name}`"


def returned(elab: Elaborator, call: TorchOp) -> int | None:
    """How many values a call returns; None where its schema is not known, or where it returns one list.

    Raises Problem where no schema of its name fits: RW204, RW211 for arguments, RW222 for what is written.
    """
    known = overloads(elab, call.func, call.at)
    if not known:
        return None
    faults = [_fault(schema, call) for schema in known]
    fitting = [s for s, fault in zip(known, faults) if fault is None]
    if not fitting:
        raise max((f for f in faults if f), key=_nearness)
    counts = {None if s.returns[-1:] == ("Tensor[]",) and len(s.returns) == 1 else len(s.returns) for s in fitting}
    return counts.pop() if len(counts) == 1 else None


def _nearness(fault: Problem) -> tuple[int, tuple[int, int]]:
    """The more names of a call an overload has, the nearer it is: they are looked at in the order of the call."""
    code, at = fault.diagnostic.code, fault.diagnostic.span
    return NEAREST_LAST.index(code), (at.line, at.column) if code == "RW211" else (0, 0)


def _fault(schema: Schema, call: TorchOp) -> Problem | None:
    """Why a call is none of this overload."""
    taken: dict[str, Given] = {}
    by_position = [g for g in call.given if g.name is None]
    for argument, g in zip(schema.positional, by_position):
        taken[argument.name] = g
    if len(by_position) > len(schema.positional) and not schema.variadic:
        return _too_many(schema, call, by_position)
    for g in call.given:
        if g.name is None:
            continue
        if schema.argument(g.name) is None or g.name in taken:
            message = f"`{g.name}` is given twice" if g.name in taken else f"{call.func} has no argument `{g.name}`"
            hint = closest(g.name, [a.name for a in schema.arguments if a.name not in taken]) or shown(schema)
            return Problem("RW211", message, g.text.span, hint)
        taken[g.name] = g
    for a in schema.arguments:
        g = taken.get(a.name)
        if g is None and a.default is None and (a.written or not call.rest):
            return Problem("RW204", f"{call.func} needs `{a.name}`", call.at, shown(schema))
        if g is not None and a.written != bool(g.mark) and not (g.is_none and not g.mark):
            return _unmarked(call, a.name, g) if a.written else _not_written(schema, call, a.name, g)
        if g is not None and g.is_none and not a.type.endswith("?"):
            return Problem("RW307", f"`{a.name}` of {call.func} may not be `none`", g.text.span, shown(schema))
        if g is not None and g.absent is not None and not a.type.endswith("?"):
            message = f"`{a.name}` of {call.func} may not be `none`, and `{g.absent}` may"
            return Problem("RW307", message, g.text.span, f"write `when {g.absent} != none`")
    return None


def _too_many(schema: Schema, call: TorchOp, by_position: list[Given]) -> Problem:
    count = len(schema.positional)
    least = "at most " if any(a.default is not None for a in schema.positional) else ""
    where = " by position" if count < len(schema.arguments) else ""
    message = f"{call.func} takes {least}{count} argument{'' if count == 1 else 's'}{where}, not {len(by_position)}"
    return Problem("RW204", message, by_position[count].text.span, shown(schema))


def _unmarked(call: TorchOp, argument: str, g: Given) -> Problem:
    message = f"{call.func} writes its argument `{argument}`"
    name = g.text.name if isinstance(g.text, syntax.Var) else None
    if call.results is None:
        hint = f"a call that writes stands alone behind the name of a form or provider: `{call.func}(mut ...)`"
    elif name is None:
        hint = "name the value under `where`, and write `mut` before the name"
    elif name in call.results:
        hint = f"write `out {name}`"
    else:
        told = {n for x in call.given for n in (getattr(x.text, "becomes", None), getattr(x.text, "name", None))}
        free = next((r for r in call.results if r not in told), None)
        hint = f"write `mut {name} as {free}`" if free else f"write `mut {name}`"
    return Problem("RW222", message, g.text.span, hint)


def _not_written(schema: Schema, call: TorchOp, argument: str, g: Given) -> Problem:
    written = [a.name for a in schema.arguments if a.written]
    does = f"it writes {', '.join(f'`{w}`' for w in written)}" if written else "it writes nothing"
    message = f"{call.func} does not write its argument `{argument}`; {does}"
    return Problem("RW222", message, g.text.span, f"remove `{g.mark}`: {shown(schema)}")


def shown(schema: Schema) -> str:
    """A schema as a hint shows it, under its dotted name."""
    return f"`{schema.text.replace('::', '.', 1)}`"


# ---- what is done with the values


@frozen
class Returns:
    """How many values each call of an item returns, where that is known."""

    counts: dict[TorchCall, int] = field(factory=dict[TorchCall, int])

    def check(self, call: TorchCall, index: int, span: syntax.Span) -> None:
        """RW203 where a call has no value of that index."""
        count = self.counts.get(call)
        if count is not None and index > 0 and index >= count:
            values = "nothing" if count == 0 else "1 value" if count == 1 else f"{count} values"
            hint = "what it writes is marked: `out`, `mut`" if count == 0 else "they count from 0"
            raise Problem("RW203", f"{call.op} returns {values}; there is no `.{index}`", span, hint)
