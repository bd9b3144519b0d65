"""Mutants of implementations: a kernel that does one step of a definition wrong, simulated step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import field, frozen
from torch import Tensor

from fxrewrite.dsl.diagnostics import lines_of
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering import eager
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.mutation.faults import FIRST_COLUMNS, OUTPUTS, ROWS, Change, Fault, faults_of
from fxrewrite.verify.mutation.mutant import Mutant, numbered
from fxrewrite.verify.rank_sums import in_order
from fxrewrite.verify.straight import Recording, Slot, Step, Straight

Place = tuple[
    Any, ...
]  # what a step is known by whatever the attributes are: its op, where it is written, its number there


@frozen
class Broken:
    """Where a kernel is wrong: the step at `place`, or (None) what is made of the outputs."""

    place: Place | None
    change: Change = field(eq=False, repr=False)


def mutants_of_kernel(claim: Claim, recordings: Sequence[Recording]) -> Iterator[Mutant]:
    """Every mutant of a kernel for the reference of a claim, as far as these recordings go; `made` is a `Broken`.

    One recording is a choice of attributes: what only another one does is found there.
    """
    numbers: dict[Place, str] = {}
    counts: Counter[str] = Counter()
    known: set[tuple[Place, str]] = set()
    inexact = {place for r in recordings for place in _behind_slack(r.program)}
    for place, fault, step in (found for r in recordings for found in _step_faults(r)):
        if place not in numbers:
            counts[step.op] += 1
            numbers[place] = f"{step.op} {counts[step.op]}{_written(step.span, claim.program.sources)}"
        if (place, fault.what) not in known:
            known.add((place, fault.what))
            made = Broken(place, fault.change)
            span = step.span or claim.span
            proof = NO_TIE if fault.what == HALF_AWAY and place in inexact else ""
            yield Mutant("kernel", claim.name, fault.operator, numbers[place], fault.what, made, span=span, proof=proof)
    yield from _output_faults(claim, recordings)


def _written(span: Span | None, sources: Mapping[str, str]) -> str:
    """The text of a step, so that an argument about it outlives edits around it."""
    lines = lines_of(span, sources)
    if span is None or not lines:
        return ""
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return f" `{' '.join(' '.join(lines).split())}`"


def _step_faults(recording: Recording) -> Iterator[tuple[Place, Fault, Step]]:
    program = recording.program
    last = _only_moved(program)
    ranks = _of_other_ranks(program)
    for slot, place, step in placed(program):
        if slot in ranks:
            continue
        args = [recording.values[a.index] if isinstance(a, Slot) else a for a in step.args]
        for fault in faults_of(step, args):
            if not (slot in last and fault.what.endswith("skipped")):  # what is written has the dtype of the output
                yield place, fault, step


MOVES = frozenset("reshape permute expand clone slice cat aten.constant_pad_nd.default".split())
HALF_AWAY = "rounding half away from zero"
NO_TIE = "what is rounded has slack, so that both neighbours of a tie are admissible"
SLACK = frozenset("exp exp2 log log1p log2 rsqrt tanh erf sigmoid fdiv".split())
KEEPS = frozenset("add sub mul div neg abs reshape permute expand slice cat clone sqrt".split())


def _behind_slack(program: Straight) -> Iterator[Place]:
    """The roundings of what some approximate function gives, with nothing rounded between."""
    slack: set[int] = set()
    for slot, place, step in placed(program):
        behind = any(isinstance(a, Slot) and a.index in slack for a in step.args)
        if step.op in SLACK or (step.op in KEEPS and behind):
            slack.add(slot)
        if behind and is_rounding(step, program):
            yield place


def placed(program: Straight) -> Iterator[tuple[int, Place, Step]]:
    """Slot and place of every step."""
    seen: Counter[Any] = Counter()
    for slot, step in enumerate(program.steps, len(program.inputs)):
        key = (step.op, is_rounding(step, program), step.opaque is not None, _at(step))
        yield slot, (*key, seen[key]), step
        seen[key] += 1


def _at(step: Step) -> Any:
    return None if step.span is None else (step.span.file, step.span.line, step.span.column)


def is_rounding(step: Step, program: Straight) -> bool:
    """Is it a cast to fewer bits?"""
    if step.op != "to" or not isinstance(step.args[0], Slot):
        return False
    before = program.step(step.args[0].index)
    dtype = program.inputs[step.args[0].index][0] if before is None else before.dtype
    return dtype in ("f32", "f64") and step.dtype not in ("f32", "f64")


def _only_moved(program: Straight) -> set[int]:
    """The slots that nothing computes with: what is written is these values, in other places."""
    moved = {slot for _, slot in program.outputs}
    for slot in reversed(range(len(program.inputs) + len(program.steps))):
        users = [s for s in program.steps if any(isinstance(a, Slot) and a.index == slot for a in s.args)]
        if users and all(s.op in MOVES for s in users):
            moved.add(slot)
        elif users:
            moved.discard(slot)
    return moved


def _of_other_ranks(program: Straight) -> set[int]:
    """The steps of all ranks but the first: a kernel is wrong on each, and one is enough."""
    if not any(s.op == "psum" for s in program.steps) and not any("@" in name for name, _ in program.outputs):
        return set()
    first: dict[Any, int] = {}
    others: set[int] = set()
    for slot, step in enumerate(program.steps, len(program.inputs)):
        key = (step.op, step.span, step.dtype, step.shape, step.params)
        if first.setdefault(key, slot) != slot:
            others.add(slot)
    return others


def _output_faults(claim: Claim, recordings: Sequence[Recording]) -> Iterator[Mutant]:
    every = list(dict.fromkeys(n for r in recordings for n in r.results))
    names = [n for n in every if n.partition("@")[2] in ("", "0")]
    for name in names:
        shapes = [r.results[name].shape for r in recordings if name in r.results]
        narrow, one = (all(s[at : at + 1 or None] <= (1,) for s in shapes) for at in (-1, 0))
        for what, change in OUTPUTS.items():
            if (narrow and what == FIRST_COLUMNS) or (one and what in ROWS):
                continue
            yield Mutant("kernel", claim.name, "output", name, what, Broken(None, _on(name, change)), span=claim.span)
    for a, b in pairwise(names):
        pairs = [(r.results.get(a), r.results.get(b)) for r in recordings]
        if any(x is not None and y is not None and (x.dtype, x.shape) == (y.dtype, y.shape) for x, y in pairs):
            what = f"{a} and {b} exchanged"
            yield Mutant("kernel", claim.name, "output", a, what, Broken(None, _exchanged(a, b)), span=claim.span)


def _on(name: str, change: Any) -> Change:
    def whole(outputs: dict[str, Tensor]) -> Any:
        t = outputs.get(name)
        return outputs if t is None or not t.numel() or not t.ndim else {**outputs, name: change(t)}

    return whole


def _exchanged(a: str, b: str) -> Change:
    def whole(outputs: dict[str, Tensor]) -> Any:
        return {**outputs, a: outputs[b], b: outputs[a]} if a in outputs and b in outputs else outputs

    return whole


# ---- running


def broken_results(recording: Recording, broken: Broken) -> dict[str, Tensor] | None:
    """What a broken kernel writes; None where the program has no such step. What it raises is torch's own."""
    if broken.place is None:
        whole: Any = broken.change
        return whole(recording.results)
    slot = next((s for s, place, _ in placed(recording.program) if place == broken.place), None)
    if slot is None:
        return None
    values = _from(recording, slot, broken.change)
    wanted = recording.results
    return {n: values[s].to(wanted[n].dtype) for n, s in recording.program.outputs}


def _from(recording: Recording, place: int, change: Change) -> list[Any]:
    """The values of all slots when the step of one is changed: only what depends on it is computed again."""
    program, values = recording.program, list[Any](recording.values)
    offset, moved = len(program.inputs), {place}
    for slot in range(place, offset + len(program.steps)):
        step = program.steps[slot - offset]
        if slot != place and not any(isinstance(a, Slot) and a.index in moved for a in step.args):
            continue
        args = [values[a.index] if isinstance(a, Slot) else a for a in step.args]
        values[slot] = _computed(step, args) if slot != place else change(original(step), *args, *step.params)
        moved.add(slot)
    return values


def original(step: Step) -> Any:
    """What a step does, as a function of its arguments and parameters."""
    if step.opaque is not None:
        call = step.opaque
        return lambda *args: call(args)
    return (lambda *parts: in_order(parts)) if step.op == "psum" else eager.PRIMITIVES[step.op]


def _computed(step: Step, args: Sequence[Any]) -> Any:
    return original(step)(*args, *step.params)


__all__ = ["Broken", "broken_results", "mutants_of_kernel", "numbered"]
