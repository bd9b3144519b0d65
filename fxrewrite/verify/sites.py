"""The left side of a rule as a graph: in each of its spellings, on operands of a chosen type.

setting = Setting.of(claim, assignment)              # operands
site = site_of(claim, setting, Spelling())           # its graph, traced
site_of(claim, setting, Spelling("silu", "form sigmoid"))     # with one op as one of its forms
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fxrewrite.dsl.binding import is_element
from fxrewrite.dsl.check.terms import calls_of, walk
from fxrewrite.dsl.core import Dtype, DtypeVar, OpDef, OperandInfo, Prim, Program, Ref, Result, RuleDef, TorchCall
from fxrewrite.dsl.evaluate import UNKNOWN, Bindings, Buffer, EvaluationError, Overwritten, bind, evaluate_terms
from fxrewrite.dsl.scalars import sizes
from fxrewrite.lowering import library
from fxrewrite.lowering.eager import Torch, registered_op
from fxrewrite.lowering.layouts import empty
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.writers import NOT_WRITTEN
from fxrewrite.verify.assign import Assignment, Space, element
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.graphs import Recorder, trace

RANKED = {"rows": (6,), "length": (3,)}  # what a plain site has, where it may
USUAL = (64, 128, 32, 16, 8, 4)
RESULT = "call of torch.ops.fxrewrite"
AS_WRITTEN = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fdiv": torch.div,
    "sigmoid": torch.sigmoid,
}


class NoGraph(Exception):
    """There is no such graph; the text says why."""


# ---- operands


@frozen(eq=False)
class Setting:
    """What a left side is applied to."""

    assignment: Assignment
    operands: tuple[Any, ...]

    @classmethod
    def of(cls, claim: Claim, assignment: Assignment) -> Setting:
        """Operands of the types of a choice: normal numbers, rows of zeros, tiny and huge ones among them."""
        generator = torch.Generator().manual_seed(crc32(claim.name.encode()))
        made = (_operand(claim.op, o, assignment, generator) for o in claim.op.operands)
        return cls(assignment, tuple(made))

    def tensors(self) -> list[Tensor]:
        """The tensors among the operands."""
        return [t for o in self.operands for t in (o if isinstance(o, list) else [o]) if isinstance(t, Tensor)]

    def filled(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The operands, with other tensors in the place of theirs."""
        given = iter(tensors)
        return [
            [next(given) for _ in o] if isinstance(o, list) else next(given) if isinstance(o, Tensor) else o
            for o in self.operands
        ]


def plain(claim: Claim, wanted: Mapping[str, Sequence[Any]] | None = None) -> Assignment:
    """Small sizes, present operands, first values. Raises `assign.Starved`."""
    space = Space.of(claim)
    first = {v.name: USUAL if v.kind == "dim" else v.values for v in space.variables if v.kind != "star"}
    return space.choose(Random(0), {**first, **RANKED, **(wanted or {})})


def _operand(op: OpDef, o: OperandInfo, chosen: Assignment, generator: torch.Generator) -> Any:
    if o.name in chosen.absent:
        return None
    if o.kind == "str":
        return "layer"
    env = chosen.env(op)
    if o.star:
        return [_tensor(o, dtype_of(o, chosen), element(o, i, env).shape, generator) for i in range(chosen.length or 2)]
    shape = (4, 6, 8) if o.type.shape is None else sizes(o.type.shape, env)
    return _tensor(o, dtype_of(o, chosen), shape, generator)


def dtype_of(o: OperandInfo, chosen: Assignment) -> torch.dtype:
    """The dtype of an operand under a choice."""
    declared = o.type.dtype
    if isinstance(declared, DtypeVar):
        return DTYPES[chosen.dtypes[declared.key]]
    if isinstance(declared, Ref):
        return DTYPES[chosen.attributes[declared.name].name]
    return DTYPES[declared.name if isinstance(declared, Dtype) else chosen.dtypes[o.name]]


def _tensor(o: OperandInfo, dtype: torch.dtype, shape: Any, generator: torch.Generator) -> Tensor:
    if shape is UNKNOWN or any(s is UNKNOWN for s in shape):
        raise NoGraph(f"the shape of `{o.name}` is not known: {o.type}")
    if not dtype.is_floating_point:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator)
    if is_element(o.type):
        return (x.abs() * 0.03 + 0.01).to(dtype)
    if x.ndim > 1 and x.shape[0] > 3 and x.numel():
        x[0], x[1], x[2] = 0.0, x[1] * 1e-7, x[2] * 1e4
    return x.to(dtype)


# ---- spellings


@frozen
class Spelling:
    """How an op of a left side is written: `form NAME`, or a call of our own op. Without an op: all as defined."""

    op: str = ""
    how: str = "definition"
    whole: bool = False  # no op is taken apart

    def __str__(self) -> str:
        return f"{self.op} as {self.how}" if self.op else "as defined"


def spellings(claim: Claim) -> list[Spelling]:
    """The definitions, then each op of the left side as each of its forms, and as a call."""
    out = [Spelling()]
    for name in _reached(claim.program, left_of(claim)):
        op = claim.program.ops[name]
        out += [Spelling(name, f"form {f.name}") for f in op.forms]
        out.append(Spelling(name, RESULT))
    return out


def left_of(claim: Claim) -> tuple[Any, ...]:
    """The left side of a rule."""
    return () if claim.reference is None else claim.reference.outputs


def rule_of(claim: Claim) -> RuleDef:
    """The rule that a claim is about."""
    return next(r for r in claim.program.rules if r.full_name == claim.name)


def _reached(program: Program, terms: Any) -> list[str]:
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
    return all(is_written(program, program.ops[n]) for n in _reached(program, tuple(e.outputs for e in op.equations)))


def _spelled(claim: Claim, spelling: Spelling) -> Program:
    """The program with ops as they are to be written: what has no graph of its own is a call."""
    program = claim.program
    changed = {
        n: _called(program.ops[n]) for n in _reached(program, left_of(claim)) if not is_written(program, program.ops[n])
    }
    if spelling.op:
        op = program.ops[spelling.op]
        changed[spelling.op] = _called(op) if spelling.how == RESULT else _formed(op, spelling.how)
    return evolve(program, ops={**program.ops, **changed}) if changed else program


def _called(op: OpDef) -> OpDef:
    return evolve(op, equations=(), ref=op.name)


def _formed(op: OpDef, how: str) -> OpDef:
    form = next(f for f in op.forms if f"form {f.name}" == how)
    if form.binds:
        raise NoGraph(f"`{op.name}/{form.name}` gives operands in terms of what it binds")
    return evolve(op, equations=(form,), ref=None)


class _Written(Torch):
    """Primitives as torch runs them; calls of ours as such. Notes the term that each node comes from."""

    def __init__(self, recorder: Recorder, program: Program) -> None:
        self.recorder, self.program = recorder, program

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        """The tensor, and its nodes marked with the term. A number beside a 16-bit tensor is as authors write it."""
        self.recorder.origin = term
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
        values = [DTYPES[v.name] if isinstance(v, Dtype) else _plain(v) for v in attributes.values()]
        self.recorder.origin = op.name
        made = library.op_for(self.program, op.name)(*operands, *values)
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


# ---- sites


@frozen(eq=False)
class Site:
    """The left side as a graph on real inputs. `outputs`: how many are of the rule, what is kept comes behind them.

    `inner`: the values between its ops, by what they are called: exclusive to the match. `origins`: node -> the term.
    """

    graph: Graph
    setting: Setting
    inputs: tuple[Tensor, ...]
    constants: Mapping[str, Tensor]
    origins: Mapping[str, Any]
    inner: Mapping[str, str]
    outputs: int

    def node(self, name: str, graph: Graph | None = None) -> Node:
        """A node by name, in a copy of the graph too."""
        return next(n for n in (graph or self.graph).nodes if n.name == name)


def site_of(claim: Claim, setting: Setting, spelling: Spelling = Spelling(), keep: bool = True) -> Site:
    """The traced left side. Raises NoGraph where it cannot be written so on these operands."""
    rule = rule_of(claim)
    program = _spelled(claim, spelling)
    kept = tuple(t for n, t in rule.named if n in rule.kept) if keep else ()
    inner: dict[str, str] = {}
    counted = [0]

    def fn(recorder: Recorder, fakes: Sequence[Tensor]) -> list[Tensor]:
        algebra = _Written(recorder, claim.program)
        bindings = bind(program, claim.op, setting.filled(fakes), setting.assignment.attributes, algebra)
        left = _flat(evaluate_terms(rule.left, bindings))
        inner.update(_inner(rule, bindings, recorder))
        counted[0] = len(left)
        return [*left, *_flat(evaluate_terms(kept, bindings))]

    inputs = setting.tensors()
    try:
        traced = trace(fn, inputs, spelling.whole)
    except (EvaluationError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise NoGraph(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return Site(traced.graph, setting, tuple(inputs), traced.constants, traced.origins, inner, counted[0])


def _flat(values: Sequence[Any]) -> list[Tensor]:
    return [x for v in values for x in (v if isinstance(v, list | tuple) else [v])]


def _inner(rule: RuleDef, bindings: Bindings, recorder: Recorder) -> Iterator[tuple[str, str]]:
    """The results of ops that are neither outputs nor kept."""
    kept = [t for n, t in rule.named if n in rule.kept]
    names = {id(t): n for n, t in rule.named}
    stays = {id(v) for t in (*rule.left, *kept) for v in _flat([bindings.done.get(id(t))])}
    stays |= {id(v) for v in _flat(list(bindings.operands.values()))}
    for term in walk(rule.left, conditions=False):
        value = bindings.done.get(id(term)) if isinstance(term, Result) else None
        if isinstance(value, Tensor) and id(value) not in stays and id(value) in recorder.nodes:
            label = names.get(id(term)) or f"result {term.index} of {term.call.op}"
            yield label, recorder.nodes[id(value)].name
