"""Every shipped rule on random shapes, dtypes, strides, attributes and values.

The left side is written down primitive by primitive, as the definitions of its ops say, and traced. The rule fires if
the results are laid out as the fused op lays them out; the graph before and after, run op by op, are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, note, settings
from torch import Tensor

from capture import make_fx_graph
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, DtypeVar, OperandInfo, Program, RuleDef
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.evaluate import bind, evaluate_terms
from fxrewrite.lowering.eager import DTYPES, Torch
from fxrewrite.verify.written import is_written
from graph_checks import rewrite_checked, rewrite_pass

PROGRAM: Program = rewrite_pass().engine.program
ACTIVE = {r.full_name: r for r in rewrite_pass().engine.active.values()}
RULES = {  # the others need a call of an op that graphs do not spell out: tests/test_adopted.py
    n: r for n, r in ACTIVE.items() if all(is_written(PROGRAM, PROGRAM.ops[c.op]) for c in calls_of(r.right))
}
PLAIN = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "fdiv": torch.div}
PLAIN |= {"sigmoid": torch.sigmoid}
HOSTILE = (0.0, -0.0, 1e-7, 6e-5, 448.0, 464.0, 3e4, torch.inf, -torch.inf, torch.nan)


class Spelled(Torch):
    """Primitives as a model author writes them: a number beside a 16-bit tensor is not widened by hand."""

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Any) -> Tensor:
        return PLAIN[op](*args) if op in PLAIN else super().primitive(op, args, params, term)


@frozen
class Example:
    """What a rule's left side is applied to."""

    operands: list[Any]
    attributes: dict[str, Any]


# ---- drawing


@st.composite
def examples(draw: Any, rule: RuleDef) -> Example:
    attributes = {a.name: draw(attribute(a)) for a in rule.attributes}
    group = attributes.get("G", 1)
    width = (
        group * draw(st.sampled_from((1, 2, 3))) if "G" in attributes else draw(st.sampled_from((1, 2, 6, 33, 64, 128)))
    )
    if "_mx" in rule.name:
        width = 32 * draw(st.sampled_from((1, 2, 3)))
    if attributes.get("vs") is not None:
        attributes["vs"] = min(attributes["vs"], width - 1) or None
    if attributes.get("narrow"):
        attributes["ub"] = None
    rank = 1 if any(d.name == "T" for o in rule.operands for d in _tail(o) if not d.number) else draw(st.integers(1, 3))
    lead = draw(st.lists(st.sampled_from((0, 1, 2, 3, 5)), min_size=rank, max_size=rank))
    if "tensor" in rule.name:  # there is no maximum of nothing
        lead = [max(n, 1) for n in lead]
    low = draw(st.sampled_from(("bf16", "f16")))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    operands = [draw(operand(o, attributes, low, lead, width, generator)) for o in rule.operands]
    named = {o.name: i for i, o in enumerate(rule.operands)}
    if "layer_norm" in rule.name and operands[named["w"]] is None:
        operands[named["b"]] = None  # no equation adds without a weight
    elif "layer_norm" in rule.name and operands[named["b"]] is not None:
        operands[named["b"]] = operands[named["b"]].to(operands[named["w"]].dtype)
    return Example(operands, {n: v for n, v in attributes.items() if n != "ub"})


def _tail(o: OperandInfo) -> list[Any]:
    return [d for d in o.type.shape or () if not isinstance(d, Star)]


def attribute(a: Attribute) -> st.SearchStrategy[Any]:
    named: dict[str, st.SearchStrategy[Any]] = {
        "eps": st.sampled_from((1e-6, 1e-5, 0.0, 1.0)) | st.floats(1e-8, 1e-3),
        "smin": st.sampled_from((0.0, 1e-12, 4.359654017857143e-6, 0.01)),
        "qeps": st.sampled_from((1e-10, 1e-5, 0.5)),
        "G": st.sampled_from((4, 16, 64)),
        "vs": st.none() | st.integers(1, 64),
        "a": st.sampled_from((1.702, 1.0)),
        "lim": st.sampled_from((7.0, 0.5)),
        "L": st.just("row"),  # primitives have no other layout
    }
    if a.name in named:
        return named[a.name]
    if a.domain is not None:
        return st.sampled_from(a.domain)
    assert a.type == "bool" and a.default is not NO_DEFAULT, f"say what values {a.name} has"
    return st.booleans()


@st.composite
def operand(
    draw: Any, o: OperandInfo, attributes: dict[str, Any], low: str, lead: list[int], width: int, generator: Any
) -> Any:
    if o.optional and (o.name in attributes or draw(st.booleans())):
        return None
    if o.star:
        return [_scale(generator) for _ in range(draw(st.integers(2, 4)))]
    shape = o.type.shape or ()
    if len(shape) == 1 and not isinstance(shape[0], Star) and shape[0].number == 1:
        return _scale(generator)
    own = low if not _is_real(o) else draw(st.sampled_from((low, "f32")))
    wide = width * (2 if "2*D" in str(o.type) else 1)
    if len(shape) == 1 and not isinstance(shape[0], Star):
        return torch.randn(wide, generator=generator).to(DTYPES[own])
    return laid_out(draw, filled(draw, (*lead, wide), generator).to(DTYPES[own]))


def _is_real(o: OperandInfo) -> bool:
    return isinstance(o.type.dtype, DtypeVar) and "f32" in o.type.dtype.members


def _scale(generator: Any) -> Tensor:
    return torch.rand(1, generator=generator) + 0.01


def filled(draw: Any, shape: tuple[int, ...], generator: Any) -> Tensor:
    """Random numbers of a random size, with some hostile ones."""
    x = torch.randn(shape, generator=generator) * draw(st.sampled_from((1.0, 1e-3, 300.0)))
    if x.numel():
        for value in draw(st.lists(st.sampled_from(HOSTILE), max_size=4)):
            x.view(-1)[draw(st.integers(0, x.numel() - 1))] = value
    return x


def laid_out(draw: Any, x: Tensor) -> Tensor:
    """The same values with other strides."""
    how = draw(st.sampled_from(("plain", "plain", "rows of more", "columns of more", "transposed", "column-major")))
    note(f"{list(x.shape)} {how}")
    if how == "rows of more":
        parent = x.new_zeros((2 * x.shape[0] + 1, *x.shape[1:]))
        parent[1::2] = x
        return parent[1::2]
    if how == "columns of more":
        parent = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1] + 1))
        parent[..., 1 : x.shape[-1] + 1] = x
        return parent[..., 1 : x.shape[-1] + 1]
    if how == "transposed" and x.ndim > 2:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    return x.transpose(0, -1).contiguous().transpose(0, -1) if how == "column-major" else x


# ---- the property


def left_side(rule: RuleDef, example: Example) -> Any:
    """The left side as a function of the tensors among the operands: its outputs, then the values that it keeps."""
    like = evolve(
        next(iter(PROGRAM.ops.values())),
        operands=rule.operands,
        attributes=rule.attributes,
        requires=rule.guards,
        equations=(),
    )
    kept = tuple(term for name, term in rule.named if name in rule.kept)

    def fn(*tensors: Tensor) -> list[Any]:
        given = iter(tensors)
        operands = [
            None if o is None else [next(given) for _ in o] if isinstance(o, list) else next(given)
            for o in example.operands
        ]
        bindings = bind(PROGRAM, like, operands, example.attributes, Spelled())
        values = evaluate_terms((*rule.left, *kept), bindings)
        return [x for v in values for x in (v if isinstance(v, list) else [v])]

    return fn


def check(rule: RuleDef, example: Example) -> None:
    note(f"{example.attributes}")
    tensors = [t for o in example.operands if o is not None for t in (o if isinstance(o, list) else [o])]
    gm = make_fx_graph(left_side(rule, example), tensors)
    (output,) = gm.graph.find_nodes(op="output")
    kept = len(rule.kept)
    replaced = [n.meta["val"] for n in output.args[0][: len(output.args[0]) - kept]]
    done = rewrite_checked(gm)
    if all(map(is_row_major, replaced)):
        assert done.fired == {rule.name: 1}, done.log.report(rule.full_name)
    else:
        assert rule.name not in done.fired
        assert any(e.reason == "strides" for e in done.log.missed(rule.full_name))


def is_row_major(t: Tensor) -> bool:
    """Is the tensor laid out as a new one would be, where its axes are longer than 1?"""
    plain = torch.empty(t.shape, device="meta").stride()
    return all(a == b for n, a, b in zip(t.shape, t.stride(), plain, strict=True) if n > 1)


quiet = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=True
)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_fires_and_nothing_moves(name: str) -> None:
    settings(quiet, max_examples=12)(given(examples(RULES[name]))(lambda example: check(RULES[name], example)))()


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_rule_fires_and_nothing_moves_often(name: str) -> None:
    settings(quiet, max_examples=36)(given(examples(RULES[name]))(lambda example: check(RULES[name], example)))()


def test_every_rule_is_here() -> None:
    assert len(ACTIVE) == len([r for r in PROGRAM.rules if r.stage == "fuse"]) > 40
    assert {n.partition(".")[2].rpartition("_")[2] for n in ACTIVE.keys() - RULES.keys()} == {"nvfp4", "mxfp4"}
    assert Dtype("e4m3fnuz") in PROGRAM.rules[0].attributes[-1].domain  # type: ignore[operator]
