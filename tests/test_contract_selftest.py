"""No right kernel is called wrong: random programs and the ops of the vocabulary under many ways to compute them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fxrewrite.dsl.core import OpDef, Program
from fxrewrite.dsl.evaluate import EvaluationError, evaluate
from fxrewrite.dsl.packs import load
from fxrewrite.verify.inputs import KINDS, mixed
from fxrewrite.verify.interpret import run
from fxrewrite.verify.judge import NoMeaning, judge
from fxrewrite.verify.right_kernels import RIGHT, by_coin
from fxrewrite.verify.straight import Recording, record
from op_samples import attribute_sets, dtypes_of, has_meaning, operands
from straight_programs import hostile, random_program

SELF_TEST = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def alarms(recording: Recording, names: list[str], coins: tuple[int, ...] = ()) -> Iterator[str]:
    """What the judge says against right kernels."""
    program, inputs = recording.program, recording.inputs
    kernels = {name: RIGHT[name] for name in names} | {f"by coin {seed}": by_coin(seed) for seed in coins}
    for name, kernel in kernels.items():
        try:
            verdicts = judge(program, inputs, run(program, inputs, kernel(program)))
        except NoMeaning:  # a torch op above a step that may round in two ways
            return
        yield from (f"{name}: {v}" for v in verdicts.values() if not v.ok)


def no_alarm_in_a_random_program(seed: int, length: int, kinds: tuple[str, str], width: int) -> None:
    recording = random_program(seed, length, hostile(kinds, (2, width), seed))
    assert not list(alarms(recording, list(RIGHT), (seed, seed + 1)))


PROGRAMS = given(
    st.integers(0, 1 << 30),
    st.integers(1, 9),
    st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS))),
    st.sampled_from([1, 7, 64]),
)
test_random_programs = settings(SELF_TEST, max_examples=80)(PROGRAMS(no_alarm_in_a_random_program))
test_many_random_programs = pytest.mark.slow(
    settings(SELF_TEST, max_examples=700)(PROGRAMS(no_alarm_in_a_random_program))
)


# ---- the vocabulary


@pytest.fixture(scope="module")
def program() -> Program:
    return load()


def recordings(program: Program, op: OpDef, most: int) -> Iterator[Recording]:
    """Some definitions of an op on hostile operands: attribute values in turn, and the dtypes that it may have."""
    names = [r.name for r in op.results]
    for i, (attributes, dtype) in enumerate(zip(attribute_sets(op, {}), dtypes_of(op) * most)):
        if i == most:
            return
        generator = torch.Generator().manual_seed(i)
        given_ = [_hostile(x, generator) for x in operands(op, dtype, seed=i, rows=6)]
        try:
            yield record(lambda a, xs, at=attributes: dict(zip(names, evaluate(program, op, xs, at, a))), given_)
        except EvaluationError:
            continue


def _hostile(x: Any, generator: torch.Generator) -> Any:
    if isinstance(x, list):
        return [_hostile(v, generator) for v in x]
    if not isinstance(x, torch.Tensor) or x.ndim < 2 or x.dtype not in (torch.bfloat16, torch.float16):
        return x
    return mixed(tuple(x.shape), x.dtype, generator)


def names_of_ops() -> list[str]:
    program = load()
    return sorted(op.name for op in program.ops.values() if has_meaning(program, op))


QUICK = ["eager", "sum butterfly", "exp2, 1/sqrt, a*(1/b)", "+1 ulp", "fma", "all wide"]


def test_each_op_admits_right_kernels(program: Program) -> None:
    found = {
        f"{name}: {said}"
        for name in names_of_ops()
        for recording in recordings(program, program.ops[name], 1)
        for said in alarms(recording, QUICK)
    }
    assert not found


@pytest.mark.slow
def test_each_op_admits_every_right_kernel(program: Program) -> None:
    found = {
        f"{name}: {said}"
        for name in names_of_ops()
        for recording in recordings(program, program.ops[name], 3)
        for said in alarms(recording, list(RIGHT), (1, 2))
    }
    assert not found
