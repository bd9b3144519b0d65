"""Terms whose names a match has bound, as values: further results of a form, further outputs of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxrewrite.dsl.core import Choose, Extern, Number, Operand, Prim, Result, TensorType, Term
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.arguments import op_name, schema_arguments
from fxrewrite.patterns.effects import arguments_by_name, ordered
from fxrewrite.patterns.forms import Pattern, torch_op
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.matcher import extern_name
from fxrewrite.patterns.overloads import overloads_of
from fxrewrite.patterns.sizes import evaluate_shape
from fxrewrite.patterns.state import UNSET, State
from fxrewrite.patterns.values import Dims, Table, Value, constant, constant_key

if TYPE_CHECKING:
    from fxrewrite.patterns.views import Sweep

BINARY = ("add", "sub", "mul", "div", "fdiv", "maximum", "minimum")
REDUCTIONS = ("amax", "mean", "sum", "var")


def complete(sweep: Sweep, pattern: Pattern, s: State, first: Any) -> list[Any] | None:
    """Every result: `first` is the one that the pattern begins at, the others are built from what is bound; None where
    one cannot be.
    """
    results: list[Any] = []
    for i, term in enumerate(pattern.outputs):
        value = first if i == pattern.first else construct(sweep, pattern, term, s)
        if i != pattern.first and type(value) is not Value:
            return None
        results.append(value)
    return results


def construct(sweep: Sweep, pattern: Pattern, t: Term, s: State) -> Any:
    """The value of a term whose names are bound: looked up, or made (it may have no node), or None."""
    normal: Any = pattern.normal(t)
    for one in overloads_of(normal) or (normal,):
        at = pattern.slots.index.get(("term", one)) if isinstance(one, Prim | Result | Extern) else None
        if at is not None and s.v[at] is not UNSET:
            return s.v[at]
    if isinstance(t, Operand):
        found = s.v[pattern.slots(t.name)]
        return None if found is UNSET else found
    if isinstance(t, Number):
        found = sweep.env(pattern, s).value(t.value)
        return None if found is UNKNOWN else found
    if isinstance(t, Choose):
        return _chosen(sweep, pattern, t, s)
    if isinstance(t, Result):
        return _result(sweep, pattern, t, s)
    if isinstance(t, Extern):
        return _written(sweep, pattern, t, s)
    return _prim(sweep, pattern, t, s) if isinstance(t, Prim) else None


def _chosen(sweep: Sweep, pattern: Pattern, t: Choose, s: State) -> Any:
    env = sweep.env(pattern, s)
    for conds, value in t.cases:
        if all(env.holds(c) is True for c in conds):
            return construct(sweep, pattern, value, s)
    return None


def _result(sweep: Sweep, pattern: Pattern, t: Result, s: State) -> Any:
    normal: Any = pattern.normal(t)
    at = pattern.slots.index.get(("call", normal.call))
    if at is not None and s.v[at] is not UNSET:
        return s.v[at].results[t.index]
    if ordered(sweep.library.program.ops[t.call.op]):
        return None  # equal calls of it are not one
    args = [construct(sweep, pattern, a, s) if hasattr(a, "type") else a for a in t.call.args]
    env = sweep.env(pattern, s)
    attrs = [env.value(v) for _, v in t.call.attrs]
    view = sweep.by_args.get((t.call.op, (*args, *attrs))) if _all_hashable((*args, *attrs)) else None
    return view.results[t.index] if view is not None else None


def _written(sweep: Sweep, pattern: Pattern, t: Extern, s: State) -> Any:
    """Another result of a torch call that is bound: the sibling value of the same call."""
    slots = [pattern.slots.index.get(("torch", one.call)) for one in overloads_of(pattern.normal(t))]
    call = next((s.v[at] for at in slots if at is not None and s.v[at] is not UNSET), UNSET)
    if call is UNSET:
        return _called(sweep, pattern, t, s)
    name, args = "getitem", (call, t.returned)
    if "#" in call.op:
        name, args = extern_name(t, torch_op(t.call.op)), call.args
        if name.split("#")[0] != call.op.split("#")[0]:
            return None
    value = sweep.table.find(name, args)
    if value is None and t.type.shape is not None:
        env = sweep.env(pattern, s)
        shape, dtype = evaluate_shape(t.type.shape, env), _dtype(t.type, env)
        if shape is not None and dtype is not None:
            value = sweep.table.cons(name, args, (), dtype, shape)
    return value


def _called(sweep: Sweep, pattern: Pattern, t: Extern, s: State) -> Any:
    """What a torch op without effects returns, of arguments that are bound: a view of a buffer in another dtype."""
    spelled = overloads_of(pattern.normal(t))
    if len(spelled) != 1:
        return None  # which of its overloads?
    op, env = torch_op(spelled[0].call.op), sweep.env(pattern, s)
    if op._schema.is_mutable or len(op._schema.returns) != 1 or t.call.rest or t.type.shape is None:
        return None
    given = {
        n: construct(sweep, pattern, a, s) if hasattr(a, "type") else env.value(a)
        for n, a in arguments_by_name(t.call, op)
    }
    shape, dtype = evaluate_shape(t.type.shape, env), _dtype(t.type, env)
    if UNKNOWN in given.values() or None in given.values() or shape is None or dtype is None:
        return None
    args = tuple(schema_arguments(op, (), given))
    key = (op, constant_key(args))
    known = sweep.table.by_key.get(key)
    return sweep.table.fresh(op_name(op), args, (), dtype, shape, key) if known is None else known


def _prim(sweep: Sweep, pattern: Pattern, t: Prim, s: State) -> Any:
    env = sweep.env(pattern, s)
    args = [construct(sweep, pattern, a, s) for a in t.args]
    if t.op in BINARY:
        return _binary(sweep.table, t.op, *args)
    x = args[0]
    if type(x) is not Value or any(a is None and not _none(b) for a, b in zip(args[1:], t.args[1:], strict=True)):
        return None
    table = sweep.table
    if t.op == "to":
        dtype = env.value(t.params[0])
        return table.cast(x, dtype) if isinstance(dtype, torch.dtype) else None
    if t.op == "reshape":
        shape = evaluate_shape(t.params[0].args, env)  # type: ignore[union-attr]
        return None if shape is None else table.reshape(x, shape)
    if t.op == "clamp":
        return table.clamp(x, *(None if b is None else _rounded(b, x.dtype) for b in args[1:]))
    params = [env.value(p) for p in t.params]
    if any(p is UNKNOWN for p in params):
        return None
    if t.op == "slice":
        return _slice(table, x, *params)
    if t.op == "permute":
        return table.permute(x, tuple(params[0]))
    if t.op in REDUCTIONS:
        return _reduced(table, t.op, x, *params)
    if t.op == "matmul":
        return _product(table, x, args[1])
    return table.unary(t.op, x) if len(t.args) == 1 and not t.params else None


def _binary(table: Table, op: str, a: Any, b: Any) -> Value | None:
    """An elementwise op of two values of one dtype, or of a value and a number."""
    values = [v for v in (a, b) if type(v) is Value]
    shape = _broadcast([v.shape for v in values])
    if a is None or b is None or shape is None or len({v.dtype for v in values}) != 1:
        return None
    dtype = values[0].dtype
    return table.binary(op, _rounded(a, dtype), _rounded(b, dtype), dtype, shape)


def _broadcast(shapes: list[Dims]) -> Dims | None:
    """The shape of what is computed from values of these shapes; None where they do not go together."""
    rank = max(map(len, shapes), default=0)
    out: list[Any] = []
    for axis in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        sizes = [n for n in dict.fromkeys(axis) if n != 1]
        if len(sizes) > 1:
            return None
        out += sizes or [1]
    return tuple(out)


def _reduced(table: Table, op: str, x: Value, axes: Any, keepdim: bool) -> Value | None:
    """A reduction over negative axes; over all where none is given."""
    rank = len(x.shape)
    over = {a % rank for a in axes} if axes and all(-rank <= a < rank for a in axes) else set(range(rank))
    if axes and len(over) != len(axes):
        return None
    shape = tuple(1 if i in over else n for i, n in enumerate(x.shape) if keepdim or i not in over)
    whole = len(over) == rank and not keepdim
    return table.reduce(op, x, () if whole else tuple(sorted(i - rank for i in over)), keepdim, shape)


def _product(table: Table, x: Value, y: Any) -> Value | None:
    """A product with a matrix."""
    if type(y) is not Value or len(y.shape) != 2 or not x.shape or x.dtype != y.dtype:
        return None
    return table.cons("matmul", (x, y), (), x.dtype, (*x.shape[:-1], y.shape[1]))


def _slice(table: Table, x: Value, axis: int, start: Any, stop: Any, step: int) -> Value | None:
    """`x[start:stop]` along a negative axis: only unit steps have a length that is read off."""
    if step != 1 or -axis > len(x.shape):
        return None
    length = (x.shape[axis] if stop is None else stop) - start
    at = len(x.shape) + axis
    return table.slice(x, axis, start, stop, step, (*x.shape[:at], length, *x.shape[at + 1 :]))


def _dtype(type_: TensorType, env: SiteEnv) -> Any:
    found = env.value(type_.dtype) if type_.dtype is not None else UNKNOWN
    return found if isinstance(found, torch.dtype) else None


def _rounded(number: Any, dtype: torch.dtype) -> Any:
    return constant(number, dtype) if isinstance(number, int | float) else number


def _none(t: Any) -> bool:
    return isinstance(t, Number) and getattr(t.value, "value", 0) is None


def _all_hashable(xs: tuple[Any, ...]) -> bool:
    return all(x is not UNKNOWN and not isinstance(x, list) for x in xs)
