"""Calls of declared ops: operands by position, attributes by name. A fusion on a matched side is its definition."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import arguments, attributes, conditions
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Listed, Many, Scope, Value
from fxrewrite.dsl.check.signatures import say
from fxrewrite.dsl.check.solver import Instance
from fxrewrite.dsl.check.zonk import Instantiate
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Attribute,
    Call,
    Each,
    Extern,
    Lit,
    Nothing,
    Number,
    OpDef,
    Operand,
    OperandInfo,
    Ref,
    Result,
    Scalar,
    Wild,
)
from fxrewrite.dsl.diagnostics import Related
from fxrewrite.dsl.dims import Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


MAX_NESTING = 50


def call_op(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """The results of a call of a declared op."""
    op = elab.checker.signature(e.func)
    attributes.check_names(elab, op, e)
    given = {a.name: attributes.value(elab, op, a, e, scope) for a in op.attributes}
    for a in op.attributes:
        _domain(elab, op, a.name, given[a.name])
        _stays_in_the_domain(elab, op, a, given[a.name], e.func_span or e.span)
    instance = elab.item.solver.instance(given)
    args, at = _operands(elab, op, e, scope, first, instance), e.func_span or e.span
    if op.is_fusion and scope.expand:
        return _expand(elab, op, args, instance, scope, at)
    call = elab.item.intern(Call(op.name, args, tuple(given.items()), at))
    if not scope.matched and not scope.expand:
        _derive(elab, op, args, instance, at)
    results = tuple(elab.item.intern(Result(call, i, instance.type(r.type))) for i, r in enumerate(op.results))
    _note_dims(elab, op, instance)
    return Many(results)


def _domain(elab: Elaborator, op: OpDef, name: str, value: Scalar) -> None:
    """What dtypes an attribute may be, for the types that name it."""
    a = op.attribute(name)
    if a is not None and a.type == "dtype" and a.domain is not None and isinstance(value, Ref):
        members = frozenset(d.name for d in a.domain)
        have = elab.item.solver.domains.get(value.name)
        elab.item.solver.domains[value.name] = members if have is None else have & members


def _stays_in_the_domain(elab: Elaborator, op: OpDef, a: Attribute, value: Scalar, at: syntax.Span) -> None:
    """A guard where what stands for `a` may have values that `a` may not; RW310 where its default is one."""
    item = elab.item
    source = (item.own.get(value.name) or item.captured.get(value.name)) if isinstance(value, Ref) else None
    if a.domain is None or source is None or (source.domain is not None and set(source.domain) <= set(a.domain)):
        return
    if source.default is not NO_DEFAULT and source.default not in a.domain and source.default is not None:
        allowed = ", ".join(map(say, a.domain))
        message = (
            f"`{source.name}` is {say(source.default)} if nobody says otherwise, and `{a.name}` of {op.name} is never"
        )
        raise Problem("RW310", message, source.span or at, f"one of {allowed}")
    allowed_values = [conditions.equal(value, conditions.literal(v)) for v in a.domain]
    item.solver.origin = (f"what `{a.name}` of {op.name} may be", at)
    item.solver.guard(functools.reduce(conditions.either, allowed_values))


def _note_dims(elab: Elaborator, op: OpDef, instance: Instance) -> None:
    """What the dims of the op are called in the item: a text that mentions one may mean two sizes."""
    for name, renamed in instance.names.items():
        if name not in instance.stars and name not in instance.classes:
            elab.item.callee_dims.setdefault(name, []).append((op.name, dims.name(renamed)))


def _derive(elab: Elaborator, op: OpDef, args: tuple[Any, ...], instance: Instance, at: syntax.Span) -> None:
    """What an emitted op requires is required of the rule."""
    if op.requires:
        rebuild = _instantiate(elab, op, args, instance)
        _require(elab, op, rebuild, at)


def _require(elab: Elaborator, op: OpDef, rebuild: Instantiate, at: syntax.Span) -> None:
    """The conditions of an op, as conditions of the item."""
    elab.item.solver.origin = (f"`requires` of {op.name}", at)
    for condition in rebuild(op.requires):
        if condition != Lit(True):
            elab.item.solver.guard(condition)


def _instantiate(elab: Elaborator, op: OpDef, args: tuple[Any, ...], instance: Instance) -> Instantiate:
    operands = {o.name: a for o, a in zip(op.operands, args)}
    return Instantiate(elab.item, operands=operands, instance=instance)


def _expand(
    elab: Elaborator, op: OpDef, args: tuple[Any, ...], instance: Instance, scope: Scope, at: syntax.Span
) -> Value:
    """The definition of a fusion at a call: its checked terms with what the call gives."""
    elab.item.nesting = max(elab.item.nesting, 1 + elab.checker.nesting.get(op.name, 0))
    if elab.item.nesting > MAX_NESTING:
        raise Problem("RW130", f"fusions lie at most {MAX_NESTING} deep in each other", at, "write it of base ops")
    for name, value in instance.attributes.items():
        if isinstance(value, Wild):  # any value, but one for the whole definition
            instance.attributes[name] = Ref(elab.item.solver.fresh(f"_{name}"))
    rebuild = _instantiate(elab, op, args, instance)
    case = op.equations[0]
    _require(elab, op, rebuild, at)
    outputs = rebuild(case.outputs)
    for name, term in case.named:
        if scope.matched:
            elab.item.named.append((f"{scope.prefix}{op.name}.{name}", rebuild(term)))
    _note_dims(elab, op, instance)
    return Many(outputs)


# ---- operands


def _operands(
    elab: Elaborator, op: OpDef, e: syntax.Call, scope: Scope, first: Value, instance: Instance
) -> tuple[Any, ...]:
    counted = _counted(elab, op, e, scope, first)
    elab.item.solver.origin = (f"the types of {op.name}", e.func_span or e.span)
    return tuple(_operand(elab, op, info, value, at, instance) for info, (value, at) in zip(op.operands, counted))


def _operand(elab: Elaborator, op: OpDef, info: OperandInfo, value: Value, at: Any, instance: Instance) -> Any:
    what = f"`{info.name}` of {op.name}"
    if info.star:
        return _list(elab, op, info, value, at, what, instance)
    if info.kind == "str":
        return _text(elab, info, value, at, what)
    term = elab.as_term(value, at)
    if isinstance(term, Number):
        if isinstance(term.value, Wild):
            return elab.item.intern(Operand(elab.item.solver.fresh("_any"), instance.type(info.type), info.optional))
        if isinstance(term.value, Ref) and term.value.name in elab.item.captured:
            name = term.value.name
            message = f"`{name}` is an operand here, and a captured attribute of the same name"
            related = [Related(elab.item.captured_at[name], f"the attribute `{name}` is captured here")]
            raise Problem("RW213", message, at.span, f"call the operand otherwise, or write `{name}={name}2`", related)
        raise Problem("RW310", f"{what} is a tensor, not a number", at.span, "give a tensor")
    if not info.optional:
        elab.present(term, what, at.span)
    if isinstance(term, Nothing):
        return term
    elab.item.use(term, info)
    want = instance.type(info.type)
    elab.item.fit(want, term, at.span, what)
    return elab.typed(term, want)


def _text(elab: Elaborator, info: OperandInfo, value: Value, at: Any, what: str) -> Any:
    """A `str` operand: a constant, or a name that a host passes through."""
    if isinstance(value, Operand):
        elab.item.use(value, info)
        return value
    if isinstance(value, Lit) and (isinstance(value.value, str) or (value.value is None and info.optional)):
        return value
    if isinstance(value, Ref | Apply):
        return value
    if isinstance(value, Wild):
        return value
    raise Problem("RW310", f"{what} is a str", at.span, 'write `"..."` or a name')


def _list(elab: Elaborator, op: OpDef, info: OperandInfo, value: Value, at: Any, what: str, instance: Instance) -> Any:
    want = instance.type(info.type)
    if isinstance(value, Listed):
        texts = at.items if isinstance(at, syntax.List) else ()
        texts = texts if len(texts) == len(value.values) else [at] * len(value.values)
        return tuple(_element(elab, op, info, v, t, what, instance) for v, t in zip(value.values, texts))
    if isinstance(value, Operand) and value.star:
        elab.item.use(value, info)
        elab.item.fit(want, value, at.span, what)
        return value
    if isinstance(value, Each | Extern) or (isinstance(value, Operand) and value.star):
        return value
    raise Problem("RW220", f"{what} is a list of tensors", at.span, "write `[a, b]`, or spread a list: `*s`")


def _element(
    elab: Elaborator, op: OpDef, info: OperandInfo, value: Value, at: Any, what: str, instance: Instance
) -> Any:
    """A tensor of a list: dims that only the list has may differ from one to the next."""
    term = elab.as_term(value, at)
    elab.present(term, what, at.span)
    if isinstance(term, Number):
        raise Problem("RW310", f"{what} is a list of tensors, and this is a number", at.span, "give tensors")
    others = (*(o.type for o in op.operands if o is not info), *(r.type for r in op.results))
    shared = {n for t in others for d in t.shape or () for n in ({d.name} if isinstance(d, Star) else dims.names(d))}
    mine = {n: r for n, r in instance.names.items() if n in shared or n in instance.classes}
    want = evolve(instance, names=mine).type(info.type)
    elab.item.fit(want, term, at.span, what)
    return elab.typed(term, want)


def _counted(elab: Elaborator, op: OpDef, e: syntax.Call, scope: Scope, first: Value) -> list[tuple[Value, Any]]:
    """Value and text of each operand; RW204 or RW214 where there are too many or too few."""
    values = arguments.positional(elab, e, _spreading(op, scope), first)
    names, at = ", ".join(o.name for o in op.operands), e.func_span or e.span
    texts = arguments.texts(e, len(values))
    count = f"{len(op.operands)} operand{'s' if len(op.operands) != 1 else ''} ({names})"
    if len(values) > len(op.operands):
        raise _too_many(elab, op, count, len(values), texts[len(op.operands)])
    pairs: list[tuple[Value, Any]] = list(zip(values, texts))
    for info in op.operands[len(values) :]:
        if not info.has_default:
            hint = f"for no {info.name} write `none`" if info.optional else f"give `{info.name}`"
            raise Problem("RW204", f"{op.name} takes {count}, not {len(values)}", at, hint)
        pairs.append((Nothing(), e))
    return pairs


def _spreading(op: OpDef, scope: Scope) -> Scope:
    """A list parameter may be given by the name of a list."""
    return scope.child(spread=True) if any(o.star for o in op.operands) else scope


def _too_many(elab: Elaborator, op: OpDef, count: str, given: int, extra: Any) -> Problem:
    free = next((a.name for a in op.attributes if a.default is NO_DEFAULT), None)
    free = free or (op.attributes[0].name if op.attributes else None)
    if free is not None and isinstance(extra, syntax.Number | syntax.Bool | syntax.String | syntax.Var):
        text = elab.places.text(extra.span)
        message = f"`{text}` is one operand too many for {op.name}; attributes go by name"
        return Problem("RW214", message, extra.span, f"if it is the attribute `{free}`, write `{free}={text}`")
    return Problem("RW204", f"{op.name} takes {count}, not {given}", extra.span, "remove it")
