"""The left side of a rule on other operands and attributes: which of them it is for, the types say.

Another value of a captured attribute, another dtype of a class, an operand that may be left out: it must fire. Two
dtypes of one class, a dtype or a shape outside the signature: it must not. Guards: `bounds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from fxrewrite.dsl.binding import is_element
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import UNKNOWN as NO_TYPE
from fxrewrite.dsl.core import Call, Dtype, DtypeVar, Lit, OpDef, OperandInfo, TensorType
from fxrewrite.dsl.scalars import Env, holds
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.verify.domains import values_of
from fxrewrite.verify.edits import Expected
from fxrewrite.verify.rebuild import replaced
from fxrewrite.verify.settings import Setting
from fxrewrite.verify.sites import AS_DEFINED, Site, Subject
from fxrewrite.verify.written import RESULT, NoGraph, Spelling

WIDER = {"bf16": "f32", "f16": "f32", "f32": "f64"}


@frozen
class Variant:
    """A left side that is made anew. `make` raises NoGraph where there is none."""

    name: str
    expected: Expected
    make: Callable[[], Site]


def variants(subject: Subject, base: Setting, values: int = 2) -> Iterator[Variant]:
    """Every other setting of a left side; `values`: how many others of an attribute."""
    yield from _attributes(subject, base, values)
    yield from _pinned(subject, base)
    yield from _sizes(subject)
    yield from _dtypes(subject, base)
    yield from _shapes(subject, base)


# ---- attributes, operands, sizes, dtypes that the rule is for


def _attributes(subject: Subject, base: Setting, values: int) -> Iterator[Variant]:
    for a in subject.claim.op.attributes:
        have = base.assignment.attributes.get(a.name)
        variable = next((v for v in subject.space.variables if v.kind == "attribute" and v.name == a.name), None)
        if a.type == "group" or variable is None:
            continue
        called = next((c.op for c in calls_of(subject.rule.left) if a.type == "layout" and a.name in dict(c.attrs)), "")
        spelling = Spelling(called, RESULT) if called else AS_DEFINED  # primitives have no other layout
        for other in [v for v in variable.values if v != have][:values]:
            make = partial(_with_attribute, subject, a.name, other, spelling)
            yield Variant(f"{a.name} = {_text(other)}", "fires", make)


def _with_attribute(subject: Subject, name: str, wanted: Any, spelling: Spelling) -> Site:
    setting = subject.setting({name: (wanted,)})
    if setting.assignment.attributes.get(name) != wanted:
        raise NoGraph(f"nothing has {name} = {wanted}")
    return subject.site(spelling, setting)


def _sizes(subject: Subject) -> Iterator[Variant]:
    """Other numbers of rows, and operands that are left out."""
    axes = [v.kind for v in subject.space.variables if v.name == subject.space.rows]
    for rows in (1, (2, 3) if axes == ["star"] else 5):
        if axes and holds(subject.rule.prefer, Env(facts={"tokens": 6 if rows == (2, 3) else rows})) is not False:
            yield Variant(f"rows: {rows}", "fires", partial(_with_rows, subject, rows))
    for o in subject.claim.op.operands:
        if o.optional:
            yield Variant(f"{o.name} is none", "fires", partial(_without, subject, o.name))


def _with_rows(subject: Subject, rows: Any) -> Site:
    return subject.site(AS_DEFINED, subject.setting({"rows": (rows,)}))


def _without(subject: Subject, name: str) -> Site:
    setting = subject.setting({name: (False,)})
    if name not in setting.assignment.absent:
        raise NoGraph(f"{name} may not be none here")
    return subject.site(AS_DEFINED, setting)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, Dtype) else repr(value)


def _dtypes(subject: Subject, base: Setting) -> Iterator[Variant]:
    for v in subject.space.variables:
        if v.kind == "dtype":
            for other in [d for d in v.values if d != base.assignment.dtypes.get(v.name)]:
                yield Variant(f"{v.name} is {other}", "fires", partial(_with_dtype, subject, v.name, other))
    for i, o in enumerate(subject.claim.op.operands):
        for other, expected in _wrong_dtypes(subject.claim.op, i, base):
            make = partial(_replaced, subject, base, i, partial(_cast, DTYPES[other]))
            yield Variant(f"{o.name} is {other}, which is not its dtype", expected, make)


def _with_dtype(subject: Subject, key: str, dtype: str) -> Site:
    setting = subject.setting({key: (dtype,)})
    if setting.assignment.dtypes.get(key) != dtype:
        raise NoGraph(f"nothing has {key} = {dtype}")
    return subject.site(AS_DEFINED, setting)


def _wrong_dtypes(op: OpDef, index: int, base: Setting) -> Iterator[tuple[str, Expected]]:
    """Dtypes that an operand may not have: another one of its class beside others of it, a wider one.

    A narrower one is made wider by torch where it meets another operand: that is the value which the rule sees.
    """
    o, given = op.operands[index], base.operands[index]
    have = NAMES.get(given.dtype) if isinstance(given, Tensor) else None
    declared = o.type.dtype
    if have is None or have not in WIDER:
        return
    if isinstance(declared, DtypeVar):
        beside = [p for p in op.operands if p is not o and p.type.dtype == declared]
        if beside:
            for member in declared.members:
                if member != have:
                    yield member, _outside_type(o, "f32" in declared.members)
        yield next(w for w in ("f32", "f64") if w not in declared.members), _outside_type(o, "f32" in declared.members)
    elif isinstance(declared, Dtype):
        yield WIDER[have], _outside_type(o)
        if have != "bf16":
            yield "bf16", "right"


def _outside_type(o: OperandInfo, has_f32: bool = False) -> Expected:
    """What must come of an operand that its signature excludes: the rule is not for it. But what may be left out may be
    left where it is; and of a class with f32 (`has_f32`) the same operand in f32, which many steps begin with, is one.
    """
    return "right" if o.optional or has_f32 else "stays"


# ---- operands outside the signature


def _cast(dtype: torch.dtype, x: Tensor) -> Tensor:
    return x.to(dtype)


def _shapes(subject: Subject, base: Setting) -> Iterator[Variant]:
    """Operands that torch would broadcast."""
    for i, o in enumerate(subject.claim.op.operands):
        given = base.operands[i]
        if not isinstance(given, Tensor) or not given.numel():
            continue
        shared = _leading(o) & {d for p in subject.claim.op.operands if p is not o for d in _leading(p)}
        for what, expected, change in _broadcast(o, given, bool(shared)):
            yield Variant(f"{o.name} is {what}", expected, partial(_replaced, subject, base, i, change))


def _leading(o: OperandInfo) -> set[Any]:
    """The axes before the last, as they are declared."""
    return set() if o.type.shape is None else set(o.type.shape[:-1])


Change = Callable[[Tensor], Tensor]


def _broadcast(o: OperandInfo, given: Tensor, shared: bool) -> Iterator[tuple[str, Expected, Change]]:
    """`shared`: another operand has its rows, too."""
    if is_element(o.type):
        yield "of no axis", "right", lambda x: x.reshape(())
        yield "one a row", _outside_type(o), lambda x: x.reshape(1, 1).repeat(6, 1)
    elif shared and given.ndim > 1 and given.shape[0] > 3:
        yield "one row for all", _outside_type(o), lambda x: x[3:4].clone()
        yield "a row without an axis", _outside_type(o), lambda x: x[3].clone()
    elif given.ndim == 1 and given.shape[0] > 1:
        yield "one number for all", _outside_type(o), lambda x: x[:1].clone()


def _replaced(subject: Subject, base: Setting, index: int, change: Callable[[Tensor], Tensor]) -> Site:
    """The left side with one operand that its signature excludes."""
    operands = tuple(change(o) if i == index else o for i, o in enumerate(base.operands))
    setting = Setting(base.assignment, operands)
    op, program = _loose(subject.claim.op, index), subject.program
    loose = evolve(program, ops={n: _loose(o) for n, o in program.ops.items()})
    return subject.traced(setting, loose, op=op)


def _loose(op: OpDef, index: int | None = None) -> OpDef:
    """A signature that excludes little: no shapes but those that sizes are read off, and a class is whatever dtype its
    first operand has, that of `index` last."""
    seen: set[str] = set()
    types: dict[int, TensorType] = {}
    for i in sorted(range(len(op.operands)), key=lambda i: i == index):
        declared = op.operands[i].type
        any_shape = i == index if index is not None else i > 0
        types[i] = evolve(NO_TYPE if any_shape else declared, dtype=_any_dtype(declared.dtype, seen))
    operands = tuple(evolve(o, type=types[i]) for i, o in enumerate(op.operands))
    return evolve(op, operands=operands, requires=())


def _any_dtype(declared: Any, seen: set[str]) -> DtypeVar | None:
    """The class with every dtype in it, for the first operand of it."""
    if not isinstance(declared, DtypeVar) or declared.key in seen:
        return None
    seen.add(declared.key)
    return DtypeVar(declared.key, tuple(DTYPES))


# ---- pinned attributes


def _pinned(subject: Subject, base: Setting) -> Iterator[Variant]:
    """Another value of an attribute that the left side writes out."""
    for call in calls_of(subject.rule.left):
        for name, given in call.attrs:
            attribute = subject.claim.program.ops[call.op].attribute(name)
            if not isinstance(given, Lit) or attribute is None:
                continue
            for other in [v for v in values_of(attribute, ()) if v != given.value][:2]:
                changed = evolve(call, attrs=tuple((n, Lit(other) if n == name else v) for n, v in call.attrs))
                make = partial(_with_call, subject, base, call, changed)
                yield Variant(f"{call.op} with {name} = {_text(other)}, not {_text(given.value)}", "other", make)


def _with_call(subject: Subject, base: Setting, call: Call, changed: Call) -> Site:
    spelling = Spelling(call.op, RESULT)
    rule = evolve(subject.rule, left=replaced(subject.rule.left, call, changed))
    return evolve(subject, rule=rule).site(spelling, base)
