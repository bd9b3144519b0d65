"""Vocabulary ops to core: signature, equations, `requires`, forms and providers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions, narrow_formats, samples
from fxrewrite.dsl.check.claims import check_claims
from fxrewrite.dsl.check.contradiction import domain, never, possible
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.natives import check_source
from fxrewrite.dsl.check.places import names_in, outputs_span
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.properties import properties
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import check_size, determined, say
from fxrewrite.dsl.check.solver import show
from fxrewrite.dsl.check.spellings import Spell, map_pins, spelled_at, spelling
from fxrewrite.dsl.check.terms import names_of
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Case,
    DtypeVar,
    Nothing,
    OpDef,
    Operand,
    OperandInfo,
    Ref,
    ResultInfo,
    Sample,
    Scalar,
    TensorType,
)
from fxrewrite.dsl.dims import Dim, Star, names

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

PROVIDERS = ("kernel", "generated", "definition", "op")
MAX_ASKED = 6  # attributes whose combinations are tried


# ---- signature


def op_signature(checker: Checker, op: syntax.Op) -> OpDef:
    """The signature of an op, before its equations are looked at."""
    unique(checker, op.params)
    attrs = tuple(checker.signatures.attribute(p) for p in op.params.attributes)
    own = {a.name: a.type for a in attrs}
    _all_typed(checker, op.params)
    operands = tuple(_operand(checker, p, own) for p in op.params.operands)
    classes = {o.type.dtype.key for o in operands if isinstance(o.type.dtype, DtypeVar)}
    results = tuple(checker.signatures.result(r, own, classes) for r in op.results)
    _result_names(checker, op, results)
    said = properties(checker, op.properties, op.name, operands, attrs)
    if not op.equations and op.ref is None:
        hint = 'write `= ...`, or `ref "package:function"`: a form only says how the op looks'
        raise Problem(
            "RW225",
            f"{op.name} has no meaning: neither an equation nor a `ref`",
            checker.places.word(op.span, op.name),
            hint,
        )
    sig = OpDef(op.name, operands, attrs, results, (), rowwise=said.rowwise, ref=op.ref, contract=op.contract,
                doc=op.doc, span=op.span, effects=said.effects, swaps=said.swaps,
                elementwise=said.elementwise)  # fmt: skip
    for p, a in zip(op.params.attributes, attrs):
        if p.default is not None:
            check_size(a.name, a.default, sig, p.default.span)
    if op.ref is not None:
        head = checker.places.word(op.span, "ref")
        check_source(op.ref, checker.places.behind(head, f'"{op.ref}"'), "`ref`", "RW225")
    _dims(checker, op, sig)
    return sig


def unique(checker: Checker, params: syntax.Params) -> None:
    """RW208 where two parameters have one name."""
    seen: set[str] = set()
    for p in (*params.operands, *params.attributes):
        if p.name in seen:
            place = checker.places.word(p.span, p.name)
            raise Problem("RW208", f"`{p.name}` is declared twice", place, "choose another name")
        seen.add(p.name)
    _defaults_last(checker, params)
    _dims_apart(checker, params, seen - {p.name for p in params.attributes})


def _defaults_last(checker: Checker, params: syntax.Params) -> None:
    """RW204 where an operand that may be left out stands before one that may not."""
    for before, p in zip(params.operands, params.operands[1:]):
        if before.default is not None and p.default is None:
            place = checker.places.word(p.span, p.name)
            message = f"`{before.name}` may be left out, and `{p.name}` behind it may not"
            raise Problem("RW204", message, place, f"put `{p.name}` before `{before.name}`")


def _dims_apart(checker: Checker, params: syntax.Params, taken: set[str]) -> None:
    """RW208 where a dim is called like an operand, or like leading axes."""
    typed = [p.type.dims for p in params.operands if p.type is not None and p.type.dims is not None]
    stars = {d.name for axes in typed for d in axes if isinstance(d, syntax.Splat)}
    for axes in typed:
        for found in names_in(tuple(d for d in axes if not isinstance(d, syntax.Splat))):
            if found.name in taken | stars:
                what = "an operand" if found.name in taken else "leading axes"
                place = checker.places.word(found.span, found.name)
                raise Problem("RW208", f"`{found.name}` is {what} and a dim", place, "choose another name")


def _operand(checker: Checker, p: syntax.Param, own: dict[str, str]) -> OperandInfo:
    info = checker.signatures.operand(p, own)
    assert info is not None, "said by _all_typed"
    return info


def _all_typed(checker: Checker, params: syntax.Params) -> None:
    """RW308 for all operands without a type."""
    bare = [p for p in params.operands if p.type is None]
    if bare:
        names = " and ".join(f"`{p.name}`" for p in bare)
        needs = "needs a type" if len(bare) == 1 else "need types"
        hint = f"`{', '.join(f'{p.name}: real[*B, D]' for p in bare)}`"
        place = checker.places.word(bare[0].span, bare[0].name)
        raise Problem("RW308", f"{names} {needs}: only a fusion infers them", place, hint)


def _result_names(checker: Checker, op: syntax.Op, results: tuple[ResultInfo, ...]) -> None:
    for i, r in enumerate(results):
        if any(r.name == other.name for other in results[:i]):
            place = checker.places.word(op.results[i].span, r.name)
            raise Problem("RW206", f"two results are called {r.name}", place, "name each: `-> (q: T, s: U)`")


def _dims(checker: Checker, op: syntax.Op, sig: OpDef) -> None:
    """RW304 where the sizes of the operands do not say what a dim is."""
    own = {a.name for a in sig.attributes if a.type == "int"}
    known = determined([o.type for o in sig.operands], own)
    there = determined([o.type for o in sig.operands if not o.optional], own)
    stars = {d.name for o in sig.operands for d in o.type.shape or () if isinstance(d, Star)}
    texts = [*((o.type, p.type) for o, p in zip(sig.operands, op.params.operands))]
    for type_, text in (*texts, *((r.type, t.type) for r, t in zip(sig.results, op.results))):
        for dim in type_.shape or ():
            assert text is not None
            if isinstance(dim, Star) and dim.name not in stars:
                if op.equations and type_ in [r.type for r in sig.results] and type_.shape == (dim,):
                    continue  # what the equations compute; `_equation` refuses it where that has a known shape
                place = checker.places.word(text.span, dim.name)
                hint = "use the name that an operand has"
                raise Problem("RW304", f"no operand has the leading axes `*{dim.name}`", place, hint)
            if isinstance(dim, Dim) and not names(dim) <= known:
                raise undetermined(checker, text.span, dim, known)
            if isinstance(dim, Dim) and not names(dim) <= there and text in [r.type for r in op.results]:
                name = min(names(dim) - there)
                place = checker.places.word(text.span, name)
                hint = f"give it: an attribute (`; {name}: int`), or the shape of an operand that is there"
                raise Problem("RW304", f"`{name}` is not known where that operand is `none`", place, hint)


def undetermined(checker: Checker, span: syntax.Span, dim: Dim, known: set[str]) -> Problem:
    """RW304: one size and more than one name that nothing else says."""
    unknown = sorted(names(dim) - known)
    listed = " and ".join(f"`{n}`" for n in unknown)
    message = f"nothing says what {listed} {'is' if len(unknown) == 1 else 'are'}: one size, {dim}"
    hint = f"give it: an attribute (`; {unknown[0]}: int`), or the shape of another operand"
    return Problem("RW304", message, checker.places.word(span, unknown[0]), hint)


# ---- scope


def op_scope(checker: Checker, sig: OpDef) -> tuple[Elaborator, Scope]:
    """An item and the scope in which the text of an op stands: operands, attributes, dims."""
    item = Item(sig.name, checker.places, sig.span or syntax.Span("", 1, 1, 1, 1))
    item.own = {a.name: a for a in sig.attributes}
    scope = Scope(item, item.span.file)
    for o in sig.operands:
        declare_dims(item, scope, o.type)
        declare_class(item, scope, o.type, rigid=True)
        scope.names[o.name] = item.intern(Operand(o.name, o.type, o.optional, o.star, span=o.span))
        if o.kind == "str":
            item.texts.add(o.name)
    for a in sig.attributes:
        item.solver.used.add(a.name)
        item.solver.rigid.add(a.name)
        scope.names[a.name] = Ref(a.name)
        if a.type == "dtype" and a.domain is not None:
            item.solver.domains[a.name] = frozenset(d.name for d in a.domain)
    for r in sig.results:
        for d in r.type.shape or ():
            item.solver.used |= {d.name} if isinstance(d, Star) else names(d)
    return Elaborator(checker, item), scope


def declare_dims(item: Item, scope: Scope, type_: TensorType) -> None:
    """The dims of a written type are the item's own."""
    for d in type_.shape or ():
        for n in {d.name} if isinstance(d, Star) else names(d):
            if n not in item.own:
                item.solver.rigid.add(n)
                item.solver.used.add(n)
                scope.dims[n] = d if isinstance(d, Star) else Dim(((n, 1),))


def declare_class(item: Item, scope: Scope, type_: TensorType, rigid: bool) -> None:
    """The dtype class of a written type is one dtype in the item."""
    if isinstance(type_.dtype, DtypeVar):
        item.solver.used.add(type_.dtype.key)
        scope.classes[type_.dtype.key] = type_.dtype
        if rigid:
            item.solver.rigid.add(type_.dtype.key)


# ---- the whole op


def check_op(checker: Checker, op: syntax.Op, sig: OpDef) -> OpDef:
    """Equations, forms and providers of an op. What is refused is left out, with a diagnostic."""
    equations: list[Case] = []
    for i, equation in enumerate(op.equations):
        case = checker.guard(lambda e=equation, i=i: _equation(checker, op, sig, e, i, equations), op.name)
        if case is None:
            break
        equations.append(case)
    found = checker.guard(lambda: samples_of(checker, op.samples, sig))
    before = len(checker.diagnostics)
    sig = evolve(sig, equations=tuple(equations), samples=found or ())
    made = with_spellings(checker, sig, op.forms, op.impls)
    if len(equations) == len(op.equations):
        checker.guard(lambda: check_claims(checker, op.properties, made))
    if len(equations) == len(op.equations) and op.ref is None:
        unused = _unused(op, sig, equations)
        if unused is None:
            checker.guard(lambda: _complete(checker, op, sig, equations), op.name)
        elif len(checker.diagnostics) == before:  # else what is refused may be why it looks unused
            checker.guard(lambda: _refuse_unused(checker, op, unused), op.name)
    return made


def with_spellings(
    checker: Checker, sig: OpDef, forms: tuple[syntax.Form, ...], impls: tuple[syntax.Impl, ...]
) -> OpDef:
    """`sig` with its forms and providers."""
    for spell in (*forms, *impls):
        sig = checker.guard(lambda spell=spell, sig=sig: add_spelling(checker, sig, spell)) or sig
    return sig


def add_spelling(checker: Checker, sig: OpDef, spell: Spell) -> OpDef:
    """`sig` with one more form or provider; RW208 where it has one of that name."""
    form = isinstance(spell, syntax.Form)
    have = sig.forms if form else sig.impls
    if any(c.name == spell.name for c in have):
        kind = "a form" if form else "an impl"
        place = spelled_at(checker.places, spell)
        raise Problem("RW208", f"{sig.name} has {kind} called `{spell.name}` already", place, "choose another name")
    if not form and spell.name in PROVIDERS:
        place = spelled_at(checker.places, spell)
        raise Problem("RW208", f"`{spell.name}` is a provider that every op has", place, "choose another name")
    elab, scope = op_scope(checker, sig)
    scope.file = spell.span.file
    case = spelling(elab, spell, scope, sig)
    return evolve(sig, forms=(*sig.forms, case)) if form else evolve(sig, impls=(*sig.impls, case))


def with_requires(checker: Checker, op: syntax.Op, sig: OpDef) -> OpDef:
    """The signature with what the op requires."""
    elab, scope = op_scope(checker, sig)
    scope.add_parts(op.where)
    conds, zonk = elab.conditions(op.requires, scope), Zonk(elab.item)
    made = zonk((*conds, *elab.item.solver.guards))
    possible(
        made, sig.attributes, op.requires, lambda e: zonk(elab.conditions((e,), scope)), checker.places.head(op.span)
    )
    return evolve(sig, requires=made)


def samples_of(checker: Checker, found: tuple[syntax.Sample, ...], sig: OpDef) -> tuple[Sample, ...]:
    """What an op or fusion draws for its proof."""
    return samples.check_samples(checker, found, sig.name, sig.operands, sig.attributes, sig.results)


# ---- equations


def _equation(
    checker: Checker, op: syntax.Op, sig: OpDef, equation: syntax.Equation, index: int, earlier: list[Case]
) -> Case:
    elab, scope = op_scope(checker, sig)
    results = frozenset(r.name for r in sig.results)
    scope.add_parts(op.where, results)
    conds = elab.conditions(equation.when, scope)
    if equation.when:
        possible(conds, sig.attributes, equation.when, lambda e: elab.conditions((e,), scope), equation.when[0].span)
    scope.present = conditions.present(conds)
    pins = {n: v for n, v in map_pins(conds) if n in elab.item.own or (v is None and n in scope.names)}
    for name, value in pins.items():
        scope.names[name] = Nothing() if name not in elab.item.own else conditions.literal(value)
    outputs = elab.outputs(equation.outputs, scope)
    if len(outputs) != len(sig.results):
        declared = ", ".join(r.name for r in sig.results)
        message = f"{op.name} has {len(sig.results)} results ({declared}), and this gives {len(outputs)}"
        raise Problem("RW224", message, outputs_span(equation.outputs), "give one value for each")
    for (_, term, text), r in zip(outputs, sig.results):
        _needs_free_axes(checker, op, sig, r, elab.item.type_of(term))
        want = narrow_formats.stored(r.type, pins, text.span)
        elab.item.solver.unify(want, elab.item.type_of(term), text.span, f"result `{r.name}` of {op.name}")
    zonk = Zonk(elab.item)
    terms = zonk(tuple(t for _, t, _ in outputs))
    defaults = _defaults(equation, sig, {*pins, *names_of((terms, conds))})
    pins |= defaults
    guards = [*conds, *(conditions.negate(_holds(e, sig)) for e in earlier), *elab.item.solver.guards]
    made = tuple(conditions.conjuncts(conditions.substitute(zonk(g), pins) for g in guards))
    if conditions.FALSE in made or never((*made, *_as_conditions(pins, sig)), sig.attributes) is not None:
        place = equation.when[-1].span if equation.when else outputs_span(equation.outputs)
        unsaid = ", ".join(f"`{n}`" for n in defaults)
        hint = f"it says nothing of {unsaid}, so it is for the default only" if unsaid else "remove it"
        message = f"this equation of {op.name} never stands: one above holds wherever it would"
        raise Problem("RW404", message, place, hint)
    name = f"equation{index}" if index else "definition"
    return Case(name, terms, tuple(pins.items()), made, zonk(tuple(elab.item.named)), span=equation.span)


def _needs_free_axes(checker: Checker, op: syntax.Op, sig: OpDef, result: ResultInfo, found: TensorType) -> None:
    """RW304 where `*S` stands in a result alone, and what is computed has a known shape."""
    free = {d.name for d in result.type.shape or () if isinstance(d, Star)}
    free -= {d.name for o in sig.operands for d in o.type.shape or () if isinstance(d, Star)}
    if free and found.shape is not None:
        text = next(r.type for r in op.results if r.name == result.name)
        place = checker.places.word(text.span, min(free))
        raise Problem("RW304", f"no operand has the leading axes `*{min(free)}`", place, f"write {show(found.shape)}")


def _unused(op: syntax.Op, sig: OpDef, equations: list[Case]) -> syntax.Param | None:
    """An attribute that no equation uses."""
    texts = {v.name for v in names_in((op.equations, op.where, op.requires))}
    used = texts | names_of(tuple((e.outputs, e.guards) for e in equations))
    return next((p for p in op.params.attributes if p.name not in used and not _in_types(sig, p.name)), None)


def _refuse_unused(checker: Checker, op: syntax.Op, p: syntax.Param) -> None:
    place = checker.places.word(p.span, p.name)
    raise Problem("RW221", f"the definition of {op.name} does not use `{p.name}`", place, "remove it, or use it")


def _defaults(equation: syntax.Equation, sig: OpDef, said_: set[str]) -> dict[str, Any]:
    """An equation that does not say an attribute stands for its default only; RW215 where it has none."""
    found: dict[str, Any] = {}
    for a in sig.attributes:
        if a.name in said_ or _in_types(sig, a.name):
            continue
        if a.default is NO_DEFAULT:
            hint = f"use `{a.name}`, or remove the attribute"
            raise Problem(
                "RW215",
                f"the definition of {sig.name} says nothing of `{a.name}`",
                outputs_span(equation.outputs),
                hint,
            )
        found[a.name] = a.default
    return found


def _in_types(sig: OpDef, name: str) -> bool:
    """Is an attribute a dtype, a dim or the layout of an operand or result?"""
    types = [o.type for o in sig.operands] + [r.type for r in sig.results]
    return any(
        Ref(name) in (t.dtype, t.layout) or any(isinstance(d, Dim) and name in names(d) for d in t.shape or ())
        for t in types
    )


def _as_conditions(pins: dict[str, Any], sig: OpDef) -> list[Scalar]:
    return [_pinned(name, value, sig) for name, value in pins.items()]


def _pinned(name: str, value: Any, sig: OpDef) -> Scalar:
    """`name == value` as `when` would say it."""
    operand = next((o for o in sig.operands if o.name == name), None)
    if operand is not None:
        return Apply("is_none", (Operand(name, operand.type, operand.optional),))
    if isinstance(value, bool):
        return Ref(name) if value else Apply("not", (Ref(name),))
    return Apply("==", (Ref(name), conditions.literal(value)))


def _holds(case: Case, sig: OpDef) -> Scalar:
    """Does an earlier equation hold?"""
    return conditions.all_of((*_as_conditions(dict(case.pins), sig), *case.guards))


def _complete(checker: Checker, op: syntax.Op, sig: OpDef, equations: list[Case]) -> None:
    """RW407 where no equation holds for some values of attributes that have few."""
    holds = [_holds(e, sig) for e in equations]
    asked = names_of(tuple(holds)) | {n for e in equations for n, _ in e.pins}
    few = {a.name: values for a in sig.attributes if a.name in asked and (values := domain(a)) is not None}
    if len(few) > MAX_ASKED:
        return
    for combination in itertools.product(*few.values()):
        given = dict(zip(few, combination))
        if any(conditions.substitute(r, given) == conditions.FALSE for r in sig.requires):
            continue
        if all(_false(conditions.substitute(h, given)) for h in holds):
            shown = ", ".join(f"{n} == {say(v).strip('`')}" for n, v in given.items()) or "the defaults"
            place = checker.places.word(op.span, op.name)
            hint = "add an equation with `when`, or make the last one hold for all: it must use each attribute"
            raise Problem("RW407", f"no equation of {op.name} holds for {shown}", place, hint)


def _false(condition: Scalar) -> bool:
    return condition == conditions.FALSE or never((condition,)) is not None
