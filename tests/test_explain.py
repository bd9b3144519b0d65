"""Every reason of the closed list, in the words that a person reads; and how a report ranks and groups its sites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fxrewrite_kernels as kernels
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

import fxrewrite
from capture import export_graph
from explained import explained, low, miss, off, said
from fxrewrite.lowering import backend, emit
from fxrewrite.patterns.events import LOWERED, OFF, REASONS, SERVED, Event, Log
from fxrewrite.patterns.explain import chapters
from spelled_ops import rms

TWO = "fusion two(x) = silu(x) |> gelu\n"
THREE = "fusion three(x: lowp[*B, D]) = (silu(x) |> gelu) * 3.0\n"
PINNED = "fusion two(x, w) = rms_norm(x, w, eps=1e-6) |> gelu\n"
ADD = "fusion two(x, r, w) = gelu(y), h where (y, h) = add_rms_norm(x, r, w)\n"
ROWS = "fusion two(x) = silu(x) |> gelu requires rows(x) % 48 == 0\n"
TURNED = 'fusion two(x: f32[T, D; "col"]) = x + x * 1.5\n'
X, W = low(4, 64), low(64)


def plain(x: Tensor) -> Tensor:
    return F.gelu(F.silu(x))


def drawing(x: Tensor, r: Tensor) -> tuple[Tensor, ...]:
    """A weight that is drawn after a draw from the sum."""
    h = x + r
    drawn = torch.multinomial(h.float().abs(), 2)
    return F.gelu(rms(h, torch.rand(64).bfloat16())), h, drawn


def written(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x * 1
    y = F.silu(x)
    x.add_(1)
    return F.gelu(y), x


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return plain(x)


CASES: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...], dict[str, Any], str]] = {
    "kept": (TWO, plain, (X,), {"providers": ["definition"]},
             "kept: no faster provider here: found providers: definition"),
    "provider": (TWO, plain, (X,), {"providers": ["mine"]},
                 "provider missing: found mine: two has no impl of this name"),
    "tokens": (TWO.rstrip() + " prefer tokens >= 64\n", plain, (X,), {},
               "outside token range: expected tokens >= 64, found 4 tokens"),
    "eaten": (TWO + THREE, lambda x: plain(x) * 3, (X,), {}, "eaten by my.three"),
    "strides": (TURNED, lambda x: x + x * 1.5, (X.float(),), {},
                "strides: expected x: f32[T, D] in the layout col, found [64, 1]"),
    "order": (ADD, drawing, (X, X), {}, "effect order: found multinomial would move past another"),
    "cycle": ("fusion two(x, r) = z, y where y = silu(x), z = silu_mul(y, r)\n",
              lambda x: (F.silu(y := F.silu(x)) * torch.neg(y), y), (X,), {},
              "cycle: found neg is read by the rule and depends on its output"),
    "mutation": (TWO, written, (X,), {}, "mutation between: found mul was written to by add_"),
    "shared": (TWO, lambda x: (F.gelu(y := F.silu(x)), torch.neg(y)), (X,), {},
               "shared value: expected silu has no other users, found used by neg"),
    "false": (ROWS, plain, (X,), {}, "guard false: expected rows(x) % 48 == 0, found rows(x) = 4"),
    "dims": ("fusion two(x: lowp[A, B, C]) = silu(x) |> gelu\n", plain, (X,), {},
             "shape: expected x: lowp[A, B, C], found [4, 64]"),
    "dtype": ("fusion two(x: bf16[*B, D]) = silu(x) |> gelu\n", plain, (X.half(),), {},
              "dtype: expected x: bf16[*B, D], found f16[4, 64]"),
    "constant": (PINNED, lambda x, w: F.gelu(rms(x, w, 1e-5)), (X, W), {},
                 "other constant: expected rms_norm: eps = 1e-6, found 1e-5"),
    "root": (TWO, lambda x: F.gelu(torch.neg(x)), (X,), {}, "other op: expected a result of silu, found `neg`"),
    "first": (TWO, lambda x: torch.neg(F.silu(x)), (X,), {},
              "other op: expected a gelu among its users, found silu is used by neg"),
    "unused": (TWO, lambda x: F.silu(x), (X,), {},
               "other op: expected a gelu among its users, found silu is used by the output of the graph"),
}  # fmt: skip
RULES_OFF = {
    "flag": ("pack p level O1 flag fl\n" + TWO, {"flags": {"fl": False}}, "pack off", "flag fl = false"),
    "when": ("pack p level O1 when sm >= 500\n" + TWO, {}, "pack off", "pack p: its `when` is false here"),
    "level": ("pack p level O3\n" + TWO, {}, "level", "it needs O3, and the level is O2"),
    "none": ("pack p level none flag fl\n" + TWO, {}, "level", "only its flag fl turns it on"),
    "op": ("rule two(x: lowp[*B, D]): absent.two(x) => silu(x)\n", {}, "missing op",
           "absent.two is not in this build"),
    "native": ('native odd(n: int) -> bool from "absent:odd"\n' + TWO.rstrip() + " requires odd(D)\n", {},
               "missing native", 'no installed package registers the native "absent:odd"'),
    "clean-up": ("pack p stage canonicalize\nrule two(x: bf16[4, 8]): reshape(x, s) => x requires s == x.shape\n", {},
                 "not applied", "a clean-up rule states no types of operands"),
}  # fmt: skip
ELSEWHERE = {"guard unknown", "not proved", "rule failed", "schema", LOWERED, SERVED}  # tests of their own below


@pytest.mark.parametrize(("text", "fn", "args", "given", "words"), CASES.values(), ids=CASES)
def test_why_a_site_did_not_fire(
    text: str, fn: Callable[..., Any], args: tuple[Tensor, ...], given: dict[str, Any], words: str
) -> None:
    log = explained(text, fn, args, **given)
    event = miss(log, "two")
    assert said(log, "two") == words
    assert f"    {words}  [1 site]\n      at {event.site}" in log.report("two")


@pytest.mark.parametrize(("text", "given", "reason", "words"), RULES_OFF.values(), ids=RULES_OFF)
def test_why_a_rule_takes_no_part(text: str, given: dict[str, Any], reason: str, words: str) -> None:
    log = explained(text, plain, (X,), **given)
    event = off(log, "two")
    assert (event.reason, event.site, event.found) == (reason, "", words)
    assert log.report("two").startswith(f"{event.full_name} is off: {words}")


def test_a_condition_that_sizes_leave_open() -> None:
    log = explained(ROWS, export_graph(Plain(), (X,), decompose=True, dynamic=True))
    words = said(log, "two")
    assert words.startswith("guard unknown: expected rows(x) % 48 == 0, found rows(x) = s")
    assert words.removeprefix("guard unknown: expected rows(x) % 48 == 0, found rows(x) = ").isalnum()


def test_a_rule_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> Any:
        raise ZeroDivisionError("boom\nand more")

    monkeypatch.setattr(emit.Emitter, "outputs", fail)
    log = explained(TWO, plain, (X,), strict=False)
    assert said(log, "two") == "rule failed: found ZeroDivisionError: boom"


def test_an_op_that_this_build_has_with_other_arguments() -> None:
    with torch.library._scoped_library("told", "FRAGMENT") as lib:
        lib.define("two(Tensor x) -> Tensor")
        log = explained("rule two(x: lowp[*B, D]): told.two(x, scale=2.0) => silu(x)\n", plain, (X,))
    event = off(log, "two")
    assert (event.reason, event.found) == ("schema", "told.two has no argument scale")


def test_calls_that_no_rule_took() -> None:
    class Kernel:
        default = torch.ops.aten.silu.default

    def call(x: Tensor) -> Tensor:
        return fxrewrite.ops.silu(x)

    log = explained(TWO, call, (X,), providers=["definition"])
    told = "fxrewrite::silu  1 call\n    lowered to primitives: found no kernel for cpu  [1 site]\n      at silu"
    assert log.report("fxrewrite::silu") == told
    kernels.register("silu", "cpu", Kernel)
    try:
        log = explained(TWO, call, (X,), providers=["kernel"])
    finally:
        kernels.unregister("silu", "cpu")
    assert log.report("fxrewrite::silu") == "fxrewrite::silu  1 call\n    served by kernel  [1 site]\n      at silu"


def test_code_that_came_from_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda gm, inputs, **given: gm)
    run = backend.backend([], level="O0")
    with fxrewrite.record() as log:
        for _ in range(2):
            run(torch.fx.symbolic_trace(lambda x: -x), [X])
    assert log.report() == "2 compilations: cached, not run (the code came from Inductor's cache)"


def test_graphs_that_came_from_a_cache_under_plain_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor counts them; what our own backend took from the cache in between is not counted twice."""
    hits = counters["inductor"]

    def cached(gm: Any, inputs: Any, config_patches: Any) -> Any:
        (pass_,) = config_patches.values()
        pass_.uuid()
        hits["fxgraph_cache_hit"] += 1
        return gm

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", cached)
    (pass_,) = fxrewrite.inductor_options([], level="O0").values()
    with fxrewrite.record() as log:
        assert pass_.uuid() and log.cached == 1, "asked for its key, and not run"
        hits["fxgraph_cache_hit"] += 2
        backend.backend([], level="O0")(torch.fx.symbolic_trace(lambda x: -x), [X])
    hits["fxgraph_cache_hit"] += 1
    assert log.cached == 3
    assert log.report().splitlines() == [
        "1 compilation: cached, not run (the code came from Inductor's cache)",
        "2 graphs under plain Inductor: cached, not run (what the cold runs said of them is stored with "
        '`backend="fxrewrite"` only)',
    ]


def test_every_reason_has_a_test() -> None:
    """The list is closed: no event has another reason, and none of the list is without its words."""
    sites = {words.split(":")[0].partition(" my.")[0] for *_, words in CASES.values()}
    sites = {"kept: no faster provider here" if s == "kept" else s for s in sites}
    found = sites | {reason for *_, reason, _ in RULES_OFF.values()} | ELSEWHERE
    assert found == set(REASONS) and len(REASONS) == len(set(REASONS)) and set(OFF) < set(REASONS)
    with pytest.raises(ValueError, match="'loses in this bucket' is no reason of the closed list"):
        Event(None, "r", "n", False, "loses in this bucket")


# ---- the report


class Layers(nn.Module):
    """Norms whose result others read in every layer but the last, where it is scaled by another number."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.w = nn.Parameter(W, requires_grad=False)
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.layers):
            y = rms(x, self.w)
            x = F.gelu(y) + torch.neg(y)
        return F.gelu(rms(x, self.w, 1e-5))


REPORT = """\
my.two  0 of 4 sites
  my.rw:1:20
      1 | fusion two(x, w) = rms_norm(x, w, eps=1e-6) |> gelu
        |                    ^^^^^^^^
    shared value: expected rms_norm has no other users, found used by neg (test_explain.py:{use})  [3 sites alike]
      {where}  at {sites}
    hint: write `n` for `rms_norm(x, w, eps=1e-6)`, and `where keep n = rms_norm(x, w, eps=1e-6)`: it stays for the \
others
    other constant: expected rms_norm: eps = 1e-6, found 1e-5  [1 site]
      test_explain.py:{last}  return F.gelu(rms(x, self.w, 1e-5))  at {site}
    hint: leave `eps=1e-6` out of `rms_norm(...)`: the fusion then takes every eps"""


def line_of(text: str) -> int:
    return Path(__file__).read_text(encoding="utf-8").split("\n").index(text) + 1


def test_sites_of_layers_are_one_group_and_the_nearest_stand_first() -> None:
    log = explained(PINNED, export_graph(Layers(3), (X,), decompose=True))
    shared, constant = chapters(log, "two")[0].groups
    expected = REPORT.format(
        use=line_of("            x = F.gelu(y) + torch.neg(y)"),
        where=shared.first.source, sites=", ".join(e.site for e in shared.events),
        last=line_of("        return F.gelu(rms(x, self.w, 1e-5))"), site=constant.first.site,
    )  # fmt: skip
    assert shared.first.source.endswith("  y = rms(x, self.w)")
    assert log.report("two") == expected
    assert [len(e.nodes) for e in shared.events] == [1, 1, 1], "who reads the value"


def test_of_many_sites_the_first_are_named() -> None:
    log = explained(PINNED, export_graph(Layers(5), (X,), decompose=True))
    (group, _) = chapters(log, "two")[0].groups
    names = [e.site for e in group.events]
    assert f"at {', '.join(names[:3])} and 2 more\n" in log.report("two")
    assert f"at {', '.join(names)}\n" in log.report("two", every=True)


def test_rules_are_in_the_order_of_what_fired_and_then_of_what_came_nearest() -> None:
    text = (
        "fusion far(x) = silu(x) |> quant_fp8\nfusion near(x: f16[*B, D]) = gelu(x) |> silu\n"
        "fusion nearer(x) = silu(x) |> silu prefer tokens > 99\n" + TWO
    )
    log = explained(text, lambda x: (F.gelu(F.silu(x)), F.silu(F.gelu(x + 1)), F.silu(F.silu(x + 2))), (X,))
    assert [c.name for c in chapters(log)] == ["my.two", "my.nearer", "my.near", "my.far"]
    assert log.report().endswith("\n\nmy.far  0 of 4 sites: no quant_fp8 among its users")


def test_rules_that_are_off_stand_together() -> None:
    text = "pack p level O3\nfusion f(x) = silu(x) |> gelu\nfusion g(x) = silu(x) |> silu\n"
    report = explained(text, plain, (X,)).report()
    assert report == (
        'p.f, p.g are off: it needs O3, and the level is O2\n  hint: `--level O3`, in Python level="O3", turns it on'
    )


def test_nothing_to_tell() -> None:
    assert explained(TWO, torch.neg, (X,)).report("two") == "no site of two"
    assert Log().report() == "no rule has a site in these graphs"


def test_a_line_of_torch_itself_is_not_the_models() -> None:
    log = explained(TWO, export_graph(nn.Sequential(nn.SiLU(), nn.GELU()), (X,), decompose=True), strict=True)
    (event,) = [e for e in log.events if e.fired]
    assert event.source.startswith("activation.py:")  # there is no other

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.GELU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(F.silu(x))

    (event,) = [e for e in explained(TWO, export_graph(Own(), (X,), decompose=True)).events if e.fired]
    assert (
        event.source
        == f"test_explain.py:{line_of('            return self.act(F.silu(x))')}  return self.act(F.silu(x))"
    )
