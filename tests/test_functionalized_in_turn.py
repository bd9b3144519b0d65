"""One buffer that several calls fill one after the other, and ops that make the buffers of their results themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vllm_stubs
from functional_graphs import VERSIONS, functional, random
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from graph_checks import rewrite_checked, rewrite_pass

vllm_stubs.declare()
custom = torch.ops._C
T, D = 6, 64
E4M3 = torch.float8_e4m3fn
X, W, S, R = random(T, D), random(D), torch.tensor([0.05]), torch.tensor([0.07])

Program = Callable[..., Any]  # (x, w, s, r)


def norm(out: Tensor, x: Tensor, w: Tensor) -> None:
    custom.rms_norm(out, x, w, 1e-6)


def quant(out: Tensor, x: Tensor, s: Tensor) -> None:
    custom.static_scaled_fp8_quant(out, x, s)


def two_quants(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """Both are read, each before the next is written."""
    q, a, b = torch.empty(T, D, dtype=E4M3), torch.empty_like(x), torch.empty_like(x)
    norm(a, x, w)
    quant(q, a, s)
    first = q.float() + 1
    norm(b, x + 1, w)
    quant(q, b, r)
    return first, q.float()


def one_scratch(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """Two norms in one buffer, each quantized before the next is written."""
    n, p, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3), torch.empty(T, D, dtype=E4M3)
    norm(n, x, w)
    quant(p, n, s)
    norm(n, x + 1, w)
    quant(q, n, r)
    return p, q


def never_read(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """What the first wrote is gone before anybody reads it."""
    n, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3)
    norm(n, x + 1, w)
    norm(n, x, w)
    quant(q, n, s)
    return q


def parts_in_turn(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """Rows of one buffer, each part by a call of its own."""
    n, p, q = torch.empty(2 * T, D, dtype=x.dtype), torch.empty(T, D, dtype=E4M3), torch.empty(T, D, dtype=E4M3)
    norm(n[:T], x, w)
    norm(n[T:], x + 1, w)
    quant(p, n[:T], s)
    quant(q, n[T:], r)
    return p, q


def read_late(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """The first is read when the second is written: from a copy."""
    n, p, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3), torch.empty(T, D, dtype=E4M3)
    norm(n, x, w)
    before = n.clone()
    norm(n, x + 1, w)
    quant(p, before, s)
    quant(q, n, r)
    return p, q


FIRES: dict[Program, int] = {two_quants: 2, one_scratch: 2, never_read: 1, parts_in_turn: 2, read_late: 2}


@VERSIONS
@pytest.mark.parametrize("fn", FIRES, ids=lambda f: f.__name__)
def test_one_buffer_in_turn(fn: Program, v2: bool) -> None:
    gm = functional(fn, (X, W, S, R), v2)
    assert "auto_functionalized" in str(gm.graph)
    fired = Counter(rewrite_checked(gm, rewrite_pass(("noop", "norm_quant"))).fired)
    # of a part, what the second call leaves alone counts as read by it
    assert fired["rms_norm_fp8_static"] + fired["norm_fans_out"] == FIRES[fn]
    assert fn is parts_in_turn or not fired["norm_fans_out"]
    assert "auto_functionalized" not in str(gm.graph)


def over_zeros(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """The buffer held something: who made it may count on what a call leaves of that."""
    n, q = torch.zeros_like(x), torch.empty(T, D, dtype=E4M3)
    norm(n, x, w)
    quant(q, n, s)
    return q


def over_an_input(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """The caller's buffer, twice."""
    q = torch.empty(T, D, dtype=E4M3)
    norm(x, x + 1, w)
    norm(x, x + 2, w)
    quant(q, x, s)
    return q


def summed_over(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
    """The norm is read again after the buffer was written over in part."""
    n, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3)
    norm(n, x, w)
    n[:2] = 0
    quant(q, n, s)
    return q


@VERSIONS
@pytest.mark.parametrize("fn", [over_zeros, over_an_input, summed_over], ids=lambda f: f.__name__)
def test_other_buffers_stay(fn: Program, v2: bool) -> None:
    assert rewrite_checked(functional(fn, (X, W, S, R), v2), rewrite_pass(("norm_quant",))).fired == {}


@VERSIONS
def test_two_quants_of_one_norm_in_one_buffer(v2: bool) -> None:
    """The norm is computed once, and what it feeds is one site."""

    def fn(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
        n, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3)
        norm(n, x, w)
        quant(q, n, s)
        first = q.float() + 1
        quant(q, n, r)
        return first, q.float()

    gm = functional(fn, (X, W, S, R), v2)
    assert rewrite_checked(gm, rewrite_pass(("norm_quant",))).fired == {"rms_norm_fp8_static_each": 1}
    assert "auto_functionalized" not in str(gm.graph)


@VERSIONS
def test_a_call_that_stays_reads_the_buffer_as_it_was_made(v2: bool) -> None:
    """The first norm goes; the second, which no rule takes, fills what is left. Where none goes, nothing changes."""

    def fn(x: Tensor, w: Tensor, s: Tensor, r: Tensor) -> Any:
        n, q = torch.empty_like(x), torch.empty(T, D, dtype=E4M3)
        norm(n, x, w)
        quant(q, n, s)
        norm(n, x + 1, w)
        return q, n

    gm = functional(fn, (X, W, S, R), v2)
    assert rewrite_checked(gm, rewrite_pass(("norm_quant",))).fired == {"rms_norm_fp8_static": 1}
    (left,) = (n for n in gm.graph.nodes if "auto_functionalized" in str(n.target))
    assert "empty" in str(left.kwargs)
    assert rewrite_checked(functional(fn, (X, W, S, R), v2), rewrite_pass(("act_quant",))).fired == {}


# ---- ops with the tag `out`

OUT = getattr(torch.Tag, "out", None)
tagged_out = pytest.mark.skipif(OUT is None, reason="this torch has no tag `out`")
RULES = """pack fills
op half(x: lowp[*B, D]) -> lowp[*B, D]
  = x * 0.5
  form one  fxr_filled.half.out(x, out=out y)
op ends(x: lowp[*B, D]) -> (a: lowp[*B, D], b: lowp[*B, D])
  = x * 0.5, x * 0.25
  form two  fxr_filled.ends.out(x, a=out a, b=out b)
fusion cos_half(x: lowp[*B, D]) = half(cos_of(x))
op cos_of(x: lowp[*B, D]) -> lowp[*B, D]
  = exp(x)
fusion exp_ends(x: lowp[*B, D]) = ends(cos_of(x))
"""


@pytest.fixture(scope="module")
def fills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    library = torch.library.Library("fxr_filled", "FRAGMENT")
    library.define("half.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=[OUT])
    library.define("ends.out(Tensor x, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(a!), Tensor(b!))", tags=[OUT])
    library.impl("half.out", lambda x, *, out: out.copy_(x * 0.5), "CompositeExplicitAutograd")
    library.impl("ends.out", lambda x, *, a, b: (a.copy_(x * 0.5), b.copy_(x * 0.25)), "CompositeExplicitAutograd")
    path = tmp_path_factory.mktemp("packs") / "fills.rw"
    path.write_text(RULES)
    yield make_pass(make_config([path], providers=["op"], strict=True))
    library._destroy()


def into_one(x: Tensor) -> Any:
    y = torch.empty_like(x)
    torch.ops.fxr_filled.half.out(x.exp(), out=y)
    return y + 1


def into_two(x: Tensor) -> Any:
    a, b = torch.empty_like(x), torch.zeros_like(x)
    torch.ops.fxr_filled.ends.out(x.exp(), a=a, b=b)
    return a + 1, b + 2


@tagged_out
@pytest.mark.parametrize(("fn", "rule"), [(into_one, "cos_half"), (into_two, "exp_ends")], ids=["one", "two"])
def test_an_out_op_makes_its_buffers(fn: Program, rule: str, fills: Any) -> None:
    """Under v2 such a call has no base at all: what it returns is what it filled."""
    gm = functional(fn, (X,), True)
    (call,) = (n for n in gm.graph.nodes if "auto_functionalized" in str(n.target))
    assert call.kwargs["_all_bases"] == []
    assert rewrite_checked(gm, fills).fired == {rule: 1}
