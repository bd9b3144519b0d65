"""Straight-line programs: a definition for given operands, every declared rounding a step of its own.

    program, values = record(definition, operands)       # steps and what each of them gave, op by op
    walk(program, inputs, meaning)                       # the same steps under another meaning

Whatever judges or breaks a definition (sets of admissible values, simulated kernels, mutants, scripts) walks these
steps. A step on 16-bit values is three: widen, compute in f32, round. So `to` steps are exactly the declared roundings,
and arithmetic is in f32 or on integers. Equal steps are one.

A sum over n ranks is one step, `psum`, whose n arguments are what the ranks have, in rank order and not widened: all of
the dtype and shape of the result, which every rank reads. It is a sum in any order, of which each partial sum is kept
or rounded to that dtype (`rank_sums.py`). What else mixes ranks is `slice` and `cat` (`world.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from attrs import define, field, frozen
from torch import Tensor

from fxrewrite.dsl.core import BINARY, Dtype, OpDef, Prim
from fxrewrite.dsl.evaluate import Algebra, Overwritten
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.patterns.values import LOW
from fxrewrite.verify.call_text import spelled_call
from fxrewrite.verify.rank_sums import in_order
from fxrewrite.verify.torch_steps import STEPS_OF

ROUNDED = frozenset(
    "exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh erf add sub mul div fdiv mean sum var matmul".split()
)  # computed in f32 and rounded to the dtype of their 16-bit operands


@frozen
class Slot:
    """A value of a program by its number: inputs first, then one a step."""

    index: int


@frozen
class Step:
    """One primitive of `core.PRIMITIVES`, or a torch op or `ref` that has no meaning but its own (`opaque`).

    `args`: slots, numbers, or None; `params` as `Algebra.primitive` has them. `dtype` and `shape` are of the result.
    `text`: an opaque step as Python, `{0}` being its first slot.
    """

    op: str
    args: tuple[Any, ...]
    params: tuple[Any, ...]
    dtype: str
    shape: tuple[int, ...]
    opaque: Callable[[Sequence[Any]], Tensor] | None = field(default=None, eq=False, repr=False)
    text: str = field(default="", eq=False, repr=False)
    span: Span | None = field(default=None, eq=False, repr=False)


@frozen
class Straight:
    """Steps over `inputs` (dtype, shape); `outputs` are slots, with their names (`qx`, `qx[1]` of a list)."""

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]

    def step(self, slot: int) -> Step | None:
        """The step that gives a slot; None of an input."""
        return None if slot < len(self.inputs) else self.steps[slot - len(self.inputs)]


class Meaning(Protocol):
    """What the steps of a program are read as. A value is whatever the meaning makes."""

    def input(self, slot: int, tensor: Tensor) -> Any:
        """The value of an input."""
        ...

    def step(self, slot: int, step: Step, args: Sequence[Any]) -> Any:
        """The value of a step; numbers and None among `args` as they stand in it."""
        ...


def walk(program: Straight, inputs: Sequence[Tensor], meaning: Meaning) -> list[Any]:
    """The value of every slot, in order."""
    values = [meaning.input(i, t) for i, t in enumerate(inputs)]
    for step in program.steps:
        args = [values[a.index] if isinstance(a, Slot) else a for a in step.args]
        values.append(meaning.step(len(values), step, args))
    return values


def results(program: Straight, values: Sequence[Any]) -> dict[str, Any]:
    """The outputs among the values of all slots, by name."""
    return {name: values[slot] for name, slot in program.outputs}


# ---- recording


@frozen(eq=False)
class Recorded:
    """A tensor and the slot that holds it."""

    slot: int
    tensor: Tensor


@define(eq=False)
class Recorder(Algebra):
    """The algebra that runs op by op and keeps the steps."""

    torch: Torch = field(factory=Torch)
    inputs: list[Tensor] = field(factory=list[Tensor])
    steps: list[Step] = field(factory=list[Step])
    values: list[Tensor] = field(factory=list[Tensor])
    known: dict[Any, Recorded] = field(factory=dict[Any, Recorded])

    def operand(self, given: Any) -> Any:
        """An operand: a tensor becomes an input, the same tensor the same one; lists go element by element."""
        if isinstance(given, list | tuple):
            return [self.operand(g) for g in given]
        if not isinstance(given, Tensor):
            return given
        key = ("input", id(given))
        if key not in self.known:
            self.known[key] = Recorded(len(self.inputs), given)
            self.inputs.append(given)
            self.values.append(given)
        return self.known[key]

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Recorded:
        """The steps of a primitive."""
        low = [a.tensor for a in args if isinstance(a, Recorded) and a.tensor.dtype in LOW]
        if op not in ROUNDED or not low:
            return self.add(op, args, params, term.span)
        wide = [self.cast(a, torch.float32, term.span) if isinstance(a, Recorded) else a for a in args]
        found = self.add(op, wide, params, term.span)
        given = [a.tensor for a in args if isinstance(a, Recorded)]
        rounded = torch.result_type(*given) if op in BINARY and len(given) == 2 else low[0].dtype
        return self.cast(found, rounded, term.span)

    def sum_of_ranks(self, parts: Sequence[Recorded], span: Span | None) -> Recorded:
        """The sum of what each rank has, one step; of one rank, what it has."""
        if len(parts) == 1:
            return parts[0]
        slots = tuple(Slot(p.slot) for p in parts)
        key = ("psum", slots)
        if key not in self.known:
            made = in_order([p.tensor for p in parts])
            self.known[key] = self._keep(Step("psum", slots, (), _name(made), tuple(made.shape), span=span), made)
        return self.known[key]

    def cast(self, value: Recorded, dtype: torch.dtype, span: Span | None) -> Recorded:
        """The value in a dtype, itself where it has it."""
        return value if value.tensor.dtype == dtype else self.add("to", [value], [Dtype(NAMES[dtype])], span)

    def add(self, op: str, args: Sequence[Any], params: Sequence[Any], span: Span | None) -> Recorded:
        """One step, or the equal one that is there."""
        if op == "to" and args[0].tensor.dtype == DTYPES[params[0].name]:
            return args[0]
        tensors = [a.tensor if isinstance(a, Recorded) else a for a in args]
        plain = tuple(_plain(p) for p in params)
        slots = tuple(Slot(a.slot) if isinstance(a, Recorded) else a for a in args)
        key = (op, tuple((type(a), a) for a in slots), plain)
        if key not in self.known:
            made = self.torch.primitive(op, tensors, params, Prim(op, ()))
            self.known[key] = self._keep(Step(op, slots, plain, _name(made), tuple(made.shape), span=span), made)
        return self.known[key]

    def _keep(self, step: Step, made: Tensor) -> Recorded:
        self.steps.append(step)
        self.values.append(made)
        return Recorded(len(self.values) - 1, made)

    def dtype(self, value: Any) -> str | None:
        """The short name of the dtype of a value."""
        return self.torch.dtype(value.tensor if isinstance(value, Recorded) else value)

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes of a value."""
        return self.torch.shape(value.tensor if isinstance(value, Recorded) else value)

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of numbers."""
        return self.torch.decide(op, left, right)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A fact about tensors."""
        return self.torch.predicate(name, tuple(_tensors(a) for a in args))

    def torch_call(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A torch op: the steps of one that a definition is written with; else one opaque step for each result."""
        known = STEPS_OF.get(op)
        if known is not None and not kwargs:
            made = known(self, *args)
            if made is not None:
                return [made], {}

        def call(tensors: Sequence[Any]) -> Any:
            given = iter(tensors)
            return self.torch.torch_call(op, _filled(list(args), given), _filled(dict(kwargs), given))

        found: list[Recorded] = []
        _collect([list(args), dict(kwargs)], found)
        returned, written = call([f.tensor for f in found])
        spelled = spelled_call(op, args, kwargs)
        return (
            [
                self._opaque(op, found, made, lambda ts, i=i: call(ts)[0][i], spelled(i if len(returned) > 1 else None))
                for i, made in enumerate(returned)
            ],
            {
                slot: self._opaque(op, found, made, lambda ts, s=slot: call(ts)[1][s], spelled(slot, written=True))
                for slot, made in written.items()
            },
        )

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of a `ref`, each an opaque step."""

        def call(tensors: Sequence[Any]) -> Sequence[Any]:
            return self.torch.reference(op, _filled(list(operands), iter(tensors)), attributes)

        found: list[Recorded] = []
        _collect(list(operands), found)

        def result(made: Any, at: Callable[[Sequence[Any]], Any]) -> Any:
            if isinstance(made, list | tuple):
                return [result(m, lambda ts, i=i: at(ts)[i]) for i, m in enumerate(made)]
            return self._opaque(op.name, found, made, at)

        return [result(m, lambda ts, i=i: call(ts)[i]) for i, m in enumerate(call([f.tensor for f in found]))]

    def _opaque(
        self, op: str, args: Sequence[Recorded], made: Any, call: Callable[[Sequence[Any]], Tensor], text: str = ""
    ) -> Any:
        if not isinstance(made, Tensor):
            return made
        slots = tuple(Slot(a.slot) for a in args)
        return self._keep(Step(op, slots, (), _name(made), tuple(made.shape), opaque=call, text=text), made)


def record(
    definition: Callable[[Recorder, Sequence[Any]], Mapping[str, Any]],
    operands: Sequence[Any],
    tensors: Torch | None = None,
) -> Recording:
    """The steps of `definition`, which gets the recorder as its algebra and the operands, and returns its results.

    `tensors`: what runs each step, plain torch if left out. Raises EvaluationError where the definition has no value
    for these operands.
    """
    recorder = Recorder(tensors or Torch())
    outputs = definition(recorder, [recorder.operand(o) for o in operands])
    named = [(name, value.slot) for name, value in by_element(outputs).items() if value is not None]
    inputs = tuple((_name(t), tuple(t.shape)) for t in recorder.inputs)
    offset = len(inputs)
    assert all(s < len(recorder.values) for _, s in named) and len(recorder.steps) + offset == len(recorder.values)
    return Recording(Straight(inputs, tuple(recorder.steps), tuple(named)), tuple(recorder.inputs), recorder.values)


def record_side(
    side: Callable[..., Mapping[str, Any]],
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    tensors: Torch | None = None,
) -> Recording:
    """The steps of a side of a claim (`expected` or `claimed`), as `record`. Raises what the side raises."""
    return record(lambda algebra, given: side(algebra, given, attributes), operands, tensors)


@frozen(eq=False)
class Recording:
    """A program, its inputs, and what each slot held when it was run op by op."""

    program: Straight
    inputs: tuple[Tensor, ...]
    values: list[Tensor]

    @property
    def results(self) -> dict[str, Tensor]:
        """The outputs, op by op."""
        return results(self.program, self.values)


def by_element(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results by name; those of a list are `name[0]`, `name[1]` and so on."""
    found: dict[str, Any] = {}
    for name, y in results.items():
        found |= {f"{name}[{i}]": e for i, e in enumerate(y)} if isinstance(y, list | tuple) else {name: y}
    return found


def _plain(param: Any) -> Any:
    return tuple(int(p) for p in param) if isinstance(param, list | tuple | torch.Size) else param


def _name(tensor: Tensor) -> str:
    return NAMES.get(tensor.dtype, str(tensor.dtype))


def _tensors(value: Any) -> Any:
    if isinstance(value, Recorded):
        return value.tensor
    return type(value)(_tensors(v) for v in value) if isinstance(value, list | tuple) else value


# ---- arguments of opaque calls: recorded values are collected, and put back as tensors, in one order


def _collect(argument: Any, found: list[Recorded]) -> None:
    if isinstance(argument, Recorded):
        found.append(argument)
    elif isinstance(argument, list | tuple):
        for a in argument:
            _collect(a, found)
    elif isinstance(argument, dict):
        _collect(list(argument.values()), found)
    elif isinstance(argument, Overwritten):
        _collect(argument.value, found)


def _filled(argument: Any, tensors: Any) -> Any:
    if isinstance(argument, Recorded):
        return next(tensors)
    if isinstance(argument, list | tuple):
        return type(argument)(_filled(a, tensors) for a in argument)
    if isinstance(argument, dict):
        return {k: _filled(v, tensors) for k, v in argument.items()}
    if isinstance(argument, Overwritten):
        return Overwritten(_filled(argument.value, tensors), argument.slot)
    return argument
