"""An output in other strides, a part of a wider buffer: where every reader takes any, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config

import capture
from functional_graphs import VERSIONS, functional, random
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import record
from graph_checks import Rewritten, rewrite_checked

T, D, WIDE = 6, 32, 48
RULES = """pack relaid
fusion exp_twice(x: lowp[T, D]) = exp(x) |> exp
  impl wide  = fxr_relaid.wide(x)[..., :D]
"""
TAGS = {
    "any": torch.Tag.flexible_layout, "order": torch.Tag.needs_fixed_stride_order,
    "exact": torch.Tag.needs_exact_strides, "untagged": None,
}  # fmt: skip
Program = Callable[[Tensor], Any]


def _fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x * 2)


@pytest.fixture(scope="module", autouse=True)
def declared() -> Iterator[None]:
    library = torch.library.Library("fxr_relaid", "FRAGMENT")
    library.define("wide(Tensor x) -> Tensor")
    library.impl("wide", lambda x: torch.nn.functional.pad(x.exp().exp(), (0, WIDE - D)), "CompositeExplicitAutograd")
    for name, tag in TAGS.items():
        library.define(f"{name}(Tensor x) -> Tensor", tags=() if tag is None else (tag,))
        library.impl(name, lambda x: (x * 2).contiguous(), "CompositeExplicitAutograd")
    library.define("fill(Tensor x, Tensor(a!) out) -> ()", tags=(torch.Tag.flexible_layout,))
    library.impl("fill", _fill, "CompositeExplicitAutograd")
    library.define("kept(Tensor x) -> Tensor", tags=(torch.Tag.flexible_layout,))
    library.impl("kept", lambda x: x.new_empty_strided(x.shape, x.stride()).copy_(x), "CompositeExplicitAutograd")
    yield
    library._destroy()


@pytest.fixture(scope="module")
def wide(declared: None, tmp_path_factory: pytest.TempPathFactory) -> RewritePass:
    path = tmp_path_factory.mktemp("packs") / "relaid.rw"
    path.write_text(RULES)
    return make_pass(make_config([path], providers=["wide", "definition"], strict=True))


def of(name: str) -> Any:
    return getattr(torch.ops.fxr_relaid, name)


def twice(x: Tensor) -> Tensor:
    return x.exp().exp()


def heads(y: Tensor) -> Tensor:
    return y.view(T, 4, D // 4)


TAKEN: dict[str, Program] = {
    "an op that takes any": lambda x: of("any")(twice(x)),
    "an op that wants the order": lambda x: of("order")(twice(x)),
    "behind a view": lambda x: of("order")(heads(twice(x))),
    "a turned view, where any will do": lambda x: of("any")(twice(x).t()),
    "one rounding": lambda x: twice(x) * 3,
    "parts": lambda x: [of("any")(p) for p in twice(x).split(D // 2, -1)],
    "two readers": lambda x: (lambda y: (of("any")(y), heads(y) + 1))(twice(x)),
}
STAYS: dict[str, Program] = {
    "returned": twice,
    "returned as a view": lambda x: heads(twice(x)),
    "an op with the strides of eager execution": lambda x: of("exact")(twice(x)),
    "an op that says nothing": lambda x: of("untagged")(twice(x)),
    "an op that gives the strides it gets": lambda x: of("kept")(twice(x)),
    "a sum": lambda x: twice(x).sum(-1),
    "a product of matrices": lambda x: twice(x) @ x.t(),
    "not of one rounding": lambda x: twice(x).sin(),
    "one reader of two": lambda x: (lambda y: (of("any")(y), of("untagged")(y)))(twice(x)),
    "no view of what lies so": lambda x: twice(x).view(-1) + 1,
    "as it lies in memory": lambda x: of("any")(twice(x).as_strided((3, D), (2 * D, 1))),
}


def written(fn: Program, pass_: RewritePass) -> Rewritten:
    return rewrite_checked(capture.make_fx_graph(fn, (random(T, D) / 8,)), pass_)


@pytest.mark.parametrize("name", TAKEN)
def test_every_reader_takes_other_strides(name: str, wide: RewritePass) -> None:
    found = written(TAKEN[name], wide)
    assert found.fired == {"exp_twice": 1}
    (part,) = (n for n in found.gm.graph.nodes if n.target is torch.ops.aten.slice.Tensor and "fxrewrite" in n.meta)
    assert part.meta["val"].stride() == (WIDE, 1)


@pytest.mark.parametrize("name", STAYS)
def test_a_reader_that_depends_on_strides(name: str, wide: RewritePass) -> None:
    found = written(STAYS[name], wide)
    assert found.fired == {}
    (event,) = found.log.missed("exp_twice")
    assert (event.reason, event.found, event.expected) == ("strides", f"[{WIDE}, 1]", f"[{D}, 1]")


@VERSIONS
@pytest.mark.parametrize("into", [False, True], ids=["read", "written"])
def test_calls_that_write(into: bool, v2: bool, wide: RewritePass) -> None:
    """What such an op reads is as its tag says; what it writes keeps its strides."""

    def fn(x: Tensor) -> Any:
        y = twice(x)
        out = y if into else torch.empty_like(x)
        of("fill")(x.neg() if into else y, out)
        return out + 1

    assert rewrite_checked(functional(fn, (random(T, D) / 8,), v2), wide).fired == ({} if into else {"exp_twice": 1})


@pytest.mark.slow
def test_inductor_gives_the_reader_what_it_is_promised(wide: RewritePass) -> None:
    """Compiled, with the pass on its hook: what is left are calls, whose results are those of eager execution."""
    x = random(T, D) / 8
    fn = TAKEN["behind a view"]
    options: Any = {"post_grad_custom_pre_pass": wide}
    with torch.no_grad(), inductor_config.patch(force_disable_caches=True), record() as log:
        after = torch.compile(fn, options=options)(x)
    assert dict(log.fired()) == {"exp_twice": 1}
    assert torch.equal(fn(x), after) and after.stride() == fn(x).stride()
