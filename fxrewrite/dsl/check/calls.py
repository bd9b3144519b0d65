"""Calls, by what the name is: a cast, a built-in, a predicate, a torch op. `defs` and `op_calls` have the rest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import (
    arguments,
    attributes,
    build,
    defs,
    elsewhere,
    kinds,
    natives,
    op_calls,
    torch_calls,
    typing,
)
from fxrewrite.dsl.check.builtins import (
    ATEN,
    BUILTINS,
    DTYPES,
    OF_LISTS,
    PREDICATES,
    REQUIRED,
    REST,
    Argument,
    Builtin,
)
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Listed, Many, Scope, Value
from fxrewrite.dsl.check.solver import as_dim
from fxrewrite.dsl.check.terms import TERMS
from fxrewrite.dsl.check.values import listed, single
from fxrewrite.dsl.core import (
    MARK,
    UNKNOWN,
    Apply,
    Dtype,
    Extern,
    Lit,
    Number,
    Operand,
    Ref,
    Size,
    Term,
    TorchCall,
    Wild,
)
from fxrewrite.dsl.formats import DTYPE_HINTS

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


def call(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A call. `first`: the piped operand, evaluated, where there is one."""
    name, at = e.func, e.func_span or e.span
    if "." in name:
        return _dotted(elab, e, scope, first)
    if name in DTYPES:
        _no_rest(e)
        return _cast(elab, e, scope, first)
    if name in BUILTINS:
        if name not in REST:
            _no_rest(e)
        return builtin(elab, e, scope, first)
    _no_rest(e)
    if name in PREDICATES or name in elab.checker.natives:
        elab.checker.need_visible(name, scope.file, at)
        return predicate(elab, e, scope, first)
    if name in elab.checker.defs:
        elab.checker.need_visible(name, scope.file, at)
        return defs.expand(elab, e, scope, first)
    if elab.checker.knows_op(name):
        elab.checker.need_visible(name, scope.file, at)
        return op_calls.call_op(elab, e, scope, first)
    if name in scope.names or name in scope.parts or name in elab.item.bound:
        raise Problem("RW205", f"`{name}` is a value here, not an op", at, f"write `{name}`, without brackets")
    if name in DTYPE_HINTS:
        raise Problem("RW217", f"unknown dtype `{name}`", at, f"write `{DTYPE_HINTS[name]}(...)`")
    raise Problem("RW205", f"unknown op `{name}`", at, elsewhere.function_hint(name) or elab.checker.suggest(name))


def _no_rest(e: syntax.Call) -> None:
    if e.rest:
        place = e.func_span or e.span
        raise Problem("RW204", f"`...` stands in calls of torch ops, not of {e.func}", place, "remove `...`")


def _cast(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    values = arguments.positional(elab, e, scope, first)
    if len(values) != 1 or e.kwargs:
        at = e.func_span or e.span
        raise Problem("RW204", f"{e.func} takes 1 operand, not {len(values) + len(e.kwargs)}", at, f"`{e.func}(x)`")
    x = elab.as_term(values[0], e.args[0])
    elab.present(x, f"the operand of {e.func}", e.args[0].span)
    if isinstance(x, Number):
        raise Problem("RW310", f"{e.func} takes a tensor, not a number", e.args[0].span, "a number needs no cast")
    return typing.cast(elab.item, x, Dtype(e.func), e.span)


# ---- built-ins


def builtin(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A call of a function that the language has."""
    spec = BUILTINS[e.func]
    given = _positional(elab, e, spec, arguments.positional(elab, e, scope, first), scope)
    for kwarg in e.kwargs:
        argument = _by_name(spec, kwarg.name)
        if argument is None or argument.name in given:
            place = elab.places.word(kwarg.span, kwarg.name)
            message = (
                f"{e.func} has no argument `{kwarg.name}`" if argument is None else f"`{kwarg.name}` is given twice"
            )
            raise Problem(
                "RW211", message, place, closest(kwarg.name, [a.name for a in spec.arguments]) or _signature(e.func)
            )
        value = elab.one(kwarg.value, scope)
        given[argument.name] = _argument(elab, e, argument, value, kwarg.value, scope)
    for argument in spec.arguments:
        if argument.name not in given:
            if argument.default is REQUIRED:
                message = f"{e.func} needs `{argument.name}`"
                raise Problem("RW204", message, e.func_span or e.span, _signature(e.func))
            given[argument.name] = argument.default
    elab.item.solver.origin = (f"the types of {e.func}", e.func_span or e.span)
    return build.build(elab.item, spec.prim, given, e.span)


def _positional(elab: Elaborator, e: syntax.Call, spec: Builtin, values: list[Value], scope: Scope) -> dict[str, Any]:
    if len(values) > len(spec.arguments):
        extra = arguments.texts(e, len(values))[len(spec.arguments)]
        message = f"{e.func} takes at most {len(spec.arguments)} arguments, not {len(values)}"
        raise Problem("RW204", message, extra.span, _signature(e.func))
    found: dict[str, Any] = {}
    for argument, value, text in zip(spec.arguments, values, arguments.texts(e, len(values))):
        found[argument.name] = _argument(elab, e, argument, value, text, scope)
    return found


def _by_name(spec: Builtin, name: str) -> Argument | None:
    return next((a for a in spec.arguments if a.name == name or (name == "dim" and a.name == "dims")), None)


def _signature(func: str) -> str:
    return f"`{func}({', '.join(a.name for a in BUILTINS[func].arguments)})`"


def _argument(elab: Elaborator, e: syntax.Call, argument: Argument, value: Value, text: Any, scope: Scope) -> Value:
    if argument.kind == "scalar":
        if argument.name in ("shape", "sizes", "start", "stop"):
            _whole(elab, value, text)
        return elab.as_scalar(value, text, scope)
    if argument.kind == "tensors":
        if not isinstance(value, Listed):
            raise Problem("RW220", f"{e.func} takes a list of tensors", text.span, f"`{e.func}([a, b])`")
        return [_tensor(elab, e, argument, v, text) for v in value.values]
    if value == Lit(None) and argument.default is not REQUIRED:
        return value
    return _tensor(elab, e, argument, value, text)


def _whole(elab: Elaborator, value: Value, text: Any) -> None:
    """RW310 for a size that is no whole number."""
    inside = value.values if isinstance(value, Listed) else (value,)
    texts = text.items if isinstance(text, syntax.List) and len(text.items) == len(inside) else [text] * len(inside)
    for v, t in zip(inside, texts):
        if isinstance(v, Size | Ref | Lit | Apply) and kinds.kind_of(elab, v) != "list":
            kinds.must_be_whole(elab, v, t, "a size", "give a whole number")


def _tensor(elab: Elaborator, e: syntax.Call, argument: Argument, value: Value, text: Any) -> Term:
    term = elab.as_term(value, text)
    elab.present(term, f"`{argument.name}` of {e.func}", text.span)
    first = argument.name in ("x", "xs")
    if isinstance(term, Number) and isinstance(term.value, Wild) and (first or e.func == "slice_scatter"):
        if isinstance(text, syntax.List):
            raise Problem("RW310", f"{e.func} takes tensors", text.span, "give each a name")
        return elab.item.intern(Operand(elab.item.solver.fresh("_any"), UNKNOWN))
    if isinstance(term, Number) and first and (isinstance(term.value, Lit) or len(e.args) == 1):
        raise Problem("RW310", f"{e.func} takes a tensor, not a number", text.span, "give a tensor")
    return term


# ---- predicates and natives


def predicate(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A function of conditions and scalars: built in, or a native."""
    native = elab.checker.natives.get(e.func)
    count = len(native.params.operands) + len(native.params.attributes) if native else PREDICATES[e.func]
    inner = scope.child(spread=True) if e.func in OF_LISTS else scope
    values = arguments.positional(elab, e, inner, first)
    if len(values) != count or e.kwargs:
        given = len(values) + len(e.kwargs)
        message = f"{e.func} takes {count} argument{'s' if count != 1 else ''} by position, not {given}"
        raise Problem("RW204", message, e.func_span or e.span, f"`{e.func}({', '.join('abcdefgh'[:count])})`")
    if e.func == "fill":
        values = [values[0], elab.as_scalar(values[1], arguments.texts(e, count)[1], scope)]
    elif e.func in OF_LISTS or e.func in ("up", "compose", "identity"):
        values = [elab.as_scalar(v, t, scope) for v, t in zip(values, arguments.texts(e, count))]
    if native is not None:
        natives.check_call(elab, native, list(zip(values, arguments.texts(e, count))))
    args = tuple(_plain(v) for v in values)
    if e.func == "up":
        return _up(args, e)
    return Apply(MARK + native.source if native else e.func, args)


def _up(args: tuple[Any, ...], e: syntax.Call) -> Value:
    for a in args:
        if not isinstance(a, Size | Ref | Lit) or (isinstance(a, Lit) and type(a.value) is not int):
            raise Problem("RW310", "`up(n, m)` takes whole numbers", e.func_span or e.span, "the next multiple of m")
    return Size(dims.combine("up", as_dim(args[0]), as_dim(args[1])))


def _plain(value: Value) -> Any:
    return listed(value) if isinstance(value, Listed) else single(value)


# ---- torch ops


def _dotted(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A torch op by its dotted name, or what a Python programmer takes for one."""
    head, _, rest = e.func.partition(".")
    at = e.func_span or e.span
    if head in scope.names or head in scope.parts or head in elab.item.bound:
        method = e.func.rsplit(".", 1)[-1]
        texts = [elab.places.text(a.span) for a in (*e.args, *e.kwargs)]
        raise Problem("RW216", f"there are no methods: `.{method}`", at, elsewhere.method_hint(method, head, texts))
    if head in elsewhere.MODULES:
        name = rest.rsplit(".", 1)[-1]
        known = name in BUILTINS or elab.checker.knows_op(name)
        hint = elsewhere.function_hint(name) or f"torch ops go by namespace: `aten.{name}(...)`"
        hint = f"write `{name}(...)`" if known else hint
        raise Problem("RW205", f"unknown op `{e.func}`", at, hint)
    return torch_call(elab, e, scope, first)


def torch_call(elab: Elaborator, e: syntax.Call, scope: Scope, first: Value) -> Value:
    """A torch op by its dotted name. What is a primitive is read as one."""
    base = e.func.split(".")
    torch_calls.overloads(elab, e.func, e.func_span or e.span)
    known = ATEN.get(base[1]) if base[0] == "aten" and len(base) <= 3 and not e.rest else None
    if known is not None and _same_arguments(e, BUILTINS[known]):
        made = builtin(elab, syntax.Call(e.span, known, e.args, e.kwargs, False, e.func_span), scope, first)
        if base[1] == "mm":
            typing.of_matrices(elab.item, made, e.span)
        return made
    args = tuple(torch_value(v) for v in arguments.positional(elab, e, scope, first))
    kwargs = tuple((k.name, torch_value(elab.one(k.value, scope))) for k in e.kwargs)
    absent = partial(attributes.may_be_none, elab.item, scope=scope)
    given = [torch_calls.Given(t, v, absent=absent(v)) for t, v in zip(arguments.texts(e, len(args)), args)]
    given += [torch_calls.Given(k, v, k.name, absent=absent(v)) for k, (_, v) in zip(e.kwargs, kwargs)]
    called = torch_calls.TorchOp(e.func, e.func_span or e.span, tuple(given), e.rest)
    count = torch_calls.returned(elab, called)
    made = elab.item.intern(TorchCall(e.func, args, kwargs, e.rest, e.span))
    return torch_values(elab, made, count, e)


def torch_values(elab: Elaborator, made: TorchCall, count: int | None, e: syntax.Call) -> Value:
    """What a call of a torch op is: one value, or as many as its schema says."""
    if count is None or count == 1:
        if count == 1:
            elab.item.returns.counts[made] = 1
        return elab.item.intern(Extern(made, 0, None, UNKNOWN, e.span))
    if count == 0:
        raise Problem("RW203", f"{e.func} returns nothing", e.func_span or e.span, "it has no value to use here")
    return Many(tuple(elab.item.intern(Extern(made, i, None, UNKNOWN, e.span)) for i in range(count)))


def _same_arguments(e: syntax.Call, spec: Builtin) -> bool:
    """Does the built-in say all that this call of the aten op says?"""
    if len(e.args) > len(spec.arguments) or any(_by_name(spec, k.name) is None for k in e.kwargs):
        return False
    if spec.prim == "pow":
        return len(e.args) == 2 and isinstance(e.args[1], syntax.Number) and e.args[1].value == 2
    return spec.prim != "split" or (len(e.args) > 1 and isinstance(e.args[1], syntax.List))


def torch_value(value: Value) -> Any:
    """A value as an argument of a torch op: a list of tensors stays one."""
    value = single(value)
    if isinstance(value, Listed):
        if any(isinstance(v, TERMS) for v in value.values):
            return Apply("list", value.values)
        return listed(value)
    return value
