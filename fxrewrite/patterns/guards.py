"""Conditions at a site: the scalars of `dsl/scalars.py` over values of a graph and over what a match has bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import sympy
from attrs import define

from fxrewrite.dsl import registered, scalars
from fxrewrite.dsl.core import Operand
from fxrewrite.dsl.scalars import UNKNOWN, Env
from fxrewrite.patterns.dtypes import to_core, to_graph
from fxrewrite.patterns.values import Value, size

Truth = Callable[[Any], bool | None] | None  # decides a symbolic condition for the whole range of sizes
Find = Callable[[str], Any]  # what a name of a match is bound to, or UNKNOWN
RELATIONS = {"==": sympy.Eq, "<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge}


def same(a: Any, b: Any) -> bool:
    """Are two constants one number? Floats also up to one float32 rounding; bools are no numbers; 0.0 is not -0.0."""
    if a is b:
        return True
    if isinstance(a, bool) or isinstance(b, bool):
        return type(a) is type(b) and a == b
    if isinstance(a, int | float) and isinstance(b, int | float):
        if a == b:
            return a != 0 or str(float(a)) == str(float(b))
        return (isinstance(a, float) or isinstance(b, float)) and abs(a - b) <= 6e-8 * abs(a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return (type(a) is type(b) and a == b) or ((isinstance(a, sympy.Basic) or isinstance(b, sympy.Basic)) and a == b)


def decide_symbolic(op: str, left: Any, right: Any, truth: Truth) -> Any:
    """A comparison of sizes: True, False, or UNKNOWN where run-time sizes decide."""
    if op == "==" and left == right:
        return True
    relation = RELATIONS[op](left, right)
    if relation in (sympy.true, sympy.false):
        return bool(relation)
    found = truth(relation) if truth is not None else None
    return UNKNOWN if found is None else found


def contiguous(x: Any) -> Any:
    """Do the elements of a value lie in order, without gaps? UNKNOWN where sizes decide, or where it has no node."""
    nodes = x.nodes if isinstance(x, Value) else ()
    if not nodes:
        return UNKNOWN
    step: Any = 1
    val = nodes[0].meta["val"]
    for n, stride in reversed(list(zip(map(size, val.shape), map(size, val.stride()), strict=True))):
        if n != 1 and stride != step:
            return False if isinstance(stride, int) and isinstance(step, int) and isinstance(n, int) else UNKNOWN
        step = step * n
    return True


@define(eq=False)
class ValueEnv(Env):
    """What is known about values of a graph. `truth` decides symbolic conditions."""

    truth: Truth = None

    def dtype_of(self, value: Any) -> Any:
        """The dtype of a value."""
        dtype = getattr(value, "dtype", None)
        return UNKNOWN if dtype is None else to_core(dtype)

    def shape_of(self, value: Any) -> Any:
        """The sizes of a value: ints and sympy expressions."""
        return value.shape if isinstance(value, Value) else UNKNOWN

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison. Constants are equal as `same` has it; what a tensor holds is known at run time only."""
        if isinstance(left, sympy.Basic) or isinstance(right, sympy.Basic):
            return decide_symbolic(op, left, right, self.truth)
        if op != "==":
            return scalars.compare(op, left, right)
        if isinstance(left, tuple) and isinstance(right, tuple):
            return scalars.equal_tuples(cast("tuple[Any, ...]", left), cast("tuple[Any, ...]", right), self.decide)
        if isinstance(left, Value) or isinstance(right, Value):
            return True if left is right else UNKNOWN
        return same(left, right)

    def is_number(self, value: Any) -> bool:
        """Can Python compute with it?"""
        return isinstance(value, int | float | sympy.Basic) and not isinstance(value, bool)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A native says it, or the strides of a value; nothing else is known of values alone."""
        if name == "contiguous":
            return contiguous(*args)
        return registered.call(name, args) if name.startswith(registered.MARK) else UNKNOWN


class SiteEnv(ValueEnv):
    """What a match has bound, by the names of its slots ("eps", "dim:D", "dtype:lowp", "star:B", an operand).

    `machine`: `sm`, `rocm`, `world`, `tokens`. `predicates`: what only the graph can tell, by name. `terms`: the value
    of a term that stands in a condition, None where there is none.
    """

    __slots__ = ("find", "machine", "predicates", "terms")

    def __init__(
        self,
        find: Find,
        machine: Mapping[str, Any] | None = None,
        truth: Truth = None,
        predicates: Mapping[str, Callable[..., Any]] | None = None,
        terms: Callable[[Any], Any] | None = None,
    ):
        self.find, self.machine, self.truth = find, machine, truth
        self.predicates, self.terms, self.elements = predicates, terms, frozenset()

    def value(self, x: Any) -> Any:
        """The value of a scalar as graphs have it, or UNKNOWN."""
        return to_graph(scalars.value(x, self))

    def holds(self, condition: Any) -> Any:
        """True, False or UNKNOWN."""
        return scalars.value(condition, self)

    # ---- the questions of `Env`

    def term(self, term: Any) -> Any:
        """An operand by name; another term as the caller has it."""
        if isinstance(term, Operand):
            return self.find(term.name)
        found = None if self.terms is None else self.terms(term)
        return UNKNOWN if found is None else found

    def attribute(self, name: str) -> Any:
        """An attribute, or a dim of this name."""
        found = self.find(name)
        return to_core(self.find("dim:" + name) if found is UNKNOWN else found)

    def dim(self, name: str) -> Any:
        """A dim, or an attribute that is used as one."""
        found = self.find("dim:" + name)
        found = self.find(name) if found is UNKNOWN else found
        return UNKNOWN if isinstance(found, Value) else found

    def star(self, name: str) -> Any:
        """The leading sizes that `*B` stands for."""
        return self.find("star:" + name)

    def dtype(self, key: str) -> Any:
        """The dtype of a class."""
        return to_core(self.find("dtype:" + key))

    def fact(self, name: str) -> Any:
        """A fact of the machine."""
        return UNKNOWN if self.machine is None else self.machine.get(name, UNKNOWN)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A question that the graph answers, or a native."""
        asked = None if self.predicates is None else self.predicates.get(name)
        return super().predicate(name, args) if asked is None else asked(*args)
