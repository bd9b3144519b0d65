"""Fusions to core: an op whose signature follows from its definition, and the rule that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import conditions, names, ops
from fxrewrite.dsl.check.connected import connected
from fxrewrite.dsl.check.contradiction import possible
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.names import refuse_unused_parts
from fxrewrite.dsl.check.places import names_in, outputs_span, parts_of, said_to_be_there
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.properties import properties
from fxrewrite.dsl.check.rowwise import rowwise
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import determined
from fxrewrite.dsl.check.terms import calls_of, is_list, names_of, operands_of, walk
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Attribute,
    Call,
    Case,
    Number,
    OpDef,
    Operand,
    OperandInfo,
    Ref,
    Result,
    ResultInfo,
    RuleDef,
    Scalar,
    Size,
    TensorType,
    Term,
)
from fxrewrite.dsl.dims import Dim

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker


def check_fusion(checker: Checker, f: syntax.Fusion) -> OpDef:
    """Signature and definition of a fusion: types, attributes and results follow from the definition."""
    item = Item(f.name, checker.places, f.span)
    elab = Elaborator(checker, item)
    ops.unique(checker, f.params)
    own = tuple(checker.signatures.attribute(p) for p in f.params.attributes)
    item.own, item.there = {a.name: a for a in own}, said_to_be_there(f.requires)
    scope = Scope(item, f.span.file, matched=True)
    written = _operands(checker, f, item, scope)
    scope.add_parts(f.where)
    _no_alternatives(f)
    given_equations(elab, f.requires, scope)
    outputs = elab.outputs(f.outputs, scope)
    for bind in f.where:  # a part that no output uses is still a condition of the match
        for target in bind.targets:
            if target in scope.parts:
                names.lookup(elab, target, bind, scope.child(spread=True))
    conds = elab.conditions(f.requires, scope)
    _used(checker, f, item, tuple(t for _, t, _ in outputs), conds)
    ambiguous_dims(item)
    zonk = Zonk(item)
    terms, named = zonk(tuple(t for _, t, _ in outputs)), zonk(tuple(item.named))
    if all(isinstance(t, Operand) for t in terms):
        place = checker.places.word(f.span, f.name)
        raise Problem("RW225", f"{f.name} computes nothing", place, "a fusion is made of ops")
    operands = tuple(_info(checker, p, item, zonk, written) for p in f.params.operands)
    _inferred(checker, f, operands, written)
    connected(f.outputs, terms, named, item)
    requires = tuple(conditions.conjuncts(zonk((*conds, *item.solver.guards))))
    checker.note_origins(f, item, zonk)
    checker.nesting[f.name] = item.nesting
    attributes = (*own, *(a if a.name == n else evolve(a, name=n) for n, a in item.captured.items()))
    possible(requires, attributes, f.requires, lambda e: zonk(elab.conditions((e,), scope)), outputs_span(f.outputs))
    _determined(checker, f, operands, attributes)
    results = _results(outputs, terms)
    case = Case("definition", terms, (), requires, named, span=f.span)
    properties(checker, f.properties, f.name, operands, attributes)
    return OpDef(
        f.name, operands, attributes, results, (case,), requires=requires, rowwise=rowwise(checker, terms, operands),
        is_fusion=True, contract=f.contract, doc=f.doc, span=f.span, effects=effects(checker, terms),
    )  # fmt: skip


def given_equations(elab: Elaborator, requires: tuple[Any, ...], scope: Scope) -> None:
    """`requires D == K`: two dims of written types that are one size by what the author says."""
    for e in requires:
        named = {v.name for v in names_in(e)}
        if isinstance(e, syntax.Compare) and len(e.rest) == 1 and named and named <= scope.dims.keys():
            found = elab.condition(e, scope)
            if isinstance(found, Apply) and found.op == "==" and all(isinstance(a, Size) for a in found.args):
                elab.item.solver.given.append(dims.add(found.args[0].dim, found.args[1].dim, -1))


# ---- operands and attributes


def _operands(checker: Checker, f: syntax.Fusion, item: Item, scope: Scope) -> set[str]:
    """Declare the parameters; the names of those with a written type."""
    own = {n: a.type for n, a in item.own.items()}
    for name, a in item.own.items():
        scope.names[name] = Ref(name)
        item.solver.used.add(name)
        item.solver.rigid.add(name)
        if a.type == "dtype" and a.domain is not None:
            item.solver.domains[name] = frozenset(d.name for d in a.domain)
    written: set[str] = set()
    for p in f.params.operands:
        info = checker.signatures.operand(p, own)
        if info is None:
            item.types[p.name] = UNKNOWN
            scope.names[p.name] = item.intern(Operand(p.name, UNKNOWN, False, p.star, span=p.span))
            continue
        written.add(p.name)
        if info.kind == "str":
            item.texts.add(p.name)
        ops.declare_dims(item, scope, info.type)
        ops.declare_class(item, scope, info.type, rigid=False)
        scope.names[p.name] = item.intern(Operand(p.name, info.type, info.optional, p.star, span=p.span))
    return written


def _used(checker: Checker, f: syntax.Fusion, item: Item, terms: tuple[Term, ...], conds: tuple[Scalar, ...]) -> None:
    """RW221 where the definition does not use a parameter, RW201 where it does not use a part that it names."""
    said = {v.name for v in names_in((f.outputs, f.where, f.requires, f.prefer))}
    refuse_unused_parts(checker.places, f.where, said)
    everything = (terms, tuple(t for _, t in item.named))
    operands = {o.name for o in operands_of(everything)}
    for p in f.params.operands:
        if p.name not in operands:
            place = checker.places.word(p.span, p.name)
            raise Problem("RW221", f"the definition of {f.name} does not use `{p.name}`", place, "remove it, or use it")
    if not f.params.attributes:
        return
    types = (t.type for t in walk(everything) if isinstance(t, Result | Operand))
    mentioned = names_of((everything, conds)) | {n for t in types for n in _names_in_type(item.solver.type(t))}
    for p in f.params.attributes:
        if p.name not in mentioned:
            place = checker.places.word(p.span, p.name)
            hint = f"remove it, or pass it on: `{p.name}={p.name}`"
            raise Problem("RW221", f"the definition of {f.name} does not use `{p.name}`", place, hint)


def _names_in_type(type_: TensorType) -> set[str]:
    found = {t.name for t in (type_.dtype, type_.layout) if isinstance(t, Ref)}
    return found.union(*(dims.names(d) for d in type_.shape or () if isinstance(d, Dim)))


def _info(checker: Checker, p: syntax.Param, item: Item, zonk: Zonk, written: set[str]) -> OperandInfo:
    operand = item.terms.get(Operand(p.name, UNKNOWN, False, p.star))
    uses = item.uses.get(p.name, [])
    if p.name in written:
        assert p.type is not None
        kind = "str" if p.type.name == "str" else "tensor"
        operand = item.terms.get(Operand(p.name, UNKNOWN, p.type.optional, p.star))
        type_ = zonk(item.type_of(operand)) if operand is not None else UNKNOWN
        return OperandInfo(p.name, type_, p.type.optional, p.default is not None, p.star, kind, p.span)
    type_ = zonk(item.type_of(operand)) if operand is not None else UNKNOWN
    text = bool(uses) and all(u.kind == "str" for u in uses)
    optional = bool(uses) and all(u.optional for u in uses)
    default = optional and (p.default is not None or all(u.has_default for u in uses))
    if p.default is not None and not optional:
        message = f"`{p.name}` has the default `none`, and the definition needs it"
        raise Problem("RW307", message, checker.places.word(p.span, p.name), "remove the default")
    return OperandInfo(p.name, type_, optional, default, p.star, "str" if text else "tensor", p.span)


def _inferred(checker: Checker, f: syntax.Fusion, operands: tuple[OperandInfo, ...], written: set[str]) -> None:
    """RW308 for all operands of which nothing says the type."""
    unknown = [
        p for p, o in zip(f.params.operands, operands)
        if o.type == UNKNOWN and o.kind == "tensor" and p.name not in written
    ]  # fmt: skip
    if not unknown:
        return
    names = " and ".join(f"`{p.name}`" for p in unknown)
    one = len(unknown) == 1
    message = (
        f"the type{'' if one else 's'} of {names} cannot be inferred: only built-ins use {'it' if one else 'them'}"
    )
    hint = f"write {'it' if one else 'them'}: `{', '.join(f'{p.name}: real[*B, D]' for p in unknown)}`"
    raise Problem("RW308", message, checker.places.word(unknown[0].span, unknown[0].name), hint)


def ambiguous_dims(item: Item) -> None:
    """RW309 where the text mentions a dim that two called ops use for different sizes."""
    for name, span in item.mentioned.items():
        found = [(op, item.solver.dim(d)) for op, d in item.callee_dims.get(name, ())]
        other = next((f for f in found if f[1] != found[0][1]), None)
        if other is not None:
            one = found[0]
            message = f"`{name}` is {one[1]} for {one[0]} and {other[1]} for {other[0]}"
            raise Problem("RW309", message, span, f"write `{one[1]}` or `{other[1]}`")


def _determined(
    checker: Checker, f: syntax.Fusion, operands: tuple[OperandInfo, ...], attributes: tuple[Attribute, ...]
) -> None:
    """RW304 where the sizes of the operands do not say what a dim of a written type is."""
    known = determined([o.type for o in operands], {a.name for a in attributes if a.type == "int"})
    for p, o in zip(f.params.operands, operands):
        for dim in o.type.shape or () if p.type is not None else ():
            if isinstance(dim, Dim) and not dims.names(dim) <= known:
                raise ops.undetermined(checker, p.span, dim, known)


def _no_alternatives(f: syntax.Fusion) -> None:
    todo: list[Any] = [f.outputs, f.where]
    while todo:
        e = todo.pop()
        if isinstance(e, syntax.Alternatives):
            message = "alternatives stand in rules and forms, not in the definition of a fusion"
            raise Problem("RW219", message, e.span, "the definition is one program: write two fusions")
        todo += parts_of(e)


# ---- results and effects


def _results(outputs: list[tuple[str | None, Term, Any]], terms: tuple[Term, ...]) -> tuple[ResultInfo, ...]:
    infos: list[ResultInfo] = []
    for (name, _, text), term in zip(outputs, terms):
        name = name or "y"
        if any(i.name == name for i in infos):
            alone = isinstance(text, syntax.Var | syntax.Splat)
            hint = (
                "give each value once" if alone else f"name them under `where`: `= {name}, {name}2 where {name} = ...`"
            )
            raise Problem("RW206", f"two results are called {name}", text.span, hint)
        type_ = term.type if not isinstance(term, Number) else UNKNOWN
        if isinstance(term, Number):
            raise Problem("RW310", "an output is a tensor", text.span, "give a tensor")
        infos.append(ResultInfo(name, type_, is_list(term)))
    return tuple(infos)


def effects(checker: Checker, terms: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    """The effects of the calls in a definition, by the names that the definition has for their keys."""
    found: list[tuple[str, str]] = []
    for call in calls_of(terms):
        sig = checker.signature(call.op)
        keys = dict(zip((o.name for o in sig.operands), call.args)) | dict(call.attrs)
        for kind, key in sig.effects:
            value = keys.get(key)
            found.append((kind, getattr(value, "name", str(value))))
    return tuple(found)


# ---- the rule of a fusion


def fusion_rule(checker: Checker, sig: OpDef, f: syntax.Fusion, pack: syntax.Pack | None, order: int) -> RuleDef:
    """The rule `definition => f(...)` of a fusion in a pack."""
    case = sig.equations[0]
    args = tuple(Operand(o.name, o.type, o.optional, o.star) for o in sig.operands)
    call = Call(sig.name, args, tuple((a.name, Ref(a.name)) for a in sig.attributes), f.span)
    right = tuple(Result(call, i, r.type) for i, r in enumerate(sig.results))
    prefer = (*_preferred(checker, sig, f), *checker.pack_prefer(pack))
    kept = tuple(t for b in f.where if b.kind == "keep" for t in b.targets)
    return RuleDef(
        sig.name, pack.name if pack else None, case.outputs, right, sig.operands, sig.attributes, case.named, kept,
        sig.requires, prefer, f.over, f.level, f.flag, (pack.stage if pack else None) or "fuse",
        f.contract or (pack.contract if pack else None), order, f.span, outputs_span(f.outputs), samples=sig.samples,
    )  # fmt: skip


def _preferred(checker: Checker, sig: OpDef, f: syntax.Fusion) -> tuple[Scalar, ...]:
    if not f.prefer:
        return ()
    elab, scope = ops.op_scope(checker, sig)
    return elab.conditions(f.prefer, scope.child(profit=True))
