"""The dtypes that the checker gives to results are those of torch, or an error where torch has none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Dtype
from fxrewrite.dsl.parse import parse
from fxrewrite.patterns.dtypes import DTYPES, NAMES

NAMED = ("bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "f32", "f64")
HALVES = {"bf16", "f16"}  # beside each other they need a cast in the language
UNARY = (
    "abs neg exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh erf ceil floor round relu"
    " sum mean var amax clone"
).split()


def inferred(definitions: dict[str, str]) -> dict[str, str | None]:
    """The dtype of each fusion, by name; None where it is refused with RW301."""
    file, wrong = parse("\n".join(f"fusion {n}{d}" for n, d in definitions.items()), "test.rw")
    assert not wrong
    program, found = packs.check_packs([file])
    assert {d.code for d in found} <= {"RW301", "RW401", "RW403"}  # nothing of ends and rivals matters here
    out: dict[str, str | None] = {}
    for name in definitions:
        op = program.ops.get(name)
        dtype = op.results[0].type.dtype if op is not None else None
        out[name] = dtype.name if isinstance(dtype, Dtype) else None
    return out


def of_torch(step: Callable[..., torch.Tensor], *operands: Any) -> str | None:
    """The dtype that torch gives; None where it refuses."""
    try:
        return NAMES[step(*operands).dtype]
    except (RuntimeError, NotImplementedError):
        return None


def ones(dtype: str, *shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=DTYPES[dtype])


@pytest.mark.parametrize("op", UNARY)
def test_of_one(op: str) -> None:
    found = inferred({f"f_{d}": f"(x: {d}[T, D]) = {op}(x)" for d in NAMED})
    assert found == {f"f_{d}": of_torch(getattr(torch, op), ones(d, 2, 2)) for d in NAMED}


def test_of_a_square() -> None:
    found = inferred({f"f_{d}": f"(x: {d}[T, D]) = square(x)" for d in NAMED})
    refused = {"f_bool": None}  # torch's is i64, and no product of two bools
    assert found == {f"f_{d}": of_torch(torch.square, ones(d, 2, 2)) for d in NAMED} | refused


STEPS: dict[str, Callable[..., torch.Tensor]] = {
    "x + y": torch.add,
    "x - y": torch.sub,
    "x * y": torch.mul,
    "x / y": torch.div,
    "maximum(x, y)": torch.maximum,
}


@pytest.mark.parametrize("text", STEPS)
@pytest.mark.parametrize("shape", ["[T, D]", "[]"])
def test_of_two(text: str, shape: str) -> None:
    pairs = [*itertools.product(NAMED, NAMED)]
    found = inferred({f"f_{a}_{b}": f"(x: {a}[T, D], y: {b}{shape}) = {text}" for a, b in pairs})
    for a, b in pairs:
        got = found[f"f_{a}_{b}"]
        truth = of_torch(STEPS[text], ones(a, 2, 2), ones(b, *((2, 2) if shape == "[T, D]" else ())))
        rounded = shape == "[]" and meeting(a, b, ()) != meeting(a, b, (2,))
        assert got == (None if {a, b} == HALVES or rounded else truth), (a, b)


def meeting(a: str, b: str, shape: tuple[int, ...]) -> str | None:
    """Where a tensor with axes and one of this shape meet: a 0-d one of no higher kind is rounded to the other."""
    return of_torch(torch.add, ones(a, 2), ones(b, *shape))


@pytest.mark.parametrize("number", ["2", "0.5"])
@pytest.mark.parametrize("text", ["x + {}", "{} - x", "x * {}", "x / {}", "{} / x", "clamp(x, {})", "clamp(x, 0, {})"])
def test_of_a_number(text: str, number: str) -> None:
    definition = text.format(number)
    found = inferred({f"f_{d}": f"(x: {d}[T, D]) = {definition}" for d in NAMED})
    truth = {f"f_{d}": of_torch(lambda x: eval(definition, {"x": x, "clamp": torch.clamp}), ones(d, 2)) for d in NAMED}
    assert found == truth


@pytest.mark.parametrize(("kind", "number"), [("int", 2), ("float", 0.5)])
def test_of_an_attribute(kind: str, number: float) -> None:
    found = inferred({f"f_{d}": f"(x: {d}[T, D]; a: {kind}) = x * a" for d in NAMED})
    assert found == {f"f_{d}": of_torch(torch.mul, ones(d, 2), number) for d in NAMED}
