"""Calls of what `.rw` files declare: ops stay calls, `def`s and fusions in definitions are expanded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Scope, Value
from fxrewrite.dsl.check.solver import Instance, as_dim
from fxrewrite.dsl.core import (
    NO_DEFAULT, UNKNOWN, Apply, Attribute, Call, Choose, Dtype, DtypeVar, Extern, Lit, Nothing, Number, OpDef, Operand,
    OperandInfo, Ref, Result, Scalar, Size, Term, TensorType, Wild,
)  # fmt: skip
from fxrewrite.dsl.dims import Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


# ---- def


def expand_def(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """The value of a call of a `def`: its equations with parameters bound. Guarded equations become a choice."""
    d = elab.checker.defs[e.func]
    item = elab.item
    if d.name in item.depth:
        cycle = ", ".join([*item.depth[item.depth.index(d.name) :], d.name])
        raise Problem("RW209", f"the definition of {d.name} reaches itself: {cycle}", e.span)
    item.depth.append(d.name)
    try:
        inner = _def_scope(elab, d, e, scope, first)
        inner.add_parts(d.where)
        return _equations(elab, d, inner, e)
    finally:
        item.depth.pop()


def _def_scope(elab: Elaborator, d: syntax.Def, e: syntax.Call, scope: Scope, first: Value) -> Scope:
    params = (*d.params.operands, *d.params.attributes)
    values = elab.arguments(e, scope, first)
    given: dict[str, tuple[Value, Any]] = dict(
        zip((p.name for p in params), zip(values, e.args, strict=False), strict=False)
    )
    if len(values) > len(params):
        raise Problem("RW204", f"{d.name} takes {len(params)} arguments ({_names(params)}), not {len(values)}", e.span)
    for k in e.kwargs:
        if k.name not in {p.name for p in params}:
            raise Problem(
                "RW211", f"{d.name} has no parameter `{k.name}`", k.span, closest(k.name, [p.name for p in params])
            )
        given[k.name] = (elab.value(k.value, scope), k.value)
    instance = elab.item.solver.instance({})
    inner = Scope(elab.item, matched=scope.matched, given=scope.given, caller=scope, present=scope.present)
    for p in sorted(
        params, key=lambda p: not isinstance(elab.checker.param_type(p), str)
    ):  # numbers first: dims use them
        if p.name not in given:
            if p.default is None:
                raise Problem("RW204", f"{d.name} needs `{p.name}`", e.span)
            given[p.name] = (elab.value(p.default, scope), p.default)
        value, at = given[p.name]
        inner.names[p.name] = _def_argument(elab, d, p, value, at, instance)
        _attribute_as_dim(instance, p, inner.names[p.name])
    inner.dims = {n: _star_or_dim(instance, n, r) for n, r in _dim_names(elab, d, instance).items()}
    inner.classes = {
        n: DtypeVar(instance.names[n], elab.checker.dtypes[n]) for n in elab.checker.dtypes if n in instance.names
    }
    return inner


def _attribute_as_dim(instance: Instance, p: syntax.Param, value: Value) -> None:
    if p.type is not None and p.type.name == "int" and isinstance(value, Lit | Ref | Size):
        instance.attributes[p.name] = value


def _dim_names(elab: Elaborator, d: syntax.Def, instance: Instance) -> dict[str, str]:
    skip = set(elab.checker.dtypes)
    return {n: r for n, r in instance.names.items() if n not in skip}


def _star_or_dim(instance: Instance, name: str, renamed: str) -> Any:
    if name in instance.attributes:
        return as_dim(instance.attributes[name])
    return Star(renamed) if name in instance.star_names else dims.name(renamed)


def _def_argument(elab: Elaborator, d: syntax.Def, p: syntax.Param, value: Value, at: Any, instance: Instance) -> Value:
    declared = elab.checker.param_type(p)
    if isinstance(declared, str):  # a scalar parameter
        value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        return value.value if isinstance(value, Number) else value
    if isinstance(value, list):
        return value
    if declared is None:
        return value
    term = elab.as_term(value, at)
    if isinstance(term, Nothing) and (p.type is None or not p.type.optional):
        raise Problem("RW307", f"`{p.name}` of {d.name} may not be `none`", at.span)
    want = instance.type(declared)
    for dim in declared.shape or ():
        if isinstance(dim, Star):
            instance.star_names.add(dim.name)
    if isinstance(term, Number | Nothing):
        return term
    _check_present(elab, term, p.type is not None and p.type.optional, f"`{p.name}` of {d.name}", at.span)
    _fit(elab, want, term, at.span, f"`{p.name}` of {d.name}")
    return elab.typed(term, want)


def _equations(elab: Elaborator, d: syntax.Def, inner: Scope, e: syntax.Call) -> Value:
    cases: list[tuple[tuple[Scalar, ...], Value]] = []
    for equation in d.equations:
        conds = tuple(conditions.conjuncts(tuple(elab.condition(c, inner) for c in equation.when)))
        if any(c == conditions.FALSE for c in conds):
            continue
        local = inner.child(parts=dict(inner.parts)) if equation.when else inner
        local.present = inner.present | present(conds)
        values = elab.spread(equation.outputs, local)
        value: Value = tuple(values) if len(values) > 1 else values[0]
        if not conds:
            if not cases:
                return value
            cases.append(((), value))
            break
        cases.append((conds, value))
    if not cases:
        raise Problem("RW407", f"no equation of {d.name} holds here", e.span)
    return _choose(elab, cases, e)


def _choose(elab: Elaborator, cases: list[tuple[tuple[Scalar, ...], Value]], e: syntax.Call) -> Value:
    if len(cases) == 1 and not cases[0][0]:
        return cases[0][1]
    if isinstance(cases[0][1], tuple):
        count = len(cases[0][1])
        return tuple(_choose(elab, [(c, v[i]) for c, v in cases], e) for i in range(count))
    terms = tuple((conds, elab.as_term(value, e)) for conds, value in cases)
    return elab.item.intern(Choose(terms, elab.item.type_of(terms[0][1]), e.span))


def present(conds: tuple[Scalar, ...]) -> frozenset[str]:
    """The optional operands that the conditions say are there."""
    found: set[str] = set()
    for c in conds:
        if isinstance(c, Apply) and c.op == "not" and isinstance(c.args[0], Apply) and c.args[0].op == "is_none":
            found.add(c.args[0].args[0].name)
    return frozenset(found)


# ---- op and fusion


def call_op(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A call of a declared op. A fusion on a matched side is expanded to its definition."""
    op = elab.checker.signature(e.func, elab.item)
    if op.is_fusion and scope.matched:
        return _expand_fusion(elab, op, e, scope, first)
    attrs = {a.name: _attribute(elab, op, a, e, scope) for a in op.attributes}
    _unknown_attributes(op, e)
    instance = elab.item.solver.instance(attrs)
    args = _operands(elab, op, e, scope, first, instance)
    call = elab.item.intern(Call(op.name, args, tuple(attrs.items()), e.func_span or e.span))
    return tuple(elab.item.intern(Result(call, i, instance.type(r.type))) for i, r in enumerate(op.results))


def _operands(
    elab: Elaborator, op: OpDef, e: syntax.Call, scope: Scope, first: Value, instance: Instance
) -> tuple[Any, ...]:
    values = _checked_count(elab, op, e, scope, first)
    args: list[Any] = []
    for info, (value, at) in zip(op.operands, values, strict=True):
        if info.star:
            args.append(_list_operand(elab, info, value, at))
            continue
        if info.kind == "str":
            args.append(value)
            continue
        term = elab.as_term(value, at)
        what = f"`{info.name}` of {op.name}"
        if isinstance(term, Nothing):
            if not info.optional:
                raise Problem("RW307", f"{what} may not be `none`", at.span)
            args.append(term)
            continue
        if isinstance(term, Number):
            if isinstance(term.value, Wild):
                args.append(elab.item.intern(Operand(elab.item.solver.fresh("_any"), UNKNOWN)))
                continue
            raise Problem("RW310", f"{what} is a tensor, not a number", at.span)
        _check_present(elab, term, info.optional, what, at.span)
        if isinstance(term, Operand):
            elab.item.uses.setdefault(term.name, []).append(info)
        want = instance.type(info.type)
        _fit(elab, want, term, at.span, what)
        args.append(elab.typed(term, want))
    return tuple(args)


def _checked_count(elab: Elaborator, op: OpDef, e: syntax.Call, scope: Scope, first: Value) -> list[tuple[Value, Any]]:
    values = elab.arguments(e, scope, first)
    names = ", ".join(o.name for o in op.operands)
    if len(values) > len(op.operands):
        extra = e.args[len(op.operands)] if len(op.operands) < len(e.args) else e
        free = next((a.name for a in op.attributes if a.default is NO_DEFAULT), None) or (
            op.attributes[0].name if op.attributes else None
        )
        if free is not None and isinstance(extra, syntax.Number | syntax.Bool | syntax.String | syntax.Var):
            text = getattr(extra, "name", getattr(extra, "value", "..."))
            shown = str(text).lower() if isinstance(text, bool) else text
            raise Problem(
                "RW214", f"`{shown}` is one operand too many for {op.name}", extra.span,
                f"attributes go by name: `{free}={shown}`",
            )  # fmt: skip
        raise Problem("RW204", f"{op.name} takes {len(op.operands)} operands ({names}), not {len(values)}", e.span)
    pairs: list[tuple[Value, Any]] = list(zip(values, e.args, strict=False))
    for info in op.operands[len(values) :]:
        if not info.has_default:
            hint = f"for no {info.name} write `none`" if info.optional else ""
            raise Problem(
                "RW204", f"{op.name} takes {len(op.operands)} operands ({names}), not {len(values)}", e.span, hint
            )
        pairs.append((Nothing(), e))
    return pairs


def _list_operand(elab: Elaborator, info: OperandInfo, value: Value, at: Any) -> Any:
    if isinstance(value, list):
        return tuple(elab.as_term(v, at) for v in value)
    term = elab.as_term(value, at)
    return term


def _check_present(elab: Elaborator, term: Term, optional: bool, what: str, span: syntax.Span) -> None:
    if isinstance(term, Operand) and term.optional and not optional:
        raise Problem(
            "RW307", f"{what} may not be `none`, and `{term.name}` may", span, f"write `when {term.name} != none`"
        )


def _fit(elab: Elaborator, want: TensorType, term: Term, span: syntax.Span, what: str) -> None:
    """Unify; an operand without a type takes the declared one."""
    item = elab.item
    if isinstance(term, Operand) and item.types.get(term.name, term.type) == UNKNOWN:
        item.types[term.name] = want
        return
    item.solver.unify(want, item.type_of(term), span, what)


def _attribute(elab: Elaborator, op: OpDef, a: Attribute, e: syntax.Call, scope: Scope) -> Scalar:
    """What a call gives for an attribute: written, captured (matched side), from scope, or the default."""
    written = next((k for k in e.kwargs if k.name == a.name), None)
    if written is not None:
        return _written(elab, op, a, written, scope)
    if a.name in scope.given:
        return scope.given[a.name]
    if scope.matched:
        s: Scope | None = scope
        while s is not None and s.caller is not None:  # inside a `def`: its parameters come first
            if isinstance(s.names.get(a.name), Lit | Ref | Size | Dtype | DtypeVar):
                return s.names[a.name]
            s = s.caller
        elab.item.capture(a, a.name, e.func_span or e.span, op.name)
        return Ref(a.name)
    s = scope
    while s is not None:
        value = s.names.get(a.name)
        if isinstance(value, Lit | Ref | Size | Dtype | DtypeVar | Apply):
            return conditions.constant(value)
        if a.name in s.given:
            return s.given[a.name]
        s = s.caller
    if a.name in elab.item.captured:
        return Ref(a.name)
    if a.default is not NO_DEFAULT:
        return literal(a.default)
    raise Problem(
        "RW212", f"`{a.name}` of {op.name} has no default and nothing here gives it a value", e.func_span or e.span,
        f"write `{a.name}=...`",
    )  # fmt: skip


def literal(value: Any) -> Scalar:
    """A default as a scalar."""
    return value if isinstance(value, Dtype) else Lit(value)


def _written(elab: Elaborator, op: OpDef, a: Attribute, k: syntax.Kwarg, scope: Scope) -> Scalar:
    if isinstance(k.value, syntax.Any):
        return Wild()
    if scope.matched and isinstance(k.value, syntax.Var) and not _known(elab, k.value.name, scope):
        elab.item.capture(a, k.value.name, k.span, op.name)
        return Ref(k.value.name)
    value = elab.scalar(k.value, scope)
    check_attribute(a, value, k.value.span, op.name)
    return value


def check_attribute(a: Attribute, value: Scalar, span: syntax.Span, op: str) -> None:
    """RW310 where a literal does not fit the type or the domain of an attribute."""
    if isinstance(value, Dtype):
        if a.type != "dtype":
            raise Problem("RW310", f"`{a.name}` of {op} is a {a.type}, not a dtype", span)
        if a.domain is not None and value not in a.domain:
            raise Problem("RW310", f"`{a.name}` of {op} is one of {_domain(a)}, not {value}", span)
        return
    if not isinstance(value, Lit):
        return
    v = value.value
    if v is None and a.optional:
        return
    python = {"float": (int, float), "int": int, "bool": bool, "str": str, "layout": str, "list": tuple}.get(a.type)
    if python is not None and (not isinstance(v, python) or isinstance(v, bool) != (a.type == "bool")):
        raise Problem("RW310", f"`{a.name}` of {op} is a {a.type}, not `{_shown(v)}`", span)
    if a.domain is not None and v not in a.domain:
        raise Problem("RW310", f"`{a.name}` of {op} is one of {_domain(a)}, not `{_shown(v)}`", span)
    if a.type == "layout" and v not in ("row", "col", "tma", "swizzled"):
        raise Problem("RW311", f'"{v}" is no layout', span, 'write "row", "col", "tma" or "swizzled"')


def _shown(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "none"}.get(value, str(value))
        if not isinstance(value, int | float) or isinstance(value, bool)
        else str(value)
    )


def _domain(a: Attribute) -> str:
    return "{" + ", ".join(str(v) for v in a.domain or ()) + "}"


def _known(elab: Elaborator, name: str, scope: Scope) -> bool:
    return (
        name in scope.names
        or name in scope.parts
        or name in elab.item.captured
        or name in elab.item.own
        or name in elab.checker.dtypes
        or name in ("bf16", "f16", "f32", "f64", "e4m3fn", "e4m3fnuz", "e5m2", "e8m0fnu", "i8", "i32", "i64", "u8")
        or name[0].isupper()
        and name in elab.item.solver.used
    )


def _unknown_attributes(op: OpDef, e: syntax.Call) -> None:
    known = {a.name for a in op.attributes}
    for k in e.kwargs:
        if k.name not in known:
            if k.name in {o.name for o in op.operands}:
                raise Problem("RW211", f"`{k.name}` of {op.name} is an operand", k.span, "operands go by position")
            raise Problem("RW211", f"{op.name} has no attribute `{k.name}`", k.span, closest(k.name, known))


def _expand_fusion(elab: Elaborator, op: OpDef, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A fusion in a definition: its own definition, with operands bound and written attributes pinned."""
    source = elab.checker.fusions[op.name]
    if op.name in elab.item.depth:
        raise Problem("RW209", f"the definition of {op.name} reaches itself", e.span)
    _unknown_attributes(op, e)
    values = _checked_count(elab, op, e, scope, first)
    given = dict(scope.given)
    for k in e.kwargs:
        a = op.attribute(k.name)
        if a is not None:
            given[k.name] = _written(elab, op, a, k, scope)
    inner = Scope(elab.item, matched=True, given=given, present=scope.present)
    for info, (value, at) in zip(op.operands, values, strict=True):
        term = elab.as_term(value, at)
        inner.names[info.name] = term
    elab.item.depth.append(op.name)
    try:
        inner.add_parts(source.where)
        return tuple(t for _, t in elab.outputs(source.outputs, inner))
    finally:
        elab.item.depth.pop()


def _names(params: tuple[syntax.Param, ...]) -> str:
    return ", ".join(p.name for p in params)


__all__ = ["Extern", "call_op", "check_attribute", "expand_def", "literal", "present"]
