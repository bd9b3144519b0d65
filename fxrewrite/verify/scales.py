"""Which operands are scales of a quantization: positive and finite. Any other factor may be anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fxrewrite.dsl.check.terms import calls_of, operands_of, walk
from fxrewrite.dsl.core import Call, Dtype, OpDef, Operand, Prim, Program, TorchCall

NARROW = frozenset("e4m3fn e4m3fnuz e5m2 e8m0fnu i8 u8".split())
MOVES = frozenset("reshape expand to permute slice reciprocal".split())  # from a scale to where it is used
USES = frozenset("div fdiv mul reciprocal".split())


def quantization_scales(program: Program, op: OpDef, terms: Iterable[Any], chosen: Mapping[str, Any]) -> set[str]:
    """The operands that divide or multiply in an op that has narrow values; `chosen`: its attributes and dtypes.

    Of what a `ref` or a torch op does with an operand nothing is known: it may be this.
    """
    terms = tuple(terms)
    narrow = any(_is_narrow(v) for v in chosen.values()) or _has_narrow(program, op, terms)
    return _used(program, op, terms) if narrow else set()


def _is_narrow(dtype: Any) -> bool:
    return (dtype.name if isinstance(dtype, Dtype) else dtype) in NARROW


def _has_narrow(program: Program, op: OpDef, terms: tuple[Any, ...]) -> bool:
    """Is there a narrow value in an op, in what it calls, or may there be one in a function that is not known?"""
    if op.ref is not None or any(_is_narrow(o.type.dtype) for o in op.operands):
        return True
    for x in walk(terms):
        if isinstance(x, TorchCall) and not x.op.startswith("aten."):
            return True
        if isinstance(x, Prim) and (x.op == "round_e2m1" or _is_narrow(x.type.dtype)):
            return True
    called = {c.op: program.ops[c.op] for c in calls_of(terms)}
    return any(_has_narrow(program, o, _definition(o)) for o in called.values())


def _used(program: Program, op: OpDef, terms: tuple[Any, ...]) -> set[str]:
    """The operands that are factors or divisors, here or in what is called."""
    if op.ref is not None:
        return {o.name for o in op.operands}
    found: set[str] = set()
    for x in walk(terms):
        if isinstance(x, TorchCall):
            found |= {o.name for o in operands_of(x)}
        elif isinstance(x, Prim) and x.op in USES:
            found |= {o.name for o in map(_moved, x.args) if isinstance(o, Operand)}
        elif isinstance(x, Call):
            inner = program.ops[x.op]
            used = _used(program, inner, _definition(inner))
            given = [a for info, a in zip(inner.operands, x.args) if info.name in used]
            found |= {o.name for o in operands_of(tuple(given))}
    return found


def _definition(op: OpDef) -> tuple[Any, ...]:
    return tuple(t for e in op.equations for t in e.outputs)


def _moved(term: Any) -> Any:
    """What a term moves."""
    while isinstance(term, Prim) and term.op in MOVES:
        term = term.args[0]
    return term
