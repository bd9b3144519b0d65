"""Faults that were found by reading, each held here: constants, clean-up, order of effects, settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fxrewrite
from capture import make_fx_graph, run
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.patterns.values import Table, constant_key
from graph_checks import rewrite_checked

DEFAULT = make_pass(make_config(providers=["op"], strict=True))


def _pack(text: str) -> Any:
    file, diagnostics = parse(text, "sound.rw")
    assert not diagnostics
    return file


def test_a_view_back_to_its_own_shape_is_cleaned_up_once() -> None:
    gm = make_fx_graph(lambda x: x.view(4, 8).view(8, 4).view(4, 8) + 1, (torch.randn(4, 8),))
    done = rewrite_checked(gm, DEFAULT)
    assert done.fired["reshape_same"] >= 1
    assert sum(n.op == "call_function" for n in done.gm.graph.nodes) <= 3


def test_permutations_end() -> None:
    gm = make_fx_graph(lambda x: x.permute(1, 0).permute(1, 0).permute(0, 1) + 1, (torch.randn(4, 8),))
    assert sum(rewrite_checked(gm, DEFAULT).fired.values()) >= 1


def test_constants_of_different_kinds_are_different() -> None:
    keys = [constant_key(c) for c in (0.0, -0.0, 0, False, 1, 1.0, True, (1,), (1.0,), (True,))]
    assert len(set(keys)) == len(keys)


def test_negative_zero_is_another_value() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x + torch.full((4,), 0.0), x * torch.full((4,), -0.0), torch.full((4,), -0.0)

    pass_ = make_pass(make_config([_pack("rule twice: neg(neg(x)) => x\n")], providers=["op"], strict=True))
    zero = make_fx_graph(
        lambda x: (torch.neg(torch.neg(torch.full((4,), -0.0) * x)), torch.full((4,), 0.0)), (torch.ones(4),)
    )
    rewrite_checked(zero, pass_)
    rewrite_checked(make_fx_graph(f, (torch.randn(4),)), pass_)


def test_equal_values_are_one_object_while_they_are_made() -> None:
    seen: list[Any] = []
    table = Table()

    def again(v: Any) -> None:
        if v.op == "neg":
            seen.append(table.unary("neg", v.args[0]))

    x = table.fresh("input", (), ("x",), torch.float32, (4,))
    table.on_new = again
    v = table.unary("neg", x)
    assert seen == [v]


def test_random_ops_keep_their_order() -> None:
    """A weight drawn after a draw from the residual sum: the norm may not move one draw behind the other."""

    def f(x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        h = x + r
        drawn = torch.multinomial(h.float().abs(), 2)
        w = torch.rand(64).to(torch.bfloat16)
        n = h.float()
        y = w * (n * torch.rsqrt(n.pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype)
        s = (y.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
        return (y.float() / s).clamp(-448, 448).to(torch.float8_e4m3fn), s, h, drawn

    args = tuple(torch.randn(8, 64).to(torch.bfloat16) for _ in range(2))
    gm = make_fx_graph(f, args)
    torch.manual_seed(0)
    before = gm(*args)
    with fxrewrite.record() as log:
        fxrewrite.rewrite(gm, ["norm_quant"], providers=["op"], strict=True)
    torch.manual_seed(0)
    after = gm(*args)
    assert "effect order" in {e.reason for e in log.events if e.rule == "add_rms_norm_fp8"}
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(before, after, strict=True))


def test_an_empty_list_of_providers_is_refused() -> None:
    with pytest.raises(fxrewrite.ConfigError, match="providers"):
        make_config(providers=[])


def test_a_clean_up_rule_with_types_is_off_with_a_reason() -> None:
    text = "pack tidy stage canonicalize\nrule typed(x: bf16[4, 8]): reshape(x, s) => x requires s == x.shape\n"
    gm = make_fx_graph(lambda x: torch.ops.aten.view(x, [5, 8]) + 1, (torch.randn(5, 8).to(torch.bfloat16),))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(gm, [_pack(text)], providers=["op"])
    assert not log.fired()
    assert "states no types" in next(e.found for e in log.events if e.rule == "typed")


def test_a_flag_does_not_turn_on_a_pack_whose_condition_is_false() -> None:
    text = "pack big level O1 flag big when sm >= 500\nrule twice: neg(neg(x)) => x\n"
    gm = make_fx_graph(lambda x: torch.neg(torch.neg(x)), (torch.randn(4),))
    with fxrewrite.record() as log:
        fxrewrite.rewrite(gm, [_pack(text)], providers=["op"], flags={"big": True})
    assert not log.fired()


@pytest.mark.parametrize("flag", ["off", "false", 0, None])
def test_a_flag_is_true_or_false(flag: Any) -> None:
    with pytest.raises(fxrewrite.ConfigError, match="True or False"):
        make_config(flags={"fuse_act_quant": flag})


@pytest.mark.parametrize("tokens", [(1,), (1, 2, 3), ("a", "b"), (None, 4), (1.5, 2), (4, 1)])
def test_a_token_range_has_two_ends(tokens: Any) -> None:
    with pytest.raises(fxrewrite.ConfigError, match="no range"):
        make_config(tokens=tokens)


def test_only_graphs_are_rewritten() -> None:
    with pytest.raises(TypeError, match="trace it first"):
        fxrewrite.rewrite(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def test_an_impl_with_arguments_that_the_op_does_not_take_is_not_used() -> None:
    with torch.library._scoped_library("sound", "FRAGMENT") as lib:
        lib.define("one(Tensor x) -> Tensor")
        lib.impl("one", lambda x: x.clone(), "CompositeExplicitAutograd")
        text = "fusion z(g, u) = silu_mul(g, u) |> gelu\n  impl mine  sound.one(g, u)\n"
        graph = make_fx_graph(
            lambda g, u: torch.nn.functional.gelu(torch.nn.functional.silu(g) * u),
            tuple(torch.randn(4, 8).to(torch.bfloat16) for _ in range(2)),
        )
        with fxrewrite.record() as log:
            fxrewrite.rewrite(graph, [_pack(text)], providers=["mine", "op"])
    assert [e.by for e in log.events if e.fired] == ["op"]


def test_a_declared_layout_of_an_operand_is_held() -> None:
    file = _pack(
        'op kcol(x: f32[T, D; "col"]) -> f32[T, D]\n  = x * 2.0 + x\nrule to_columns: x + x * 1.5 => kcol(x)\n'
    )
    pass_ = make_pass(make_config([file], providers=["op"], strict=True))

    def fired(x: Tensor) -> bool:
        gm = make_fx_graph(lambda x: x + x * 1.5, (x,))
        with fxrewrite.record() as log:
            pass_(gm.graph)
        return any(e.fired for e in log.events)

    assert not fired(torch.randn(4, 8))
    assert not fired(torch.randn(8, 4)[:, ::2])


def test_a_provider_is_not_given_another_layout_than_it_declares() -> None:
    file = _pack('fusion twice(x: f32[T, D; "col"]) = x + x * 1.5\n')
    pass_ = make_pass(make_config([file], providers=["op"], strict=True))
    gm = make_fx_graph(lambda x: x + x * 1.5, (torch.randn(4, 8),))
    with fxrewrite.record() as log:
        pass_(gm.graph)
    assert [e.reason for e in log.events if e.rule == "twice"] == ["strides"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.neg(torch.neg(x)),
        lambda x: torch.neg(torch.neg(x)).t(),
        lambda x: (lambda a: (torch.neg(torch.neg(a)), a))(x + 1),
        lambda x: (lambda a: (torch.neg(torch.neg(a)), a.chunk(2, -1)[1]))(x + 1),
        lambda x: (lambda a: (torch.neg(torch.neg(a)), a[0]))(x + 1),
    ],
)
def test_an_operand_that_comes_out_as_it_is_is_copied_where_it_is_seen(fn: Any) -> None:
    pass_ = make_pass(make_config([_pack("rule twice: neg(neg(x)) => x\n")], strict=True))
    x = torch.randn(4, 8)
    gm = make_fx_graph(fn, (x,))
    assert rewrite_checked(gm, pass_).fired == {"twice": 1}
    assert all(o.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() for o in run(gm))


EACH = """
op scaled_by(x: f32[*B, D], s: f32[*B, D]) -> f32[*B, D] = x * s
fusion each_scaled(x: f32[*B, D], y: f32[*B, D], *s: f32[*B, D]) = *q where n = x - y, each q = scaled_by(n, s)
"""


def test_an_operand_that_is_an_output_of_the_same_site_is_a_cycle() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        n = x - y
        return n * (n * n)

    pass_ = make_pass(make_config([_pack(EACH)], providers=["op"], strict=True))
    done = rewrite_checked(make_fx_graph(fn, (torch.randn(4, 8), torch.randn(4, 8))), pass_)
    assert "cycle" in [e.reason for e in done.log.missed("each_scaled")] and not done.fired


SHARED = """
fusion quotient(x: f32[*B, D], y: f32[*B, D], z: f32[*B, D]) = (x + y) / z
rule kept(x: f32[*B, D], y: f32[*B, D], z: f32[*B, D]): n / z => quotient(x, y, z) where keep n = x + y
fusion sum_squared(x: f32[*B, D], y: f32[*B, D]) = t * t where t = x + y
"""


def test_a_value_that_was_shared_is_free_once_another_rule_has_taken_its_user() -> None:
    def fn(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        n = x + y
        return n / z, n * n

    pass_ = make_pass(make_config([_pack(SHARED)], providers=["op"], strict=True))
    done = rewrite_checked(make_fx_graph(fn, tuple(torch.randn(4, 8) for _ in range(3))), pass_)
    assert done.fired == {"kept": 1, "sum_squared": 1}


def test_outputs_that_share_memory_still_do() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.slice_scatter(x.abs(), x[..., 4:] * 3, -1, 4, 8)
        return whole, whole[..., :4]

    rewrite_checked(make_fx_graph(fn, (torch.randn(2, 8),)), DEFAULT)
