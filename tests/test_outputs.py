"""Left sides with several outputs, lists and operands that may be exchanged: what is found, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import capture
from explained import explained
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.patterns.events import record
from graph_checks import rewrite_checked

BF16 = torch.bfloat16


def sample(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(BF16)


X, Y, A, B = sample(4, 64), sample(4, 64).flip(0), sample(64), sample(64).flip(0)


@pytest.fixture
def fired(tmp_path: Path) -> Callable[..., dict[str, int]]:
    def rewrite(text: str, fn: Any, *args: Tensor) -> dict[str, int]:
        path = tmp_path / "rules.rw"
        path.write_text(text)
        pass_ = make_pass(make_config([path], providers=["op"], strict=True))
        return rewrite_checked(capture.make_fx_graph(fn, args), pass_).fired

    return rewrite


# ---- outputs that name what the first does not

TWO = "fusion both_scaled(x: lowp[T, D], a: lowp[D], b: lowp[D]) = p, q where s = sigmoid(x), p = s * a, q = s * b\n"


def test_a_second_output_is_looked_for(fired: Any) -> None:
    def fn(x: Tensor, a: Tensor, b: Tensor) -> Any:
        s = torch.sigmoid(x)
        return s * a, s * b

    assert fired(TWO, fn, X, A, B) == {"both_scaled": 1}


def test_no_value_is_two_outputs(fired: Any) -> None:
    assert fired(TWO, lambda x, a: torch.sigmoid(x) * a, X, A) == {}


def test_a_second_output_of_another_value(fired: Any) -> None:
    assert fired(TWO, lambda x, y, a, b: (torch.sigmoid(x) * a, torch.sigmoid(y) * b), X, Y, A, B) == {}


def test_decoys_are_passed_over(fired: Any) -> None:
    """`s * s` and `s * 2` read the same value and are no outputs: what is left must be free of other users."""

    def fn(x: Tensor, a: Tensor, b: Tensor) -> Any:
        s = torch.sigmoid(x)
        return s * s, s * 2, s * a, s * b

    assert fired(TWO, fn, X, A, B) == {}  # `s` is used by the decoys
    assert fired(TWO.replace("where s = sigmoid(x),", "where keep s = sigmoid(x),"), fn, X, A, B) == {"both_scaled": 1}


THREE = """fusion of_three(x: lowp[T, D], a: lowp[D], b: lowp[D]) = s, neg(m * b), m
  where s = sigmoid(x), m = s * a
"""


def test_an_output_below_another_that_is_found_later(fired: Any) -> None:
    def fn(x: Tensor, a: Tensor, b: Tensor) -> Any:
        s = torch.sigmoid(x)
        m = s * a
        return s, -(m * b), m

    assert fired(THREE, fn, X, A, B) == {"of_three": 1}


# ---- each, over a primitive

EACH = """fusion products(x: lowp[M, K], *b: lowp[K, N]) = *y where t = sigmoid(x), each y = t @ b
"""
W = [sample(64, n) for n in (16, 32, 48)]


def test_products_of_other_widths(fired: Any) -> None:
    def fn(x: Tensor, *ws: Tensor) -> Any:
        t = torch.sigmoid(x)
        return [t @ w for w in ws]

    assert fired(EACH, fn, X, *W) == {"products": 1}
    assert fired(EACH, fn, X, W[0]) == {}  # one is no list


def test_a_product_of_another_dtype_is_not_of_the_list(fired: Any) -> None:
    def fn(x: Tensor, *ws: Tensor) -> Any:
        t = torch.sigmoid(x)
        return [t @ w for w in ws], t.float() @ ws[0].float()

    assert fired(EACH, fn, X, *W[:2]) == {}  # `t` has another user


# ---- operands that may be exchanged

SWAP = """op shifted(x: lowp[T, D], r: lowp[T, D]) -> (y: lowp[T, D])
  = exp(x + r)
  property commutative(x, r)
fusion of_a_sigmoid(x: lowp[T, D], r) = shifted(sigmoid(x), r)
fusion of_any(x: lowp[T, D], r) = neg(shifted(x, r))
"""


@pytest.mark.parametrize("swap", [False, True])
def test_operands_match_in_both_orders(fired: Any, swap: bool) -> None:
    def fn(x: Tensor, r: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        return torch.exp(r + s if swap else s + r)

    assert fired(SWAP, fn, X, Y) == {"of_a_sigmoid": 1}


def test_a_site_of_two_names_is_one_site(fired: Any) -> None:
    assert fired(SWAP, lambda x, r: -torch.exp(x + r), X, Y) == {"of_any": 1}


def test_a_difference_keeps_its_order(fired: Any) -> None:
    text = SWAP.replace("x + r", "x - r").replace("  property commutative(x, r)\n", "")
    assert fired(text, lambda x, r: torch.exp(torch.sigmoid(x) - r), X, Y) == {"of_a_sigmoid": 1}
    assert fired(text, lambda x, r: torch.exp(r - torch.sigmoid(x)), X, Y) == {}


# ---- what is asked of an operand


@pytest.mark.parametrize(("fn", "fires"), [(lambda x: x, True), (lambda x: x[:, :32], False), (lambda x: x.t(), False)])
def test_a_rule_may_ask_for_contiguous_operands(fired: Any, fn: Any, fires: bool) -> None:
    text = "fusion f(x: lowp[T, D]) = tanh(sigmoid(x))\n  requires contiguous(x)\n"
    got = fired(text, lambda x: torch.tanh(torch.sigmoid(fn(x))), X)
    assert got == ({"f": 1} if fires else {})


# ---- a torch op on the right side


@pytest.mark.parametrize(
    ("right", "wanted"),
    [
        ("aten.tanh(x)", "aten.tanh.default"),
        ("aten.clamp(x, -1.0, max=1.0)", "aten.clamp.default"),
        ("aten.topk(x, 64).0", "aten.topk.default"),
    ],
)
def test_a_rule_writes_a_torch_op(right: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.rw"
    path.write_text(f"rule r(x: lowp[T, D]): tanh(sigmoid(x)) => {right}\n  requires D == 64\n")
    gm = capture.make_fx_graph(lambda x: torch.tanh(torch.sigmoid(x)), (X,))
    make_pass(make_config([path], strict=True))(gm.graph)
    assert wanted in [str(n.target) for n in gm.graph.nodes]
    gm.graph.lint()


@pytest.mark.parametrize("right", ["aten.transpose(x, 0, 1)", "aten.slice(x, 0, 0, 2)"])
def test_a_torch_op_of_another_shape_is_refused(right: str, fired: Any) -> None:
    """A schema does not say what shape comes out: the site does."""
    assert fired(f"rule r(x: lowp[T, D]): tanh(sigmoid(x)) => {right}\n", lambda x: torch.sigmoid(x).tanh(), X) == {}


# ---- rules over what rules wrote


def test_a_site_is_told_of_once(tmp_path: Path) -> None:
    """The graph is read again after `twice`, and the site that was refused before is refused again."""
    path = tmp_path / "rules.rw"
    path.write_text(
        "rule twice(x: lowp[T, D]): neg(neg(x)) => x\nrule shared(x: lowp[T, D]): tanh(sigmoid(x)) => abs(x)\n"
    )

    def fn(x: Tensor, y: Tensor) -> Any:
        s = torch.sigmoid(y)
        return x.neg().neg() * 2, s.tanh(), s

    with record() as log:
        make_pass(make_config([path], strict=True))(capture.make_fx_graph(fn, (X, Y)).graph)
    assert [(e.rule, e.reason) for e in log.events] == [("twice", ""), ("shared", "shared value")]


# ---- outputs of what is bound already

SECOND = """op pair(x: lowp[T, D], a: lowp[D]) -> (p: lowp[T, D], q: {type})
  = sigmoid(x) * a, {of_op}
rule r(x: lowp[T, D], a: lowp[D]): s * a, {of_rule} => p, q where s = sigmoid(x), (p, q) = pair(x, a)
"""


@pytest.mark.parametrize(
    ("second", "type_", "fn"),
    [
        ("exp($) * a", "lowp[T, D]", lambda s, a: s.exp() * a),
        ("a - $", "lowp[T, D]", lambda s, a: a - s),
        ("1 - $", "lowp[T, D]", lambda s, a: 1 - s),
        ("f32($) * a", "f32[T, D]", lambda s, a: s.float() * a),
        ("amax($, -1)", "lowp[T]", lambda s, a: s.amax(-1)),
        ("amax(f32($), -1, keepdim=true)", "f32[T, 1]", lambda s, a: s.float().amax(-1, keepdim=True)),
        ("mean(f32($), -1, keepdim=true)", "f32[T, 1]", lambda s, a: s.float().mean(-1, keepdim=True)),
        ("$ @ permute($, [1, 0])", "lowp[T, T]", lambda s, a: s @ s.t()),
    ],
)
def test_a_second_output_of_the_same_names(second: str, type_: str, fn: Any, fired: Any) -> None:
    text = SECOND.format(type=type_, of_op=second.replace("$", "sigmoid(x)"), of_rule=second.replace("$", "s"))

    def both(x: Tensor, a: Tensor) -> Any:
        s = torch.sigmoid(x)
        return s * a, fn(s, a)

    assert fired(text, both, X, A) == {"r": 1}
    assert fired(text, lambda x, a: torch.sigmoid(x) * a, X, A) == {"r": 1}  # the other is dead


AGAIN = """op twice(x: lowp[T, D]) -> (p: lowp[T, D], q: lowp[T, D])
  = exp(x), exp(exp(x))
op thrice(x: lowp[T, D]) -> (p: lowp[T, D], q: lowp[T, D])
  = abs(exp(x)), exp(exp(x))
"""


@pytest.mark.parametrize(
    "rule",
    [
        "exp(x), exp(exp(x)) => p, q where (p, q) = twice(x)",
        "abs(a), b => p, q where (a, b) = twice(x), (p, q) = thrice(x)",
    ],
)
def test_a_second_output_that_is_the_first_of_another_site(rule: str, fired: Any) -> None:
    """Each output that is made would be a site again, and make the next one."""
    text = f"{AGAIN}rule r(x: lowp[T, D]): {rule}\n"
    assert fired(text, lambda x: (x.exp().abs(), x.exp().exp()), X) == {"r": 1}


# ---- long definitions


@pytest.mark.parametrize("parts", [100, 400])
def test_a_definition_of_many_parts(fired: Any, parts: int) -> None:
    steps = ", ".join(f"a{i} = {'tanh' if i % 2 else 'sigmoid'}(a{i - 1})" for i in range(1, parts))
    text = f"fusion deep(x: lowp[T, D]) = a{parts - 1}\n  where a0 = sigmoid(x), {steps}\n"

    def fn(x: Tensor) -> Tensor:
        x = torch.sigmoid(x)
        for i in range(1, parts):
            x = torch.tanh(x) if i % 2 else torch.sigmoid(x)
        return x

    assert fired(text, fn, X) == {"deep": 1}


ONE_IS_DEAD = """op both(x: lowp[T, D]) -> (p: lowp[T, D], q: lowp[T, D])
  = sigmoid(x), abs(sigmoid(x))
rule r(x: lowp[T, D]): s, abs(s) => p, q where s = sigmoid(x), (p, q) = both(x)
"""


def test_a_dead_result_is_not_told_of(tmp_path: Path) -> None:
    """What a rule wrote is what is there: the getitem of an output that nobody reads is not."""
    path = tmp_path / "rules.rw"
    path.write_text(ONE_IS_DEAD)
    gm = capture.make_fx_graph(lambda x: torch.sigmoid(x).abs(), (X,))
    with record() as log:
        make_pass(make_config([path], providers=["op"], strict=True))(gm.graph)
    (event,) = log.events
    assert event.fired
    assert set(event.written) <= {n.name for n in gm.graph.nodes}


# ---- what must fall


def test_a_rule_fires_again_only_where_what_decreases_has_fallen(fired: Any) -> None:
    swap = "rule r(x: lowp[T, D], y: lowp[T, D]): x + y => y + x decreasing rows(x)\n"
    assert fired(swap, lambda x, y: x + y, X, Y) == {"r": 1}


GIVEN = """op given_third(x: f32[*B, D], y: f32[*B, D], z: f32[*B, D]) -> f32[*B, D]
  ref "mylib:given_third"
  form shown(z=neg(x)) = x + y
rule r: given_third(x, _y, z) * z => x
"""


@pytest.mark.parametrize("which", [0, 1])
def test_names_that_a_form_gives_another_operand_by_have_both_orders(which: int) -> None:
    args = (torch.ones(4, 8), torch.zeros(4, 8))
    assert explained(GIVEN, lambda *xs: (xs[0] + xs[1]) * torch.neg(xs[which]), args).fired() == {"r": 1}
