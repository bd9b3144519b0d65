"""Mutants of rules: of both sides, of the guards, of the types, of the outputs and of captured attributes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from attrs import evolve

from fxrewrite.dsl import core, dims
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import NO_DEFAULT, Apply, DtypeVar, Lit, Program, Ref, RuleDef, Size, TensorType
from fxrewrite.verify.free_names import free, with_call
from fxrewrite.verify.mutation.mutant import Mutant
from fxrewrite.verify.mutation.operators import changes
from fxrewrite.verify.mutation.scalars import shown, shown_value
from fxrewrite.verify.rebuild import replaced, unreachable


def mutants_of_rule(rule: RuleDef, program: Program) -> Iterator[Mutant]:
    """Every mutant of a rule; `made` is the changed rule."""
    yield from _of_sides(rule, program)
    yield from _of_guards(rule)
    yield from _of_outputs(rule)
    yield from _of_captured(rule)
    yield from _of_types(rule, program)
    yield from _of_kept(rule)


def _mutant(rule: RuleDef, operator: str, place: str, what: str, aimed: Any = None, **changed: Any) -> Mutant:
    return Mutant("rule", rule.full_name, operator, place, what, evolve(rule, **changed), aimed, span=rule.span)


def _of_sides(rule: RuleDef, program: Program) -> Iterator[Mutant]:
    attributes = (*rule.attributes, *free((*rule.left, *rule.right), rule.attributes))
    for place in ("right", "left"):
        side = getattr(rule, place)
        for change in changes(side, program, attributes):
            made = evolve(rule, **{place: replaced(side, change.old, change.new)})
            dead = evolve(rule, **{place: replaced(side, change.old, unreachable(change.old))})
            span = change.span or rule.span
            yield Mutant("rule", rule.full_name, change.operator, place, change.what, made, dead=dead, span=span)


def _of_outputs(rule: RuleDef) -> Iterator[Mutant]:
    for i, j in combinations(range(len(rule.right)), 2):
        if rule.right[i] != rule.right[j]:
            right = list(rule.right)
            right[i], right[j] = right[j], right[i]
            what = f"outputs {i + 1} and {j + 1} exchanged"
            yield _mutant(rule, "outputs exchanged", "right", what, right=tuple(right))


# ---- guards: those that are lost, and those that say less


def _of_guards(rule: RuleDef) -> Iterator[Mutant]:
    for i, guard in enumerate(rule.guards):
        rest = (*rule.guards[:i], *rule.guards[i + 1 :])
        outside = Apply("not", (guard,))
        yield _mutant(rule, "guard dropped", "requires", f"`{shown(guard)}` left out", outside, guards=rest)
        for weak in weaker(guard):
            what = f"`{shown(guard)}` -> `{shown(weak)}`"
            guards = (*rule.guards[:i], weak, *rule.guards[i + 1 :])
            yield _mutant(rule, "guard loosened", "requires", what, outside, guards=guards)


def weaker(guard: Any) -> Iterator[Any]:
    """Conditions that hold where the guard does, and elsewhere."""
    if not isinstance(guard, Apply):
        return
    if guard.op in ("and", "all"):
        for i in range(len(guard.args)):
            yield Apply(guard.op, (*guard.args[:i], *guard.args[i + 1 :]))
    elif guard.op in ("<", ">"):
        yield Apply(guard.op + "=", guard.args)
    elif guard.op in ("<=", ">="):
        by = Lit(1 if guard.op == "<=" else -1)
        yield Apply(guard.op, (guard.args[0], Apply("+", (guard.args[1], by))))
    elif guard.op == "or":
        yield from _more_choices(guard)
    elif guard.op == "==":
        yield from _smaller_divisor(guard)


def _more_choices(guard: Apply) -> Iterator[Any]:
    """`G in {64, 128}` takes 256, too."""
    last = guard.args[-1]
    if (
        isinstance(last, Apply)
        and last.op == "=="
        and isinstance(last.args[1], Lit)
        and type(last.args[1].value) is int
    ):
        yield Apply("or", (*guard.args, Apply("==", (last.args[0], Lit(2 * last.args[1].value)))))


def _smaller_divisor(guard: Apply) -> Iterator[Any]:
    """`D % 128 == 0` takes half of 128."""
    of = guard.args[0]
    if not isinstance(of, Size) or len(of.dim.terms) != 1:
        return
    atom, factor = of.dim.terms[0]
    if isinstance(atom, dims.Compound) and atom.op == "%" and (divisor := atom.right.number or 0) > 2:
        half = dims.combine("%", atom.left, dims.constant(divisor // 2))
        yield Apply("==", (Size(dims.scale(half, factor)), *guard.args[1:]))


# ---- attributes, types, names that stay


def _of_captured(rule: RuleDef) -> Iterator[Mutant]:
    """A captured attribute that the left side takes at any value and the right side does not get."""
    for attribute in rule.attributes:
        if attribute.default is NO_DEFAULT:
            continue
        ref = Ref(attribute.name)
        left = with_attribute(rule.left, ref, core.Wild())
        right = with_attribute(rule.right, ref, Lit(attribute.default))
        if left is not rule.left and not _mentions(right, ref) and not _mentions(left, ref):
            what = f"{attribute.name}=_ on the left, {attribute.name}={shown_value(attribute.default)} on the right"
            yield _mutant(rule, "attribute ignored", "left", what, left=left, right=right)


def with_attribute(terms: Any, ref: Ref, new: Any) -> Any:
    """Terms with `new` for every attribute of a call that is `ref`."""
    for call in [x for x in walk(terms) if isinstance(x, core.Call)]:
        attrs = tuple((n, new if v == ref else v) for n, v in call.attrs)
        if attrs != call.attrs:
            terms = with_call(terms, call, attrs)
    return terms


def _mentions(whole: Any, ref: Ref) -> bool:
    """Does anything in it read the attribute?"""
    return ref in [x for x in walk(whole) if isinstance(x, Ref)]


def _of_types(rule: RuleDef, program: Program) -> Iterator[Mutant]:
    for i, info in enumerate(rule.operands):
        for name, members in _wider(info.type, program):
            type_ = evolve(info.type, dtype=DtypeVar(f"{name}#loosened", members))
            operands = (*rule.operands[:i], evolve(info, type=type_), *rule.operands[i + 1 :])
            what = f"{info.name}: {info.type.dtype} -> {name}"
            yield _mutant(rule, "dtype loosened", "signature", what, operands=operands)


def _wider(type_: TensorType, program: Program) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The smallest class of dtypes that holds all that the type admits, and more."""
    if isinstance(type_.dtype, DtypeVar):
        own = set(type_.dtype.members)
    elif isinstance(type_.dtype, core.Dtype):
        own = {type_.dtype.name}
    else:
        return
    wider = [(n, m) for n, m in program.dtypes.items() if own < set(m)]
    yield from sorted(wider, key=lambda found: len(found[1]))[:1]


def _of_kept(rule: RuleDef) -> Iterator[Mutant]:
    for name in rule.kept:
        kept = tuple(k for k in rule.kept if k != name)
        yield _mutant(rule, "keep dropped", "where", f"`keep` of {name} left out", kept=kept)
