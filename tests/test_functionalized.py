"""Mutable ops as `torch.compile` holds them, v1 and v2, whose written arguments are parts of one base."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.fx import Graph, GraphModule

import capture
import vllm_stubs
from functional_graphs import VERSIONS, functional, random
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.functionalized import places, strided_place
from fxrewrite.patterns.values import Table, Value
from graph_checks import rewrite_checked, rewrite_pass

vllm_stubs.declare()
custom = torch.ops._C
relu = torch.relu
T, DH = 6, 64
NQ, NK = 4 * DH, 2 * DH
EPS = 1e-6


POS, CS, W = torch.arange(T), random(32, DH), random(DH)


def any_length(fn: Callable[..., Any], args: Sequence[Any], v2: bool) -> GraphModule:
    """`fn` as Inductor makes it, with a symbolic number of tokens."""
    for a in args:
        for axis in range(0 if a is CS or a is W else 1, a.ndim):
            torch._dynamo.mark_static(a, axis)
    with inductor_config.patch(enable_auto_functionalized_v2=v2):
        (gm,) = capture.post_grad_graphs(fn, args, dynamic=True)
    assert any(isinstance(s, torch.SymInt) for n in gm.graph.nodes for s in getattr(n.meta.get("val"), "shape", ()))
    return gm


@cache
def turning(text: str) -> RewritePass:
    """The pass of a pack that is this file."""
    return rewrite_pass((text,))


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> RewritePass:
    """A rule above `rope` whose results are contiguous whatever the operands are."""
    path: Path = tmp_path_factory.mktemp("packs") / "turning.rw"
    path.write_text(
        "pack turning\n"
        "fusion turned(pos, q, k, cs) = a, b\n"
        "  where (q2, k2) = rope(pos, q, k, cs), a = relu(q2), b = relu(k2)\n"
    )
    return turning(str(path))


def rope(q: Tensor, k: Tensor | None, pos: Tensor, cs: Tensor) -> None:
    custom.rotary_embedding(pos, q, k, DH, cs, True)


def parts(x: Tensor) -> tuple[Tensor, ...]:
    return x.split([NQ, NK, NK], -1)


# ---- rope on parts of one projection

Program = Callable[[Tensor, Tensor, Tensor], Any]  # (qkv, pos, cs)


def on_split(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    q, k, v = parts(x * 2)
    rope(q, k, pos, cs)
    return relu(q), relu(k), v + 1


def on_slices(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """k lies before q, and v is read in two pieces."""
    x = x * 2
    rope(x[:, NK : NK + NQ], x[:, :NK], pos, cs)
    return relu(x[:, NK : NK + NQ]), relu(x[:, :NK]), x[:, NQ + NK : NQ + NK + 32] + 1, x[:, -32:] + 1


def old_content(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """What was there before is read afterwards."""
    x = x * 2
    before = x.clone()
    q, k, _ = parts(x)
    rope(q, k, pos, cs)
    return relu(q), relu(k), before + 1


def of_rows(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """Both are rows of one buffer."""
    x = x.repeat(2, 1) * 2
    rope(x[:T], x[T:], pos, cs)
    return relu(x[:T]), relu(x[T:])


def of_two_axes(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """q and k are corners of one buffer."""
    x = x.repeat(2, 1) * 2
    rope(x[:T, :NQ], x[T:, NQ : NQ + NK], pos, cs)
    return relu(x[:T, :NQ]), relu(x[T:, NQ : NQ + NK]), x[:T, NQ:] + 1


def whole_but_viewed(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """Each is all of its own base, in another shape."""
    q, k = ((x[:, :n] * 2).view(T, -1, DH).cos() for n in (NQ, NK))
    q, k = q.view(T, NQ), k.view(T, NK)
    rope(q, k, pos, cs)
    return relu(q), relu(k)


def on_views(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """Each part is several axes of its base, joined: v2 reads back in other axes than it wrote in."""
    x = x.view(T, 8, DH) * 2
    q, k = x[:, :4].flatten(1), x[:, 4:6].flatten(1)
    rope(q, k, pos, cs)
    return relu(q), relu(k)


def of_selected(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """q and k are one of three on an axis that they do not have."""
    x = torch.stack([x[:, :NQ]] * 3, 1) * 2
    rope(x[:, 0], x[:, 2], pos, cs)
    return relu(x[:, 0]), relu(x[:, 2]), x[:, 1] + 1


FIRES: dict[str, Program] = {
    f.__name__: f
    for f in (on_split, on_slices, old_content, of_rows, of_two_axes, whole_but_viewed, on_views, of_selected)
}


def rewritten(fn: Program, v2: bool, turned: RewritePass) -> tuple[dict[str, int], str]:
    gm = functional(fn, (random(T, NQ + 2 * NK), POS, CS), v2)
    assert f"auto_functionalized{'_v2' if v2 else ''}](" in str(gm.graph)
    return rewrite_checked(gm, turned).fired, str(gm.graph)


@VERSIONS
@pytest.mark.parametrize("name", FIRES)
def test_rope_on_parts(name: str, v2: bool, turned: RewritePass) -> None:
    """The rule fires, what comes out is equal bit for bit, and nothing of the call is left."""
    fired, graph = rewritten(FIRES[name], v2, turned)
    assert fired == {"turned": 1}
    assert "auto_functionalized" not in graph and "slice_scatter" not in graph


@VERSIONS
def test_parts_of_any_number_of_tokens(v2: bool, turned: RewritePass) -> None:
    gm = any_length(on_split, (random(T, NQ + 2 * NK), POS, CS), v2)
    assert rewrite_checked(gm, turned).fired == {"turned": 1}
    assert "auto_functionalized" not in str(gm.graph)


# ---- near twins


def read_whole(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    x = x * 2
    q, k, _ = parts(x)
    rope(q, k, pos, cs)
    return relu(q), relu(k), x + 1


def of_an_input(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """The caller's tensor is written: who holds it reads all of it."""
    q, k, v = parts(x)
    rope(q, k, pos, cs)
    return relu(q), relu(k), v + 1


def read_across(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """A slice has some of k."""
    x = x * 2
    q, k, _ = parts(x)
    rope(q, k, pos, cs)
    return relu(q), relu(k), x[:, NQ + 64 : NQ + NK + 64] + 1


def v_returned(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """v leaves as it is, in memory that it shares with nothing else."""
    q, k, v = parts(x * 2)
    rope(q, k, pos, cs)
    return relu(q), relu(k), v


def overlapping(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    x = x * 2
    q, k = x[:, :NQ], x[:, NQ - DH : NQ + DH]
    rope(q, k, pos, cs)
    return relu(q), relu(k)


def twice(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """k is written again before it is read."""
    q, k, _ = parts(x * 2)
    rope(q, k, pos, cs)
    rope(k, None, pos, cs)
    return relu(q), relu(k)


def over_an_axis(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """q ends in the middle of a row of the base, k begins there."""
    x = x.view(T, 4, 2 * DH) * 2
    q, k = x.flatten(1)[:, : 3 * DH], x.flatten(1)[:, 3 * DH : 5 * DH]
    rope(q, k, pos, cs)
    return relu(q), relu(k)


STAYS: dict[str, Program] = {
    f.__name__: f for f in (read_whole, of_an_input, read_across, v_returned, overlapping, twice)
}


@VERSIONS
@pytest.mark.parametrize("name", STAYS)
def test_near_twins_stay(name: str, v2: bool, turned: RewritePass) -> None:
    """And the graph is as it was, whatever was tried."""
    assert rewritten(STAYS[name], v2, turned)[0] == {}


def test_a_part_across_the_rows_of_its_base_stays(turned: RewritePass) -> None:
    """No range of each axis says what v2 wrote; v1 has the part as it is."""
    assert rewritten(over_an_axis, True, turned)[0] == {}
    assert rewritten(over_an_axis, False, turned)[0] == {"turned": 1}


@VERSIONS
def test_what_an_op_wrote_in_between_is_read(v2: bool, turned: RewritePass) -> None:
    """The rule takes k as the first op left it."""

    def fn(x: Tensor, pos: Tensor, cs: Tensor) -> Any:
        q, k, v = parts(x * 2)
        rope(k, None, pos, cs)
        rope(q, k, pos, cs)
        return relu(q), relu(k), v + 1

    fired, graph = rewritten(fn, v2, turned)
    assert fired == {"turned": 1}
    assert graph.count("auto_functionalized") and graph.index("auto_functionalized") < graph.index("turned")


# ---- the engine's packs


def head_norm(t: Tensor, w: Tensor) -> Tensor:
    h = t.reshape(t.shape[0], -1, DH)
    wide = h.float()
    return ((wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS)).bfloat16() * w).reshape(t.shape)


def normed(x: Tensor, w: Tensor, pos: Tensor, cs: Tensor) -> Any:
    q, k, v = parts(x)
    q, k = head_norm(q, w), head_norm(k, w)
    rope(q, k, pos, cs)
    return q * 2, k * 2, v * 2


def normed_written(x: Tensor, w: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """Another op writes k between norm and rope."""
    q, k, v = parts(x)
    q, k = head_norm(q, w), head_norm(k, w)
    rope(k, None, pos, cs)
    rope(q, k, pos, cs)
    return q * 2, k * 2, v * 2


def normed_overlapping(x: Tensor, w: Tensor, pos: Tensor, cs: Tensor) -> Any:
    q, k, v = x[:, :NQ], x[:, NQ - DH : NQ + DH], x[:, NQ + DH :]
    q, k = head_norm(q, w), head_norm(k, w)
    rope(q, k, pos, cs)
    return q * 2, k * 2, v * 2


def normed_read(x: Tensor, w: Tensor, pos: Tensor, cs: Tensor) -> Any:
    """What the norm made is read beside what rope wrote over it."""
    q, k, v = parts(x)
    q, k = head_norm(q, w), head_norm(k, w)
    before = q.clone()
    rope(q, k, pos, cs)
    return q * 2, k * 2, v * 2, before + 1


QK_NORM: dict[Any, dict[str, int]] = {
    normed: {"qk_norm_rope": 1}, normed_written: {}, normed_overlapping: {}, normed_read: {},
}  # fmt: skip


@VERSIONS
@pytest.mark.parametrize("fn", QK_NORM, ids=lambda f: f.__name__)
def test_qk_norm_rope(fn: Any, v2: bool) -> None:
    gm = functional(fn, (random(T, NQ + 2 * NK), W, POS, CS), v2)
    assert rewrite_checked(gm, rewrite_pass(("qk_norm_rope",))).fired == QK_NORM[fn]
    assert ("auto_functionalized" in str(gm.graph)) is (fn is not normed)


@VERSIONS
def test_qk_norm_rope_of_any_number_of_tokens(v2: bool) -> None:
    gm = any_length(normed, (random(T, NQ + 2 * NK), W, POS, CS), v2)
    assert rewrite_checked(gm, rewrite_pass(("qk_norm_rope",))).fired == {"qk_norm_rope": 1}


def static_quant(x: Tensor, s: Tensor) -> Tensor:
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    custom.static_scaled_fp8_quant(q, x.contiguous(), s)
    return q


@VERSIONS
@pytest.mark.parametrize("swapped", [False, True], ids=["x, r", "r, x"])
def test_add_norm_on_halves_of_one_buffer(v2: bool, swapped: bool) -> None:
    def fn(x: Tensor, w: Tensor, s: Tensor) -> Any:
        both = x.cos()
        x, r = both.chunk(2, 0)
        x, r = (r, x) if swapped else (x, r)
        custom.fused_add_rms_norm(x, r, w, EPS)
        return static_quant(x, s), r + 1

    gm = functional(fn, (random(2 * T, DH), W, torch.tensor([0.05])), v2)
    assert rewrite_checked(gm, rewrite_pass(("norm_quant",))).fired == {"add_rms_norm_fp8_static": 1}
    assert "fused_add_rms_norm" not in str(gm.graph)


@VERSIONS
def test_a_part_of_a_buffer_that_holds_nothing_is_fresh(v2: bool) -> None:
    def fn(x: Tensor, w: Tensor, s: Tensor) -> Any:
        out = torch.empty(2 * T, DH, dtype=x.dtype)
        custom.rms_norm(out[:T], x, w, EPS)
        return static_quant(out[:T], s)

    gm = functional(fn, (random(T, DH), W, torch.tensor([0.05])), v2)
    assert rewrite_checked(gm, rewrite_pass(("norm_quant",))).fired == {"rms_norm_fp8_static": 1}


def test_arguments_that_are_none_or_lists() -> None:
    library = torch.library.Library("fxr_functionalized", "FRAGMENT")
    try:
        library.define("second(Tensor(a!)? x, Tensor(b!) y) -> ()")
        library.impl("second", lambda x, y: None, "CompositeExplicitAutograd")
        library.define("every(Tensor(a!)[] xs) -> ()")
        library.impl("every", lambda xs: None, "CompositeExplicitAutograd")
        ops = torch.ops.fxr_functionalized

        def fn(x: Tensor) -> Any:
            y, z = x + 1, x + 2
            ops.second(None, y)
            ops.every([z])
            return y + 1, z + 1

        for v2 in (True, False):
            gm = functional(fn, (random(4),), v2)
            table = Table()
            read = {n: read_node(table, n) for n in gm.graph.nodes}
            (last,) = (n for n in gm.graph.nodes if n.op == "output")
            y, z = (read[n].args[0] for n in last.args[0])
            assert y.op == "fxr_functionalized.second#y" and y.args[0] is None
            assert "#" not in z.op
    finally:
        library._destroy()


# ---- values of parts


def scattered(t: Table, n: Any = 16) -> tuple[Value, Value, Value]:
    x, p = (t.fresh("input", (), (k,), torch.float32, (4, s)) for k, s in (("x", n), ("p", 4)))
    return x, p, t.slice_scatter(x, p, -1, 4, 8, 1)


def test_slices_of_a_scatter() -> None:
    t = Table()
    x, p, y = scattered(t)
    assert t.slice(y, -1, 4, 8, 1, (4, 4)) is p
    for a, b in ((0, 4), (8, 12), (8, None), (2, 4)):
        assert t.slice(y, -1, a, b, 1, (4, 0)) is t.slice(x, -1, a, b, 1, (4, 0))
    for a, b, step in ((3, 5, 1), (5, 7, 1), (0, None, 2), (4, 8, 2)):
        assert t.slice(y, -1, a, b, step, (4, 0)).args[0] is y
    assert t.slice(y, -2, 0, 2, 1, (2, 16)).args[0] is y


def test_scatters_of_scatters() -> None:
    t = Table()
    x, p, y = scattered(t)
    other = t.fresh("input", (), ("o",), torch.float32, (4, 4))
    assert t.slice_scatter(y, other, -1, 4, 8, 1) is t.slice_scatter(x, other, -1, 4, 8, 1)
    assert t.slice_scatter(x, t.slice(x, -1, 4, 8, 1, (4, 4)), -1, 4, 8, 1) is x
    assert t.slice_scatter(x, y, -1, 0, 16, 1) is y
    assert t.slice_scatter(y, p, -1, 4, 8, 1) is y


def test_ranges_of_symbolic_sizes() -> None:
    t = Table()
    s, u = sympy.Symbol("s", integer=True, positive=True), sympy.Symbol("u", integer=True)
    x, _, y = scattered(t, s)
    assert t.slice(y, -1, 8, s, 1, (4, s - 8)) is t.slice(x, -1, 8, None, 1, (4, s - 8))
    assert t.slice(y, -1, s + 8, None, 1, (4, 0)).args[0] is x
    for a, b in ((s, None), (0, u), (u, 4), (8, -1), (-4, None)):
        assert t.slice(y, -1, a, b, 1, (4, 1)).args[0] is y, (a, b)


# ---- where a view lies in its base


class Eager:
    """The part of a `Table` that a place asks for, on real tensors."""

    def __init__(self, of_node: dict[Any, Tensor]):
        self.of_node = of_node

    def slice(self, x: Tensor, axis: int, start: int, stop: int, step: int, shape: Any) -> Tensor:
        y = x.movedim(axis, 0)[start:stop:step].movedim(0, axis)
        assert y.shape == shape
        return y

    def slice_scatter(self, x: Tensor, part: Tensor, axis: int, start: int, stop: int, step: int) -> Tensor:
        return torch.slice_scatter(x, part, axis, start, stop, step)

    def permute(self, x: Tensor, order: Sequence[int]) -> Tensor:
        return x.permute(*order)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.reshape(shape)


BASES = {
    "rows": torch.arange(48.0).view(4, 12),
    "three axes": torch.arange(96.0).view(2, 4, 12),
    "one long": torch.arange(24.0).view(1, 2, 12),
    "offset": torch.arange(60.0)[12:].view(4, 12),
    "gaps": torch.arange(80.0).view(4, 20)[:, :12],
}
VIEWED: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda x: x,
    "columns": lambda x: x[..., 3:9],
    "rows": lambda x: x[..., 1:2, :],
    "both": lambda x: x[..., 1:, 4:8],
    "heads": lambda x: x[..., :8].unflatten(-1, (2, 4)),
    "turned": lambda x: x.transpose(-1, -2),
    "turned columns": lambda x: x[..., 4:].transpose(-1, -2),
    "turned heads": lambda x: x[..., 4:].unflatten(-1, (4, 2)).movedim(-3, -1),
    "joined": lambda x: x[..., 1:, :].flatten(-2),
    "joined and turned": lambda x: x.unflatten(-1, (3, 4))[..., 1:, :].flatten(-2).transpose(-1, -2),
    "more axes": lambda x: x.unflatten(-1, (3, 4)).unsqueeze(0),
}


def base_node(x: Tensor) -> Any:
    node = Graph().placeholder("x")
    node.meta["val"] = x
    return node


PARTS = [p for p in itertools.product(BASES, VIEWED) if p not in (("gaps", "joined"), ("gaps", "joined and turned"))]


@pytest.mark.parametrize(("base", "view"), PARTS)
def test_a_strided_view_is_found(base: str, view: str) -> None:
    """Read back as what it is, and put back where it was."""
    x = BASES[base]
    y, node = VIEWED[view](x), base_node(x)
    place: Any = strided_place(node, tuple(y.shape), y.stride(), y.storage_offset())
    assert place is not None
    eager: Any = Eager({node: x})
    assert torch.equal(place.content(eager), y)
    wanted = torch.empty_strided(x.shape, x.stride()).copy_(x)
    VIEWED[view](wanted).neg_()
    assert torch.equal(place.put(eager, x, -y), wanted)


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((2, 4), (12, 1), 10),  # over the end of a row
        ((4, 3), (12, 2), 0),  # every second column
        ((3, 12), (12, 1), 13),  # not whole rows, past the end
        ((5, 12), (12, 1), 0),  # more rows than there are
        ((4, 4), (3, 1), 0),  # rows that overlap
        ((13,), (1,), 0),  # across rows
        ((4, 12), (0, 1), 0),
    ],
)
def test_other_strided_views_are_not(size: Any, stride: Any, offset: int) -> None:
    assert strided_place(base_node(BASES["rows"]), size, stride, offset) is None


def test_slices_past_the_end_are_not_understood() -> None:
    graph = Graph()
    x, pos, cs = (graph.placeholder(n) for n in "xpc")
    for node, val in ((x, random(T, NQ + NK)), (pos, POS), (cs, CS)):
        node.meta["val"] = val
    given = dict(positions=pos, head_size=DH, cos_sin_cache=cs, is_neox=True, _all_bases=[x])
    for end, known in ((NQ + NK, True), (NQ + NK + DH, False)):
        spec: Any = dict(_query_base_index=0, _query_slice_dim=1, _query_slice_start=NQ, _query_slice_end=end)
        call = graph.call_function(
            torch.ops.higher_order.auto_functionalized_v2,
            (custom.rotary_embedding.default,), {**given, **spec, "_key_base_index": None},
        )  # fmt: skip
        assert (places(call) is not None) is known


def test_parts_that_overlap_are_not_understood() -> None:
    x = base_node(random(T, NQ + NK))
    for start, known in ((NQ, True), (NQ - DH, False)):
        spec: Any = {"positions": None, "_all_bases": [x], "_query_base_index": 0, "_key_base_index": 0}
        for name, a, b in (("query", 0, NQ), ("key", start, NQ + NK)):
            spec |= {f"_{name}_slice_dim": 1, f"_{name}_slice_start": a, f"_{name}_slice_end": b}
        call = x.graph.call_function(
            torch.ops.higher_order.auto_functionalized_v2, (custom.rotary_embedding.default,), spec
        )
        assert (places(call) is not None) is known


# ---- two names under a commutative op

BOTH_ORDERS = """pack orders
op biased(x: real[*B, D], b: real[D]) -> real[*B, D]
  = exp(x + b)
op uneven(x: real[*B, D], y: real[*B, D]) -> real[*B, D]
  = exp(x + y) * x
op even(x: real[*B, D], y: real[*B, D]) -> real[*B, D]
  = tanh(x + y) * (x * y)
fusion neg_biased(x, b) = neg(biased(x, b))
fusion neg_uneven(x, y) = neg(uneven(x, y))
fusion neg_even(x, y) = neg(even(x, y))
"""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> RewritePass:
    path: Path = tmp_path_factory.mktemp("packs") / "orders.rw"
    path.write_text(BOTH_ORDERS)
    return turning(str(path))


X, Y, B = (torch.randn(*s, generator=torch.Generator().manual_seed(i)) for i, s in enumerate(((4, 8), (4, 8), (8,))))
ORDERS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, Tensor], str]] = {
    "x + b": (lambda x, b: -torch.exp(x + b), (X, B), "neg_biased"),
    "b + x": (lambda x, b: -torch.exp(b + x), (X, B), "neg_biased"),
    "b + b": (lambda x, b: -torch.exp(b + x), (B, B + 1), "neg_biased"),
    "x + y, x": (lambda x, y: -(torch.exp(x + y) * x), (X, Y), "neg_uneven"),
    "x + y, y": (lambda x, y: -(torch.exp(x + y) * y), (X, Y), "neg_uneven"),
    "even": (lambda x, y: -(torch.tanh(x + y) * (y * x)), (X, Y), "neg_even"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_names_under_a_sum_match_in_both_orders(name: str, orders: RewritePass) -> None:
    """One match of one site: nothing else is reported."""
    fn, args, rule = ORDERS[name]
    found = rewrite_checked(capture.make_fx_graph(fn, args), orders)
    assert found.fired == {rule: 1}
    assert len(found.log.events) == 1


# ---- nothing fires


def beside_a_slice(x: Tensor, y: Tensor) -> Any:
    z = torch.slice_scatter(x, y[:2], 0, 0, 2)
    return x[2:4] + z[2:4], z


def two_of_one(x: Tensor, y: Tensor) -> Any:
    z = torch.slice_scatter(x, y[:2], 0, 0, 2)
    return z[2:4] - z[2:4].exp(), z


@pytest.mark.parametrize("fn", [beside_a_slice, two_of_one])
def test_a_reader_of_equal_slices_reads_them_again(fn: Callable[..., Any], tmp_path: Path) -> None:
    """What is read past a scatter while rules are tried is read from it again where none fired: `rewrite_checked`."""
    path = tmp_path / "rules.rw"
    path.write_text("rule r(x: lowp[T, D]): tanh(sigmoid(x)) => abs(x)\n")
    x = random(4, 8)

    def refused(x: Tensor, y: Tensor) -> Any:
        s = torch.sigmoid(x)
        return *fn(x, y), s, s.tanh()

    assert rewrite_checked(capture.make_fx_graph(refused, (x, x.flip(0))), make_pass(make_config([path]))).fired == {}
