"""Scalars of the text compiled to tests of constants of the graph, which bind the names that a scalar is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import MARK, Apply, Dtype, DtypeVar, Lit, Operand, Ref, Size, Wild
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.guards import SiteEnv, same
from fxrewrite.patterns.state import POP, UNSET, Slots, State, bind
from fxrewrite.patterns.values import Symbol, Value, constant_key

ITEM = "item"  # of a list, by its number


class Constants:
    """Compiles the scalars of one pattern."""

    def __init__(self, slots: Slots, env: Callable[[State], SiteEnv]):
        self.slots, self.env = slots, env

    def scalar(self, x: Any) -> Callable[[Any, State], bool]:
        """A function that says whether a constant of the graph is `x`, binding what `x` names."""
        if isinstance(x, Lit):
            want = x.value
            if isinstance(want, Dtype):
                return self.scalar(want)
            return lambda v, s: v is None if want is None else same(want, plain(v))
        if isinstance(x, Dtype):
            dtype = DTYPES[x.name]
            return lambda v, s: v == dtype
        if isinstance(x, DtypeVar):
            at, members = self.slots("dtype:" + x.key), {DTYPES[m] for m in x.members}
            return lambda v, s: v in members and bind(s, at, v)
        if isinstance(x, Ref):
            at = self.slots(x.name)
            return lambda v, s: bind(s, at, plain(v))
        if isinstance(x, Wild):
            return lambda v, s: True
        if isinstance(x, Size):
            return self.size(x.dim)
        if isinstance(x, Apply) and x.op == "list":
            return self.list(x.args)
        if isinstance(x, Apply) and x.op == "shape_list":
            return self.shape(x.args)
        if isinstance(x, Apply) and x.op == "group.name" and isinstance(x.args[0], Ref):
            at = self.slots(x.args[0].name)
            return lambda v, s: type(v) is str and bind(s, at, s.sweep.table.groups.named(v))
        if isinstance(x, Apply) and x.op == ITEM and isinstance(x.args[0], Ref) and isinstance(x.args[1], Lit):
            return self.item(x.args[0].name, x.args[1].value)
        return self.computed(x)

    def size(self, dim: dims.Dim) -> Callable[[Any, State], bool]:
        """A size, an int attribute included."""
        if dim.number is not None:
            number = dim.number
            return lambda v, s: plain(v) == number
        if dim.name is not None:
            at, attr = self.slots("dim:" + dim.name), self.slots(dim.name)

            def unify(v: Any, s: State) -> bool:
                have = s.v[attr]
                return bind(s, at, plain(v)) if have is UNSET or type(have) is Value else same(have, plain(v))

            return unify
        return self.computed(Size(dim))

    def computed(self, x: Any) -> Callable[[Any, State], bool]:
        """An expression: compared where its names are bound, else kept for later. Its value is remembered for the
        values of its names, unless a native is asked: that may look at a tensor itself.
        """
        names = [self.slots(n) for n in names_of(x)]
        known: dict[Any, Any] | None = None if any(_is_native(part) for part in walk(x)) else {}

        def unify(v: Any, s: State) -> bool:
            if known is None:
                have = self.env(s).value(x)
            else:
                key = tuple([_known_by(s.v[n]) for n in names])
                have = known.get(key, UNSET)
                if have is UNSET:
                    have = known[key] = self.env(s).value(x)
            if have is UNKNOWN:
                if v is None and isinstance(x, Size):
                    return False  # the end of an axis: a size that is one is None here, too
                s.deferred.append((x, plain(v)))
                s.trail.append(POP)
                return True
            return same(have, plain(v))

        return unify

    def list(self, items: tuple[Any, ...]) -> Callable[[Any, State], bool]:
        """A list of constants."""
        parts = [self.scalar(i) for i in items]

        def unify(v: Any, s: State) -> bool:
            return isinstance(v, tuple) and len(v) == len(parts) and all(p(x, s) for p, x in zip(parts, v, strict=True))

        return unify

    def item(self, name: str, i: int) -> Callable[[Any, State], bool]:
        """One item of a list attribute: noted until all of them are known (`fitting.implied`)."""
        at, whole = self.slots((ITEM, name, i)), self.slots(name)

        def unify(v: Any, s: State) -> bool:
            have = s.v[whole]
            return bind(s, at, plain(v)) if have is UNSET else i < len(have) and same(have[i], plain(v))

        return unify

    def shape(self, items: tuple[Any, ...]) -> Callable[[Any, State], bool]:
        """A shape, with leading axes where it begins with a star."""
        star = self.slots("star:" + items[0].name) if items and isinstance(items[0], Star) else None
        tail = [self.size(d) for d in items if isinstance(d, dims.Dim)]

        def unify(shape: Any, s: State) -> bool:
            cut = len(shape) - len(tail)
            if cut < 0 or (star is None and cut):
                return False
            if star is not None and not bind(s, star, tuple(shape[:cut])):
                return False
            return all(p(d, s) for p, d in zip(tail, shape[cut:], strict=True))

        return unify


def names_of(x: Any) -> list[str]:
    """The slots that a scalar reads."""
    if isinstance(x, Ref):
        return [x.name, "dim:" + x.name]
    if isinstance(x, DtypeVar):
        return ["dtype:" + x.key]
    if isinstance(x, Operand):
        return [x.name]
    if isinstance(x, Size | dims.Dim):
        dim = x.dim if isinstance(x, Size) else x
        return [n for name in sorted(dims.names(dim)) for n in (name, "dim:" + name)]
    if isinstance(x, Star):
        return ["star:" + x.name]
    return [n for a in x.args for n in names_of(a)] if isinstance(x, Apply) else []


def _known_by(bound: Any) -> Any:
    """What a computed constant can depend on: of a tensor its type, which keeps no graph alive."""
    return (bound.dtype, bound.shape) if type(bound) is Value else constant_key(bound)


def _is_native(part: Any) -> bool:
    return isinstance(part, Apply) and part.op.startswith(MARK)


def plain(v: Any) -> Any:
    """A constant of a graph as a Python value."""
    if type(v) is Symbol:
        return v.expr
    return tuple(map(plain, v)) if isinstance(v, tuple) else v
