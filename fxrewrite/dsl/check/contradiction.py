"""Conditions that can never hold together: `G == 32` with `G in {64, 128}`. What is not plain counts as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field

from fxrewrite.dsl.check import conditions, ranges
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.core import Apply, Attribute, Dtype, DtypeVar, Lit, Ref, Scalar, Size
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def never(conds: Iterable[Scalar], attributes: Iterable[Attribute] = ()) -> tuple[Scalar, ...] | None:
    """The conditions among `conds` that cannot hold together (or with the domain of an attribute); None if they may."""
    named = {a.name: a for a in attributes}
    facts, together = _Facts(named), conditions.conjuncts(conds)
    for condition in together:
        if condition == conditions.FALSE:
            return (condition,)
        clash = facts.add(condition)
        if clash is not None:
            return clash
    return ranges.unmet(together, named)


def possible(
    conds: tuple[Scalar, ...],
    attributes: tuple[Attribute, ...],
    texts: tuple[Any, ...],
    said_by: Callable[[Any], tuple[Scalar, ...]],
    otherwise: Span,
) -> None:
    """RW404 where conditions can never hold together.

    `texts`: of those that the author wrote; `said_by`: the conditions that one of them is. `otherwise`: the place where
    none of these is to blame.
    """
    clash = never(conds, attributes)
    if clash is None:
        return
    blamed = [e for e in texts if clash == (conditions.FALSE,) or any(c in clash for c in said_by(e))]
    shown = " and ".join(f"`{said(c)}`" for c in clash)
    message = "this guard is never true" if blamed else "the guards that follow from this are never true together"
    message += f": {shown}" if clash != (conditions.FALSE,) else ""
    raise Problem("RW404", message, blamed[-1].span if blamed else otherwise, "remove it, or mend the values")


@define(eq=False, repr=False)
class _Facts:
    """What each quantity may be by the conditions seen so far; of several bounds in one direction, the closest."""

    attributes: Mapping[str, Attribute]
    allowed: dict[Any, tuple[list[Any], Scalar]] = field(factory=dict[Any, tuple[list[Any], Scalar]])
    excluded: dict[Any, dict[tuple[bool, Any], Scalar]] = field(factory=dict[Any, dict[tuple[bool, Any], Scalar]])
    bounds: dict[Any, dict[str, tuple[Any, Scalar]]] = field(factory=dict[Any, dict[str, tuple[Any, Scalar]]])
    true: dict[Scalar, Scalar] = field(factory=dict[Scalar, Scalar])

    def add(self, condition: Scalar) -> tuple[Scalar, ...] | None:
        opposite = conditions.negate(condition)
        if opposite in self.true:
            return (self.true[opposite], condition)
        self.true[condition] = condition
        values = one_of(condition)
        if values is not None:
            return self._allow(values[0], values[1], condition)
        if isinstance(condition, Apply) and condition.op == "not":
            values = one_of(condition.args[0])
            if values is not None:
                self.excluded.setdefault(values[0], {}).update((_exact(v), condition) for v in values[1])
                return self._allow(values[0], self._domain(values[0]), condition)
        bound = _bound(condition)
        if bound is None:
            return None
        key, op, value = bound
        bounds = self.bounds.setdefault(key, {})
        if op not in bounds or not conditions.ORDER[op](bounds[op][0], value):
            bounds[op] = (value, condition)
        return self._crossed(key) or self._allow(key, self._domain(key), condition)

    def _domain(self, key: Any) -> list[Any] | None:
        if key in self.allowed:
            return self.allowed[key][0]
        if isinstance(key, DtypeVar):
            return [Dtype(m) for m in key.members]
        return domain(self.attributes.get(key)) if isinstance(key, str) else None

    def _allow(self, key: Any, values: list[Any] | None, condition: Scalar) -> tuple[Scalar, ...] | None:
        if values is None:
            return None
        have = self._domain(key)
        before = self.allowed[key][1] if key in self.allowed else condition
        kept = None if have is None else set(map(_exact, have))
        excluded, bounds = self.excluded.get(key, {}), self.bounds.get(key, {})
        left = [v for v in values if (kept is None or _exact(v) in kept) and _exact(v) not in excluded]
        left = [v for v in left if all(_within(v, op, bound) for op, (bound, _) in bounds.items())]
        if not left:
            others = [*excluded.values(), *(c for _, c in bounds.values())]
            return tuple(dict.fromkeys((before, *others, condition)))
        self.allowed[key] = (left, condition)
        return None

    def _crossed(self, key: Any) -> tuple[Scalar, ...] | None:
        """A lower bound above an upper one."""
        bounds = self.bounds[key]
        for op, (low, a) in bounds.items():
            for other, (high, b) in bounds.items():
                if op in (">", ">=") and other in ("<", "<="):
                    strict = op == ">" or other == "<"
                    if low > high or (strict and low == high):
                        return (a, b)
        return None


def one_of(condition: Scalar) -> tuple[Any, list[Any]] | None:
    """The quantity that a condition is about, and the values that it allows: `G in {64, 128}` is ("G", [64, 128])."""
    if isinstance(condition, Ref):
        return condition.name, [True]
    if not isinstance(condition, Apply):
        return None
    if condition.op == "not" and isinstance(condition.args[0], Ref):
        return condition.args[0].name, [False]
    if condition.op == "dtype_in":
        return key_of(condition.args[0]), list(condition.args[1:])
    if condition.op == "==":
        for a, b in (condition.args, condition.args[::-1]):
            if isinstance(b, Lit | Dtype) and not isinstance(a, Lit | Dtype):
                return key_of(a), [conditions.plain(b)]
    if condition.op == "or":
        left, right = one_of(condition.args[0]), one_of(condition.args[1])
        if left is not None and right is not None and left[0] == right[0]:
            return left[0], [*left[1], *right[1]]
    return None


def key_of(x: Any) -> Any:
    """What names a quantity: the name of an attribute or dim, else the scalar itself."""
    if isinstance(x, Ref):
        return x.name
    if isinstance(x, Size) and x.dim.name:
        return x.dim.name
    return x


def domain(a: Attribute | None) -> list[Any] | None:
    """The values that an attribute may have, where they are few."""
    if a is None:
        return None
    values = [False, True] if a.type == "bool" else list(a.domain) if a.domain is not None else None
    return [*values, None] if values is not None and a.optional else values


def _bound(condition: Scalar) -> tuple[Any, str, Any] | None:
    negated = isinstance(condition, Apply) and condition.op == "not"
    inner = condition.args[0] if negated and isinstance(condition, Apply) else condition
    if not isinstance(inner, Apply) or inner.op not in _MIRRORED:
        return None
    left, right = inner.args
    op = inner.op
    if isinstance(left, Lit):
        left, right, op = right, left, _MIRRORED[op]
    if not isinstance(right, Lit) or not conditions.number(right) or isinstance(left, Lit):
        return None
    if negated:
        op = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op]
    return key_of(left), op, right.value


def _exact(value: Any) -> tuple[bool, Any]:
    """A key that tells `true` from `1`, and not `1` from `1.0`."""
    return isinstance(value, bool), value


def _within(value: Any, op: str, bound: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return conditions.ORDER[op](value, bound)
