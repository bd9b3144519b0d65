"""Digests of what text means: equal for texts that differ in formatting, names of parts and documentation only."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import attrs
from attrs import define, field

from fxrewrite.dsl.core import Call, DtypeVar, OpDef, Operand, Program
from fxrewrite.dsl.deep import deep_terms

CONJUNCTIONS = ("guards", "requires", "prefer")  # fields of conditions that hold together, in any order


def of_op(program: Program, name: str) -> str:
    """Hex SHA-256 of the signature and the meaning of an op, those of the ops that it calls included.

    Forms and providers have no part in it: they are other spellings of the same function.
    """
    with deep_terms():
        return _Digest(program).op(name)


def of(program: Program, x: Any) -> str:
    """Hex SHA-256 of any term, case, rule or scalar of `program`."""
    with deep_terms():
        return _Digest(program)(x)


def of_whole_ops(program: Program) -> list[str]:
    """For each op, in the order of their names, a digest of all that it is but its documentation: its meaning, and what
    it is recognised by and served by.
    """
    digest = _Digest(program)
    return ["".join(digest.fields(op)) for _, op in sorted(program.ops.items())]


@define
class _Digest:
    program: Program
    ops: dict[str, str] = field(factory=dict[str, str])
    done: dict[int, str] = field(factory=dict[int, str])

    def op(self, name: str) -> str:
        if name not in self.ops:
            op = self.program.ops[name]
            meaning = tuple((c.outputs, c.pins, self.field(c, "guards")) for c in op.equations)
            requires = self.field(op, "requires")
            self.ops[name] = self((op.name, op.operands, op.attributes, op.results, requires, op.ref, meaning))
        return self.ops[name]

    def __call__(self, x: Any) -> str:
        kind = cast("type[Any]", type(x))
        found = self.done.get(id(x)) if attrs.has(kind) else None  # a tuple or a number may live too shortly for its id
        if found is None:
            found = hashlib.sha256("\0".join([kind.__name__, *self.parts(x)]).encode()).hexdigest()
            if attrs.has(kind):
                self.done[id(x)] = found
        return found

    def parts(self, x: Any) -> list[str]:
        """What distinguishes `x` from others of its type."""
        if isinstance(x, tuple | list):
            return [self(i) for i in cast("tuple[Any, ...]", x)]
        if isinstance(x, DtypeVar):
            return [x.key, *x.members]
        if isinstance(x, Operand):
            return [x.name, str(x.optional), str(x.star), str(x.element)]
        if isinstance(x, OpDef):
            return [self.op(x.name)]
        kind = cast("type[Any]", type(x))
        if not attrs.has(kind):
            return [repr(x)]
        called = [self.op(x.op)] if isinstance(x, Call) else []
        return [*called, *self.fields(x)]

    def fields(self, x: Any) -> list[str]:
        """The digests of the fields of an object that equality compares, but for places and documentation."""
        compared = [a.name for a in attrs.fields(cast("type[Any]", type(x))) if a.eq]
        return [self.field(x, name) for name in compared if name not in ("span", "doc")]

    def field(self, x: Any, name: str) -> str:
        """The digest of one field of an object."""
        found = getattr(x, name)
        return "\0".join(sorted(map(self, found))) if name in CONJUNCTIONS else self(found)
