"""The clauses of the contract as switches: what each of them is in the judge, and what stands there without it.

    switch_off(monkeypatch, SWITCHES["two ends"])     # for one test; nothing in the product knows of this

A place is `module:name` below `fxrewrite.verify`, `module:Class.name`, or `module:TABLE[key]` for an entry of a table.
Without its clause a judge errs in one direction: it calls a right kernel wrong, or lets a wrong one pass.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import pytest
import torch
from attrs import evolve, frozen
from torch import Tensor

from fxrewrite.verify import intervals, reductions
from fxrewrite.verify.interpret import Eager, run
from fxrewrite.verify.primitives import TABLE, Primitive
from fxrewrite.verify.same import same_values
from fxrewrite.verify.sets import Set, lowest
from fxrewrite.verify.slack import Slack
from fxrewrite.verify.straight import Step, Straight
from fxrewrite.verify.verdicts import Verdict

PACKAGE = "fxrewrite.verify"
PLACE = re.compile(r"(?P<module>\w+):(?P<name>\w+)(?:\.(?P<member>\w+)|\[(?P<key>\w+)\])?")
FALSE_ALARM, LET_THROUGH = "a right kernel is called wrong", "a wrong kernel passes"
APPROXIMATED = ("exp", "exp2", "log", "log1p", "log2", "rsqrt", "tanh", "erf", "sigmoid")
NO_SLACK = Slack(fdiv=0, exp=0, exp_argument=0, exp2=0, log=0, log2=0, rsqrt=0, tanh=0, erf=0)


@frozen
class Switch:
    """A part of a clause. `off`: from what stands in a place, what stands there without the clause."""

    clause: int
    says: str
    place: str
    off: Callable[[Any], Any]
    error: Literal["a right kernel is called wrong", "a wrong kernel passes"]


def switch_off(monkeypatch: pytest.MonkeyPatch, switch: Switch) -> None:
    """Replace what a switch names, in every module that has it by name. A place that is not there is an error."""
    place = PLACE.fullmatch(switch.place)
    assert place is not None, switch.place
    found = getattr(import_module(f"{PACKAGE}.{place['module']}"), place["name"])
    if place["key"] is not None:
        monkeypatch.setitem(found, place["key"], switch.off(found[place["key"]]))
    elif place["member"] is not None:
        monkeypatch.setattr(found, place["member"], switch.off(getattr(found, place["member"])))
    else:
        instead = switch.off(found)
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGE) and getattr(module, place["name"], None) is found:
                monkeypatch.setattr(module, place["name"], instead)


# ---- what stands in the place of a clause


def _with_slack(slack: Slack) -> Callable[[Primitive], Primitive]:
    def off(primitive: Primitive) -> Primitive:
        return evolve(primitive, on_sets=lambda args, step, given: primitive.on_sets(args, step, slack))

    return off


def _as(name: str) -> Callable[[Primitive], Primitive]:
    """The meaning of another primitive."""
    return lambda primitive: evolve(primitive, on_sets=TABLE[name].on_sets)


def _any_zero(contains: Any) -> Any:
    return lambda x, values: contains(x, values) | contains(x, -values) & (values == 0)


def _no_nan(within: Any) -> Any:
    return lambda x, least: evolve(within(x, least), nan=x.nan)


def _rounded_only(hull: Any) -> Any:
    def off(lo: Tensor, hi: Tensor, nan: Tensor | None = None, ends: Tensor | None = None) -> Set:
        return hull(lo.float().double(), hi.float().double(), nan, ends)

    return off


def _half_an_ulp(hull: Any) -> Any:
    """Half an ulp around everything, what is exact too."""

    def off(lo: Tensor, hi: Tensor, nan: Tensor | None = None, ends: Tensor | None = None) -> Set:
        return Set(*intervals.widen(lo, hi, 0.5), "f32", nan, ends=ends)

    return off


def _step_by_step(primitive: Primitive) -> Primitive:
    """mean((x - mean x)^2), one step after the other."""

    def on_sets(args: Sequence[Any], step: Step, slack: Slack) -> Set:
        (x,), (dims, keepdim) = args, step.params
        deviation = intervals.subtract(x, reductions.mean(x, dims, True, slack))
        return reductions.mean(intervals.multiply(deviation, deviation), dims, keepdim, slack)

    return evolve(primitive, on_sets=on_sets)


def _without_the_mean(error: Any) -> Any:
    return lambda most, size, spread, count: error(most, torch.zeros_like(size), spread, count)


def _or_not_at_all(cast: Any) -> Any:
    """A rounding, or none."""

    def off(x: Set, dtype: str) -> Set:
        found = cast(x, dtype)
        return Set(lowest([found.lo, x.lo]), -lowest([-found.hi, -x.hi]), found.dtype, found.nan)

    return off


def _lower_end(primitive: Primitive) -> Primitive:
    """Of what is either, the lower one."""

    def on_sets(args: Sequence[Any], step: Step, slack: Slack) -> Set:
        found = primitive.on_sets(args, step, slack)
        return Set(found.lo, found.lo, found.dtype, found.nan, found.grid)

    return evolve(primitive, on_sets=on_sets)


def _first_answer(to_integer: Any) -> Any:
    """What does not fit is what a CPU makes of it."""

    def off(x: Set, dtype: str) -> Set:
        found = to_integer(x, dtype)
        return Set(found.lo, found.lo, found.dtype, found.nan, found.grid)

    return off


def _as_it_was(judged: Any) -> Any:
    """What was written is compared and does not stand for the set."""

    def off(self: Any, slot: int, found: Set) -> Set:
        judged(self, slot, found)
        return found

    return off


def _a_share(ok: Any) -> Any:
    """One element in a thousand may be wrong."""
    return property(lambda self: not self.refused and self.wrong <= self.elements / 1000)


def _by_bits(judge: Any) -> Any:
    """What was written is held against eager torch."""

    def off(program: Straight, inputs: Sequence[Tensor], written: Mapping[str, Tensor]) -> dict[str, Verdict]:
        eager = run(program, inputs, Eager())
        alike = {name: same_values(eager[name], t) for name, t in written.items()}
        return {n: Verdict(n, t.numel(), 0, refused="" if alike[n] else "other bits") for n, t in written.items()}

    return off


SWITCHES = {
    "signed zeros": Switch(1, "-0 lies below +0", "sets:contains", _any_zero, LET_THROUGH),
    "possible nan": Switch(1, "NaN may be possible besides", "functions:within", _no_nan, FALSE_ALARM),
    "hull": Switch(2, "a kernel may contract, or keep more", "intervals:hull", _rounded_only, FALSE_ALARM),
    "exact results": Switch(2, "what is exact stays one value", "intervals:hull", _half_an_ulp, LET_THROUGH),
    "division": Switch(3, "a multiplication by the reciprocal is another definition", "primitives:TABLE[div]",
                       _as("fdiv"), LET_THROUGH),
    "relaxed division": Switch(3, "`fdiv` may be approximate", "primitives:TABLE[fdiv]", _as("div"), FALSE_ALARM),
    **{
        op: Switch(4, f"`{op}` is approximated", f"primitives:TABLE[{op}]", _with_slack(NO_SLACK), FALSE_ALARM)
        for op in APPROXIMATED
    },
    "flushed": Switch(4, "below the normal numbers `exp` may be 0", "functions:FLUSHED", lambda least: 0.0,
                      FALSE_ALARM),
    "any order": Switch(5, "a sum may be taken in any order", "slack:Slack.terms", lambda terms: lambda self, n: 0.0,
                        FALSE_ALARM),
    "exact sums": Switch(5, "nothing where every order is exact", "reductions:is_exact",
                         lambda exact: lambda magnitude, bit: torch.zeros_like(magnitude, dtype=torch.bool),
                         LET_THROUGH),
    "variance": Switch(6, "`var` is a primitive of its own", "primitives:TABLE[var]", _step_by_step,
                       LET_THROUGH),
    "error of the mean": Switch(6, "an error of the mean enters squared", "reductions:_error_of_variance",
                                _without_the_mean, FALSE_ALARM),
    "mean by Welford": Switch(6, "the mean may be that of Welford's algorithm", "judge:Sets._slack",
                              lambda slack: lambda sets, step: sets.slack, FALSE_ALARM),
    "roundings": Switch(7, "no rounding may be left out", "casts:cast", _or_not_at_all, LET_THROUGH),
    "two ends": Switch(7, "two neighbours stay exactly two", "sets:two_valued", lambda two: lambda x: None,
                       LET_THROUGH),
    "overflow": Switch(8, "what overflows in the middle of a sum is outside", "reductions:_beyond",
                       lambda beyond: lambda lo, hi, nan, size: (lo, hi, nan), FALSE_ALARM),
    "saturation": Switch(8, "conversions to FP8 differ beyond its largest value", "casts:_beyond",
                         lambda beyond: lambda x, lo, hi, nan, top: (lo, hi, nan), FALSE_ALARM),
    "larger zero": Switch(8, "of -0 and +0 the larger is either", "primitives:TABLE[maximum]", _lower_end,
                          FALSE_ALARM),
    "nan as an integer": Switch(8, "NaN as an integer is any value", "casts:_to_integer", _first_answer, FALSE_ALARM),
    "what was written": Switch(9, "what was written stands for the set", "judge:Sets._judged", _as_it_was,
                               LET_THROUGH),
    "stored otherwise": Switch(9, "also where it is stored in another shape", "origins:_can_be_undone",
                               lambda can: lambda program, step: False, LET_THROUGH),
    "one element": Switch(10, "one wrong element is a wrong kernel", "verdicts:Verdict.ok", _a_share, LET_THROUGH),
    "centre": Switch(11, "behind long sums few may differ from the centre", "centre:applies",
                     lambda applies: lambda x, several, slack: False, LET_THROUGH),
    "the definition": Switch(12, "the definition is the reference, not eager code", "equal:judge", _by_bits,
                             FALSE_ALARM),
}  # fmt: skip
