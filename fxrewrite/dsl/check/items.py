"""Items to core: ops, fusions, rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.calls import present
from fxrewrite.dsl.check.expressions import Elaborator, syntax_names
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.spellings import spelling
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    NO_DEFAULT, UNKNOWN, Apply, Attribute, Call, Case, Choose, Dtype, DtypeVar, Each, Either, Extern, Number, OpDef,
    Operand, OperandInfo, Prim, Ref, Result, ResultInfo, RuleDef, Scalar, TensorType, Term,
)  # fmt: skip
from fxrewrite.dsl.dims import Dim, Star, names

if TYPE_CHECKING:
    from fxrewrite.dsl.check.program import Checker

PROPERTIES = ("rowwise", "elementwise", "commutative", "writes", "reads", "collective")


# ---- op


def op_signature(checker: Checker, op: syntax.Op) -> OpDef:
    """The signature of an op, before its equations are looked at."""
    attrs = tuple(checker.signatures.attribute(p) for p in op.params.attributes)
    own = {a.name for a in attrs}
    operands: list[OperandInfo] = []
    for p in op.params.operands:
        info = checker.signatures.operand(p, own)
        if info is None:
            raise Problem(
                "RW308", f"`{p.name}` needs a type: only a fusion infers them", p.span, f"`{p.name}: real[*B, D]`"
            )
        operands.append(info)
    classes = {o.type.dtype.key for o in operands if isinstance(o.type.dtype, DtypeVar)}
    results = tuple(checker.signatures.result(r, own, classes) for r in op.results)
    rowwise: tuple[str, ...] = ()
    for prop in op.properties:
        if prop.name not in PROPERTIES:
            raise Problem("RW226", f"unknown property `{prop.name}`", prop.span, closest(prop.name, PROPERTIES))
        if prop.name in ("rowwise", "elementwise"):
            rowwise = prop.names
            for n in prop.names:
                if n not in {o.name for o in operands}:
                    raise Problem("RW202", f"`{n}` is no operand of {op.name}", prop.span)
    if not op.equations and op.ref is None and not any(op.forms):
        raise Problem("RW225", f"{op.name} has no meaning: neither an equation nor a `ref`", op.span, "write `= ...`")
    return OpDef(op.name, tuple(operands), attrs, results, (), rowwise=rowwise, ref=op.ref,
                 contract=op.contract, doc=op.doc, span=op.span)  # fmt: skip


def op_scope(checker: Checker, sig: OpDef) -> tuple[Elaborator, Scope]:
    """An item and the scope in which the text of an op stands: operands, attributes, dims."""
    item = Item(sig.name)
    item.own = {a.name: a for a in sig.attributes}
    scope = Scope(item)
    for o in sig.operands:
        _declare_dims(item, scope, o.type)
        if isinstance(o.type.dtype, DtypeVar):
            item.solver.rigid.add(o.type.dtype.key)
            item.solver.used.add(o.type.dtype.key)
            scope.classes[o.type.dtype.key] = o.type.dtype
        scope.names[o.name] = item.intern(Operand(o.name, o.type, o.optional, o.star, span=o.span))
    for a in sig.attributes:
        item.solver.used.add(a.name)
        item.solver.rigid.add(a.name)
        scope.names[a.name] = Ref(a.name)
    for r in sig.results:
        for d in r.type.shape or ():
            for n in {d.name} if isinstance(d, Star) else names(d):
                item.solver.used.add(n)
    return Elaborator(checker, item), scope


def _declare_dims(item: Item, scope: Scope, type_: TensorType) -> None:
    for d in type_.shape or ():
        for n in {d.name} if isinstance(d, Star) else names(d):
            if n in item.own:
                continue
            item.solver.rigid.add(n)
            item.solver.used.add(n)
            scope.dims[n] = d if isinstance(d, Star) else Dim(((n, 1),))


def check_op(checker: Checker, op: syntax.Op, sig: OpDef) -> OpDef:
    """Equations, forms, providers and `requires` of an op."""
    from attrs import evolve

    equations: list[Case] = []
    for i, equation in enumerate(op.equations):
        equations.append(_equation(checker, op, sig, equation, i, equations))
    elab, scope = op_scope(checker, sig)
    scope.add_parts(op.where)
    requires = tuple(conditions.conjuncts(tuple(elab.condition(c, scope) for c in op.requires)))
    requires = Zonk(elab.item)((*requires, *elab.item.solver.guards))
    return evolve(
        sig, equations=tuple(equations), requires=requires,
        forms=tuple(check_spelling(checker, sig, f, "form") for f in op.forms),
        impls=tuple(check_spelling(checker, sig, f, "impl") for f in op.impls),
    )  # fmt: skip


def check_spelling(checker: Checker, sig: OpDef, spell: syntax.Form | syntax.Impl, kind: str) -> Case:
    """A form or provider of an op or fusion."""
    elab, scope = op_scope(checker, sig)
    scope.binds = False
    return spelling(elab, spell, scope, sig.operands, sig.attributes, sig.results, kind)


def _equation(
    checker: Checker, op: syntax.Op, sig: OpDef, equation: syntax.Equation, index: int, earlier: list[Case]
) -> Case:
    elab, scope = op_scope(checker, sig)
    scope.add_parts(op.where)
    conds = tuple(conditions.conjuncts(tuple(elab.condition(c, scope) for c in equation.when)))
    pins = {k: v for k, v in (p for p in map(conditions.pin, conds) if p is not None)}
    said = {v.name for part in (equation, op.where) for v in syntax_names(part)} | _carried(checker, equation, op)
    for a in sig.attributes:
        if a.name not in said and a.name not in pins and a.default is not NO_DEFAULT and not _in_types(sig, a.name):
            pins[a.name] = a.default
    scope.present = present(conds)
    for name, value in pins.items():
        if name in elab.item.own:
            scope.names[name] = value if isinstance(value, Dtype) else conditions.Lit(value)
        elif value is None:
            scope.names[name] = conditions.Nothing()
    outputs = elab.outputs(equation.outputs, scope)
    if len(outputs) != len(sig.results):
        raise Problem("RW224", f"{op.name} has {len(sig.results)} results and this gives {len(outputs)}", equation.span)
    for (_, term), r in zip(outputs, sig.results, strict=True):
        elab.item.solver.unify(r.type, elab.item.type_of(term), equation.span, f"result `{r.name}` of {op.name}")
    guards = [conditions.substitute(c, pins) for c in conds]
    guards += [conditions.negate(_holds(e, pins)) for e in earlier]
    zonk = Zonk(elab.item)
    return Case(
        f"equation{index}" if index else "definition", zonk(tuple(t for _, t in outputs)), tuple(pins.items()),
        zonk(tuple(g for g in (*guards, *elab.item.solver.guards) if g != conditions.TRUE)),
        zonk(tuple(elab.item.named)), span=equation.span,
    )  # fmt: skip


def _holds(case: Case, pins: dict[str, Any]) -> Scalar:
    """Does an earlier equation hold under these pins? Folded."""
    result: Scalar = conditions.TRUE
    for name, value in case.pins:
        if name in pins:
            result = conditions.both(result, conditions.Lit(pins[name] == value))
    return (
        result if result == conditions.FALSE or not case.guards else Apply("and", (result, Apply("all", case.guards)))
    )


def _in_types(sig: OpDef, name: str) -> bool:
    types = [o.type for o in sig.operands] + [r.type for r in sig.results]
    return any(
        Ref(name) in (t.dtype, t.layout)
        or any(isinstance(d, Dim) and name in names(d) for d in t.shape or ())
        for t in types
    )


def _carried(checker: Checker, equation: syntax.Equation, op: syntax.Op) -> set[str]:
    """Attributes that calls in the text take without naming them."""
    found: set[str] = set()
    for call in _calls((equation, op.where)):
        if call in checker.op_names:
            found |= {p.name for p in checker.op_names[call].params.attributes}
        elif call in checker.defs:
            d = checker.defs[call]
            for e in d.equations:
                found |= _carried(checker, e, syntax.Op(op.span, d.name, d.params, (), (), d.where))
    return found


def _calls(e: Any) -> set[str]:
    if isinstance(e, tuple):
        return set().union(*map(_calls, e)) if e else set()
    if not isinstance(e, syntax.Node):
        return set()
    found = {e.func} if isinstance(e, syntax.Call) else set[str]()
    for a in getattr(type(e), "__attrs_attrs__", ()):
        if a.name not in ("span", "func_span"):
            found |= _calls(getattr(e, a.name))
    return found


# ---- fusion


def check_fusion(checker: Checker, f: syntax.Fusion) -> OpDef:
    """Signature and definition of a fusion: types, attributes and results follow from the definition."""
    item = Item(f.name)
    elab = Elaborator(checker, item)
    own = tuple(checker.signatures.attribute(p) for p in f.params.attributes)
    item.own = {a.name: a for a in own}
    scope = Scope(item, matched=True)
    for a in own:
        scope.names[a.name] = Ref(a.name)
    written = _fusion_operands(checker, f, item, scope, {a.name for a in own})
    scope.add_parts(f.where)
    outputs = elab.outputs(f.outputs, scope)
    for bind in f.where:  # a part that no output uses is still a condition of the match
        for target in bind.targets:
            elab.name(target, bind, scope)
    requires = tuple(conditions.conjuncts(tuple(elab.condition(c, scope) for c in f.requires)))
    zonk = Zonk(item)
    terms = zonk(tuple(t for _, t in outputs))
    operands = tuple(_operand_info(p, item, zonk, written) for p in f.params.operands)
    used = {o.name for t in (*terms, *(t for _, t in zonk(tuple(item.named)))) for o in operands_of(t)}
    for p in f.params.operands:
        if p.name not in used:
            raise Problem("RW221", f"{f.name} does not use its parameter `{p.name}`", p.span, "remove it")
    results = _result_infos(f, outputs, terms)
    attributes = (*own, *(a if a.name == n else _renamed(a, n) for n, a in item.captured.items()))
    case = Case("definition", terms, (), zonk((*requires, *item.solver.guards)), zonk(tuple(item.named)), span=f.span)
    return OpDef(
        f.name, operands, tuple(attributes), results, (case,), requires=zonk((*requires, *item.solver.guards)),
        rowwise=_fusion_rowwise(checker, terms, operands), is_fusion=True, contract=f.contract, doc=f.doc, span=f.span,
    )  # fmt: skip


def _renamed(a: Attribute, name: str) -> Attribute:
    from attrs import evolve

    return evolve(a, name=name)


def _fusion_operands(checker: Checker, f: syntax.Fusion, item: Item, scope: Scope, own: set[str]) -> set[str]:
    written: set[str] = set()
    for p in f.params.operands:
        if p.name in scope.names:
            raise Problem("RW208", f"`{p.name}` is declared twice", p.span)
        info = checker.signatures.operand(p, own) if p.type is not None else None
        if info is None:
            item.types[p.name] = UNKNOWN
            scope.names[p.name] = item.intern(Operand(p.name, UNKNOWN, False, p.star, span=p.span))
            continue
        written.add(p.name)
        _declare_dims(item, scope, info.type)
        if isinstance(info.type.dtype, DtypeVar):
            item.solver.used.add(info.type.dtype.key)
            scope.classes[info.type.dtype.key] = info.type.dtype
        scope.names[p.name] = item.intern(Operand(p.name, info.type, info.optional, p.star, span=p.span))
    return written


def _operand_info(p: syntax.Param, item: Item, zonk: Zonk, written: set[str]) -> OperandInfo:
    operand = item.terms.get(Operand(p.name, UNKNOWN, False, p.star))
    type_ = zonk(item.type_of(operand)) if operand is not None else UNKNOWN
    uses = item.uses.get(p.name, [])
    if p.name in written:
        assert p.type is not None
        return OperandInfo(p.name, type_, p.type.optional, p.default is not None, p.star, "tensor", p.span)
    if type_ == UNKNOWN and not any(u.kind == "str" for u in uses):
        raise Problem("RW308", f"the type of `{p.name}` cannot be inferred: only built-ins use it", p.span,
                      f"write it: `{p.name}: real[*B, D]`")  # fmt: skip
    optional = bool(uses) and all(u.optional for u in uses)
    default = bool(uses) and all(u.has_default for u in uses)
    kind = "str" if uses and all(u.kind == "str" for u in uses) else "tensor"
    return OperandInfo(p.name, type_, optional, default, p.star, kind, p.span)


def _result_infos(
    f: syntax.Fusion, outputs: list[tuple[str | None, Term]], terms: tuple[Term, ...]
) -> tuple[ResultInfo, ...]:
    infos: list[ResultInfo] = []
    for (name, _), term in zip(outputs, terms, strict=True):
        name = name or "y"
        if any(i.name == name for i in infos):
            raise Problem("RW206", f"two results are called {name}", f.span, "name them under `where`")
        type_ = term.type if not isinstance(term, Number) else UNKNOWN
        infos.append(ResultInfo(name, type_, isinstance(term, Each)))
    return tuple(infos)


def _fusion_rowwise(checker: Checker, terms: tuple[Term, ...], operands: tuple[OperandInfo, ...]) -> tuple[str, ...]:
    """The operands that the rows of all results follow: where every call of the definition is row-wise along them."""
    rows: set[str] = set()
    for t in _subterms(terms):
        if isinstance(t, Result):
            sig = checker.signature(t.call.op)
            if not sig.rowwise:
                return ()
            for info, arg in zip(sig.operands, t.call.args, strict=True):
                if info.name in sig.rowwise and isinstance(arg, Operand):
                    rows.add(arg.name)
        elif isinstance(t, Prim) and t.op not in ("add", "sub", "mul", "to"):
            return ()
    return tuple(o.name for o in operands if o.name in rows)


def operands_of(term: Any) -> list[Operand]:
    """The operands that a term reads."""
    return [t for t in _subterms((term,)) if isinstance(t, Operand)]


def _subterms(terms: tuple[Any, ...]) -> list[Any]:
    out: list[Any] = []
    seen: set[int] = set()
    todo = list(terms)
    while todo:
        t = todo.pop()
        if id(t) in seen:
            continue
        seen.add(id(t))
        if isinstance(t, Operand | Prim | Result | Extern | Each | Choose | Either):
            out.append(t)
        todo += children(t)
    return out


def children(t: Any) -> list[Any]:
    """The terms directly inside a term."""
    if isinstance(t, Prim):
        return list(t.args)
    if isinstance(t, Result):
        return [t.call]
    if isinstance(t, Call):
        return [x for a in t.args for x in (a if isinstance(a, tuple) else (a,))]
    if isinstance(t, Each):
        return [t.body]
    if isinstance(t, Choose):
        return [v for _, v in t.cases]
    if isinstance(t, Either):
        return list(t.choices)
    if isinstance(t, Extern):
        return [a for a in (*t.call.args, *(v for _, v in t.call.kwargs))]
    if isinstance(t, Apply):
        return list(t.args)
    return [t.value] if hasattr(t, "slot") and hasattr(t, "value") else []


def fusion_rule(sig: OpDef, f: syntax.Fusion, pack: syntax.Pack | None, order: int, extra: Any) -> RuleDef:
    """The rule `definition => f(...)` of a fusion in a pack."""
    case = sig.equations[0]
    args = tuple(Operand(o.name, o.type, o.optional, o.star) for o in sig.operands)
    call = Call(sig.name, args, tuple((a.name, Ref(a.name)) for a in sig.attributes), f.span)
    right = tuple(Result(call, i, r.type) for i, r in enumerate(sig.results))
    return RuleDef(
        sig.name, pack.name if pack else None, case.outputs, right, sig.operands, sig.attributes, case.named,
        tuple(t for b in f.where if b.kind == "keep" for t in b.targets), sig.requires, extra.prefer(f.prefer, sig),
        f.over, f.level, f.flag, (pack.stage if pack else None) or "fuse", f.contract, order, f.span, _outputs_span(f.outputs),
    )  # fmt: skip


def _outputs_span(outputs: tuple[Any, ...]) -> syntax.Span:
    first, last = outputs[0].span, outputs[-1].span
    return syntax.Span(first.file, first.line, first.column, last.end_line, last.end_column)


# ---- rule


def check_rule(checker: Checker, r: syntax.Rule, pack: syntax.Pack | None, order: int) -> RuleDef:
    """A rewrite between ops that exist."""
    _used_once(checker, r)
    item = Item(r.name or "rule")
    elab = Elaborator(checker, item)
    left_scope = Scope(item, matched=True, binds=True)
    if r.params is not None:
        _declared(checker, r, item, left_scope)
    right_names = _right_only(r)
    left_scope.add_parts(tuple(b for b in r.where if not set(b.targets) <= right_names))
    left = elab.outputs(r.left, left_scope)
    for bind in r.where:
        if not set(bind.targets) <= right_names:
            for target in bind.targets:
                elab.name(target, bind, left_scope)
    right_scope = left_scope.child(matched=False, binds=False, parts=dict(left_scope.parts))
    right_scope.names = {**left_scope.names, **item.bound, **{n: Ref(n) for n in item.captured}}
    right_scope.add_parts(tuple(b for b in r.where if set(b.targets) <= right_names))
    right = elab.outputs(r.right, right_scope)
    if len(left) != len(right):
        raise Problem("RW306", f"{len(left)} outputs on the left and {len(right)} on the right", r.span)
    for (_, a), (_, b) in zip(left, right, strict=True):
        _same_type(elab, a, b, r)
    requires = tuple(conditions.conjuncts(tuple(elab.condition(c, right_scope) for c in r.requires)))
    prefer = tuple(conditions.conjuncts(tuple(elab.condition(c, right_scope) for c in r.prefer)))
    zonk = Zonk(item)
    lefts, rights = zonk(tuple(t for _, t in left)), zonk(tuple(t for _, t in right))
    guards = zonk((*requires, *item.solver.guards))
    _nothing_dropped(item, rights, guards, r)
    operands = _bound_operands(item, zonk, lefts)
    name = r.name or "_to_".join(filter(None, [_root(lefts), _root(rights)]))
    return RuleDef(
        name, pack.name if pack else None, lefts, rights, operands, tuple(item.captured.values()),
        zonk(tuple(item.named)), tuple(item.kept), guards,
        zonk((*prefer, *checker.pack_prefer(pack))), r.over, r.level, r.flag, (pack.stage if pack else None) or "fuse",
        r.contract, order, r.span, _outputs_span(r.left),
    )  # fmt: skip


def _declared(checker: Checker, r: syntax.Rule, item: Item, scope: Scope) -> None:
    assert r.params is not None
    own = tuple(checker.signatures.attribute(p) for p in r.params.attributes)
    item.own = {a.name: a for a in own}
    for a in own:
        scope.names[a.name] = Ref(a.name)
    for p in r.params.operands:
        info = checker.signatures.operand(p, {a.name for a in own})
        type_ = UNKNOWN if info is None else info.type
        if info is None:
            item.types[p.name] = UNKNOWN
        else:
            _declare_dims(item, scope, info.type)
        scope.names[p.name] = item.intern(Operand(p.name, type_, info.optional if info else False, p.star, span=p.span))


def _right_only(r: syntax.Rule) -> set[str]:
    """Names under `where` that only the right side uses, directly or through other parts."""

    def reach(es: Any) -> set[str]:
        found: set[str] = set()
        todo = {v.name for v in syntax_names(es)} | {e.name for e in es if isinstance(e, syntax.Splat)}
        while todo:
            n = todo.pop()
            if n in found:
                continue
            found.add(n)
            for b in r.where:
                if n in b.targets:
                    todo |= {v.name for v in syntax_names(b.value)} | set(b.targets)
        return found

    left = reach(r.left)
    return {t for b in r.where for t in b.targets if t in reach(r.right) and t not in left and b.kind == "bind"}


def _used_once(checker: Checker, r: syntax.Rule) -> None:
    """RW201: a name on the left that nothing else mentions."""
    declared = {p.name for p in (*(r.params.operands if r.params else ()), *(r.params.attributes if r.params else ()))}
    targets = {t for b in r.where for t in b.targets}
    uses: dict[str, list[syntax.Var]] = {}
    parts = (r.left, r.right, r.where, r.requires, r.prefer, (r.decreasing,))
    for v in syntax_names(tuple(parts)):
        uses.setdefault(v.name, []).append(v)
    splats = {s.name for side in (r.left, r.right) for s in side if isinstance(s, syntax.Splat)}
    left_vars = {
        v.name for v in syntax_names((r.left, tuple(b for b in r.where if not set(b.targets) <= _right_only(r))))
    }
    for name, found in uses.items():
        known = (
            name in declared or name in targets or name in splats or name.startswith("_") or checker.is_constant(name)
        )
        if len(found) == 1 and name in left_vars and not known and not _carried_name(checker, r, name):
            hints = {"bfloat16": "a dtype? write `bf16`", "float32": "a dtype? write `f32`", "None": "write `none`"}
            hint = hints.get(
                name, closest(name, [n for n in uses if n != name]) or f"to match anything write `_{name}`"
            )
            raise Problem("RW201", f"`{name}` is used once, on the left", found[0].span, hint)
    for t in targets:
        if t not in uses and t not in splats and not t.startswith("_"):
            bind = next(b for b in r.where if t in b.targets)
            if len(bind.targets) == 1:
                raise Problem("RW201", f"`{t}` is named and not used", bind.span, "remove it")


def _carried_name(checker: Checker, r: syntax.Rule, name: str) -> bool:
    """Does an op on the right take `name` as a carried attribute?"""
    for call in _calls(r.right):
        op = checker.op_names.get(call)
        fusion = checker.fusions.get(call)
        if (
            op
            and name in {p.name for p in op.params.attributes}
            or fusion
            and checker.knows_op(call)
            and (checker.signature(call).attribute(name) is not None)
        ):
            return True
    return False


def _same_type(elab: Elaborator, left: Term, right: Term, r: syntax.Rule) -> None:
    a, b = elab.item.type_of(left), elab.item.type_of(right)
    try:
        elab.item.solver.unify(a, b, r.span, "an output")
    except Problem as problem:
        raise Problem("RW306", f"the sides differ: {a} on the left, {b} on the right", r.span) from problem


def _nothing_dropped(item: Item, right: tuple[Term, ...], guards: tuple[Scalar, ...], r: syntax.Rule) -> None:
    """RW210: an attribute captured by omission must be taken by an op on the right."""
    taken = {x.name for x in _scalars((right, guards)) if isinstance(x, Ref)}
    said = {v.name for v in syntax_names((r.left, r.where, r.requires))}
    for name, a in item.captured.items():
        if name not in taken and name not in said:
            raise Problem(
                "RW210", f"`{name}` is captured on the left and no op on the right takes it", r.span,
                f"pin it (`{a.name}=...`), drop it on purpose (`{a.name}=_`), or pass it on",
            )  # fmt: skip


def _scalars(x: Any) -> list[Any]:
    if isinstance(x, tuple):
        return [s for i in x for s in _scalars(i)]
    if isinstance(x, Ref):
        return [x]
    if isinstance(x, Prim):
        return _scalars((x.args, x.params))
    if isinstance(x, Number):
        return _scalars(x.value)
    if isinstance(x, Call):
        return _scalars((x.args, tuple(v for _, v in x.attrs)))
    if isinstance(x, Dim):
        return [Ref(n) for n in names(x)]
    if hasattr(x, "dim"):
        return _scalars(x.dim)
    return [s for c in children(x) for s in _scalars(c)]


def _bound_operands(item: Item, zonk: Zonk, lefts: tuple[Term, ...]) -> tuple[OperandInfo, ...]:
    seen: dict[str, Operand] = {}
    for t in (*lefts, *(t for _, t in zonk(tuple(item.named)))):
        for o in operands_of(t):
            seen.setdefault(o.name, o)
    return tuple(OperandInfo(o.name, o.type, o.optional, False, o.star, "tensor", o.span) for o in seen.values())


def _root(terms: tuple[Term, ...]) -> str:
    t = terms[0]
    if isinstance(t, Result):
        return t.call.op
    return getattr(t, "op", "value")


__all__ = ["check_fusion", "check_op", "check_rule", "check_spelling", "fusion_rule", "op_signature"]
