"""How the ops of a left side are written into a graph: as defined, as one of their forms, as calls of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import Case, Dtype, OpDef, Prim, Program, TorchCall
from fxrewrite.dsl.evaluate import Buffer, EvaluationError, Overwritten
from fxrewrite.lowering import library
from fxrewrite.lowering.eager import Torch, registered_op
from fxrewrite.lowering.layouts import empty
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.writers import NOT_WRITTEN
from fxrewrite.verify.graphs import Recorder

RESULT = "call of torch.ops.fxrewrite"
AS_WRITTEN = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fdiv": torch.div,
    "sigmoid": torch.sigmoid,
}


@frozen
class Spelling:
    """How an op of a left side is written: `form NAME`, or a call of our own op. Without an op: all as defined."""

    op: str = ""
    how: str = "definition"
    whole: bool = False  # no op is taken apart

    def __str__(self) -> str:
        return f"{self.op} as {self.how}" if self.op else "as defined"


class NoGraph(Exception):
    """There is no such graph; the text says why."""


def spellings(program: Program, left: Any) -> list[Spelling]:
    """The definitions, then each op of a left side as each of its forms, and as a call."""
    out = [Spelling()]
    for name in reached(program, left):
        out += [Spelling(name, f"form {f.name}") for f in program.ops[name].forms]
        out.append(Spelling(name, RESULT))
    return out


def reached(program: Program, terms: Any) -> list[str]:
    """The ops in terms, and in the definitions of these, outermost first."""
    found: dict[str, None] = {}
    todo = [terms]
    for one in todo:
        for call in calls_of(one):
            if call.op not in found:
                found[call.op] = None
                todo += [e.outputs for e in program.ops[call.op].equations]
    return list(found)


def is_written(program: Program, op: OpDef) -> bool:
    """Has its definition a graph of primitives? Not where it holds a torch op, or a primitive without a writer."""
    if not op.equations or op.effects:
        return False
    for x in walk(tuple(e.outputs for e in op.equations)):
        if isinstance(x, TorchCall) or (isinstance(x, Prim) and x.op in NOT_WRITTEN):
            return False
    return all(is_written(program, program.ops[n]) for n in reached(program, tuple(e.outputs for e in op.equations)))


def as_graphs(program: Program, left: Any) -> Program:
    """The program with what has no graph of its own as calls."""
    ops = [program.ops[n] for n in reached(program, left)]
    changed = {op.name: _called(op) for op in ops if not is_written(program, op)}
    return evolve(program, ops={**program.ops, **changed}) if changed else program


def as_calls(program: Program, terms: Any) -> Program:
    """The program with every op that terms call as a call."""
    return evolve(program, ops={**program.ops, **{c.op: _called(program.ops[c.op]) for c in calls_of(terms)}})


def spelled(program: Program, spelling: Spelling) -> Program:
    """A program with one op as it is to be written. Raises NoGraph where nothing here can be written so."""
    if not spelling.op:
        return program
    op = program.ops[spelling.op]
    changed = _called(op) if spelling.how == RESULT else _formed(op, form_of(program, spelling))
    return evolve(program, ops={**program.ops, op.name: changed})


def form_of(program: Program, spelling: Spelling) -> Case:
    """The form that a spelling names."""
    return next(f for f in program.ops[spelling.op].forms if f"form {f.name}" == spelling.how)


def _called(op: OpDef) -> OpDef:
    return evolve(op, equations=(), ref=op.name)


def _formed(op: OpDef, form: Case) -> OpDef:
    if form.binds:
        raise NoGraph(f"`{op.name}/{form.name}` gives operands in terms of what it binds")
    for x in walk(form.outputs):
        if isinstance(x, TorchCall):
            try:
                registered_op(x.op)
            except EvaluationError as error:
                raise NoGraph(str(error)) from error
    return evolve(op, equations=(form,), ref=None)


class Written(Torch):
    """Primitives as torch runs them; calls of ours as such. Notes the term that each node comes from."""

    def __init__(self, recorder: Recorder, program: Program, casts: bool = False) -> None:
        self.recorder, self.program = recorder, program
        self.casts = casts  # is a cast to the own dtype written, too?

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        """The tensor, and its nodes marked with the term. A number beside a 16-bit tensor is as authors write it."""
        self.recorder.origin = term
        if op == "to" and self.casts:
            return torch.ops.prims.convert_element_type.default(args[0], DTYPES[params[0].name])
        if op in AS_WRITTEN and (op not in ("add", "sub") or _holds_its_numbers(args)):
            return AS_WRITTEN[op](*args)
        return super().primitive(op, args, params, term)

    def torch_op(self, name: str) -> Any:
        """The op itself: whoever traces takes it apart."""
        return registered_op(name)

    def torch_call(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[Any, Any]]:
        """A torch op; one that writes as functional graphs have it."""
        found = registered_op(op)
        overload = found if isinstance(found, OpOverload) else found.default
        if not overload._schema.is_mutable:
            return super().torch_call(op, args, kwargs)
        return self._functionalized(overload, args, kwargs)

    def _functionalized(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        names = [a.name for a in op._schema.arguments]
        given = {**dict(zip(names, args)), **kwargs}
        like = next(v for v in tree_leaves(list(given.values())) if isinstance(v, Tensor))
        slots = {n: v.slot for n, v in given.items() if isinstance(v, Buffer | Overwritten)}
        result = auto_functionalized(op, **{n: _unwritten(v, like) for n, v in given.items()})
        count = len(op._schema.returns)
        written = [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        after = dict(zip(written, result[max(count, 1) :]))
        return result[:count], {slots[n]: after[n] for n in slots}

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of our own op."""
        self.recorder.origin = op.name
        return called(self.program, op, operands, attributes)


class Calls(Torch):
    """Torch tensors, and calls of ops without equations as calls of the registered ones."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of our own op."""
        return called(self.program, op, operands, attributes)


def called(program: Program, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """What the registered op of `program` returns."""
    values = [DTYPES[v.name] if isinstance(v, Dtype) else _plain(v) for v in attributes.values()]
    made = library.op_for(program, op.name)(*operands, *values)
    return made if isinstance(made, tuple | list) else (made,)


def _unwritten(value: Any, like: Tensor) -> Any:
    """An argument of a call that writes, before it is written."""
    if isinstance(value, Overwritten):
        return value.value
    if isinstance(value, Buffer):
        assert value.shape is not None and value.dtype is not None
        return empty(value.shape, value.layout, DTYPES[value.dtype.name], like.device)
    if isinstance(value, Tensor):
        return value
    return DTYPES[value.name] if isinstance(value, Dtype) else _plain(value)


def _holds_its_numbers(args: Sequence[Any]) -> bool:
    """Is every number exact in the dtype beside it? Eager torch rounds it to that before it adds, on a CPU."""
    dtypes = [a.dtype for a in args if isinstance(a, Tensor)]
    return all(isinstance(a, Tensor) or _is_exact(a, dtypes[0]) for a in args)


@cache
def _is_exact(number: float, dtype: torch.dtype) -> bool:
    with _disable_current_modes():
        return float(torch.tensor(number, dtype=dtype)) == number


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return getattr(value, "name", value)
