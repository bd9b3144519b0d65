"""`def`s: helpers, expanded where they are called. Their text sees their own names and nothing of the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import arguments, conditions
from fxrewrite.dsl.check.contradiction import never, possible
from fxrewrite.dsl.check.problem import Broken, Problem, closest
from fxrewrite.dsl.check.scope import Listed, Many, Scope, Value
from fxrewrite.dsl.check.solver import Instance, as_dim
from fxrewrite.dsl.check.values import is_condition, single
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Choose,
    Dtype,
    DtypeVar,
    Lit,
    Nothing,
    Number,
    Operand,
    OperandInfo,
    Ref,
    Scalar,
    Size,
    TensorType,
    Term,
)
from fxrewrite.dsl.dims import Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


def expand(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """The value of a call of a `def`: its equations with parameters bound. Guarded equations become a choice."""
    d = elab.checker.defs[e.func]
    depth = elab.item.depth
    if d.name in depth:
        cycle = ", ".join([*depth[depth.index(d.name) :], d.name])
        place = e.func_span or e.span
        raise Problem("RW209", f"the definition of {d.name} reaches itself: {cycle}", place, "a definition is finite")
    if d.name in elab.checker.broken:
        raise Broken(d.name)
    elab.checker.count_expansion(d.name, e.func_span or e.span)
    inner = _scope(elab, d, e, scope, first)  # arguments first: a `def` may stand in those of itself
    depth.append(d.name)
    try:
        return _equations(elab, d, inner, e)
    finally:
        depth.pop()


# ---- parameters


def _scope(elab: Elaborator, d: syntax.Def, e: syntax.Call, scope: Scope, first: Value) -> Scope:
    params = (*d.params.operands, *d.params.attributes)
    given = _given(elab, d, params, e, scope, first)
    instance = elab.item.solver.instance({})
    inner = Scope(
        elab.item, d.span.file, matched=scope.matched, expand=scope.expand, caller=scope, present=scope.present,
        element=scope.element, prefix=f"{scope.prefix}{d.name}.",
    )  # fmt: skip
    types = {p.name: elab.checker.param_type(p, d.params) for p in params}
    numbers_first = sorted(params, key=lambda p: not isinstance(types[p.name], str))  # dims use them
    for p in numbers_first:
        value, at = given[p.name]
        inner.names[p.name] = _bind(elab, d, p, value, at, instance)
        if p.type is not None and p.type.name == "int" and isinstance(inner.names[p.name], Lit | Ref | Size):
            instance.attributes[p.name] = inner.names[p.name]
    inner.dims.update({n: _dim(instance, n, r) for n, r in instance.names.items() if n not in instance.classes})
    classes = elab.checker.classes(d.span.file)
    inner.classes.update({n: DtypeVar(instance.names[n], classes[n]) for n in instance.classes})
    return inner


def _given(
    elab: Elaborator, d: syntax.Def, params: tuple[syntax.Param, ...], e: syntax.Call, scope: Scope, first: Value
) -> dict[str, tuple[Value, Any]]:
    """Value and text of each parameter."""
    values = arguments.positional(elab, e, scope, first)
    listed = ", ".join(p.name for p in params)
    at = e.func_span or e.span
    if len(values) > len(params):
        extra = arguments.texts(e, len(values))[len(params)]
        raise Problem(
            "RW204", f"{d.name} takes {len(params)} arguments ({listed}), not {len(values)}", extra.span, "remove it"
        )
    given: dict[str, tuple[Value, Any]] = {}
    for p, v, text in zip(params, values, arguments.texts(e, len(values))):
        given[p.name] = v, text
    for k in e.kwargs:
        names = [p.name for p in params]
        if k.name not in names or k.name in given:
            place = elab.places.word(k.span, k.name)
            message = f"{d.name} has no parameter `{k.name}`" if k.name not in names else f"`{k.name}` is given twice"
            raise Problem("RW211", message, place, closest(k.name, names) or f"its parameters: {listed}")
        given[k.name] = elab.one(k.value, scope), k.value
    for p in params:
        if p.name not in given:
            if p.default is None:
                raise Problem(
                    "RW204",
                    f"{d.name} takes {len(params)} arguments ({listed}); `{p.name}` is missing",
                    at,
                    f"give `{p.name}`",
                )
            given[p.name] = elab.one(p.default, Scope(elab.item, d.span.file)), p.default
    return given


def _dim(instance: Instance, name: str, renamed: str) -> Any:
    if name in instance.attributes:
        return as_dim(instance.attributes[name])
    return Star(renamed) if name in instance.stars else dims.name(renamed)


def _bind(elab: Elaborator, d: syntax.Def, p: syntax.Param, value: Value, at: Any, instance: Instance) -> Value:
    declared = elab.checker.param_type(p, d.params)
    what = f"`{p.name}` of {d.name}"
    if isinstance(declared, str):
        scalar = elab.as_scalar(value, at, Scope(elab.item, d.span.file))
        _fits(scalar, declared, p, what, at)
        return scalar
    value = single(value)
    if isinstance(value, Listed) or declared is None:
        if isinstance(value, Operand):
            elab.item.use(value, OperandInfo(p.name, UNKNOWN, optional=True))
        return value
    return _tensor(elab, declared, p, elab.as_term(value, at), what, at, instance)


def _tensor(
    elab: Elaborator, declared: TensorType, p: syntax.Param, term: Term, what: str, at: Any, instance: Instance
) -> Value:
    optional = p.type is not None and p.type.optional
    want = instance.type(declared)
    if optional and isinstance(term, Operand):
        elab.item.use(term, OperandInfo(p.name, declared, optional=True))
    elif not optional:
        elab.present(term, what, at.span)
    if isinstance(term, Nothing):
        return term
    if isinstance(term, Number):
        raise Problem(
            "RW310", f"{what} is a tensor, not a number", at.span, f"declare it `{p.name}: float` to take numbers"
        )
    elab.item.fit(want, term, at.span, what)
    return elab.typed(term, want)


def _fits(scalar: Scalar, declared: str, p: syntax.Param, what: str, at: Any) -> None:
    """RW310 where a literal is of another type than a scalar parameter."""
    if isinstance(scalar, Dtype | DtypeVar):
        if declared != "dtype":
            raise Problem("RW310", f"{what} is of type {declared}, not a dtype", at.span, "")
        return
    if not isinstance(scalar, Lit) or (scalar.value is None and p.type is not None and p.type.optional):
        return
    python: Any = {"float": int | float, "int": int, "bool": bool, "str": str, "dtype": Dtype}.get(declared)
    if python is not None and (
        not isinstance(scalar.value, python) or isinstance(scalar.value, bool) != (declared == "bool")
    ):
        raise Problem("RW310", f"{what} is of type {declared}", at.span, f"give a {declared}")


# ---- equations


def _equations(elab: Elaborator, d: syntax.Def, inner: Scope, e: syntax.Call) -> Value:
    """The equations as a choice: a later one stands only where the earlier ones do not hold."""
    cases: list[tuple[tuple[Scalar, ...], Value]] = []
    earlier: list[tuple[Scalar, ...]] = []
    for equation in d.equations:
        local = inner.child(parts={})
        local.add_parts(d.where)
        conds = elab.conditions(equation.when, local)
        if elab.item.span == d.span and equation.when:  # checked by itself: at a call a case may well be impossible
            possible(conds, (), equation.when, lambda c, s=local: elab.conditions((c,), s), equation.when[0].span)
        if conditions.FALSE in conds:
            continue
        guarded = conditions.conjuncts((*conds, *_excluded(conds, earlier)))
        if conditions.FALSE in guarded:
            break
        local.present = inner.present | conditions.present(conds)
        values = arguments.spread(elab, equation.outputs, local)
        flat = tuple(w for v in values for w in (v.values if isinstance(v, Many) else (v,)))
        cases.append((tuple(guarded), flat[0] if len(flat) == 1 else Many(flat)))
        earlier.append(conds)
        if not conds:
            break
    if not cases:
        raise Problem(
            "RW407", f"no equation of {d.name} holds here", e.func_span or e.span, "its `when` say where it stands"
        )
    return _choose(elab, d, cases, e)


def _excluded(conds: tuple[Scalar, ...], earlier: list[tuple[Scalar, ...]]) -> list[Scalar]:
    """What says that no earlier equation holds: nothing where that is plain."""
    return [conditions.negate(conditions.all_of(other)) for other in earlier if never((*conds, *other)) is None]


def _choose(elab: Elaborator, d: syntax.Def, cases: list[tuple[tuple[Scalar, ...], Value]], e: syntax.Call) -> Value:
    if len(cases) == 1 and not cases[0][0]:
        return cases[0][1]
    counts = {len(v.values) if isinstance(v, Many) else 1 for _, v in cases}
    if len(counts) > 1:
        message = f"the equations of {d.name} give {' and '.join(map(str, sorted(counts)))} values"
        raise Problem("RW224", message, elab.places.word(d.span, d.name), "give as many in each")
    if isinstance(cases[0][1], Many):
        values = [[(c, v.values[i]) for c, v in cases] for i in range(counts.pop())]
        return Many(tuple(_choose(elab, d, one, e) for one in values))
    if all(isinstance(v, Lit | Apply | Ref | Size | Dtype | DtypeVar) for _, v in cases):
        return _condition(d, cases, e)
    terms = tuple((conds, elab.as_term(value, e)) for conds, value in cases)
    first = elab.item.type_of(terms[0][1])
    for _, term in terms[1:]:
        elab.item.solver.unify(first, elab.item.type_of(term), e.func_span or e.span, f"a case of {d.name}")
    return elab.item.intern(Choose(terms, elab.item.solver.type(first), e.span))


def _condition(d: syntax.Def, cases: list[tuple[tuple[Scalar, ...], Value]], e: syntax.Call) -> Scalar:
    """A guarded `def` of conditions: one of them holds."""
    if not all(is_condition(v) for _, v in cases):
        raise Problem(
            "RW310", f"{d.name} gives numbers by cases", e.func_span or e.span, "cases choose tensors or conditions"
        )
    result: Scalar = conditions.FALSE
    for conds, value in cases:
        result = conditions.either(result, conditions.all_of((*conds, value)))
    return result
