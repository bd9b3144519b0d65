"""Value numbering: every node of a graph as a hash-consed value in one primitive language.

Equal values are one object, so duplicates meet. A value may have several nodes (duplicates, aliases), or none (a
promotion that torch does silently, half of a clamp, a reshape that nobody wrote). `Table.make` is the one constructor,
and with it the normal form:

* a cast to the own dtype, a reshape to the own shape, a slice of everything: nothing
* reshape moves inwards through elementwise ops of one operand, reshape of reshape folds
* a widening cast moves outwards through `abs` and `amax`; clamps merge; `fdiv` is `div`
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy
import torch
from torch.fx import Node

from fxrewrite.dsl.core import UNARY
from fxrewrite.patterns.groups import Groups

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
ELEMENTWISE = frozenset({"to", "clamp", *UNARY})  # of one tensor operand: a reshape commutes with these
LOW = (torch.bfloat16, torch.float16)
SINGLE = (torch.float32, *LOW)  # dtypes whose scalar operands torch rounds to float32
Dims = tuple[Any, ...]  # ints and sympy expressions


class Value:
    """What a node computes. `source`: the value that this one is a reshape of. `views`: op name -> [(View, result
    index)].
    """

    __slots__ = ("args", "attrs", "dtype", "n", "nodes", "op", "root", "seen", "shape", "source", "views")

    def __init__(self, n: int, op: str, args: tuple[Any, ...], attrs: tuple[Any, ...], dtype: Any, shape: Dims):
        self.n, self.op, self.args, self.attrs, self.dtype, self.shape = n, op, args, attrs, dtype, shape
        self.nodes: list[Node] = []
        self.views: dict[str, list[Any]] = {}
        self.source: Value | None = None
        self.seen: set[str] | None = None
        self.root: Value = args[0].root if op == "to" else self  # below the casts

    def __repr__(self) -> str:
        return f"%{self.n}:{self.op}{list(self.shape)}"


def values_in(items: Iterable[Any]) -> Iterator[Value]:
    """The values among arguments, those in lists included, in order."""
    for x in items:
        if type(x) is Value:
            yield x
        elif isinstance(x, tuple | list):
            yield from values_in(x)


class Symbol:
    """A size or another symbolic integer, by its expression."""

    __slots__ = ("expr",)

    def __init__(self, expr: Any):
        self.expr = expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.expr == other.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __repr__(self) -> str:
        return f"<{self.expr}>"


class _Fresh:
    """Stands for a buffer that a call fills and nobody else sees."""

    def __repr__(self) -> str:
        return "fresh"


FRESH = _Fresh()


def size(s: Any) -> Any:
    """A size as an int or a sympy expression."""
    if isinstance(s, int):
        return s
    expr = s.node.expr if isinstance(s, torch.SymInt) else s
    return int(expr) if isinstance(expr, sympy.Integer) else expr


def dims_of(tensor: torch.Tensor) -> Dims:
    """The shape of a (fake) tensor as ints and sympy expressions."""
    shape = tuple(tensor.shape)
    for s in shape:
        if type(s) is not int:
            return tuple(size(s) for s in shape)
    return shape


def single(number: float) -> float:
    """`number` rounded to float32."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def constant(number: Any, dtype: torch.dtype) -> Any:
    """The number that a kernel with results of `dtype` computes with."""
    if not dtype.is_floating_point or isinstance(number, bool):
        return number
    return single(number) if dtype in SINGLE else float(number)


def constant_key(a: Any) -> Any:
    """An argument as part of a key: 1, 1.0, True, and 0.0 and -0.0, are different constants, inside lists too."""
    kind = type(a)
    if kind is Value:
        return a
    if kind is tuple:
        return tuple([constant_key(x) for x in a])
    return (kind, repr(a)) if kind in (float, int, bool) else a


class Table:
    """All values of one graph. `on_new` is called for each value when it is made."""

    def __init__(self, on_new: Callable[[Value], None] | None = None):
        self.by_key: dict[Any, Value] = {}
        self.all: list[Value] = []
        self.of_node: dict[Node, Any] = {}
        self.size_nodes: dict[Any, list[Node]] = {}
        self.on_new = on_new
        self.writes: Any = None  # `writes.Writes` of the graph, once it is read
        self.effects: Any = None  # `effects.Effects` of the graph
        self.groups: Groups = Groups()
        self.scratch: set[Value] = set()  # in buffers that held nothing before calls wrote there
        self.written: dict[Node, str] = {}  # nodes that a rule wrote since the graph was read -> the rule

    def fresh(
        self, op: str, args: tuple[Any, ...], attrs: tuple[Any, ...], dtype: Any, shape: Dims, key: Any = None
    ) -> Value:
        """A new value: equal to no other, or the one of `key`."""
        v = Value(len(self.all), op, args, attrs, dtype, shape)
        self.all.append(v)
        if key is not None:  # before anybody matches on it, and perhaps asks for the same again
            self.by_key[key] = v
        if self.on_new is not None:
            self.on_new(v)
        return v

    def cons(self, op: str, args: tuple[Any, ...], attrs: tuple[Any, ...], dtype: Any, shape: Dims) -> Value:
        """The value of these arguments, without the normal form."""
        key_args = args
        if op in COMMUTATIVE:
            a, b = args
            if not isinstance(a, Value) or (isinstance(b, Value) and b.n < a.n):
                key_args = (b, a)
        key = (op, constant_key(key_args), attrs)
        v = self.by_key.get(key)
        return self.fresh(op, args, attrs, dtype, shape, key) if v is None else v

    def find(self, op: str, args: tuple[Any, ...]) -> Value | None:
        """The value of a torch op of these arguments, where there is one."""
        return self.by_key.get((op, constant_key(args), ()))

    # ---- the normal form

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        """`x` in another dtype."""
        return x if x.dtype == dtype else self.cons("to", (x,), (dtype,), dtype, x.shape)

    def unary(self, op: str, x: Value) -> Value:
        """An elementwise op of one operand."""
        if op == "abs" and _widened(x):
            return self.cast(self.unary(op, x.args[0]), x.dtype)
        return self.cons(op, (x,), (), x.dtype, x.shape)

    def binary(self, op: str, a: Any, b: Any, dtype: torch.dtype, shape: Dims) -> Value:
        """An elementwise op of two operands, one of which may be a number."""
        return self.cons("div" if op == "fdiv" else op, (a, b), (), dtype, shape)

    def clamp(self, x: Value, lo: Any, hi: Any) -> Value:
        """`x` between two numbers, each of which may be None."""
        if x.op == "clamp":
            low, high = x.args[1:]
            low = low if lo is None else lo if low is None else max(lo, low)
            high = high if hi is None else hi if high is None else min(hi, high)
            if low is None or high is None or low <= high:
                return self.cons("clamp", (x.args[0], low, high), (), x.dtype, x.shape)
        return self.cons("clamp", (x, lo, hi), (), x.dtype, x.shape)

    def reduce(self, op: str, x: Value, axes: tuple[int, ...], keepdim: bool, shape: Dims) -> Value:
        """`amax`, `mean` or `sum` over `axes` (negative, sorted)."""
        if op == "amax" and _widened(x):
            return self.cast(self.reduce(op, x.args[0], axes, keepdim, shape), x.dtype)
        return self.cons(op, (x,), (axes, keepdim), x.dtype, shape)

    def reshape(self, x: Value, shape: Dims) -> Value:
        """`x` with another shape of as many elements."""
        if x.shape == shape:
            return x
        passed: list[Value] = []  # a loop: such a chain may be as long as the graph
        while x.op in ELEMENTWISE:
            passed.append(x)
            x = x.args[0]
        base = x.args[0] if x.op == "reshape" else x
        v = base if base.shape == shape else self.cons("reshape", (base,), shape, x.dtype, shape)
        if v.source is None:
            v.source = _source(x, v)
        for y in reversed(passed):
            v = self.apply(y.op, (v, *y.args[1:]), y.attrs)
            if v.source is None:
                v.source = _source(y, v)
        return v

    def slice(self, x: Value, axis: int, start: Any, stop: Any, step: int, shape: Dims) -> Value:
        """`x[start:stop:step]` along a negative axis; `stop` None is the end."""
        stop = _stop(stop, x.shape[axis])
        if start == 0 and stop is None and step == 1:
            return x
        attrs = (axis, start, stop, step)
        while x.op == "slice_scatter" and x.attrs[0] == axis:
            base, part = x.args
            if x.attrs == attrs and part.shape == shape:
                return part
            if not apart(_range(x, attrs), _range(x, x.attrs)):
                break
            x = base
        return self.cons("slice", (x,), attrs, x.dtype, shape)

    def slice_scatter(self, x: Value, part: Value, axis: int, start: Any, stop: Any, step: int) -> Value:
        """`x` with `x[start:stop:step]` along a negative axis replaced by `part`."""
        attrs = (axis, start, _stop(stop, x.shape[axis]), step)
        if attrs[1:] == (0, None, 1) and part.shape == x.shape:
            return part
        while x.op == "slice_scatter" and x.attrs == attrs:  # what is written over
            x = x.args[0]
        if part.op == "slice" and self.slice(x, *attrs, part.shape) is part:  # what was there before
            return x
        return self.cons("slice_scatter", (x, part), attrs, x.dtype, x.shape)

    def permute(self, x: Value, order: tuple[int, ...]) -> Value:
        """Axes in another order."""
        if x.op == "permute":
            order = tuple(x.attrs[i] for i in order)
            x = x.args[0]
        if order == tuple(range(len(order))):
            return x
        return self.cons("permute", (x,), order, x.dtype, tuple(x.shape[i] for i in order))

    def apply(self, op: str, args: tuple[Any, ...], attrs: tuple[Any, ...]) -> Value:
        """An elementwise op of one operand, through the normal form."""
        if op == "to":
            return self.cast(args[0], attrs[0])
        if op == "clamp":
            return self.clamp(*args)
        return self.unary(op, args[0])


def shown(difference: Any) -> bool:
    """Is a number, or a symbolic size for its whole range, shown to be at least 0?"""
    return difference >= 0 if isinstance(difference, int) else getattr(difference, "is_nonnegative", None) is True


def apart(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    """Is it shown that two ranges (start, stop) have nothing in common? A bound may be one that counts from the end."""
    return all(map(shown, (*a, *b))) and (shown(b[0] - a[1]) or shown(a[0] - b[1]))


def _stop(stop: Any, length: Any) -> Any:
    """The end of a slice, None where it is that of the axis."""
    whole = stop == length or (isinstance(stop, int) and isinstance(length, int) and stop >= length)
    return None if whole else stop


def _range(x: Value, attrs: tuple[Any, ...]) -> tuple[Any, Any]:
    """Where a slice with these attributes begins and ends in `x`."""
    axis, start, stop, _ = attrs
    return start, x.shape[axis] if stop is None else stop


def _source(x: Value, v: Value) -> Value | None:
    """What `v` is a reshape of: of `x` and what that is a reshape of, the first with the same last axis. Older values
    only: no cycles.
    """
    s: Value | None = x
    while s is not None:
        if s.n < v.n and s.shape and v.shape and s.shape[-1] == v.shape[-1]:
            return s
        s = s.source or (s.args[0] if s.op == "reshape" else None)
    return x if x.n < v.n else None


def _widened(x: Value) -> bool:
    return x.op == "to" and x.dtype == torch.float32 and x.args[0].dtype in LOW
