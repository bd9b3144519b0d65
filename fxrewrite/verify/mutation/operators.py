"""What is changed of a term: every primitive, call, argument, literal and choice, one at a time.

for change in changes(rule.right, program, rule.attributes):
    broken = replaced(rule.right, change.old, change.new)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

from attrs import evolve, field, frozen

from fxrewrite.dsl import core
from fxrewrite.dsl.core import NO_DEFAULT, PRIMITIVES, Attribute, Call, Lit, OpDef, Prim, Program, Ref
from fxrewrite.dsl.syntax import Span
from fxrewrite.verify.mutation.scalars import Scope, other_values, others, shown
from fxrewrite.verify.rebuild import nodes

# Another op of the same signature. Nothing has `fdiv` for `/`: run op by op, both are one IEEE division.
SIBLINGS: dict[str, tuple[str, ...]] = {
    "abs": ("neg",),
    "neg": ("abs",),
    "exp": ("exp2",),
    "exp2": ("exp",),
    "log": ("log2", "log1p"),
    "log1p": ("log",),
    "log2": ("log",),
    "sqrt": ("rsqrt",),
    "rsqrt": ("sqrt", "reciprocal"),
    "reciprocal": ("rsqrt",),
    "sigmoid": ("tanh",),
    "tanh": ("erf", "sigmoid"),
    "erf": ("tanh",),
    "ceil": ("floor", "round"),
    "floor": ("ceil", "round"),
    "round": ("floor", "ceil"),
    "add": ("sub", "mul"),
    "sub": ("add",),
    "mul": ("add", "div"),
    "div": ("mul",),
    "fdiv": ("mul",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "amax": ("mean", "sum"),
    "mean": ("sum", "amax"),
    "sum": ("mean",),
    "var": ("mean",),
}
ORDERED = frozenset(("sub", "div", "fdiv", "matmul"))  # of two arguments, in this order
LAYOUT = "another layout"  # of a result: nothing that values show
SAME_KIND = 3  # of other values of one scalar, and of sibling ops: no more are tried


@frozen
class Change:
    """`old` becomes `new`. `what` says it as a reader of the rule would: `x and r exchanged in add_rms_norm`."""

    operator: str
    what: str
    old: Any = field(eq=False, repr=False)
    new: Any = field(eq=False, repr=False)
    span: Span | None = field(eq=False, default=None, repr=False)


def changes(whole: Any, program: Program, attributes: Sequence[Attribute] = ()) -> Iterator[Change]:
    """Every change of a term or of a tuple of terms."""
    scope = Scope(tuple(attributes))
    for node in nodes(whole):
        of_type = _BY_TYPE.get(type(node))
        if of_type is not None:
            yield from of_type(node, program, scope)


# ---- primitives


def _of_primitive(x: Prim, program: Program, scope: Scope) -> Iterator[Change]:
    def change(operator: str, what: str, new: Any) -> Change:
        return Change(operator, what, x, new, x.span)

    yield from (change("another primitive", f"{x.op} -> {op}", evolve(x, op=op)) for op in SIBLINGS.get(x.op, ()))
    if x.op in ORDERED or (x.op == "cat" and len(x.args) > 1):
        yield change("arguments exchanged", f"{x.op}(a, b) -> {x.op}(b, a)", evolve(x, args=x.args[::-1]))
    if x.args and _may_go(x, x.args[0]):
        yield change("step left out", f"{_name(x)} left out", x.args[0])
    for i, arg in enumerate(x.args):
        if isinstance(arg, core.Number) and arg.value != Lit(None):
            for new in islice(others(arg.value, scope), SAME_KIND):
                args = (*x.args[:i], core.Number(new), *x.args[i + 1 :])
                yield change("another literal", f"literal {shown(arg)} -> {shown(new)} in {x.op}", evolve(x, args=args))
            if x.op == "clamp":
                args = (*x.args[:i], core.Number(Lit(None)), *x.args[i + 1 :])
                yield change("bound left out", f"the bound {shown(arg)} of clamp left out", evolve(x, args=args))
    yield from _of_parameters(x, scope, change)


def _of_parameters(x: Prim, scope: Scope, change: Callable[[str, str, Any], Change]) -> Iterator[Change]:
    names = _parameters(x.op)
    for i, param in enumerate(x.params):
        for new in islice(others(param, scope), SAME_KIND):
            what = f"{names[i] if i < len(names) else 'parameter'} {shown(param)} -> {shown(new)} in {x.op}"
            operator = "another dtype" if x.op == "to" else "another bound" if x.op in _SLICES else "another parameter"
            yield change(operator, what, evolve(x, params=(*x.params[:i], new, *x.params[i + 1 :])))


_SLICES = ("slice", "slice_scatter")


def _parameters(op: str) -> tuple[str, ...]:
    table: tuple[str, ...] = PRIMITIVES.get(op, ())
    return table[table.index(";") + 1 :] if ";" in table else ()


def _may_go(x: Prim, first: core.Term) -> bool:
    """May the first argument stand for the step?"""
    return x.op in PRIMITIVES and x.op not in ("reshape", "expand", "slice", "cat") and _is_tensor(first)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, core.Term) and not isinstance(x, core.Number | core.Nothing)


def _name(x: Any) -> str:
    return f"to({shown(x.params[0])})" if x.op == "to" else x.op


# ---- calls of declared ops


def _of_call(x: Call, program: Program, scope: Scope) -> Iterator[Change]:
    op = program.ops[x.op]
    yield from _exchanged(x, op)
    for i, info in enumerate(op.operands):
        if info.optional and x.args[i] is not None and not isinstance(x.args[i], core.Nothing):
            args = (*x.args[:i], core.Nothing(), *x.args[i + 1 :])
            yield Change("operand left out", f"{info.name} of {x.op} left out", x, evolve(x, args=args), x.span)
    for i, (name, value) in enumerate(x.attrs):
        attribute = op.attribute(name)
        for operator, new in _other_attributes(attribute, value, scope) if attribute else ():
            attrs = (*x.attrs[:i], (name, new), *x.attrs[i + 1 :])
            what = f"{name}={shown(value)} -> {name}={shown(new)} in {x.op}"
            operator = LAYOUT if attribute is not None and attribute.type == "layout" else operator
            yield Change(operator, what, x, evolve(x, attrs=attrs), x.span)
    for other in islice(_siblings(op, program), SAME_KIND):
        yield Change("another op", f"{x.op} -> {other.name}", x, _called(x, other), x.span)


def _exchanged(x: Call, op: OpDef) -> Iterator[Change]:
    for i, j in combinations(range(len(x.args)), 2):
        a, b = op.operands[i], op.operands[j]
        if (a.kind, a.star, a.type.dtype) == (b.kind, b.star, b.type.dtype) and x.args[i] != x.args[j]:
            args = list(x.args)
            args[i], args[j] = args[j], args[i]
            what = f"{a.name} and {b.name} exchanged in {x.op}"
            yield Change("arguments exchanged", what, x, evolve(x, args=tuple(args)), x.span)


def _other_attributes(attribute: Attribute, value: Any, scope: Scope) -> Iterator[tuple[str, Any]]:
    """What else the attribute of a call may be: dropped, pinned, another one, another value."""
    default = None if attribute.default is NO_DEFAULT else Lit(attribute.default)
    if isinstance(value, Ref):
        if default is not None:
            yield "attribute dropped", default
        pins = (Lit(v) for v in _pins(attribute) if default is None or v != attribute.default)
        yield from (("attribute pinned", p) for p in islice(pins, SAME_KIND))
        yield from (("another attribute", Ref(n)) for n in islice(scope.like(value.name), 1))
    elif isinstance(value, Lit):
        allowed = attribute.domain or tuple(other_values(value.value))
        yield from (("another value", Lit(v)) for v in islice((v for v in allowed if v != value.value), SAME_KIND))


def _pins(attribute: Attribute) -> Sequence[Any]:
    if attribute.domain is not None:
        return attribute.domain
    return _PINS.get(attribute.type, ())


_PINS: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "float": (1e-5, 1e-2),
    "int": (64, 128),
    "layout": ("row", "col"),
}


def _siblings(op: OpDef, program: Program) -> list[OpDef]:
    """Ops that may be called with the same operands, for as many results; those of the most similar types first."""
    names = {a.name for a in op.attributes}
    kinds = [(o.kind, o.star, o.type.dtype) for o in op.operands]
    found: list[OpDef] = []
    for other in program.ops.values():
        open_ = {a.name for a in other.attributes if a.default is NO_DEFAULT and not a.optional}
        same = kinds == [(o.kind, o.star, o.type.dtype) for o in other.operands]
        if other.name != op.name and same and open_ <= names and _results(other) == _results(op):
            found.append(other)
    return sorted(found, key=lambda o: (o.is_fusion, -len(names & {a.name for a in o.attributes})))


def _results(op: OpDef) -> list[tuple[bool, Any]]:
    return [(r.star, r.type.dtype) for r in op.results]


def _called(x: Call, other: OpDef) -> Call:
    """The same call of another op; attributes that it lacks are gone, further ones are at their defaults."""
    given = dict(x.attrs)
    attrs = tuple((a.name, given.get(a.name, Lit(a.default))) for a in other.attributes)
    return evolve(x, op=other.name, attrs=attrs)


def _of_result(x: core.Result, program: Program, scope: Scope) -> Iterator[Change]:
    names = [r.name for r in program.ops[x.call.op].results]
    for i, name in enumerate(names):
        if i != x.index:
            what = f"{names[x.index]} of {x.call.op} -> {name}"
            yield Change("another result", what, x, evolve(x, index=i), x.call.span)


# ---- torch calls and choices


def _of_torch(x: core.TorchCall, program: Program, scope: Scope) -> Iterator[Change]:
    tensors = [i for i, a in enumerate(x.args) if _is_tensor(a) or isinstance(a, core.Taken)]
    for i, j in combinations(tensors, 2):
        if type(x.args[i]) is type(x.args[j]) and x.args[i] != x.args[j]:
            args = list(x.args)
            args[i], args[j] = args[j], args[i]
            what = f"arguments {i} and {j} of {x.op} exchanged"
            yield Change("arguments exchanged", what, x, evolve(x, args=tuple(args)), x.span)
    for i, arg in enumerate(x.args):
        for new in islice(others(arg, scope), SAME_KIND):
            what = f"argument {i} of {x.op}: {shown(arg)} -> {shown(new)}"
            yield Change("another literal", what, x, evolve(x, args=(*x.args[:i], new, *x.args[i + 1 :])), x.span)
    for i, (name, value) in enumerate(x.kwargs):
        rest = (*x.kwargs[:i], *x.kwargs[i + 1 :])
        if not isinstance(value, core.Fresh | core.Taken):
            yield Change("argument dropped", f"{name} of {x.op} left out", x, evolve(x, kwargs=rest), x.span)
        for new in islice(others(value, scope), SAME_KIND):
            what = f"{name} of {x.op}: {shown(value)} -> {shown(new)}"
            kwargs = (*x.kwargs[:i], (name, new), *x.kwargs[i + 1 :])
            yield Change("another literal", what, x, evolve(x, kwargs=kwargs), x.span)


def _of_extern(x: core.Extern, program: Program, scope: Scope) -> Iterator[Change]:
    if x.returned is not None:
        for other in (x.returned + 1, x.returned - 1):
            if other >= 0:
                what = f"result {x.returned} of {x.call.op} -> {other}"
                yield Change("another result", what, x, evolve(x, returned=other), x.span)
    if x.written is not None:
        for slot in sorted({a.slot for a in x.call.args if isinstance(a, core.Fresh | core.Taken)} - {x.written}):
            what = f"written argument {x.written} of {x.call.op} -> {slot}"
            yield Change("another result", what, x, evolve(x, written=slot), x.span)


def _of_choice(x: core.Choose, program: Program, scope: Scope) -> Iterator[Change]:
    for i, (conditions, term) in enumerate(x.cases):
        if conditions and i + 1 < len(x.cases):
            cases = (*x.cases[:i], ((), term), *x.cases[i + 1 :])
            what = f"`when {' and '.join(map(shown, conditions))}` left out"
            yield Change("condition dropped", what, x, evolve(x, cases=cases), x.span)
    for i, j in combinations(range(len(x.cases)), 2):
        cases = list(x.cases)
        cases[i], cases[j] = (cases[i][0], cases[j][1]), (cases[j][0], cases[i][1])
        what = f"cases {i + 1} and {j + 1} exchanged ({' and '.join(map(shown, x.cases[i][0]))})"
        yield Change("cases exchanged", what, x, evolve(x, cases=tuple(cases)), x.span)


_BY_TYPE: dict[type, Callable[[Any, Program, Scope], Iterator[Change]]] = {
    Prim: _of_primitive,
    Call: _of_call,
    core.Result: _of_result,
    core.TorchCall: _of_torch,
    core.Extern: _of_extern,
    core.Choose: _of_choice,
}
