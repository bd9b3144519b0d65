"""Terms in the normal form of values, so that patterns and graphs spell alike. The rules are those of
`values.Table`.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from fxrewrite.dsl.core import (
    Choose,
    Dtype,
    DtypeVar,
    Each,
    Either,
    Extern,
    Lit,
    Number,
    Prim,
    Result,
    TensorType,
    Term,
)
from fxrewrite.patterns.overloads import spelled_out
from fxrewrite.patterns.values import ELEMENTWISE

LOW_OR_SINGLE = {"bf16", "f16", "f32"}


class Normal:
    """Rewrites the terms of one item; equal terms stay one object, and what needs no rewriting stays itself."""

    def __init__(self) -> None:
        self.done: dict[int, Term] = {}
        self.terms: dict[Term, Term] = {}
        self.keep: list[Term] = []

    def __call__(self, t: Term) -> Term:
        """`t` in the normal form."""
        found = self.done.get(id(t))
        if found is None:
            found = self.done[id(t)] = self.intern(self._rewrite(t))
            self.keep.append(t)
        return found

    def intern(self, t: Term) -> Term:
        """The one object for equal terms."""
        return self.terms.setdefault(t, t)

    def _rewrite(self, t: Term) -> Term:
        if isinstance(t, Choose):
            return evolve(t, cases=tuple((c, self(v)) for c, v in t.cases))
        if isinstance(t, Either):
            return evolve(t, choices=tuple(map(self, t.choices)))
        if isinstance(t, Each):
            return evolve(t, body=self(t.body))
        if isinstance(t, Result):
            args = tuple(
                tuple(map(self, a)) if isinstance(a, tuple) else self(a) if hasattr(a, "type") else a
                for a in t.call.args
            )
            return evolve(t, call=self.intern(evolve(t.call, args=args)))  # type: ignore[arg-type]
        if isinstance(t, Prim):
            return self.prim(t, tuple(map(self, t.args)))
        return spelled_out(t) if isinstance(t, Extern) else t

    def prim(self, t: Prim, args: tuple[Term, ...]) -> Term:
        """`t` with normal arguments."""
        if t.op == "fdiv":
            return evolve(t, op="div", args=args)
        if t.op == "reshape":
            return self.reshape(t, args[0])
        if t.op in ("abs", "amax") and _widening(args[0]):
            cast = args[0]
            assert isinstance(cast, Prim)
            inner = cast.args[0]
            narrow = self.intern(self.prim(evolve(t, type=TensorType(inner.type.dtype, t.type.shape)), (inner,)))  # type: ignore[union-attr]
            return evolve(cast, args=(narrow,), type=t.type)
        if t.op == "clamp" and isinstance(args[0], Prim) and args[0].op == "clamp":
            return self.clamps(t, args)
        return t if args == t.args and all(a is b for a, b in zip(args, t.args, strict=True)) else evolve(t, args=args)

    def clamps(self, t: Prim, args: tuple[Term, ...]) -> Term:
        """A clamp of a clamp, where one bounds from below only and the other from above only."""
        inner = args[0]
        assert isinstance(inner, Prim)
        none = Number(Lit(None))
        low, high = ([b for b in bounds if b != none] for bounds in zip(inner.args[1:], args[1:], strict=True))
        if len(low) > 1 or len(high) > 1:
            return evolve(t, args=args)
        return evolve(t, args=(inner.args[0], low[0] if low else none, high[0] if high else none))

    def reshape(self, t: Prim, x: Term) -> Term:
        """A reshape moves inwards through casts, clamps, elementwise ops and choices."""
        if isinstance(x, Prim) and x.op in ELEMENTWISE:
            inner = self._inner(t, x.args[0])
            return evolve(x, args=(inner, *x.args[1:]), type=TensorType(x.type.dtype, t.type.shape))
        if isinstance(x, Choose):
            return evolve(
                x, cases=tuple((c, self._inner(t, v)) for c, v in x.cases), type=TensorType(x.type.dtype, t.type.shape)
            )
        if isinstance(x, Prim) and x.op == "reshape":
            return self._inner(t, x.args[0])
        return evolve(t, args=(x,))

    def _inner(self, t: Prim, x: Any) -> Term:
        return self.intern(self.reshape(evolve(t, type=TensorType(x.type.dtype, t.type.shape)), x))


def _widening(t: Term) -> bool:
    """A cast to f32 from what is 16 or 32 bits wide."""
    if not (isinstance(t, Prim) and t.op == "to" and t.params[0] == Dtype("f32")):
        return False
    dtype = t.args[0].type.dtype if not isinstance(t.args[0], Number) else None
    members = (dtype.name,) if isinstance(dtype, Dtype) else dtype.members if isinstance(dtype, DtypeVar) else ("",)
    return LOW_OR_SINGLE.issuperset(members)
