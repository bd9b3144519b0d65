"""Scalars of the core as values: numbers, dtypes, sizes and conditions, three-valued where a fact is missing.

An `Env` says what is known; whatever it lacks is `UNKNOWN`, and so is what follows from it, except where the rest
decides (`false and unknown` is false). A graph, a set of tensors or a launch subclass `Env` for the questions that only
they can answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import reduce
from typing import Any, cast

from attrs import define, field

from fxrewrite.dsl import core, dims, formats
from fxrewrite.dsl.core import Apply, Dtype
from fxrewrite.dsl.dims import Dim, Star


class _Unknown:
    """The type of `UNKNOWN`; it has no truth value, so that nobody takes it for false by accident."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false")


UNKNOWN: Any = _Unknown()
FIT = -1  # the size that `_` stands for in a list of sizes: the one that fits

PLAIN = (bool, int, float, str, Dtype, tuple, type(None))  # what Python itself compares


@define
class Env:
    """What is known where a scalar is evaluated.

    `operands`: values by name (None for `none`, a sequence for a list operand). `attributes`: by name, a dtype as
    `Dtype`. `dims`: sizes. `stars`: the sizes that `*B` stands for. `dtypes`: the dtype of a class, by `DtypeVar.key`.
    `facts`: `sm`, `rocm`, `world`, `tokens`. `elements`: sizes that each element of a list has for itself; `stars` has
    them as lists. The methods are the questions that a subclass may answer better.
    """

    operands: dict[str, Any] = field(factory=dict[str, Any])
    attributes: dict[str, Any] = field(factory=dict[str, Any])
    dims: dict[str, Any] = field(factory=dict[str, Any])
    stars: dict[str, tuple[Any, ...]] = field(factory=dict[str, tuple[Any, ...]])
    dtypes: dict[str, Dtype] = field(factory=dict[str, Dtype])
    facts: Mapping[str, Any] = field(factory=dict[str, Any])
    elements: frozenset[str] = frozenset()

    def at(self, sizes: Mapping[str, Any]) -> Env:
        """The same with other sizes."""
        inner = copy(self)
        inner.dims = {**self.dims, **sizes}
        return inner

    def term(self, term: Any) -> Any:
        """The value of a term that stands in a condition."""
        return self.operands.get(term.name, UNKNOWN) if isinstance(term, core.Operand) else UNKNOWN

    def dtype_of(self, value: Any) -> Any:
        """The `Dtype` of a value."""
        return UNKNOWN

    def shape_of(self, value: Any) -> Any:
        """The sizes of a value, as a tuple."""
        return UNKNOWN

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A fact about values (`contiguous`, `fresh`, ...) or a native (`native:pkg:f`); every argument is known."""
        return UNKNOWN

    def attribute(self, name: str) -> Any:
        """The value of an attribute."""
        return self.attributes.get(name, UNKNOWN)

    def star(self, name: str) -> Any:
        """The sizes that `*name` stands for, as a tuple."""
        return self.stars.get(name, UNKNOWN)

    def dtype(self, key: str) -> Any:
        """The dtype of a class, by `DtypeVar.key`."""
        return self.dtypes.get(key, UNKNOWN)

    def fact(self, name: str) -> Any:
        """A fact of the machine or of the site."""
        return self.facts.get(name, UNKNOWN)

    def is_number(self, value: Any) -> bool:
        """Is it what Python's arithmetic takes? What is not plain (a symbol, a 0-d tensor) is."""
        return (isinstance(value, int | float) and not isinstance(value, bool)) or not isinstance(value, PLAIN)

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """`left op right`, op one of `== < <= > >=`, of two known values: True, False or UNKNOWN."""
        return compare(op, left, right)

    def dim(self, name: str) -> Any:
        """The size called `name`: a dim, or an `int` attribute that is used as one."""
        found = self.dims.get(name, UNKNOWN)
        return self.attribute(name) if found is UNKNOWN else found


# ---- entry points


def scalar(x: Any, env: Env) -> Any:
    """The value of a scalar; None where it is unknown (or `none`: `value` tells the two apart)."""
    found = value(x, env)
    return None if found is UNKNOWN else found


def holds(conditions: Iterable[Any], env: Env) -> bool | None:
    """Do all conditions hold? None where that is unknown. One on a size of the elements of a list holds for each."""
    found = _conjunction(_for_each(c, env) for c in conditions)
    return None if found is UNKNOWN else found


def _for_each(condition: Any, env: Env) -> Any:
    found = value(condition, env)
    if found is not UNKNOWN or not env.elements:
        return found
    count = min(len(env.stars.get(n, ())) for n in env.elements)
    held = [value(condition, env.at({n: env.stars[n][j] for n in env.elements})) for j in range(count)]
    return _conjunction(held) if held else UNKNOWN


def value(x: Any, env: Env) -> Any:
    """The value of a scalar, or UNKNOWN. Dtypes are `Dtype`s, lists are tuples."""
    return _VALUES[type(x)](x, env)


def sizes(shape: tuple[Dim | Star, ...], env: Env) -> Any:
    """A shape as a tuple of sizes. The open dim of a `_` is `FIT`; UNKNOWN where another name is open."""
    out: list[Any] = []
    for item in shape:
        if isinstance(item, Star):
            out += _spread(env.star(item.name))
        else:
            found = size(item, env)
            out.append(FIT if found is UNKNOWN and (item.name or "").startswith("_") else found)
    return UNKNOWN if _lacks(out) else tuple(out)


def size(dim: Dim, env: Env) -> Any:
    """A dim as a number, or UNKNOWN (also where it divides by zero)."""
    if not all(_is_size(env.dim(n)) for n in dims.names(dim)):
        return UNKNOWN
    try:
        return dims.evaluate(dim, env.dim)
    except ZeroDivisionError:
        return UNKNOWN


def compare(op: str, left: Any, right: Any) -> Any:
    """`left op right` of plain values, lists element by element; UNKNOWN for what is not plain. A bool is no number."""
    if not (isinstance(left, PLAIN) and isinstance(right, PLAIN)):
        return UNKNOWN
    if isinstance(left, tuple) and isinstance(right, tuple) and op == "==":
        return equal_tuples(cast("tuple[Any, ...]", left), cast("tuple[Any, ...]", right), compare)
    if isinstance(left, bool) != isinstance(right, bool):
        return False if op == "==" else UNKNOWN
    if op == "==":
        return left == right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return _COMPARISONS[op](left, right) if numbers else UNKNOWN


def equal_tuples(left: tuple[Any, ...], right: tuple[Any, ...], decide: Callable[[str, Any, Any], Any]) -> Any:
    """Are two lists equal, element by element?"""
    return len(left) == len(right) and _conjunction(decide("==", a, b) for a, b in zip(left, right))


# ---- kinds of scalars


def _spread(items: Any) -> Iterable[Any]:
    return (UNKNOWN,) if items is UNKNOWN else items


def _lacks(found: Iterable[Any]) -> bool:
    return any(f is UNKNOWN for f in found)


def _is_size(found: Any) -> bool:
    return found is not UNKNOWN and found is not None and not isinstance(found, str | float | bool | Dtype)


def _tuple(items: tuple[Any, ...], env: Env) -> Any:
    found = tuple(value(i, env) for i in items)
    return UNKNOWN if _lacks(found) else found


def _apply(x: Apply, env: Env) -> Any:
    lazy = _LAZY.get(x.op)
    if lazy is not None:
        return lazy(x.args, env)
    if not x.args:
        return env.fact(x.op)
    found = tuple(value(a, env) for a in x.args)
    if _lacks(found):
        return UNKNOWN
    if x.op.startswith("finfo."):
        return _finfo(x.op.removeprefix("finfo."), found[0])
    strict = (_OF_ONE if len(found) == 1 else _OF_TWO).get(x.op)
    return env.predicate(x.op, found) if strict is None else strict(env, *found)


def _finfo(name: str, dtype: Any) -> Any:
    known = formats.FLOATS.get(dtype.name) if isinstance(dtype, Dtype) else None
    return UNKNOWN if known is None else getattr(known, "tiny" if name == "smallest_normal" else name, UNKNOWN)


# ---- operations whose arguments need not all be known


def _all(args: tuple[Any, ...], env: Env) -> Any:
    return _conjunction(value(a, env) for a in args)


def _conjunction(found: Iterable[Any]) -> Any:
    result: Any = True
    for f in found:
        if f is False:
            return False
        if f is not True:
            result = UNKNOWN
    return result


def _or(args: tuple[Any, ...], env: Env) -> Any:
    found = [value(a, env) for a in args]
    if any(f is True for f in found):
        return True
    return False if all(f is False for f in found) else UNKNOWN


def _list(args: tuple[Any, ...], env: Env) -> Any:
    """A list, with every `*name` in it spread."""
    out: list[Any] = []
    for a in args:
        if isinstance(a, Star):
            out += _spread(env.star(a.name))
        elif isinstance(a, core.Operand) and a.star:
            out += _spread(env.term(a))
        else:
            out.append(FIT if isinstance(a, core.Wild) else value(a, env))
    return UNKNOWN if _lacks(out) else tuple(out)


def _dtype_in(args: tuple[Any, ...], env: Env) -> Any:
    found = value(args[0], env)
    return UNKNOWN if found is UNKNOWN else found in args[1:]


_LAZY: dict[str, Callable[[tuple[Any, ...], Env], Any]] = {
    "and": _all,
    "all": _all,
    "or": _or,
    "list": _list,
    "shape_list": sizes,
    "dtype_in": _dtype_in,
}

# ---- operations on known values


def _equal(env: Env, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return left is right
    return env.decide("==", left, right)


def _arithmetic(op: Callable[[Any, Any], Any]) -> Callable[[Env, Any, Any], Any]:
    return lambda env, a, b: op(a, b) if env.is_number(a) and env.is_number(b) else UNKNOWN


def _divide(op: Callable[[Any, Any], Any]) -> Callable[[Env, Any, Any], Any]:
    inner = _arithmetic(op)
    return lambda env, a, b: UNKNOWN if isinstance(b, int | float) and b == 0 else inner(env, a, b)


def _comparison(op: str) -> Callable[[Env, Any, Any], Any]:
    return lambda env, a, b: UNKNOWN if a is None or b is None else env.decide(op, a, b)


def _shape_at(env: Env, x: Any, at: int) -> Any:
    found = env.shape_of(x)
    return UNKNOWN if found is UNKNOWN else _item(env, found, at)


def _item(env: Env, items: Any, at: Any) -> Any:
    if not isinstance(items, tuple) or not isinstance(at, int):
        return UNKNOWN
    known = cast("tuple[Any, ...]", items)
    return known[at] if -len(known) <= at < len(known) else UNKNOWN


def _product(env: Env, x: Any, last: int | None = None) -> Any:
    found = env.shape_of(x)
    return UNKNOWN if found is UNKNOWN else reduce(operator.mul, found[:last], 1)


def _bytes(env: Env, x: Any) -> Any:
    numel, dtype = _product(env, x), env.dtype_of(x)
    size = UNKNOWN if dtype is UNKNOWN else formats.BYTES.get(dtype.name, UNKNOWN)
    return UNKNOWN if _lacks((numel, size)) else numel * size


def _widens(env: Env, narrow: Dtype, wide: Dtype) -> Any:
    known = narrow.name in formats.BYTES and wide.name in formats.BYTES
    return formats.widens(narrow.name, wide.name) if known else UNKNOWN


def _same_shape(env: Env, left: Any, right: Any) -> Any:
    a, b = env.shape_of(left), env.shape_of(right)
    return UNKNOWN if _lacks((a, b)) else equal_tuples(a, b, env.decide)


def _broadcasts(env: Env, x: Any, like: Any) -> Any:
    """Do the axes of x but the last broadcast to those of `like`?"""
    a, b = env.shape_of(x), env.shape_of(like)
    if _lacks((a, b)) or len(a) > len(b):
        return UNKNOWN if _lacks((a, b)) else False
    return _conjunction(m == 1 or env.decide("==", m, n) for m, n in zip(a[-2::-1], b[-2::-1]))


def _identity(env: Env, order: tuple[int, ...]) -> bool:
    return all(p % len(order) == i for i, p in enumerate(order))


def _compose(env: Env, first: tuple[int, ...], then: tuple[int, ...]) -> Any:
    return tuple(first[i] for i in then) if len(first) == len(then) else UNKNOWN


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_ONE: dict[str, Callable[[Env, Any], Any]] = {
    "neg": lambda env, a: -a if env.is_number(a) else UNKNOWN,
    "not": lambda _, a: not a if isinstance(a, bool) else UNKNOWN,
    "is_none": lambda _, a: a is None,
    "dtype": lambda env, a: env.dtype_of(a),
    "shape": lambda env, a: env.shape_of(a),
    "rows": lambda env, a: _product(env, a, -1),
    "numel": lambda env, a: _product(env, a),
    "bytes": _bytes,
    "identity": _identity,
    "group.name": lambda _, g: getattr(g, "name", g if isinstance(g, str) else UNKNOWN),
    "group.size": lambda _, g: UNKNOWN if getattr(g, "size", None) is None else g.size,
}
_OF_TWO: dict[str, Callable[[Env, Any, Any], Any]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _divide(lambda a, b: a / b),
    "//": _divide(lambda a, b: a // b),
    "%": _divide(lambda a, b: a % b),
    "up": _divide(lambda a, b: -(-a // b) * b),
    "==": _equal,
    **{op: _comparison(op) for op in _COMPARISONS},
    "shape": _shape_at,
    "item": _item,
    "same_shape": _same_shape,
    "broadcasts": _broadcasts,
    "compose": _compose,
    "fill": lambda _, xs, x: (x,) * len(xs),
    "widens": _widens,
}


def _same(x: Any, env: Env) -> Any:
    return x


def _term(x: Any, env: Env) -> Any:
    return env.term(x)


_VALUES: dict[type, Callable[[Any, Env], Any]] = {
    Dtype: _same,
    core.DtypeVar: lambda x, env: env.dtype(x.key),
    core.Lit: lambda x, env: x.value,
    core.Ref: lambda x, env: env.attribute(x.name),
    core.Size: lambda x, env: size(x.dim, env),
    Dim: size,
    Apply: _apply,
    core.Wild: lambda x, env: UNKNOWN,
    core.Number: lambda x, env: value(x.value, env),
    core.Nothing: lambda x, env: None,
    tuple: _tuple,
    **dict.fromkeys((int, float, str, bool, type(None)), _same),
    **dict.fromkeys(
        (core.Operand, core.Prim, core.Extern, core.Result, core.Choose, core.Either, core.Each),
        _term,
    ),
}
