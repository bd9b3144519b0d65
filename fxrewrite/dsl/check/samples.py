"""`sample` clauses: inputs for the proof, for what the item has, from ranges that hold something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.signatures import check_attribute, plain, say
from fxrewrite.dsl.core import Attribute, OperandInfo, ResultInfo, Sample
from fxrewrite.dsl.dims import Star, names

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

DISTRIBUTIONS = {"normal": "mean, deviation", "uniform": "low, high", "log_uniform": "low, high"}


def check_samples(
    checker: Checker,
    samples: tuple[syntax.Sample, ...],
    item: str,
    operands: tuple[OperandInfo, ...],
    attributes: tuple[Attribute, ...],
    results: tuple[ResultInfo, ...] = (),
) -> tuple[Sample, ...]:
    """What the clauses say. RW202 where one is for nothing of the item, RW310 where it gives nothing that fits."""
    by_name = {a.name: a for a in attributes}
    tensors = {o.name for o in operands}
    sizes = {n for t in (*(o.type for o in operands), *(r.type for r in results)) for d in t.shape or ()
             for n in ({d.name} if isinstance(d, Star) else names(d))} - by_name.keys()  # fmt: skip
    seen: set[str] = set()
    found: list[Sample] = []
    for s in samples:
        place = checker.places.word(s.span, s.name)
        known = {n for n in tensors | by_name.keys() | sizes if "#" not in n}
        if s.name not in known:
            hint = closest(s.name, known) or f"one of {', '.join(sorted(known))}"
            raise Problem("RW202", f"`{s.name}` is no operand, attribute or dim of {item}", place, hint)
        if s.name in seen:
            raise Problem("RW208", f"`{s.name}` is sampled twice", place, "put all values into one set")
        seen.add(s.name)
        if isinstance(s.source, tuple):
            found.append(Sample(s.name, _values(s, s.source, by_name, sizes)))
        else:
            found.append(Sample(s.name, (), *_distribution(checker, s, s.source, s.name in sizes)))
    return tuple(found)


def _values(
    s: syntax.Sample, items: tuple[Any, ...], attributes: Mapping[str, Attribute], sizes: set[str]
) -> tuple[Any, ...]:
    for e in items:
        value = plain(e)
        attribute = attributes.get(s.name)
        if attribute is not None:
            check_attribute(attribute, value, e.span, "this sample")
        elif s.name in sizes and (type(value) is not int or value < 1):
            raise Problem("RW310", f"`{s.name}` is a size, not {say(value)}", e.span, "a size is 1 or more")
    return tuple(plain(e) for e in items)


def _distribution(checker: Checker, s: syntax.Sample, e: Any, size: bool) -> tuple[str, float, float]:
    name = e.func if isinstance(e, syntax.Call) else ""
    if name not in DISTRIBUTIONS:
        hint = closest(name, DISTRIBUTIONS) or "write `normal(0, 1)`, `uniform(-1, 1)` or `log_uniform(1e-3, 1)`"
        said = f"`{name}` is no distribution" if name else "this is no distribution"
        raise Problem("RW205", said, e.func_span or e.span if isinstance(e, syntax.Call) else e.span, hint)
    if size:
        place = checker.places.word(s.span, s.name)
        raise Problem("RW310", f"`{s.name}` is a size: it is drawn from a set", place, f"`{s.name} in {{64, 128}}`")
    if len(e.args) != 2 or e.kwargs or e.rest:
        message = f"{name} takes 2 numbers ({DISTRIBUTIONS[name]}), not {len(e.args) + len(e.kwargs)}"
        raise Problem("RW204", message, e.func_span or e.span, f"`{name}({DISTRIBUTIONS[name]})`")
    a, b = (_number(x) for x in e.args)
    if name == "normal" and b <= 0:
        raise Problem("RW310", "the deviation of a normal distribution is above 0", e.args[1].span, "`normal(0, 1)`")
    if name != "normal" and a >= b:
        raise Problem("RW310", f"the range from {a} to {b} holds nothing", e.span, "the lower bound comes first")
    if name == "log_uniform" and a <= 0:
        raise Problem("RW310", "a logarithmic range is above 0", e.args[0].span, "`log_uniform(1e-3, 1)`")
    return name, float(a), float(b)


def _number(e: Any) -> Any:
    value = plain(e)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem("RW310", f"{say(value)} is no number", e.span, "write a number: `1e-3`")
    return value
