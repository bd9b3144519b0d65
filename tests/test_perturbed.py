"""Graphs made from traces of right and of slightly wrong spellings, and of both in difficult surroundings.

For each: what fires is what the table says, the outputs are equal bit for bit, the metadata is right, and where nothing
fires the graph is node for node what it was (`graph_checks.rewrite_checked`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from capture import make_fx_graph
from graph_checks import Rewritten, rewrite_checked, written_nodes
from spelled_ops import FP8, NORMS, QUANTS, rms, rule

LOW = (torch.bfloat16, torch.float16)
EVERY = 6  # of the quants, how many each norm skips in the fast tests
UNTRACEABLE = {("quarters", "group 32")}  # 16 values have no groups of 32


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, r, w and a scale: random rows, and rows of zeros, of -0.0, tiny, huge, with NaN and with infinity."""
    generator = torch.Generator().manual_seed(0)
    x, r = (torch.randn(4, 8, 64, generator=generator).to(dtype) for _ in range(2))
    x[0, 0], x[0, 1], x[0, 2], x[0, 3] = 0.0, -0.0, 1e-7, 1e4
    r[0, :4] = 0.0
    x[1, 0, 5], x[1, 1, 6], x[1, 2, 7], r[1, 3, 8] = torch.nan, torch.inf, -torch.inf, torch.nan
    w = (1 + 0.1 * torch.randn(64, generator=generator)).to(dtype)
    return x, r, w, torch.tensor([0.05])


def rewritten(norm: str, quant: str, dtype: torch.dtype) -> Rewritten:
    """The quant of the norm, traced, rewritten and checked."""

    def fn(x: Tensor, r: Tensor, w: Tensor, s: Tensor) -> Any:
        return QUANTS[quant][0](NORMS[norm][0](x, r, w), s)

    return rewrite_checked(make_fx_graph(fn, operands(dtype)))


def check(norm: str, quants: list[str], dtype: torch.dtype) -> None:
    for quant in quants:
        if (norm, quant) not in UNTRACEABLE:
            expected = rule(norm, quant) if dtype in LOW else None
            fired = rewritten(norm, quant, dtype).fired
            assert fired == ({expected: 1} if expected else {}), f"{quant} of {norm}"


@pytest.mark.parametrize("norm", NORMS)
def test_what_fires_is_right_and_nothing_else_fires(norm: str) -> None:
    check(norm, list(QUANTS)[list(NORMS).index(norm) % EVERY :: EVERY], torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", LOW)
def test_every_pair(norm: str, dtype: torch.dtype) -> None:
    check(norm, list(QUANTS), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_nothing_fires_in_float32(norm: str) -> None:
    check(norm, list(QUANTS)[list(NORMS).index(norm) % EVERY :: EVERY], torch.float32)


def test_the_fast_tests_hold_500_graphs_and_both_answers() -> None:
    pairs = [(n, q) for i, n in enumerate(NORMS) for q in list(QUANTS)[i % EVERY :: EVERY]]
    firing = sum(rule(*pair) is not None for pair in pairs)
    assert len(pairs) >= 500
    assert firing >= 100
    assert len(pairs) - firing >= 100


# ---- surroundings

token, static, group = (QUANTS[name][0] for name in ("token min", "static", "group 16"))
Surrounding = Callable[[Tensor, Tensor, Tensor, Tensor], Any]
SURROUNDINGS: dict[str, tuple[Surrounding, dict[str, int]]] = {}


def fires(**expected: int) -> Callable[[Surrounding], Surrounding]:
    """Register a function of (x, r, w, s), named by its docstring's place in this file, with what fires in it."""

    def register(fn: Surrounding) -> Surrounding:
        SURROUNDINGS[fn.__name__] = (fn, expected)
        return fn

    return register


# Writes.


@fires(rms_norm_fp8=1)
def clone_written_then_another_clone_read(x, r, w, s):
    a = x.clone()
    a.add_(1)
    return (*token(rms(x.clone(), w), s), a)


@fires(rms_norm_fp8=1)
def copy_read_after_x_is_written(x, r, w, s):
    x = x + 0.5
    a = x.to(x.dtype, copy=True)
    x.add_(1)
    return (*token(rms(a, w), s), x)


@fires(rms_norm_fp8=1)
def clone_read_after_the_input_is_written(x, r, w, s):
    a = x.clone()
    x.add_(1)
    return (*token(rms(a, w), s), x)


@fires(rms_norm_fp8=2)
def row_written_between_two(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    x[0].add_(1)
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=1)
def row_written_between_norm_and_another(x, r, w, s):
    x = x * 1
    n = rms(x, w)
    x[0].add_(1)
    return (n, *token(rms(x, w), s))


@fires(rms_norm_fp8=1)
def row_written_between_norm_and_its_quant(x, r, w, s):
    x = x * 1
    n = rms(x, w)
    x[0].add_(1)
    return (*token(n, s), *token(rms(x, w), s))


@fires(rms_norm_fp8=2)
def unbound_row_written(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    x.unbind(0)[1].mul_(2)
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=2)
def strided_view_written(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    torch.as_strided(x, (4,), (1,)).zero_()
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=2)
def view_of_other_dtype_written(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    x.view(torch.int16).zero_()
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=2)
def chunk_written(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    x.chunk(2, -1)[0].mul_(3)
    return (*first, *token(rms(x, w), s))


@fires(silu_mul_fp8=1)
def chunks_read_after_a_write(x, r, w, s):
    x = x * 1
    g, u = x.chunk(2, -1)
    x.mul_(3)
    return token(F.silu(g) * u, s)


@fires(silu_mul_fp8=1)
def one_chunk_written(x, r, w, s):
    x = x * 1
    g, u = x.chunk(2, -1)
    u.mul_(3)
    return token(F.silu(g) * u, s)


@fires(rms_norm_fp8=2)
def indices_written(x, r, w, s):
    x = x * 1
    first = token(rms(x, w), s)
    x[x > 0] = 0
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=2)
def weight_written_between_two(x, r, w, s):
    w = w * 1
    first = token(rms(x, w), s)
    w.add_(1)
    return (*first, *token(rms(x, w), s))


@fires(rms_norm_fp8=1)
def input_written_before(x, r, w, s):
    x.add_(1)
    return token(rms(x, w), s)


@fires(rms_norm_fp8=1)
def input_written_after(x, r, w, s):
    return (*token(rms(x, w), s), x.add_(1))


@fires(add_rms_norm_fp8=1)
def sum_copied_into_an_input(x, r, w, s):
    h = x + r
    y = token(rms(h, w), s)
    x.copy_(h)
    return (*y, h)


@fires()
def norm_written(x, r, w, s):
    n = rms(x, w)
    n.add_(1)
    return token(n, s)


@fires()
def variance_written(x, r, w, s):
    c = x.float()
    m = c.pow(2).mean(-1, keepdim=True)
    m.add_(1e-6)
    return token(w * (c * torch.rsqrt(m)).to(x.dtype), s)


@fires()
def scale_result_written(x, r, w, s):
    q, t = token(rms(x, w), s)
    t.mul_(2)
    return q, t


@fires()
def one_of_equal_results_written(x, r, w, s):
    n = rms(x, w)
    q, t = token(n, s)
    q2, t2 = token(n, s)
    t2.add_(1)
    return q, t, q2, t2


@fires(rms_norm_fp8=1)
def one_of_equal_sums_written(x, r, w, s):
    h, h2 = x + r, x + r
    y = token(rms(h, w), s)
    h2.add_(1)
    return (*y, h, h2)


@fires(norm_fans_out=2)
def static_scale_written_between_two(x, r, w, s):
    n = rms(x, w)
    t = s * 1
    first = static(n, t)
    t.mul_(2)
    return (*first, *static(n, t))


@fires(rms_norm_fp8=1)
def user_of_the_sum_reads_what_is_written_before_the_weight(x, r, w, s):
    z = r * 2
    h = x + r
    a = h * z
    z.add_(1)
    return (*token(rms(h, w * 2), s), a, z)


@fires(rms_norm_fp8=2)
def buffer_filled_twice(x, r, w, s):
    y = torch.empty_like(x)
    y.copy_(x + r)
    first = token(rms(y, w), s)
    y.copy_(x * r)
    return (*first, *token(rms(y, w), s))


# Users, order, and outputs of the graph.


@fires(rms_norm_fp8=1)
def weight_computed_from_the_sum(x, r, w, s):
    h = x + r
    return (*token(rms(h, w * h.float().mean().to(x.dtype)), s), h)


@fires(add_rms_norm_fp8=1)
def users_of_the_sum_before_a_late_weight(x, r, w, s):
    h = x + r
    a = h.sin().relu()
    return (*token(rms(h, w * 2), s), a)


@fires(norm_fans_out=1, norm_fans_out_token=1)
def late_scale(x, r, w, s):
    n = rms(x, w)
    q, t = token(n, s)
    return (q, t, t * 2, *static(n, s * 2))


@fires(rms_norm_fp8=1)
def results_returned_twice(x, r, w, s):
    q, t = token(rms(x, w), s)
    return q, t, q, t, x, x


@fires(rms_norm_fp8=1)
def equal_results_returned(x, r, w, s):
    return (*token(rms(x, w), s), *token(rms(x, w), s))


@fires(add_rms_norm_fp8=1)
def equal_sums_returned(x, r, w, s):
    return (*token(rms(x + r, w), s), x + r, x + r)


@fires(add_rms_norm_fp8=1)
def sum_and_its_view_returned(x, r, w, s):
    h = x + r
    return (*token(rms(h, w), s), h, h.view(-1, 64), (x + r).view(-1))


@fires(norm_fans_out_token=1)
def norm_returned(x, r, w, s):
    n = rms(x, w)
    return (*token(n, s), n)


@fires(rms_norm_fp8=1)
def scales_not_used(x, r, w, s):
    return token(rms(x, w), s)[0]


@fires(rms_norm_fp8=3)
def three_eps(x, r, w, s):
    return (*token(rms(x, w, 1e-5), s), *token(rms(x, w, 1e-6), s), *token(rms(x, w, 1.1e-6), s))


@fires(rms_norm_fp8=1)
def eps_equal_in_float32(x, r, w, s):
    return (*token(rms(x, w, 1e-5), s), *token(rms(x, w, 1e-5 + 1e-14), s))


@fires(rms_norm_fp8_static_each=1)
def three_scales(x, r, w, s):
    n = rms(x, w)
    return (*static(n, s), *static(n, s * 2), *static(n, s * 3))


@fires(add_rms_norm_fp8_static_each=1)
def two_scales_and_the_sum(x, r, w, s):
    h = x + r
    n = rms(h, w)
    return (*static(n, s), *static(n, s * 2), h)


@fires(add_rms_norm_fp8=2)
def residual_chain(x, r, w, s):
    h = x + r
    q, t = token(rms(h, w), s)
    return token(rms(h + (q.float() * t).to(x.dtype).view_as(x), w), s)


@fires(rms_norm_fp8=1, add_rms_norm_fp8=1)
def two_norms_of_one_sum(x, r, w, s):
    h = x + r
    return (*token(rms(h, w), s), *token(rms(h, w * 2), s), h)


@fires(norm_fans_out_token=1)
def scales_used_for_another_quant(x, r, w, s):
    n = rms(x, w)
    q, t = token(n, s)
    return q, t, (n.float() / t.view(4, 8, 1)).clamp(-448, 448).to(FP8)


@fires(rms_norm_fp8=1)
def variance_used_too(x, r, w, s):
    return (*token(rms(x, w), s), x.float().pow(2).mean(-1, keepdim=True))


@fires(rms_norm_fp8=1)
def codes_multiplied_right_away(x, r, w, s):
    q, t = token(rms(x, w), s)
    return (q.float() * t).to(x.dtype)


@fires(silu_mul_fp8=1, rms_norm_fp8=1)
def norm_feeds_the_activation(x, r, w, s):
    n = rms(x, w)
    q, t = token(n, s)
    y = (q.float() * t).to(x.dtype)
    return token(F.silu(y) * r.view(-1, 64), s)


# Views and strides.


@fires(rms_norm_fp8=1)
def rows_viewed_between(x, r, w, s):
    return token(rms(x, w).view(2, 2, 8, 64).flatten(0, 1), s)


@fires()
def rows_broken_between(x, r, w, s):
    return token(rms(x, w).view(4, 16, 32), s)


@fires()
def rows_left_out_between(x, r, w, s):
    return token(rms(x, w)[:, -1], s)


@fires(rms_norm_fp8=1)
def one_row(x, r, w, s):
    return token(rms(x[:1, :1], w), s)


@fires(rms_norm_fp8=1)
def no_rows(x, r, w, s):
    return token(rms(x[:0], w), s)


@fires(rms_norm_fp8=1)
def two_axes(x, r, w, s):
    return token(rms(x[0], w), s)


@fires(rms_norm_fp8=1)
def one_axis_longer(x, r, w, s):
    return token(rms(x[None], w), s)


@fires(rms_norm_fp8=1)
def part_of_the_rows(x, r, w, s):
    return token(rms(x[1:3, ::2], w), s)


@fires(add_rms_norm_fp8_group=1)
def group_of_a_part(x, r, w, s):
    return group(rms(x[1:] + r[1:], w), s)


@fires(rms_norm_fp8_static=1)
def part_of_the_columns(x, r, w, s):
    return static(rms(x[..., 16:48].contiguous(), w[16:48]), s)


@fires()
def transposed_rows(x, r, w, s):
    return static(rms(x.transpose(0, 1), w), s)


@fires()
def column_major(x, r, w, s):
    return static(rms(x.reshape(32, 64).t().contiguous().t(), w), s)


@fires()
def column_major_activation(x, r, w, s):
    g, u = (t.reshape(32, 64).t().contiguous().t() for t in (x, r))
    return static(F.silu(g) * u, s)


@fires()
def transposed_sum(x, r, w, s):
    h = x.transpose(0, 1) + r.transpose(0, 1)
    return (*static(rms(h, w), s), h)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_surroundings(name: str, dtype: torch.dtype) -> None:
    fn, expected = SURROUNDINGS[name]
    assert rewrite_checked(make_fx_graph(fn, operands(dtype))).fired == expected


def test_new_nodes_know_where_they_come_from() -> None:
    done = rewritten("llama", "token", torch.bfloat16)
    marks = {node.meta["fxrewrite"]["rule"] for node in written_nodes(done.gm)}
    assert marks == {"norm_quant.rms_norm_fp8"}
