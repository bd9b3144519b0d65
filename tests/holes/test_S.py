"""Rows S1 to S22 of `docs/holes.md`: where a plain pattern finds nothing, and says nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor_config
from torch._inductor.pattern_matcher import (
    MULTIPLE,
    CallFunction,
    ExclusiveKeywordArg,
    Ignored,
    KeywordArg,
    MultiOutputPattern,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from capture import INPUTS, export_graph, make_fx_graph, post_grad_graphs
from graph_checks import targets
from inductor_holes import (
    NORM_QUANT,
    applied,
    edited,
    found,
    matched,
    missed,
    norm_quant,
    op,
    ours,
    quant,
    replaced,
    rms,
    rows,
    sample,
    without_metadata,
)

aten, nnf = torch.ops.aten, nn.functional
X, Y, Z = sample(4, 8), sample(4, 8, seed=1), sample(4, 8, seed=2).abs() + 0.5
ROWS = rows()
A, B, C = KeywordArg("a"), KeywordArg("b"), KeywordArg("c")
FIRES = {"norm_quant": 1}
PINNED = "fusion norm_quant(x, w) = rms_norm(x, w, eps=1e-6) |> quant_fp8\n"


def traced(fn: Callable[..., Any], args: Any = ROWS) -> GraphModule:
    return make_fx_graph(fn, args)


def rms_of_torch(x: Tensor, w: Tensor) -> Tensor:
    return nnf.rms_norm(x, (64,), w, 1e-6)


def test_S1() -> None:
    """A pattern is for one eps; on a CPU `F.rms_norm` has one that was rounded to float32."""
    other = traced(lambda x, w: quant(rms(x, w, 1e-5)))
    assert found(norm_quant, ROWS, other) == 0
    assert ours(NORM_QUANT, other).fired == FIRES, "not mentioned, it is captured"
    assert missed(ours(PINNED, other)).reason == "other constant"

    (rounded,) = post_grad_graphs(lambda x, w: quant(rms_of_torch(x, w)), ROWS)
    assert "9.999999974752427e-07" in str(rounded.graph)
    late = PINNED.replace("eps=1e-6", "eps=1e-6, late=true")
    for rule in (NORM_QUANT, late):
        assert ours(rule, rounded).fired == FIRES, "a literal is met up to that rounding"


class Norm(nn.Module):
    """The norm of a module with an `eps`, and its codes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = ROWS[1], 1e-6

    def forward(self, x: Tensor) -> Any:
        return quant(rms(x, self.weight, self.eps))


def test_S2() -> None:
    """With `dynamic=True` the eps of a module is an input of the graph."""
    (gm,) = post_grad_graphs(Norm(), ROWS[:1], dynamic=True)
    assert "1e-06" not in str(gm.graph)
    assert found(norm_quant, ROWS, gm) == 0
    done = ours(NORM_QUANT, gm)
    assert done.fired == FIRES
    assert targets(done.gm)["fxrewrite.norm_quant.dyn"] == 1
    event = missed(ours(PINNED, gm))
    assert event.reason == "other constant"
    assert "specialize_float" in event.hint


def test_S3() -> None:
    """A pattern that was traced in one dtype has the casts of that dtype."""
    rule = (
        "fusion gated(g: real[*B, D], u: real[*B, D]) = s * u where s = to(fdiv(t, exp(-t) + 1), g.dtype), t = f32(g)\n"
    )

    def gated(g: Tensor, u: Tensor) -> Tensor:
        return nnf.silu(g) * u

    wide, narrow = [X, Y], [X.bfloat16(), Y.bfloat16()]
    for dtype, sites in ((torch.float32, [1, 0]), (torch.bfloat16, [0, 1]), (torch.float16, [0, 1])):
        gm = traced(gated, (X.to(dtype), Y.to(dtype)))
        assert [found(gated, examples, gm) for examples in (wide, narrow)] == sites
        assert ours(rule, gm).fired == {"gated": 1}


def spelled(square: Callable[[Tensor], Tensor], axis: int, plus: Any, product: Any) -> Callable[..., Any]:
    def model(x: Tensor, w: Tensor) -> Any:
        wide = x.float()
        n = wide * torch.rsqrt(plus(square(wide).mean(axis, keepdim=True), 1e-6))
        return quant(product(w, n.to(x.dtype)))

    return model


def power(x: Tensor) -> Tensor:
    return x.pow(2)


def test_S4() -> None:
    """One pattern for each spelling."""
    plus, product = torch.add, torch.mul
    spellings = {
        spelled(power, -1, plus, product): 1,
        spelled(lambda x: x * x, -1, plus, product): 0,
        spelled(power, 1, plus, product): 0,
        spelled(power, -1, aten.add.Scalar, product): 0,
        spelled(power, -1, plus, lambda a, b: b * a): 0,
    }
    for model, sites in spellings.items():
        gm = traced(model)
        assert found(norm_quant, ROWS, gm) == sites
        assert ours(NORM_QUANT, gm).fired == FIRES


def test_S5() -> None:
    """A value in between that somebody else reads."""
    gm = traced(lambda x, w: (lambda n: (*quant(n), n.cos()))(rms(x, w)))
    assert found(norm_quant, ROWS, gm) == 0
    event = missed(ours(NORM_QUANT, gm))
    assert event.reason == "shared value"
    assert "used by cos" in event.found
    assert "keep" in event.hint
    keep = "rule fans_out: n |> quant_fp8 => norm_quant(x, w) where keep n = rms_norm(x, w)\n"
    assert ours(NORM_QUANT + keep, gm).fired == {"fans_out": 1}


def test_S6() -> None:
    """A value that is computed twice in the pattern and once in the graph, or the other way round."""

    def twice(x: Tensor) -> Tensor:
        return (torch.exp(x.float()) * torch.abs(x.float())).to(x.dtype)

    def once(x: Tensor) -> Tensor:
        wide = x.float()
        return (torch.exp(wide) * torch.abs(wide)).to(x.dtype)

    x = X.bfloat16()
    graphs = [traced(fn, (x,)) for fn in (twice, once)]
    assert [found(twice, [x], gm) for gm in graphs] == [1, 0]
    assert [found(once, [x], gm) for gm in graphs] == [0, 1]
    rule = "fusion product(x: bf16[*B, D]) = to(exp(f32(x)) * abs(f32(x)), bf16)\n"
    assert [ours(rule, gm).fired for gm in graphs] == [{"product": 1}] * 2


def test_S7() -> None:
    """A trace holds `view`, a post-grad graph `reshape`; `-1` and the size that it is are two constants."""

    def halves(x: Tensor) -> Tensor:
        return torch.exp(x.view(-1, 4)).abs()

    rule = "fusion f(x: f32[T, 8]) = abs(exp(reshape(x, [2*T, 4])))\n"
    (gm,) = post_grad_graphs(halves, (X,))
    assert found(halves, [X], gm) == 0
    assert ours(rule, gm).fired == {"f": 1}
    for spelling in (
        halves,
        lambda x: torch.exp(x.reshape(8, 4)).abs(),
        lambda x: torch.exp(x.unflatten(1, (2, 4)).flatten(0, 1)).abs(),
    ):
        gm = traced(spelling, (X,))
        assert found(halves, [X], gm) == (spelling is halves)
        assert ours(rule, gm).fired == {"f": 1}


def test_S8() -> None:
    """A view between two ops that work row by row."""
    gm = traced(lambda x, w: quant(rms(x, w).view(2, 3, 64)))
    assert found(norm_quant, ROWS, gm) == 0
    assert ours(NORM_QUANT, gm).fired == FIRES
    parts = traced(lambda x, w: quant(rms(x, w).view(12, 32)))
    assert ours(NORM_QUANT, parts).fired == {}, "the rows are others"


def with_sizes(fn: Callable[..., Any], x: Tensor, axes: tuple[int, ...]) -> GraphModule:
    """`fn(x, shape)` with the sizes of these axes as inputs before `x`, as compiled graphs have them."""
    policy = [DimDynamic.DYNAMIC if i in axes else DimDynamic.STATIC for i in range(x.ndim)]
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        fake = mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(policy))

    def flat(*args: Any) -> Any:
        sizes = dict(zip(axes, args, strict=False))
        return fn(args[-1], [sizes.get(i, n) for i, n in enumerate(x.shape)])

    gm = make_fx(flat)(*(fake.shape[i] for i in axes), fake)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    gm.meta[INPUTS] = (*(x.shape[i] for i in axes), x)
    return gm


def test_S9() -> None:
    """A pattern whose sizes are two symbols."""

    def there_and_back(x: Tensor, shape: Any) -> Tensor:
        return torch.exp(x.reshape(-1, 8)).reshape(shape).abs()

    x = sample(5, 7, 8)
    for axes, sites in (((0,), 1), ((0, 1), 0)):
        gm = with_sizes(there_and_back, x, axes)
        assert found(lambda x: there_and_back(x, x.shape), [x], gm) == sites
        assert ours("fusion f(x: f32[N, M, D]) = abs(exp(x))\n", gm).fired == {"f": 1}


class NormOfExport(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Any:
        return norm_quant(x, w)


def test_S10() -> None:
    """Exported graphs hold assertions about tensors, which count as users."""
    gm = export_graph(NormOfExport(), ROWS, decompose=True)
    assert targets(gm)["aten._assert_tensor_metadata.default"] > 0
    cast = CallFunction(aten._to_copy.default, CallFunction(aten.mul.Tensor, A, B), dtype=torch.bfloat16)
    assert matched(cast, gm) == 0
    bare = copy.deepcopy(gm)
    for node in bare.graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        bare.graph.erase_node(node)
    assert matched(cast, bare) == 1
    assert ours(NORM_QUANT, gm).fired == FIRES


def test_S11() -> None:
    """`F.rms_norm` in a search function: on a CPU its trace adds eps in place."""

    def search(x: Tensor, w: Tensor) -> Any:
        return quant(rms_of_torch(x, w))

    (gm,) = post_grad_graphs(search, ROWS)
    assert found(search, ROWS, gm) == 0
    assert ours(NORM_QUANT, gm).fired == FIRES


def test_S12() -> None:
    """An op that writes to its operand: traced as it is, and in graphs one of two functional forms."""
    rule = (
        "op half(x: f32[*B]) -> (y: f32[*B])\n  = x * 0.5\n  form mine  holes.half(out y, x)\n"
        "fusion exp_half(x: f32[*B]) = exp(half(x))\n"
    )

    def model(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.ops.holes.half(out, x)
        return torch.exp(out)

    def half(out: Tensor, x: Tensor) -> None:
        out.copy_(x * 0.5)

    first = CallFunction(torch.ops.higher_order.auto_functionalized, Ignored(), out=A, x=B)
    for v2, sites in ((False, 1), (True, 0)):
        with op("half(Tensor(a!) out, Tensor x) -> ()", half), inductor_config.patch(enable_auto_functionalized_v2=v2):
            (gm,) = post_grad_graphs(model, (X,))
            assert found(model, [X], gm) == 0
            assert matched(first, gm) == sites
            assert ours(rule, gm).fired == {"exp_half": 1}


def two_outputs() -> MultiOutputPattern:
    h = CallFunction(aten.add.Tensor, A, B, _users=MULTIPLE)
    return MultiOutputPattern([CallFunction(aten.exp.default, h), CallFunction(aten.abs.default, h)])


def test_S13() -> None:
    """A rule with two results where the graph uses one."""
    rule = "fusion f(x: f32[T, D], y: f32[T, D]) = p, q where h = x + y, p = exp(h), q = abs(h)\n"
    both = traced(lambda x, y: (lambda h: (torch.exp(h), torch.abs(h)))(x + y), (X, Y))
    one = traced(lambda x, y: torch.exp(x + y), (X, Y))
    assert [matched(two_outputs(), gm) for gm in (both, one)] == [1, 0]
    assert [ours(rule, gm).fired for gm in (both, one)] == [{"f": 1}] * 2
    other = traced(lambda x, y: torch.abs(x + y), (X, Y))
    assert ours(rule, other).fired == {"f": 1}


def test_S14() -> None:
    """Two `KeywordArg` of one name are one operand only if they are one object."""
    gm = traced(lambda x: (torch.exp(x), torch.abs(x)), (X,))

    def pattern(x: KeywordArg, again: KeywordArg) -> MultiOutputPattern:
        return MultiOutputPattern([CallFunction(aten.exp.default, x), CallFunction(aten.abs.default, again)])

    assert matched(pattern(A, A), gm) == 1
    assert matched(pattern(KeywordArg("a"), KeywordArg("a")), gm) == 0
    assert ours("fusion f(x: f32[T, D]) = p, q where p = exp(x), q = abs(x)\n", gm).fired == {"f": 1}


def test_S15() -> None:
    """Three results, and a decoy of the second, which is taken; then there is no third."""

    def pattern() -> MultiOutputPattern:
        h = CallFunction(aten.add.Tensor, A, B, _users=MULTIPLE)
        m = CallFunction(aten.mul.Tensor, h, C, _users=MULTIPLE)
        return MultiOutputPattern([CallFunction(aten.exp.default, h), m, CallFunction(aten.rsqrt.default, m)])

    def plain(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x + y
        return torch.exp(h), h, (m := h * z), torch.rsqrt(m)

    def with_decoy(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x + y
        return torch.exp(h), h * y, (m := h * z), torch.rsqrt(m)

    rule = (
        "fusion f(x: f32[T, D], y: f32[T, D], z: f32[T, D]) = p, m, q\n"
        "  where keep h = x + y, p = exp(h), m = h * z, q = rsqrt(m)\n"
    )
    for model, sites in ((plain, 1), (with_decoy, 0)):
        gm = traced(model, (X, Y, Z))
        assert matched(pattern(), gm) == sites
        assert ours(rule, gm).fired == {"f": 1}


def test_S16() -> None:
    """An `ExclusiveKeywordArg` remembers what a failed attempt has bound."""

    def pattern(arg: Callable[[str], Any]) -> MultiOutputPattern:
        h = CallFunction(aten.abs.default, arg("a"), _users=MULTIPLE)
        product = CallFunction(
            aten.mul.Tensor, CallFunction(aten.add.Tensor, h, arg("b")), CallFunction(aten.rsqrt.default, arg("c"))
        )
        return MultiOutputPattern([CallFunction(aten.exp.default, h), product])

    def model(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x.abs()
        return torch.exp(h), (h + y) * z, (h + y) * torch.rsqrt(z)

    gm = traced(model, (X, Y, Z))
    assert matched(pattern(KeywordArg), gm) == 1
    assert matched(pattern(ExclusiveKeywordArg), gm) == 0
    rule = (
        "fusion f(x: f32[T, D], y: f32[T, D], z: f32[T, D]) = p, q\n"
        "  where keep h = abs(x), keep g = h + y, p = exp(h), q = g * rsqrt(z)\n"
    )
    assert ours(rule, gm).fired == {"f": 1}


def test_S17() -> None:
    """Several results, and an operand that is computed between them: the graph is left out of order."""

    def model(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x + y
        e = torch.exp(h)
        return e, h * (z * 2.0)

    def search(x: Tensor, y: Tensor, z: Tensor) -> Any:
        return torch.exp(x + y), (x + y) * z

    def once(x: Tensor, y: Tensor, z: Tensor) -> Any:
        h = x + y
        return torch.exp(h), h * z

    gm = traced(model, (X, Y, Z))
    there = replaced(once, search, [X, Y, Z], gm)
    assert there.count == 1
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        there.gm.graph.lint()
    rule = "fusion f(x: f32[T, D], y: f32[T, D], z: f32[T, D]) = p, q where h = x + y, p = exp(h), q = h * z\n"
    assert ours(rule, gm).fired == {"f": 1}  # `ours` lints the graph and runs it


def test_S18() -> None:
    """A node that a handler puts in has no metadata until Inductor fills it in, after its own passes."""

    gm = traced(lambda x: torch.rsqrt(torch.exp(torch.abs(x))), (Z,))
    there = edited(CallFunction(aten.exp.default, CallFunction(aten.abs.default, A)), gm, without_metadata)
    assert [dict(n.meta) for n in there.gm.graph.find_nodes(op="call_function", target=aten.exp.default)] == [{}]
    # `ours` compares the metadata of every node with a fresh trace
    done = ours("fusion f(x: f32[T, D]) = exp(abs(x))\n", gm)
    assert done.fired == {"f": 1}
    assert all("val" in n.meta for n in done.gm.graph.nodes if n.op == "call_function")


def test_S19() -> None:
    """Nodes of complex values are passed over before any pattern is asked."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y))

    pairs = sample(4, 8, 2), sample(4, 8, 2, seed=1)
    gm = traced(product, pairs)
    pattern = CallFunction(
        aten.mul.Tensor, CallFunction(aten.view_as_complex.default, A), CallFunction(aten.view_as_complex.default, B)
    )
    (root,) = gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    assert pattern.match(root)
    assert matched(pattern, gm) == 0
    rule = (
        "op product(x: f32[T, D, 2], y: f32[T, D, 2]) -> (z: f32[T, D, 2])\n"
        "  = view_as_real(view_as_complex(x) * view_as_complex(y))\n"
        "fusion f(x, y) = product(x, y)\n"
    )
    assert ours(rule, gm).fired == {"f": 1}


def test_S20() -> None:
    """A scalar argument of a search function is recognised in its trace by its value."""

    def search(x: Tensor, s: float) -> Tensor:
        return torch.exp(x * s) + 1.0

    gm = traced(lambda x: torch.exp(x * 2.0) + 1.0, (X,))
    assert found(search, [X], gm, scalar_workaround={"s": 3.0}) == 1
    assert found(search, [X], gm, scalar_workaround={"s": 1.0}) == 0, "s is taken for the other 1.0, too"
    with pytest.raises(AssertionError):
        found(lambda x, s, t: torch.exp(x * s) + t, [X], gm, scalar_workaround={"s": 1.0, "t": 1.0})
    once = "fusion f(x: f32[T, D]; s: float) = exp(x * s) + 1.0\n"
    both = "fusion f(x: f32[T, D]; s: float, t: float) = exp(x * s) + t\n"
    for graph in (gm, traced(lambda x: torch.exp(x * 1.0) + 1.0, (X,))):
        assert [ours(text, graph).fired for text in (once, both)] == [{"f": 1}] * 2


def test_S21() -> None:
    """Of two patterns with one root the one that was registered first is taken, the shorter one too."""
    fired: list[str] = []
    patterns = PatternMatcherPass()
    short = CallFunction(aten.exp.default, A)
    long = CallFunction(aten.exp.default, CallFunction(aten.abs.default, A))
    for name, pattern in (("short", short), ("long", long)):

        def handler(match: Any, a: Any, name: str = name) -> None:
            fired.append(name)
            root = match.output_node()
            with match.graph.inserting_before(root):
                root.replace_all_uses_with(match.graph.call_function(aten.rsqrt.default, (a,)))
            match.erase_nodes()

        register_graph_pattern(pattern, pass_dict=patterns)(handler)  # type: ignore[arg-type]
    gm = traced(lambda x: torch.exp(torch.abs(x)), (X,))
    assert applied(patterns, gm).count == 1
    assert fired == ["short"]

    text = ["fusion short(x: f32[T, D]) = exp(x)\n", "fusion long(x: f32[T, D]) = exp(abs(x))\n"]
    for order in (text, text[::-1]):
        done = ours("".join(order), gm)
        assert done.fired == {"long": 1}
        assert [(e.rule, e.reason, e.by) for e in done.log.missed()] == [("short", "eaten by", "holes.long")]


def eight(step: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def fn(x: Tensor) -> Tensor:
        for _ in range(8):
            x = step(x)
        return x

    return fn


def test_S22() -> None:
    """What a replacement has written is not looked at again: a chain is folded by halves."""
    gm = traced(eight(lambda x: x + 1.0), (torch.arange(8.0),))

    def fold(match: Any, a: Any, m: float, n: float) -> None:
        root = match.output_node()
        with match.graph.inserting_before(root):
            new = match.graph.call_function(aten.add.Tensor, (a, m + n))
        new.meta = dict(root.meta)
        root.replace_all_uses_with(new)
        match.erase_nodes()

    patterns = PatternMatcherPass()
    two = CallFunction(aten.add.Tensor, CallFunction(aten.add.Tensor, A, KeywordArg("m")), KeywordArg("n"))
    register_graph_pattern(two, pass_dict=patterns)(fold)  # type: ignore[arg-type]
    twin = copy.deepcopy(gm)
    assert [patterns.apply(twin.graph) for _ in range(4)] == [4, 2, 1, 0]

    shapes = [(32,), (8, 4), (4, 8), (2, 16), (32,), (16, 2), (4, 8), (8, 4)]
    views = traced(lambda x: [x := x.view(s) for s in shapes][-1] + 1.0, (X,))
    chain = "pack tidy stage canonicalize\nrule chain: reshape(reshape(x, _), s) => reshape(x, s)\n"
    done = ours(chain, views)
    assert done.fired == {"chain": 7}
    assert targets(done.gm) == {"aten.reshape.default": 1, "aten.add.Tensor": 1}

    rule = (
        "op shift(x: f32[T]; n: float) -> (y: f32[T])\n  = x + n\n"
        "rule fold: shift(shift(x, n=m), n=n) => shift(x, n=m + n)  contract relaxed rtol 1e-5 atol 1e-5\n"
    )
    done = ours(rule, gm)
    assert done.fired == {"fold": 7}
    assert targets(done.gm) == {"fxrewrite.shift.default": 1}
