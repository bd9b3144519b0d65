"""What every emitted file begins with: its text is copied there, so it imports torch and nothing of this package."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import (
    Match,
    PatternExpr,
    PatternMatcherPass,
    register_graph_pattern,
    stable_topological_sort,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten, prims = torch.ops.aten, torch.ops.prims


@dataclass(frozen=True)
class Pattern:
    """One spelling of the left side of a rule.

    `build(order)` gives the expression, for each order of `orders`: `01` says that the
    operands of its second commutative op change places. `fits(captured)`: what a match
    binds beside its captures, None where a rank or a size is another one. `dtypes`: the
    rows of dtypes that operands and captured dtypes may have. `given`: the attributes
    and operands that the spelling itself says. `put` calls the ops of the right side.
    """

    build: Callable[[str], PatternExpr]
    orders: list[str]
    fits: Callable[[dict[str, Any]], dict[str, int] | None]
    dtypes: list[dict[str, torch.dtype]]
    given: dict[str, Any]
    put: Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """A rule and its place, with the names of its operands and attributes."""

    name: str
    place: str
    operands: list[str]
    attributes: list[str]
    patterns: list[Pattern]


RULES: list[Rule] = []


def register(
    pass_dict: Any,
    replace: Callable[..., None] | None = None,
    rules: Sequence[Rule] | None = None,
) -> None:
    """Register every pattern of `rules` (all of this file) in a pass.

    `replace(rule, pattern, match, **captured)` edits the graph: `put_in` unless given.
    """
    for rule in RULES if rules is None else rules:
        for pattern in rule.patterns:
            for order in pattern.orders:
                register_graph_pattern(
                    pattern.build(order),
                    extra_check=functools.partial(holds_there, pattern),
                    pass_dict=pass_dict,
                )(functools.partial(replace or put_in, rule, pattern))


class PlainPass(CustomGraphPass):
    """Every rule of this file, for one of Inductor's post-grad hooks."""

    def __init__(self) -> None:
        self.patterns = PatternMatcherPass(pass_name="fxrewrite_plain")
        register(self.patterns)

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Rewrite a graph in place."""
        if self.patterns.apply(graph):
            stable_topological_sort(graph)

    def uuid(self) -> Any:
        """This file."""
        return get_hash_for_files((__file__,))


def make_pass() -> PlainPass:
    """A pass for `torch._inductor.config.post_grad_custom_pre_pass`."""
    return PlainPass()


def put_in(rule: Rule, pattern: Pattern, match: Match, **captured: Any) -> None:
    """Put the right side of a rule into the place of a match."""
    names = [n for n in rule.operands if n in captured]
    given = dict(pattern.given)
    given |= {n: captured[n] for n in rule.attributes if n in captured}
    given |= bindings(pattern, match) or {}

    def right_side(*tensors: torch.Tensor) -> Any:
        found = pattern.put(**dict(zip(names, tensors, strict=True)), **given)
        return list(found) if isinstance(found, tuple) else found

    match.replace_by_example(right_side, [captured[n] for n in names])


def holds_there(pattern: Pattern, match: Match) -> bool:
    """Are dtypes, ranks and sizes of a match those of the rule?"""
    return bindings(pattern, match) is not None


def bindings(pattern: Pattern, match: Match) -> dict[str, int] | None:
    """What a match binds beside its captures; None where it does not fit."""
    k = {n: value_of(v) for n, v in match.kwargs.items()}
    have = {n: getattr(v, "dtype", v) for n, v in k.items()}
    if any(all(have[n] is t for n, t in row.items()) for row in pattern.dtypes):
        return pattern.fits(k)
    return None


def value_of(x: Any) -> Any:
    """What a node computes: a fake tensor, a size; a list of them."""
    if isinstance(x, list | tuple):
        return [value_of(i) for i in x]
    return x.meta.get("val") if isinstance(x, torch.fx.Node) else x


def result(found: Any, i: int) -> Any:
    """A result of an op that may return one or several."""
    return found[i] if isinstance(found, tuple | list) else found


def either(swapped: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands in their order, or in the other."""
    return (b, a) if swapped == "1" else (a, b)


def every(*conditions: bool) -> bool:
    """Do all of them hold?"""
    return all(conditions)


def bound(conditions: Sequence[bool], **names: Any) -> dict[str, int] | None:
    """`names`, where all conditions hold and each name is a number."""
    fit = all(conditions) and all(type(n) is int for n in names.values())
    return names if fit else None


def holds(condition: Any) -> bool:
    """Is it true for every size that the graph may run on?"""
    return condition is True or bool(statically_known_true(condition))


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Are two lists of sizes equal?"""
    return len(a) == len(b) and all(holds(m == n) for m, n in zip(a, b, strict=True))


def one(tensor: torch.Tensor) -> bool:
    """Is it a tensor of one element?"""
    return all(type(n) is int and n == 1 for n in tensor.shape)


def number(x: Any) -> bool:
    """Is it a number that the graph states?"""
    return type(x) in (int, float)
