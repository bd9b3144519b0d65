"""Conditions at a site: scalars evaluated over what a match has bound, three-valued. What cannot be shown is `UNKNOWN`, and counts
as false."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Apply, Dtype, DtypeVar, Lit, Nothing, Number, Operand, Ref, Size, Wild

TORCH_NAMES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2", "e8m0fnu": "float8_e8m0fnu",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool",
}  # fmt: skip


class Absent:
    """A dtype that this build of torch does not have: no tensor has it."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name} (not in this build)"


DTYPES: dict[str, Any] = {short: getattr(torch, name, None) or Absent(name) for short, name in TORCH_NAMES.items()}
NAMES = {v: k for k, v in DTYPES.items()}


class _Unknown:
    """Neither true nor false: sizes at run time decide, or nothing says."""

    def __repr__(self) -> str:
        return "unknown"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Any = _Unknown()
Lookup = Callable[[str], Any]  # a name -> its value, or UNKNOWN
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
ARITHMETIC = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod,
}  # fmt: skip


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


def decide(condition: Any, truth: Callable[[Any], bool | None] | None = None) -> Any:
    """A Python or sympy truth value as True, False or UNKNOWN. `truth` may know more (the shape environment)."""
    if isinstance(condition, bool):
        return condition
    if condition is UNKNOWN:
        return UNKNOWN
    if isinstance(condition, sympy.logic.boolalg.BooleanTrue | sympy.logic.boolalg.BooleanFalse):
        return bool(condition)
    if truth is not None and isinstance(condition, sympy.Basic):
        found = truth(condition)
        return UNKNOWN if found is None else found
    return UNKNOWN


class Guards:
    """Evaluates scalars. `lookup`: names of the match ("eps", "dim:D", "dtype:lowp", an operand); `facts`: what the machine, the graph
    and the node metadata say, by the name of the function; `truth`: decides symbolic conditions."""

    def __init__(
        self, lookup: Lookup, facts: dict[str, Callable[..., Any]] | None = None,
        truth: Callable[[Any], bool | None] | None = None,
    ):  # fmt: skip
        self.lookup, self.facts, self.truth = lookup, facts or {}, truth

    def holds(self, condition: Any) -> Any:
        """True, False or UNKNOWN."""
        return decide(self.value(condition), self.truth)

    def value(self, x: Any) -> Any:
        """The value of a scalar, or UNKNOWN."""
        if isinstance(x, Lit):
            return x.value if not isinstance(x.value, Dtype) else DTYPES[x.value.name]
        if isinstance(x, Ref):
            found = self.lookup(x.name)
            return self.lookup("dim:" + x.name) if found is UNKNOWN else found
        if isinstance(x, Size):
            return self.size(x.dim)
        if isinstance(x, Dtype):
            return DTYPES[x.name]
        if isinstance(x, DtypeVar):
            return self.lookup("dtype:" + x.key)
        if isinstance(x, Operand):
            return self.lookup(x.name)
        if isinstance(x, Number):
            return self.value(x.value)
        if isinstance(x, Nothing):
            return None
        if isinstance(x, dims.Dim):
            return self.size(x)
        if isinstance(x, dims.Star):
            return self.lookup("star:" + x.name)
        if isinstance(x, Apply):
            return self.apply(x)
        return UNKNOWN if isinstance(x, Wild) or not hasattr(x, "type") else self.lookup_term(x)

    def lookup_term(self, term: Any) -> Any:
        """The value of a term inside a condition."""
        return self.facts["term"](term) if "term" in self.facts else UNKNOWN

    def size(self, dim: dims.Dim) -> Any:
        """A dim as an int or an expression."""
        for name in dims.names(dim):
            if self.dim(name) is UNKNOWN:
                return UNKNOWN
        return dims.evaluate(dim, self.dim)

    def dim(self, name: str) -> Any:
        found = self.lookup("dim:" + name)
        return self.lookup(name) if found is UNKNOWN else found

    def apply(self, x: Apply) -> Any:
        op = x.op
        if op in ("and", "or", "all"):
            return self._logic(op, x.args)
        if op == "not":
            inner = self.holds(x.args[0])
            return UNKNOWN if inner is UNKNOWN else not inner
        if op == "is_none":
            found = self.value(x.args[0])
            return UNKNOWN if found is UNKNOWN else found is None
        args = [self.value(a) for a in x.args]
        if op in self.facts:
            return UNKNOWN if any(a is UNKNOWN for a in args) else self.facts[op](*args)
        if any(a is UNKNOWN for a in args):
            return UNKNOWN
        if op == "==":
            return self._equal(*args)
        if op in COMPARISONS:
            return COMPARISONS[op](*args) if all(_number(a) for a in args) else UNKNOWN
        if op in ARITHMETIC:
            return ARITHMETIC[op](*args) if all(_number(a) for a in args) else UNKNOWN
        if op == "neg":
            return -args[0] if _number(args[0]) else UNKNOWN
        if op in ("finfo.max", "finfo.min"):
            return UNKNOWN if isinstance(args[0], Absent) else float(getattr(torch.finfo(args[0]), op[6:]))
        if op == "dtype_in":
            return args[0] in args[1:]
        if op == "list":
            return tuple(args)
        if op == "dtype":
            return getattr(args[0], "dtype", UNKNOWN)
        if op == "shape":
            shape = getattr(args[0], "shape", UNKNOWN)
            return shape if len(args) == 1 or shape is UNKNOWN else shape[args[1]]
        if op == "item":
            return args[0][args[1]]
        return UNKNOWN

    def _logic(self, op: str, args: tuple[Any, ...]) -> Any:
        found = [self.holds(a) for a in args]
        decisive = op == "or"
        if any(f is decisive for f in found):
            return decisive
        return UNKNOWN if any(f is UNKNOWN for f in found) else not decisive

    def _equal(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return a is b
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                return False
            found = [decide(self._equal(x, y), self.truth) for x, y in zip(a, b, strict=True)]
            return False if False in found else UNKNOWN if UNKNOWN in found else True
        if isinstance(a, sympy.Basic) or isinstance(b, sympy.Basic):
            return True if a == b else sympy.Eq(a, b)
        return same(a, b)


def _number(x: Any) -> bool:
    return isinstance(x, int | float | sympy.Basic) and not isinstance(x, bool)
