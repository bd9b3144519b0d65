"""The twelve clauses of `docs/contract.md`: with each of them a right kernel passes and a wrong one is caught; without
it (`clause_switches.py`) the same test fails, in the direction that the clause is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from clause_switches import APPROXIMATED, FALSE_ALARM, LET_THROUGH, SWITCHES, switch_off
from doc_blocks import DOCS
from fxrewrite.verify import equal
from fxrewrite.verify.inputs import values
from fxrewrite.verify.interpret import Change, Kernel, Mutant, run
from fxrewrite.verify.judge import judge
from fxrewrite.verify.right_kernels import OTHER_FUNCTIONS, RIGHT, off_by
from fxrewrite.verify.straight import Recording, record
from straight_programs import LAST, Steps

Definition = Callable[..., dict[str, Any]]
INF, NAN = float("inf"), float("nan")


def defined(definition: Definition, *inputs: Tensor) -> Recording:
    """A definition on inputs; `definition` gets `Steps` and what stands for them."""
    return record(lambda algebra, operands: definition(Steps(algebra), *operands), list(inputs))


def one(step: Callable[..., Any], *inputs: Tensor) -> Recording:
    """A definition with one output, `y`."""
    return defined(lambda s, *xs: {"y": step(s, *xs)}, *inputs)


def right(recording: Recording, written: Mapping[str, Tensor] | Tensor) -> None:
    """What a right kernel wrote."""
    said = verdicts(recording, written)
    assert not said, f"{FALSE_ALARM}: {said}"


def wrong(recording: Recording, written: Mapping[str, Tensor] | Tensor) -> None:
    """What a wrong one wrote."""
    assert verdicts(recording, written), LET_THROUGH


def verdicts(recording: Recording, written: Mapping[str, Tensor] | Tensor) -> list[str]:
    """What the judge says against what was written; one tensor is `y`."""
    named = {"y": written} if isinstance(written, Tensor) else written
    found = judge(recording.program, recording.inputs, named)
    assert found.keys() == named.keys()
    return [str(v) for v in found.values() if not v.ok]


def kernel(recording: Recording, changes: dict[str, Change]) -> dict[str, Tensor]:
    """What a kernel writes that computes some primitives in another way."""
    return run(recording.program, recording.inputs, Kernel(changes))


def mutant(recording: Recording, op: str, k: int, change: Change) -> dict[str, Tensor]:
    """What a kernel writes with one step changed."""
    return run(recording.program, recording.inputs, Mutant(op, k, change))


def as_written(recording: Recording, name: str) -> dict[str, Tensor]:
    """What one of the right kernels writes."""
    return run(recording.program, recording.inputs, RIGHT[name](recording.program))


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


def drawn(kind: str, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return values(kind, shape, dtype, Generator().manual_seed(seed))


# ---- 1: points, -0 below +0, NaN besides


def test_clause_1_signed_zeros() -> None:
    negated = one(lambda s, x: s("neg", x), tensor(0.0, -0.0, 1.0))
    right(negated, tensor(-0.0, 0.0, -1.0))
    wrong(negated, 0.0 - tensor(0.0, -0.0, 1.0))


def test_clause_1_possible_nan() -> None:
    """Contracted, a * b - c is below 0 by less than its last bit; rounded it is 0."""
    a = tensor(1 + 2.0**-23)
    root = one(lambda s, a, c: s("sqrt", s("sub", c, s("mul", a, a))), a, a * a)
    right(root, tensor(0.0))
    right(root, tensor(NAN))
    wrong(root, tensor(1.0))


# ---- 2: + - * sqrt


def test_clause_2_hull() -> None:
    fused = one(lambda s, a, b, c: s("add", s("mul", a, b), c), *(drawn("normal", 64, seed=i) for i in range(3)))
    right(fused, as_written(fused, "eager"))
    right(fused, as_written(fused, "fma"))
    right(fused, as_written(fused, "all wide"))
    wrong(fused, torch.nextafter(as_written(fused, "eager")["y"], tensor(INF)))


def test_clause_2_exact_results() -> None:
    """A product that is halfway between two of bf16: halves go to even."""
    tie = one(lambda s, x: s.to(s("mul", x, 0.5), "bf16"), tensor(2 + 2.0**-7, 2 + 3 * 2.0**-7))
    right(tie, as_written(tie, "all wide"))
    wrong(tie, tensor(1 + 2.0**-7, 1 + 2.0**-7).bfloat16())


# ---- 3: / and fdiv


def test_clause_3_division() -> None:
    quotient = one(lambda s, x, y: s("div", x, y), drawn("normal", 256), drawn("normal", 256, seed=1))
    right(quotient, as_written(quotient, "fma"))
    wrong(quotient, kernel(quotient, {"div": lambda divide, x, y: x * (1 / y)}))


def test_clause_3_relaxed_division() -> None:
    quotient = one(lambda s, x, y: s("fdiv", x, y), drawn("normal", 256), drawn("normal", 256, seed=1))
    right(quotient, kernel(quotient, OTHER_FUNCTIONS))
    wrong(quotient, kernel(quotient, {"fdiv": lambda divide, x, y: divide(x, y) * (1 + 2.0**-20)}))


# ---- 4: what is approximated


@pytest.mark.parametrize("op", APPROXIMATED)
def test_clause_4_approximated(op: str) -> None:
    function = one(lambda s, x: s(op, x), drawn("normal", 256).abs() * 2 + 0.1)
    right(function, kernel(function, off_by(1)))
    right(function, kernel(function, OTHER_FUNCTIONS))
    wrong(function, kernel(function, {op: lambda f, x: f(x) * (1 + 2.0**-11)}))


def test_clause_4_flushed() -> None:
    """2^-130 has no normal number."""
    exponential = one(lambda s, x: s("exp", x), tensor(-90.0, -1.0))
    right(exponential, as_written(exponential, "eager"))
    right(exponential, tensor(0.0, torch.exp(tensor(-1.0)).item()))
    wrong(exponential, tensor(0.0, 0.0))


# ---- 5: sums


def test_clause_5_any_order() -> None:
    total = one(lambda s, x: s("sum", x, params=LAST), drawn("normal", 64, 128))
    for name in ("eager", "sum from the end", "sum pairwise", "sum butterfly", "sum in 32 lanes", "sum in f64"):
        right(total, as_written(total, name))
    wrong(total, kernel(total, {"sum": lambda add, x, *over: add(x[..., :-1], *over)}))


def test_clause_5_exact_sums() -> None:
    """Integers: 1e-5 more is more than there is."""
    mean = one(lambda s, x: s("mean", x, params=LAST), drawn("integers", 64, 128))
    right(mean, as_written(mean, "sum butterfly"))
    wrong(mean, as_written(mean, "eager")["y"] + 1e-6)


# ---- 6: var


def test_clause_6_variance() -> None:
    """mean(x^2) - mean(x)^2 loses bits where the mean is not 0."""
    spread = one(lambda s, x: s("var", x, params=LAST), drawn("normal", 256, 64) + 10)
    right(spread, as_written(spread, "var by Welford"))
    right(spread, as_written(spread, "sum pairwise"))
    wrong(spread, kernel(spread, {"var": lambda var, x, d, k: (x * x).mean(d, k) - x.mean(d, k) ** 2}))


def test_clause_6_error_of_the_mean() -> None:
    """Of equal numbers the variance is 0; with a mean that is two ulp off it is the square of that."""
    constant = one(lambda s, x: s("var", x, params=LAST), torch.full((1, 48), 1.7))
    right(constant, kernel(constant, {"var": lambda var, x, d, k: ((x - x.mean() * (1 + 2.0**-22)) ** 2).mean(d, k)}))
    wrong(constant, torch.full((1, 1), 1e-6))


def welford(x: Tensor) -> Tensor:
    """The mean of the last axis, updated term by term in f32."""
    mean = torch.zeros(x.shape[:-1])
    for k, term in enumerate(x.unbind(-1), 1):
        mean = mean + (term - mean) / k
    return mean[..., None]


def test_clause_6_mean_by_welford() -> None:
    """Rows of integers whose sum is 0: Welford's mean is not, and what was 0 is so small a number. Beside no variance
    a mean has no such excuse."""
    x = torch.randint(-9, 9, (64, 48), generator=torch.Generator().manual_seed(0)).float()
    x[:, -1] -= x.sum(-1)
    mean = welford(x)
    assert bool((mean != 0).any())

    def centred(s: Any, x: Any) -> Any:
        return s("sub", x, s("mean", x, params=LAST))

    moments = defined(lambda s, x: {"y": centred(s, x), "v": s("var", x, params=LAST)}, x)
    right(moments, {"y": x - mean})
    wrong(one(centred, x), x - mean)


# ---- 7: roundings


def rounded_exponential(divisor: float) -> Recording:
    """exp(x), rounded to bf16, by a number: on arguments of which the rounding may go either way."""
    x = drawn("normal", 1 << 17)
    exact = torch.exp(x.double())
    above = exact.float().bfloat16() != (exact * (1 + 2.0**-22)).float().bfloat16()
    below = exact.float().bfloat16() != (exact * (1 - 2.0**-22)).float().bfloat16()
    return one(lambda s, x: s("div", s.through(s("exp", x), "bf16"), divisor), x[above | below])


def test_clause_7_roundings() -> None:
    gate = one(lambda s, x, y: s.to(s("mul", s.through(s("mul", x, y), "bf16"), y), "bf16"),
               drawn("normal", 64, dtype=torch.bfloat16).float(), drawn("normal", 64, seed=1))  # fmt: skip
    right(gate, as_written(gate, "all wide"))
    wrong(gate, mutant(gate, "to", 0, lambda to, x, dtype: x))


def test_clause_7_two_ends() -> None:
    """Either neighbour, divided; a kernel that does not round gives what lies between."""
    quotient = rounded_exponential(3.0)
    assert len(quotient.inputs[0]) > 8
    right(quotient, kernel(quotient, off_by(1)))
    right(quotient, kernel(quotient, off_by(-1)))
    wrong(quotient, torch.exp(quotient.inputs[0]) / 3)


# ---- 8: overflow, conversions, zeros


def test_clause_8_overflow() -> None:
    total = one(lambda s, x: s("sum", x, params=LAST), tensor(3e38, 3e38, -3e38, 1.0)[None])
    right(total, tensor(3e38)[None])
    right(total, tensor(INF)[None])
    one_too_few = one(lambda s, x: s("sum", x, params=LAST), tensor(3e37, 3e37, -3e37, 1.0)[None])
    wrong(one_too_few, tensor(INF)[None])


def test_clause_8_saturation() -> None:
    code = one(lambda s, x: s.to(x, "e4m3fn"), tensor(1000.0, -INF, 1.0))
    right(code, tensor(448.0, -448.0, 1.0).to(torch.float8_e4m3fn))
    right(code, tensor(NAN, NAN, 1.0).to(torch.float8_e4m3fn))
    wrong(code, tensor(0.0, -448.0, 1.0).to(torch.float8_e4m3fn))


def test_clause_8_larger_zero() -> None:
    larger = one(lambda s, x, y: s("maximum", x, y), tensor(0.0, -0.0), tensor(-0.0, -0.0))
    right(larger, tensor(0.0, -0.0))
    right(larger, tensor(-0.0, -0.0))
    wrong(larger, tensor(0.0, 0.0))


def test_clause_8_nan_as_an_integer() -> None:
    whole = one(lambda s, x: s.to(x, "i32"), tensor(NAN, 2.5))
    right(whole, torch.tensor([0, 2], dtype=torch.int32))
    right(whole, torch.tensor([-(2**31), 2], dtype=torch.int32))
    wrong(whole, torch.tensor([0, 3], dtype=torch.int32))


# ---- 9: outputs in order


ROWS = 128


def quantized(shape: tuple[int, ...] = (ROWS, 1)) -> Recording:
    """The mean of a row as its scale, and the codes: a scale that has several right values."""

    def definition(s: Steps, x: Any) -> dict[str, Any]:
        scale = s("fdiv", s("mean", s("abs", x), params=LAST), 3.0)
        return {"q": s.code(s("div", x, scale), "e4m3fn"), "s": s("reshape", scale, params=(shape,))}

    return defined(definition, drawn("normal", ROWS, 512))


def with_scale(recording: Recording, scale: Tensor, other: Tensor) -> dict[str, Tensor]:
    """Codes by one scale beside another."""
    codes = (recording.inputs[0] / scale.reshape(-1, 1)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"q": codes, "s": other}


def two_scales(recording: Recording) -> tuple[Tensor, Tensor]:
    """The scale as torch has it, and one 32 ulp above; both are right."""
    scale = recording.results["s"]
    other = scale * (1 + 2.0**-18)
    assert not verdicts(recording, {"s": scale}) and not verdicts(recording, {"s": other})
    return scale, other


def test_clause_9_what_was_written() -> None:
    recording = quantized()
    scale, other = two_scales(recording)
    right(recording, with_scale(recording, other, other))
    wrong(recording, with_scale(recording, scale, other))


def test_clause_9_stored_otherwise() -> None:
    """The same with scales in one row."""
    recording = quantized((1, ROWS))
    scale, other = two_scales(recording)
    right(recording, with_scale(recording, other, other))
    wrong(recording, with_scale(recording, scale, other))


# ---- 10: no tolerated share


def test_clause_10() -> None:
    code = one(lambda s, x: s.to(x, "bf16"), drawn("normal", 100, 100))
    written = as_written(code, "all wide")["y"]
    right(code, written)
    one_wrong = written.clone()
    one_wrong[70, 70] *= 1.5
    wrong(code, one_wrong)


# ---- 11: the centre


def test_clause_11() -> None:
    """A product of 4096 terms: the sets are so wide that one whose sum of 128 was rounded to bf16 lies in them, too."""
    x, y = drawn("normal", 64, 4096, dtype=torch.bfloat16), drawn("normal", 4096, 64, dtype=torch.bfloat16, seed=1)
    product = one(lambda s, x, y: s.to(s("matmul", s.to(x, "f32"), s.to(y, "f32")), "bf16"), x, y)
    right(product, x @ y)
    right(product, (x.double() @ y.double()).float().bfloat16())
    first = (x[:, :128].float() @ y[:128].float()).bfloat16().float()
    wrong(product, (first + x[:, 128:].float() @ y[128:].float()).bfloat16())


# ---- 12: the definition is the reference


def test_clause_12() -> None:
    """Eager torch adds in its own order; Inductor by default leaves out the rounding between two ops."""
    norm = one(
        lambda s, x: s("mul", s("rsqrt", s("mean", s("mul", x, x), params=LAST)), s.through(x, "bf16")),
        drawn("normal", 64, 100),
    )
    for name in ("eager", "sum butterfly", "exp2, 1/sqrt, a*(1/b)"):
        said, _ = equal.compare(None, norm, as_written(norm, name))
        assert not said, f"{FALSE_ALARM}: {said}"
    said, _ = equal.compare(None, norm, mutant(norm, "to", 0, lambda to, x, dtype: x))
    assert said, LET_THROUGH


# ---- without a clause

Tests = Mapping[str, Callable[[], None]]


def off(monkeypatch: pytest.MonkeyPatch, clause: int, tests: Tests) -> None:
    """Each test of a clause passes, and without its part of the clause the judge errs as the switch says."""
    assert tests.keys() == {name for name, s in SWITCHES.items() if s.clause == clause}
    for name, test in tests.items():
        test()
        with monkeypatch.context() as patched, pytest.raises(AssertionError, match=SWITCHES[name].error):
            switch_off(patched, SWITCHES[name])
            test()


def test_clause_1_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 1, {"signed zeros": test_clause_1_signed_zeros, "possible nan": test_clause_1_possible_nan})


def test_clause_2_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 2, {"hull": test_clause_2_hull, "exact results": test_clause_2_exact_results})


def test_clause_3_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 3, {"division": test_clause_3_division, "relaxed division": test_clause_3_relaxed_division})


def test_clause_4_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 4, {**{op: partial(test_clause_4_approximated, op) for op in APPROXIMATED},
                         "flushed": test_clause_4_flushed})  # fmt: skip


def test_clause_5_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 5, {"any order": test_clause_5_any_order, "exact sums": test_clause_5_exact_sums})


def test_clause_6_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 6, {"variance": test_clause_6_variance, "error of the mean": test_clause_6_error_of_the_mean,
                         "mean by Welford": test_clause_6_mean_by_welford})  # fmt: skip


def test_clause_7_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 7, {"roundings": test_clause_7_roundings, "two ends": test_clause_7_two_ends})


def test_clause_8_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 8, {"overflow": test_clause_8_overflow, "saturation": test_clause_8_saturation,
                         "larger zero": test_clause_8_larger_zero,
                         "nan as an integer": test_clause_8_nan_as_an_integer})  # fmt: skip


def test_clause_9_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 9, {"what was written": test_clause_9_what_was_written,
                         "stored otherwise": test_clause_9_stored_otherwise})  # fmt: skip


def test_clause_10_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 10, {"one element": test_clause_10})


def test_clause_11_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 11, {"centre": test_clause_11})


def test_clause_12_off(monkeypatch: pytest.MonkeyPatch) -> None:
    off(monkeypatch, 12, {"the definition": test_clause_12})


def test_the_page_names_the_tests_of_each_clause() -> None:
    page = (DOCS / "contract.md").read_text()
    for name in (n for n in globals() if n.startswith("test_clause_")):
        assert f"`{name}`" in page, name
