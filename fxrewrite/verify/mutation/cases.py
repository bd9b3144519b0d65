"""Mutants of forms and providers, and of definitions: equations, forms and `impl`s are one kind of thing, a `Case`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from attrs import evolve

from fxrewrite.dsl.core import Apply, Attribute, Case, OpDef, Program
from fxrewrite.verify.mutation.mutant import Kind, Mutant
from fxrewrite.verify.mutation.operators import LAYOUT, changes
from fxrewrite.verify.mutation.rules import weaker
from fxrewrite.verify.mutation.scalars import other_values, shown, shown_value
from fxrewrite.verify.rebuild import replaced, unreachable


def mutants_of_case(op: OpDef, case: Case, program: Program) -> Iterator[Mutant]:
    """Every mutant of a form or provider; `made` is the changed case."""
    subject = f"{op.name}/{case.name}"
    yield from _of_outputs("form", subject, op, case, program)
    for i, guard in enumerate(case.guards):
        rest = (*case.guards[:i], *case.guards[i + 1 :])
        weak = [(f"`{shown(guard)}` left out", rest)]
        weak += [
            (f"`{shown(guard)}` -> `{shown(w)}`", (*case.guards[:i], w, *case.guards[i + 1 :])) for w in weaker(guard)
        ]
        for what, guards in weak:
            made = evolve(case, guards=guards)
            yield Mutant("form", subject, "guard dropped", "when", what, made, Apply("not", (guard,)), span=case.span)
    yield from _of_pins(subject, op, case)


def mutants_of_definition(op: OpDef, program: Program) -> Iterator[Mutant]:
    """Every mutant of the equations of an op; `made` is the changed op."""
    for i, equation in enumerate(op.equations):
        for mutant in _of_outputs("definition", op.name, op, equation, program):
            equations, dead = list(op.equations), list(op.equations)
            equations[i], dead[i] = mutant.made, mutant.dead or equation
            place = mutant.place if len(op.equations) == 1 else f"equation {i + 1}"
            made, gone = evolve(op, equations=tuple(equations)), evolve(op, equations=tuple(dead))
            yield evolve(mutant, made=made, dead=gone if mutant.dead else None, place=place)


def _of_outputs(kind: Kind, subject: str, op: OpDef, case: Case, program: Program) -> Iterator[Mutant]:
    place = "spelling" if kind == "form" else "equation"
    for change in changes(case.outputs, program, op.attributes):
        made = evolve(case, outputs=replaced(case.outputs, change.old, change.new))
        dead = evolve(case, outputs=replaced(case.outputs, change.old, unreachable(change.old)))
        span = change.span or case.span
        yield Mutant(kind, subject, change.operator, place, change.what, made, dead=dead, span=span)
    for i, j in combinations(range(len(case.outputs)), 2):
        outputs = list(case.outputs)
        outputs[i], outputs[j] = outputs[j], outputs[i]
        what = f"{op.results[i].name} and {op.results[j].name} exchanged"
        made = evolve(case, outputs=tuple(outputs))
        yield Mutant(kind, subject, "outputs exchanged", place, what, made, span=case.span)


def _of_pins(subject: str, op: OpDef, case: Case) -> Iterator[Mutant]:
    for i, (name, value) in enumerate(case.pins):
        attribute = op.attribute(name)
        for other in _other_pins(attribute, value) if attribute is not None else ():
            pins = (*case.pins[:i], (name, other), *case.pins[i + 1 :])
            what = f"{name}={shown_value(value)} -> {name}={shown_value(other)}"
            operator = LAYOUT if attribute is not None and attribute.type == "layout" else "another pin"
            yield Mutant("form", subject, operator, "pins", what, evolve(case, pins=pins), span=case.span)


def _other_pins(attribute: Attribute, value: Any) -> list[Any]:
    found = attribute.domain if attribute.domain is not None else tuple(other_values(value))
    return [v for v in found if v != value][:2]
