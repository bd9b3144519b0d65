"""Rules to core: a left side that binds names, a right side that uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import accessors, conditions, fusions, kinds, names, ops
from fxrewrite.dsl.check.builtins import OF_LISTS
from fxrewrite.dsl.check.connected import connected
from fxrewrite.dsl.check.contradiction import possible
from fxrewrite.dsl.check.effects import check_effects, replicated_guards
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.names import refuse_unused_parts
from fxrewrite.dsl.check.places import called_in, names_in, outputs_span, parts_of, said_to_be_there
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.samples import check_samples
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import determined
from fxrewrite.dsl.check.terms import is_list, names_of, operands_of, walk
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Attribute,
    Dtype,
    DtypeVar,
    Extern,
    Lit,
    Nothing,
    Number,
    Operand,
    OperandInfo,
    Prim,
    Ref,
    Result,
    RuleDef,
    Scalar,
    TensorType,
    Term,
)
from fxrewrite.dsl.diagnostics import Related
from fxrewrite.dsl.dims import Dim
from fxrewrite.dsl.formats import DTYPE_HINTS

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

Output = tuple[str | None, Term, Any]


def check_rule(checker: Checker, r: syntax.Rule, pack: syntax.Pack | None, order: int) -> RuleDef:
    """A rewrite between ops that exist."""
    used_once(checker, r)
    item = Item(r.name or "this rule", checker.places, r.span)
    elab = Elaborator(checker, item)
    item.lists, item.there = list_names(r), said_to_be_there(r.requires)
    right_only = right_names(r)
    left_scope = _left_scope(checker, r, item, right_only)
    fusions.given_equations(elab, r.requires, left_scope)
    left = elab.outputs(r.left, left_scope)
    for bind in (b for b in r.where if not set(b.targets) <= right_only):
        for target in bind.targets:
            if target in left_scope.parts:
                names.lookup(elab, target, bind, left_scope.child(spread=True))
    right_scope = _right_scope(r, item, left_scope, right_only)
    _optional_operands(elab, r, right_scope)
    right = elab.outputs(r.right, right_scope)
    _same_types(elab, r, left, right)
    requires = elab.conditions(r.requires, right_scope)
    profit = right_scope.child(profit=True)
    prefer = (*elab.conditions(r.prefer, profit), *checker.pack_prefer(pack))
    decreasing = _measure(elab, r, right_scope)
    fusions.ambiguous_dims(item)
    zonk = Zonk(item)
    lefts, rights = (zonk(tuple(t for _, t, _ in side)) for side in (left, right))
    guards = tuple(conditions.conjuncts(zonk((*requires, *item.solver.guards))))
    checker.note_origins(r, item, zonk)
    named = zonk(tuple(item.named))
    connected(r.left, lefts, named, item)
    operands = _bound_operands((*lefts, *(t for _, t in named)), item)
    attributes = (*item.own.values(), *(a if a.name == n else evolve(a, name=n) for n, a in item.captured.items()))
    possible(guards, attributes, r.requires, lambda e: zonk(elab.conditions((e,), right_scope)), outputs_span(r.right))
    _determined(checker, r, (*lefts, *(t for _, t in named)), attributes)
    _nothing_dropped(item, rights, r)
    check_effects(checker, r, lefts, rights, guards)
    guards = replicated_guards(checker, lefts, rights, guards)
    samples = check_samples(checker, r.samples, item.name, operands, attributes)
    return RuleDef(
        r.name or bare_name(lefts, rights), pack.name if pack else None, lefts, rights,
        operands, attributes, named, tuple(item.kept), guards, zonk(prefer),
        r.over, r.level, r.flag, (pack.stage if pack else None) or "fuse",
        r.contract or (pack.contract if pack else None), order, r.span, outputs_span(r.left),
        decreasing=zonk(decreasing), is_named=r.name is not None, samples=samples,
    )  # fmt: skip


def _measure(elab: Elaborator, r: syntax.Rule, scope: Scope) -> Scalar | None:
    """What `decreasing` says falls: a number."""
    if r.decreasing is None:
        return None
    found = elab.scalar(r.decreasing, scope)
    kind = kinds.kind_of(elab, found)
    if kind not in (None, *kinds.NUMBERS):
        message = f"`decreasing` takes a number, and {kinds.shown(elab, r.decreasing)} is {kinds.said_kind(kind)}"
        raise Problem("RW310", message, r.decreasing.span, "write what falls with each firing: `rows(x)`")
    return found


# ---- scopes


def _left_scope(checker: Checker, r: syntax.Rule, item: Item, right_only: set[str]) -> Scope:
    scope = Scope(item, r.span.file, matched=True, binds=True, wild=True)
    if r.params is not None:
        _declared(checker, r, item, scope)
    scope.add_parts(tuple(b for b in r.where if not set(b.targets) <= right_only))
    return scope


def _declared(checker: Checker, r: syntax.Rule, item: Item, scope: Scope) -> None:
    """The parameters of a rule."""
    assert r.params is not None
    ops.unique(checker, r.params)
    item.own = {p.name: checker.signatures.attribute(p) for p in r.params.attributes}
    for name in item.own:
        scope.names[name] = Ref(name)
        item.solver.used.add(name)
    for p in r.params.operands:
        info = checker.signatures.operand(p, {n: a.type for n, a in item.own.items()})
        if info is None:
            item.types[p.name] = UNKNOWN
            scope.names[p.name] = item.intern(Operand(p.name, UNKNOWN, False, p.star, span=p.span))
            continue
        if info.kind == "str":
            item.texts.add(p.name)
        ops.declare_dims(item, scope, info.type)
        ops.declare_class(item, scope, info.type, rigid=False)
        scope.names[p.name] = item.intern(Operand(p.name, info.type, info.optional, p.star, span=p.span))


def _determined(checker: Checker, r: syntax.Rule, terms: Any, attributes: tuple[Attribute, ...]) -> None:
    """RW304 where no size on the left says what a dim of a written type is."""
    if r.params is None:
        return
    found = [t for t in walk(terms) if isinstance(getattr(t, "type", None), TensorType)]
    known = determined([t.type for t in found], {a.name for a in attributes if a.type == "int"})
    types = {t.name: t.type for t in found if isinstance(t, Operand)}
    for p in r.params.operands:
        for dim in types[p.name].shape or () if p.type is not None and p.name in types else ():
            if isinstance(dim, Dim) and not dims.names(dim) <= known:
                raise ops.undetermined(checker, p.span, dim, known)


def _right_scope(r: syntax.Rule, item: Item, left: Scope, right_only: set[str]) -> Scope:
    scope = left.child(matched=False, binds=False, wild=False, expand=False, parts=dict(left.parts))
    scope.names = {**{n: Ref(n) for n in item.captured}, **left.names}
    scope.add_parts(tuple(b for b in r.where if set(b.targets) <= right_only))
    return scope


def right_names(r: syntax.Rule) -> set[str]:
    """Names under `where` that only the right side uses, directly or through other parts."""

    def reach(es: Any) -> set[str]:
        found: set[str] = set()
        todo = {v.name for v in names_in(es)}
        while todo:
            n = todo.pop()
            if n in found:
                continue
            found.add(n)
            for b in r.where:
                if n in b.targets:
                    todo |= {v.name for v in names_in(b.value)} | set(b.targets)
        return found

    if not r.where:
        return set()
    left, right = reach(r.left), reach(r.right)
    return {t for b in r.where for t in b.targets if t in right and t not in left and b.kind == "bind"}


def list_names(r: syntax.Rule) -> set[str]:
    """Names bound inside an `each` alone that stand for all their values: never used as one value outside it."""
    inside = {v.name for b in r.where if b.kind == "each" for v in names_in(b.value)}
    if not inside:
        return inside
    declared = {p.name for p in (*r.params.operands, *r.params.attributes)} if r.params else set[str]()
    outside = (r.left, r.right, tuple(b for b in r.where if b.kind != "each"), r.requires, r.prefer)
    return inside - declared - _single_names(outside)


def _single_names(e: Any) -> set[str]:
    """Names that an expression uses as one value."""
    if isinstance(e, syntax.Var):
        return {e.name}
    if isinstance(e, syntax.Splat):
        return set()
    if isinstance(e, syntax.Call) and e.func in OF_LISTS:
        return _single_names(e.args[2:])
    return set[str]().union(*map(_single_names, parts_of(e)))


def _optional_operands(elab: Elaborator, r: syntax.Rule, right: Scope) -> None:
    """An operand that may be `none` on the left is one on the right too, but where `requires` says that it is there."""
    item = elab.item
    for name, uses in item.uses.items():
        operand = right.names.get(name, item.bound.get(name))
        if not isinstance(operand, Operand) or name not in item.types or not all(u.optional for u in uses):
            continue
        if name in item.there:
            item.needs(operand)
        else:
            right.names[name] = evolve(operand, optional=True)


# ---- names


def used_once(checker: Checker, r: syntax.Rule) -> None:
    """RW201: a name on the left that nothing else mentions."""
    params = (*r.params.operands, *r.params.attributes) if r.params else ()
    known = {p.name for p in params} | {t for b in r.where for t in b.targets}
    uses: dict[str, list[syntax.Var]] = {}
    for v in names_in((r.left, r.right, r.where, r.requires, r.prefer, (r.decreasing,))):
        uses.setdefault(v.name, []).append(v)
    right_only = right_names(r)
    left = {v.name for v in names_in((r.left, tuple(b for b in r.where if not set(b.targets) <= right_only)))}
    for name, found in uses.items():
        if len(found) > 1 or name not in left or name in known or name.startswith("_"):
            continue
        if checker.is_constant(name, r.span.file) or _carried(checker, r, name):
            continue
        if _begins_an_op(checker, r, found[0]):
            continue  # said where the op is looked for
        if _has(checker, called_in((r.left, r.where)), name):
            raise _dropped(name, name, found[0].span, r)
        others = [n for n in uses if n != name and len(uses[n]) > 0]
        hint = f"a dtype? write `{DTYPE_HINTS[name]}`" if name in DTYPE_HINTS else closest(name, others)
        raise Problem(
            "RW201", f"`{name}` is used once, on the left", found[0].span, hint or f"to match anything write `_{name}`"
        )
    for p in params:
        if p.name not in uses and not p.name.startswith("_") and not _carried(checker, r, p.name):
            place = checker.places.word(p.span, p.name)
            raise Problem("RW221", f"this rule does not use `{p.name}`", place, "remove it, or use it")
    refuse_unused_parts(checker.places, r.where, uses)


def _begins_an_op(checker: Checker, r: syntax.Rule, name: syntax.Var) -> bool:
    """Is it the `aten` of an `aten.silu` without brackets?"""
    todo: list[Any] = [r.left, r.right, r.where]
    while todo:
        e = todo.pop()
        if isinstance(e, syntax.Attr) and e.value is name:
            return accessors.is_torch_op(checker, e)
        todo += parts_of(e)
    return False


def _carried(checker: Checker, r: syntax.Rule, name: str) -> bool:
    """Does an op on the right take `name` as a carried attribute, which it does not write?"""
    return _has(checker, called_in((r.right, r.where), without=name), name)


def _has(checker: Checker, calls: set[str], name: str) -> bool:
    """Has one of these ops an attribute `name`?"""
    return any(checker.knows_op(c) and checker.signature(c).attribute(name) is not None for c in calls)


def _nothing_dropped(item: Item, right: tuple[Term, ...], r: syntax.Rule) -> None:
    """RW210: an attribute captured by omission must be taken by an op on the right."""
    taken = names_of(right)
    said = {v.name for v in names_in((r.left, r.where, r.requires))}
    for name, a in item.captured.items():
        if name not in taken and name not in said:
            raise _dropped(name, a.name, item.captured_at[name], r)


def _dropped(name: str, attribute: str, place: syntax.Span, r: syntax.Rule) -> Problem:
    message = f"`{name}` is captured here and no op on the right takes it"
    hint = f"pin it (`{attribute}=...`), drop it on purpose (`{attribute}=_`), or pass it on"
    return Problem("RW210", message, place, hint, [Related(outputs_span(r.right), "the right side")])


# ---- types


def _same_types(elab: Elaborator, r: syntax.Rule, left: list[Output], right: list[Output]) -> None:
    if len(left) != len(right):
        message = f"{len(left)} output{'s' if len(left) != 1 else ''} on the left and {len(right)} on the right"
        raise Problem(
            "RW306", message, outputs_span(r.right), "give one for one: an op with two results is two outputs"
        )
    for (_, a, text_a), (_, b, text_b) in zip(left, right):
        related = [Related(text_a.span, "the left side")]
        if is_list(a) != is_list(b):
            hint = "spread a list: `*y`"
            raise Problem("RW306", "one side is a list and the other is not", text_b.span, hint, related)
        mine, other = elab.item.type_of(a), elab.item.type_of(b)
        elab.item.solver.origin = ("both sides have one type", text_b.span)
        try:
            elab.item.solver.unify(mine, other, text_b.span, "an output")
        except Problem as problem:
            message = f"the sides differ: {mine} on the left, {other} on the right"
            raise Problem(
                "RW306", message, text_b.span, "give the right side the type of the left", related
            ) from problem
        _dtype_guard(elab, a, b)
        if isinstance(a, Result) and isinstance(b, Result):
            _same_layout(mine.layout, other.layout, text_b, related)


def _same_layout(left: str | Ref, right: str | Ref, text: Any, related: list[Related]) -> None:
    """RW306 where both sides say how an output is stored, and say it differently."""
    if isinstance(left, str) and isinstance(right, str) and left != right:
        message = f'the strides of the sides differ: "{left}" on the left, "{right}" on the right'
        raise Problem("RW306", message, text.span, "give both one layout", related)


def _dtype_guard(elab: Elaborator, left: Term, right: Term) -> None:
    """Where the text does not say that both sides have one dtype: a guard."""
    a, b = _dtype(elab, left), _dtype(elab, right)
    if a is not None and b is not None and a != b and not (_fixed(a) and _fixed(b)):
        elab.item.solver.guard(conditions.equal(a, b))


def _fixed(x: Scalar) -> bool:
    return isinstance(x, Dtype | DtypeVar)


KEEPS_DTYPE = ("reshape", "permute", "expand", "slice", "slice_scatter", "clone", "cat", "clamp")


def _dtype(elab: Elaborator, term: Term) -> Scalar | None:
    """The dtype of a term as a scalar; None where the text does not say it."""
    if isinstance(term, Number | Nothing):
        return None
    known = elab.item.type_of(term).dtype
    if known is not None:
        return known
    if isinstance(term, Prim) and term.op in KEEPS_DTYPE:
        return _dtype(elab, term.args[0])
    if isinstance(term, Prim) and term.op == "to":
        return term.params[0] if isinstance(term.params[0], Ref | Lit) else None
    return Apply("dtype", (term,)) if isinstance(term, Operand) and not term.star else None


# ---- the rule


def _bound_operands(terms: tuple[Any, ...], item: Item) -> tuple[OperandInfo, ...]:
    """What the left side binds, in the order in which it names it."""
    seen: dict[str, Operand] = {}
    for t in terms:
        for o in operands_of(t):
            seen.setdefault(o.name, o)
    texts = item.texts | {name for name, uses in item.uses.items() if uses and all(u.kind == "str" for u in uses)}
    return tuple(
        OperandInfo(o.name, o.type, o.optional, False, o.star, "str" if o.name in texts else "tensor", o.span)
        for o in seen.values()
    )


def bare_name(left: tuple[Term, ...], right: tuple[Term, ...]) -> str:
    """The name of a rule without one: the op on its right, else the one on its left."""
    return _root(right[0]) or _root(left[0]) or "rule"


def _root(t: Term) -> str:
    if isinstance(t, Result):
        return t.call.op
    if isinstance(t, Extern):
        return t.call.op.replace(".", "_")
    return getattr(getattr(t, "body", t), "op", "")
