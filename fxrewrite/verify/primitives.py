"""What each primitive means on sets: how, with which slack, and when it is exact. The table of `docs/contract.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen

from fxrewrite.dsl.core import PRIMITIVES
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering import eager, packing
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify import functions, intervals, movement, rank_sums, reductions
from fxrewrite.verify.casts import cast
from fxrewrite.verify.floats import INTEGERS, rounded
from fxrewrite.verify.sets import INTEGER, Set, collapse, highest, lowest, map_bounds, number, two_valued
from fxrewrite.verify.slack import Slack
from fxrewrite.verify.straight import Step


class NoMeaning(Exception):
    """A step that sets cannot follow: `op`, its place in the text, and why."""

    def __init__(self, op: str, span: Span | None = None, why: str = "no meaning on sets"):
        super().__init__(f"`{op}`: {why}")
        self.op, self.span, self.why = op, span, why


EXACT = 2.0**53  # up to here f64 holds every integer
Arguments = Sequence[Any]  # sets, numbers, None
OnSets = Callable[[Arguments, Step, Slack], Set]


@frozen
class Primitive:
    """A primitive of the language on sets. `slack` and `exact` are for a reader."""

    name: str
    on_sets: OnSets
    slack: str
    exact: str = ""


def _operands(args: Arguments, step: Step) -> list[Set]:
    """The operands of an arithmetic step, numbers in the dtype of the tensor beside them."""
    like = next(a.dtype for a in args if isinstance(a, Set))
    found = [
        a if isinstance(a, Set) else number(float(a), like if step.dtype in INTEGERS else step.dtype) for a in args
    ]
    if step.dtype == "f32":
        return [cast(x, "f32") if x.is_integer else x for x in found]
    return found


def _arithmetic(f: Callable[[Set, Set], Set], whole: Callable[[Any, Any], Any] | None = None) -> OnSets:
    """A step in f32, or exact on integers."""

    def step_(args: Arguments, step: Step, slack: Slack) -> Set:
        a, b = _operands(args, step)
        if step.dtype == "f32":
            return f(a, b)
        if step.dtype in INTEGERS and whole is not None:
            return _on_integers(whole, a, b, step.dtype)
        raise NoMeaning(step.op, step.span, f"arithmetic in {step.dtype} has no meaning on sets")

    return step_


def _on_integers(f: Callable[[Any, Any], Any], a: Set, b: Set, dtype: str) -> Set:
    """Of two values the result as torch has it, wrapped; else the hull of the corners, and any value where they do not
    fit. What f64 may not hold exactly gives any value."""
    least, most = INTEGERS[dtype]
    if a.lo is a.hi and b.lo is b.hi:
        lo = hi = f(a.lo.to(torch.int64), b.lo.to(torch.int64)).to(DTYPES[dtype]).to(a.lo.dtype)
        inside = torch.ones_like(lo, dtype=torch.bool)
    else:
        corners = [f(x, y) + 0.0 for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        lo, hi = lowest(corners), highest(corners)
        inside = (lo >= least) & (hi <= most)
    for x in (a.lo, a.hi, b.lo, b.hi):
        inside = inside & (x.abs() <= EXACT)
    return _anything_unless(inside, lo, hi, dtype)


def _anything_unless(inside: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor, dtype: str) -> Set:
    """Integers between bounds where these hold, elsewhere all of the dtype."""
    least, most = INTEGERS[dtype]
    if bool(inside.all()):
        return collapse(Set(lo, hi, dtype, grid=INTEGER))
    return collapse(
        Set(torch.where(inside, lo, float(least)), torch.where(inside, hi, float(most)), dtype, grid=INTEGER)
    )


def _sign_changed(f: Callable[[Set], Set]) -> OnSets:
    """abs or neg: an integer without an opposite, such as the least, may become any."""

    def step_(args: Arguments, step: Step, slack: Slack) -> Set:
        x, made = args[0], f(args[0])
        if not x.is_integer:
            return made
        least, most = INTEGERS[step.dtype]
        inside = (x.lo > least) | (least == 0)
        return _anything_unless(inside & (made.lo >= least) & (made.hi <= most), made.lo, made.hi, step.dtype)

    return step_


def _in_f32(f: Callable[[Set, Slack], Set]) -> OnSets:
    """A function that is computed in f32."""

    def step_(args: Arguments, step: Step, slack: Slack) -> Set:
        if step.dtype != "f32":
            raise NoMeaning(step.op, step.span, f"arithmetic in {step.dtype} has no meaning on sets")
        x = args[0]
        return f(cast(x, "f32") if x.is_integer else x, slack)

    return step_


def _sigmoid(x: Set, slack: Slack) -> Set:
    bottom = intervals.add(functions.exponential(intervals.negate(x), slack.exp, slack.exp_argument), number(1, "f32"))
    found = intervals.divide_relaxed(number(1, "f32"), bottom, slack.fdiv)
    return intervals.hull(found.lo.clamp(0.0, 1.0), found.hi.clamp(0.0, 1.0), found.nan)


def _log(f: Callable[[torch.Tensor], torch.Tensor], least: float) -> OnSets:
    return _in_f32(lambda x, slack: functions.monotone(functions.within(x, least), f, slack.log))


def _extreme(f: Callable[[Set, Set], Set]) -> OnSets:
    def step_(args: Arguments, step: Step, slack: Slack) -> Set:
        like = next(a.dtype for a in args if isinstance(a, Set))
        return f(*[a if isinstance(a, Set) else number(float(a), like) for a in args])

    return step_


def _reduction(f: Callable[..., Set]) -> OnSets:
    def step_(args: Arguments, step: Step, slack: Slack) -> Set:
        if step.dtype != "f32":
            raise NoMeaning(step.op, step.span, f"a reduction in {step.dtype} has no meaning on sets")
        return f(args[0], *step.params, slack)

    return step_


def _moves(args: Arguments, step: Step, slack: Slack) -> Set:
    return movement.move(step.op, args[0], step.params)


def _join(args: Arguments, step: Step, slack: Slack) -> Set:
    return movement.joined(args, lambda parts: eager.PRIMITIVES[step.op](*parts, *step.params), step.dtype)


def _round_e2m1(args: Arguments, step: Step, slack: Slack) -> Set:
    """NaN is 6, and so is what is larger."""
    x = args[0]
    two = two_valued(x)
    lo, hi = map_bounds(x, lambda v: rounded(v.clamp(-packing.E2M1_MAX, packing.E2M1_MAX), "e2m1"))
    lo, hi = (v.nan_to_num(packing.E2M1_MAX) for v in (lo, hi))
    if x.nan is None:
        return collapse(Set(lo, lo if x.lo is x.hi else hi, step.dtype, grid="e2m1", ends=two))
    hi = torch.where(x.nan, packing.E2M1_MAX, hi)
    return collapse(Set(lo, hi, step.dtype, grid="e2m1", ends=None if two is None else two & ~x.nan))


def _alone(args: Arguments, step: Step, slack: Slack) -> Set:
    """A built-in over the ranks of a group of one; values move as torch moves them."""
    return movement.move(step.op, args[0], step.params)


def _over_ranks(args: Arguments, step: Step, slack: Slack) -> Set:
    """The sum of what each rank has; with a group among its parameters, that of one rank."""
    if step.params and getattr(step.params[-1], "size", 1) != 1:
        raise NoMeaning(step.op, step.span, "a sum over several ranks has no meaning in one process")
    return args[0] if step.params else rank_sums.total(args, step.dtype)


def _whole(f: Callable[[torch.Tensor], torch.Tensor]) -> OnSets:
    return lambda args, step, slack: functions.whole(args[0], f)


HULL = "hull of the exact result and its rounding to f32"
TABLE: dict[str, Primitive] = {
    p.name: p
    for p in [
        Primitive("add", _arithmetic(intervals.add, torch.add), HULL, "one value where f32 holds the sum; integers"),
        Primitive("sub", _arithmetic(intervals.subtract, torch.sub), HULL, "as add"),
        Primitive("mul", _arithmetic(intervals.multiply, torch.mul), HULL, "as add"),
        Primitive("div", _arithmetic(intervals.divide), "none: one IEEE division", "always"),
        Primitive(
            "fdiv",
            lambda args, step, slack: _arithmetic(lambda a, b: intervals.divide_relaxed(a, b, slack.fdiv))(
                args, step, slack
            ),
            f"{HULL}, and 2 ulp",
        ),
        Primitive("reciprocal", _in_f32(lambda x, s: intervals.divide(number(1, "f32"), x)), "none: 1 / x", "always"),
        Primitive("sqrt", _in_f32(lambda x, s: functions.square_root(x)), HULL, "one value where f32 holds the root"),
        Primitive("rsqrt", _in_f32(lambda x, s: functions.reciprocal_root(x, s.rsqrt)), "4 ulp"),
        Primitive(
            "exp",
            _in_f32(lambda x, s: functions.exponential(x, s.exp, s.exp_argument)),
            "4 ulp and 1.5 * |x| * 2^-24 of the value; below 2^-126 it may be 0",
        ),
        Primitive("exp2", _in_f32(lambda x, s: functions.exponential2(x, s.exp2)), "2 ulp; below 2^-126 it may be 0",
                  "an integer"),
        Primitive("log", _log(torch.log, 0.0), "4 ulp", "x = 1"),
        Primitive("log1p", _log(torch.log1p, -1.0), "4 ulp", "x = 0"),
        Primitive("log2", _in_f32(lambda x, s: functions.logarithm2(x, s.log2)), "2 ulp", "a power of two"),
        Primitive("tanh", _in_f32(lambda x, s: functions.monotone(x, torch.tanh, s.tanh, -1, 1)), "4 ulp", "x = 0"),
        Primitive("erf", _in_f32(lambda x, s: functions.monotone(x, torch.erf, s.erf, -1, 1)), "4 ulp", "x = 0"),
        Primitive("sigmoid", _in_f32(_sigmoid), "that of fdiv(1, exp(-x) + 1)"),
        Primitive("abs", _sign_changed(functions.absolute), "none", "always"),
        Primitive("neg", _sign_changed(intervals.negate), "none", "always"),
        Primitive("ceil", _whole(torch.ceil), "none", "always; a set across an integer gives exactly two"),
        Primitive("floor", _whole(torch.floor), "none", "always"),
        Primitive("round", _whole(torch.round), "none: halves to even", "always"),
        Primitive("maximum", _extreme(functions.maximum), "none; of -0 and +0 either", "always"),
        Primitive("minimum", _extreme(functions.minimum), "none; of -0 and +0 either", "always"),
        Primitive("clamp", lambda args, step, slack: functions.clamp(*args), "none; NaN stays NaN", "always"),
        Primitive("amax", lambda args, step, slack: reductions.largest(args[0], *step.params), "none", "always"),
        Primitive(
            "sum", _reduction(reductions.total), "c(n) * 2^-24 * sum of |terms|, c(n) = min(n, 56 + n/8)",
            "sum of |terms| <= 2^24 times the lowest bit of a term",
        ),
        Primitive("mean", _reduction(reductions.mean), "that of sum; 1 ulp more if n is no power of two", "as sum"),
        Primitive(
            "var", _reduction(reductions.variance),
            "(c(n) + 6) * 2^-24 * var, the squared error of the mean, 2^-23 * mean|x| * mean|x - mean|", "n = 1",
        ),
        Primitive(
            "matmul",
            lambda args, step, slack: reductions.product(args[0], args[1], slack),
            "c(n) * 2^-24 * |x| @ |y|", "|x| @ |y| <= 2^24 times the lowest bits of the row and the column",
        ),
        Primitive("to", lambda args, step, slack: cast(args[0], step.dtype), "none: nearest, ties to even", "always"),
        *(Primitive(op, _moves, "none", "always") for op in movement.MOVES),
        *(Primitive(op, _join, "none", "always") for op in ("cat", "slice_scatter")),
        Primitive("round_e2m1", _round_e2m1, "none: nearest, ties to even, at most 6", "always"),
        *(
            Primitive(op, lambda args, step, slack: movement.pack(args[0], step.op, step.dtype), "none", "always")
            for op in ("pack2", "pack4")
        ),
        Primitive("swizzle", lambda args, step, slack: movement.swizzle(args[0]), "none", "always"),
        Primitive("psum", _over_ranks, "any order; partial sums may be rounded to the dtype", "all of them fit it"),
        *(Primitive(op, _alone, "a group of one rank", "always") for op in ("pshard", "pconcat")),
    ]
}  # fmt: skip
assert set(TABLE) <= set(PRIMITIVES)
