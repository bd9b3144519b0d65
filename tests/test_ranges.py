"""What the checker refutes, no sizes meet; and the conditions that it must refute."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.conditions import ORDER
from fxrewrite.dsl.check.ranges import unmet
from fxrewrite.dsl.core import Apply, Attribute, Lit, Scalar, Size

D, T = (dims.name(n) for n in "DT")
SIZES = range(1, 25)


def compare(left: Any, op: str, right: Any) -> Scalar:
    return Apply(op, (Size(left), Lit(right) if isinstance(right, int | float) else Size(right)))


def over(op: str, left: dims.Dim, right: int) -> dims.Dim:
    return dims.combine(op, left, dims.constant(right))


@pytest.mark.parametrize(
    "conds",
    [
        (compare(D, "<", 0),),
        (compare(D, "==", 0),),
        (compare(D, "<", 0.5),),
        (compare(D, "==", 2.5),),
        (compare(over("*", D, 2), "==", 3),),
        (compare(over("//", D, 2), "==", 3), compare(D, "==", 8)),
        (compare(over("//", D, 16), ">=", 4), compare(D, "<=", 63)),
        (compare(over("%", D, 16), "==", 16),),
        (compare(over("%", D, 16), "==", 0), compare(D, "==", 8)),
        (compare(over("up", D, 128), "==", 128), compare(D, ">", 128)),
        (compare(D, "<", T), compare(T, "<=", D)),
        (compare(dims.combine("*", D, T), "<", 1),),
        (compare(T, ">", over("*", D, 2)), compare(D, ">=", 32), compare(T, "<", 64)),
        (Apply("or", (compare(D, "<", 1), compare(D, "==", 0))),),
        (Apply("not", (compare(D, ">=", 1),)),),
        (Apply("<", (Apply("rows", (Lit("x"),)), Lit(1))),),
    ],
    ids=str,
)
def test_refuted(conds: tuple[Scalar, ...]) -> None:
    assert unmet((compare(T, ">", 3), *conds), {}) == conds


def test_an_attribute_may_be_any_number_of_its_domain() -> None:
    n = dims.name("n")
    assert unmet((compare(n, "<", 0),), {"n": Attribute("n", "int")}) is None
    assert unmet((compare(n, ">", 128),), {"n": Attribute("n", "int", domain=(64, 128))}) is not None


def sums(of: st.SearchStrategy[dims.Dim]) -> st.SearchStrategy[dims.Dim]:
    pairs = st.tuples(st.sampled_from(["//", "%", "up"]), of, st.integers(1, 9)).map(lambda t: over(*t))
    added = st.tuples(of, of, st.integers(-3, 3)).map(lambda t: dims.add(*t))
    return pairs | added | st.tuples(of, of).map(lambda t: dims.combine("*", *t))


SUMS = st.recursive(st.sampled_from([D, T]) | st.integers(-9, 30).map(dims.constant), sums, max_leaves=4)
TESTS = st.builds(compare, SUMS, st.sampled_from(["==", *ORDER]), SUMS)
CONDITIONS = st.recursive(
    TESTS,
    lambda c: (
        st.builds(lambda x: Apply("not", (x,)), c)
        | st.builds(lambda op, x, y: Apply(op, (x, y)), st.sampled_from(["and", "or"]), c, c)
    ),
    max_leaves=3,
)


def holds(c: Any, sizes: dict[str, int]) -> bool:
    if c.op == "not":
        return not holds(c.args[0], sizes)
    if c.op in ("and", "or"):
        found = [holds(a, sizes) for a in c.args]
        return all(found) if c.op == "and" else any(found)
    left, right = (a.value if isinstance(a, Lit) else dims.evaluate(a.dim, sizes.__getitem__) for a in c.args)
    return left == right if c.op == "==" else ORDER[c.op](left, right)


@settings(max_examples=300, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=3))
def test_what_sizes_meet_is_not_refuted(conds: list[Scalar]) -> None:
    try:
        met = any(all(holds(c, {"D": d, "T": t}) for c in conds) for d, t in itertools.product(SIZES, repeat=2))
    except ZeroDivisionError:
        return
    if met:
        assert unmet(conds, {}) is None
