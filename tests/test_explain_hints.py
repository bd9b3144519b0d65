"""Each hint of a report, followed to the letter, makes the rule fire: in the text of the rule, or in the settings."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner
from torch.fx import GraphModule
from torch.nn import functional as F

from capture import export_graph, make_fx_graph, post_grad_graphs
from explained import NAME, explained, low, miss, off
from fxrewrite.cli.options import settings
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.proofs import VARIABLE
from fxrewrite.patterns import hints
from spelled_ops import rms

TWO = "fusion two(x) = silu(x) |> gelu"
QUANT = "fusion two(x, w) = rms_norm(x, w) |> gelu"
ADD = "fusion two(x, r, w) = gelu(y), h where (y, h) = add_rms_norm(x, r, w)"
THREE = "fusion three(x: lowp[*B, D]) = (silu(x) |> gelu) * 3.0"
X, R, W = low(4, 64), low(4, 64), low(64)
SHARED = (lambda x: (F.gelu(y := F.silu(x)), torch.neg(y)), (X,))
NORMED = (lambda x, w: (F.gelu(y := rms(x, w)), torch.neg(y)), (X, W))
ADDED = (lambda x, r, w: (F.gelu(y := rms(h := x + r, w)), torch.neg(y), h), (X, R, W))
TRIPLE = (lambda x: (F.gelu(y := x * 3), torch.neg(y)), (X,))
PLAIN = (lambda x: F.gelu(F.silu(x)), (X,))


def fires(text: str, graph: Any, **given: Any) -> bool:
    return explained(text + "\n", *graph, **given).fired()["two"] == 1


def hint_of(text: str, graph: Any, **given: Any) -> str:
    log = explained(text + "\n", *graph, **given)
    assert log.fired()["two"] == 0
    event = miss(log, "two")
    assert (f"hint: {event.hint}\n" if event.hint else "two") in log.report("two") + "\n"
    return event.hint


# ---- the text of the rule


@pytest.mark.parametrize(
    ("text", "graph", "hint"),
    [
        (TWO, SHARED, "write `n` for `silu(x)`, and `where keep n = silu(x)`: it stays for the others"),
        (QUANT, NORMED, "write `n` for `rms_norm(x, w)`, and `where keep n = rms_norm(x, w)`: it stays for the others"),
        (
            "fusion two(x: lowp[*B, D]) = gelu(x * 3.0)", TRIPLE,
            "write `n` for `x * 3.0`, and `where keep n = x * 3.0`: it stays for the others",
        ),
        (
            "fusion two(n, w) = rms_norm(n, w) |> gelu", NORMED,
            "write `m` for `rms_norm(n, w)`, and `where keep m = rms_norm(n, w)`: it stays for the others",
        ),
        (
            "fusion two(x, w) = gelu(rms_norm(x, w, eps=1e-6))", NORMED,
            "write `n` for `rms_norm(x, w, eps=1e-6)`, and `where keep n = rms_norm(x, w, eps=1e-6)`: it stays for the"
            " others",
        ),
        (
            "fusion two(x) = gelu(silu(y)) where keep y = minus(x)\ndef minus(x) = x * -1.0",
            (lambda x: (F.gelu(y := F.silu(x * -1)), torch.neg(y)), (X,)),
            "write `n` for `silu(y)`, and `keep n = silu(y)` under `where`: it stays for the others",
        ),
    ],
)  # fmt: skip
def test_a_value_that_others_read_is_kept(text: str, graph: Any, hint: str) -> None:
    if "minus(" in text:
        text = text.replace("two(x)", "two(x: lowp[*B, D])")
    assert hint_of(text, graph) == hint
    found = re.fullmatch(r"write `(\w+)` for `(.+?)`, and `(.+?)`( under `where`)?: .*", hint)
    assert found
    name, value, bound, under = found.groups()
    assert text.count(value) == 1
    edited = text.replace(value, name)
    edited = edited.replace("where ", f"where {bound}, ") if under else f"{edited} {bound}"
    assert fires(edited, graph)


@pytest.mark.parametrize(
    ("text", "graph", "hint"),
    [
        (ADD, ADDED, "write `keep` before `(y, h) =` under `where`: it stays for the others"),
        ("fusion two(x) = gelu(s) where s = silu(x)", SHARED, "write `keep` before `s =` under `where`: it stays for"
         " the others"),
    ],
)  # fmt: skip
def test_a_value_that_has_a_name_is_kept(text: str, graph: Any, hint: str) -> None:
    assert hint_of(text, graph) == hint
    found = re.fullmatch(r"write `keep` before `(.+?)` under `where`: .*", hint)
    assert found and text.count(found[1]) == 1
    assert fires(text.replace(found[1], f"keep {found[1]}"), graph)


def test_a_value_of_a_pipe_is_kept() -> None:
    hint = hint_of("fusion two(x) = x |> silu |> gelu", SHARED)
    assert hint == "write `n` for the value of `silu(x)`, and `where keep n = silu(x)`: it stays for the others"
    assert fires("fusion two(x) = n |> gelu where keep n = silu(x)", SHARED)


def test_an_attribute_that_a_fusion_pins_is_left_out() -> None:
    text = "fusion two(x, w) = rms_norm(x, w, eps=1e-6) |> gelu"
    graph = (lambda x, w: F.gelu(rms(x, w, 1e-5)), (X, W))
    hint = hint_of(text, graph)
    assert hint == "leave `eps=1e-6` out of `rms_norm(...)`: the fusion then takes every eps"
    assert fires(text.replace(", eps=1e-6", ""), graph)


# ---- settings


def setting(hint: str) -> dict[str, Any]:
    """What a hint says to set in Python; what it says to type on the command line must be the same."""
    found = re.fullmatch(r"`(--.+?)`, in Python (\w+)=(.+?), (?:turns|leaves|runs|lets|says|uses) .*", hint)
    assert found, hint
    option, name, value = found[1], found[2], ast.literal_eval(found[3])
    seen: list[Any] = []
    CliRunner().invoke(click.command()(settings(lambda config: seen.append(config))), shlex.split(option))
    assert seen == [make_config(**{name: value})]
    return {name: value}


RIVAL = f"{TWO}\n{THREE}"
FREE_ROWS = "fusion two(x) = silu(x) |> gelu prefer"


@cache
def free_rows() -> GraphModule:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(F.silu(x))

    return export_graph(Model(), (X,), decompose=True, dynamic=True)


@pytest.mark.parametrize(
    ("text", "given", "hint"),
    [
        (RIVAL, {}, "`--flag my.three=off`, in Python flags={\"my.three\": False}, leaves the site to this rule"),
        (TWO, {"providers": ["definition"]},
         '`--providers op`, in Python providers=["op"], runs the definition as one op'),
        (TWO, {"providers": ["mine", "kernel"]},
         '`--providers mine,kernel,op`, in Python providers=["mine", "kernel", "op"], runs the definition as one op'),
    ],
    ids=["eaten", "kept", "provider missing"],
)  # fmt: skip
def test_a_site_that_was_matched(text: str, given: dict[str, Any], hint: str) -> None:
    graph = (lambda x: F.gelu(F.silu(x)) * 3, (X,))
    assert hint_of(text, graph, **given) == hint
    assert fires(text, graph, **{**given, **setting(hint)})


@pytest.mark.parametrize(
    ("prefer", "hint"),
    [
        ("tokens <= 256", "`--tokens 1:256`, in Python tokens=(1, 256), says that no other counts occur"),
        ("8 < tokens", "`--tokens 9:`, in Python tokens=(9, None), says that no other counts occur"),
        ("8 <= tokens < 65", "`--tokens 8:64`, in Python tokens=(8, 64), says that no other counts occur"),
        ("tokens == 4", "`--tokens 4:4`, in Python tokens=(4, 4), says that no other counts occur"),
    ],
)
def test_counts_of_tokens_that_are_free(prefer: str, hint: str) -> None:
    graph = (free_rows(),)
    assert hint_of(f"{FREE_ROWS} {prefer}", graph) == hint
    assert fires(f"{FREE_ROWS} {prefer}", graph, **setting(hint))


def test_a_count_of_tokens_that_is_fixed_has_no_hint() -> None:
    assert hint_of(f"{FREE_ROWS} tokens >= 64", PLAIN) == ""
    assert hint_of(f"{FREE_ROWS} tokens % 64 == 0", (free_rows(),)) == ""


@pytest.mark.parametrize(
    ("head", "given", "hint"),
    [
        ("pack p level O3", {}, '`--level O3`, in Python level="O3", turns it on'),
        ("pack p level none", {}, '`--flag p.two=on`, in Python flags={"p.two": True}, turns it on'),
        ("pack p level O1 flag f", {"flags": {"f": False}},
         '`--flag p.two=on`, in Python flags={"p.two": True}, turns it on'),
        ("pack p level O1", {"level": "O0"}, '`--level O1`, in Python level="O1", turns it on'),
    ],
)  # fmt: skip
def test_a_rule_that_is_off(head: str, given: dict[str, Any], hint: str) -> None:
    log = explained(f"{head}\n{TWO}\n", *PLAIN, **given)
    assert off(log, "two").hint == hint and f"\n  hint: {hint}" in log.report("two")
    followed = {**given, **setting(hint)}
    if "flags" in given and "flags" in followed:
        followed["flags"] = {**given["flags"], **followed["flags"]}
    assert fires(f"{head}\n{TWO}", PLAIN, **followed)


# ---- what is registered


def serving(body: Callable[[Any], Any], contract: str = "") -> tuple[str, Any]:
    lib = torch.library.Library("hinted", "FRAGMENT")
    lib.define("two(Tensor x) -> Tensor")
    lib.impl("two", body, "CompositeExplicitAutograd")
    return f"{TWO}\n  impl mine {contract} hinted.two(x)", lib


def test_a_provider_that_is_not_registered() -> None:
    text = f"{TWO}\n  impl mine  hinted.two(x)"
    hint = hint_of(text, PLAIN, providers=["mine"])
    assert hint == "import the package that registers hinted.two before the backend is made"
    _, lib = serving(lambda x: F.gelu(F.silu(x)))
    try:
        assert fires(text, PLAIN, providers=["mine"])
    finally:
        lib._destroy()


def test_a_rule_on_an_op_that_is_not_registered() -> None:
    text = "rule two(x: lowp[*B, D]): hinted.two(x) => silu(x)"
    event = off(explained(text + "\n", *PLAIN), "two")
    assert event.hint == "import the package that registers hinted.two before the backend is made"
    _, lib = serving(F.silu)
    try:
        assert fires(text, (make_fx_graph(lambda x: torch.ops.hinted.two(x), (X,)),))
    finally:
        lib._destroy()


def test_a_provider_of_a_weaker_contract() -> None:
    text, lib = serving(lambda x: F.gelu(F.silu(x)), "contract relaxed 1 codes")
    try:
        hint = hint_of(text, PLAIN, providers=["mine"])
        assert hint == "`--allow-relaxed`, in Python allow_relaxed=True, lets it in"
        assert fires(text, PLAIN, providers=["mine"], **setting(hint))
    finally:
        lib._destroy()


def test_a_provider_that_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    text, lib = serving(lambda x: F.gelu(F.silu(x)) + 1)
    try:
        hint = hint_of(text, PLAIN, providers=["mine"])
        script = f"`fxrewrite verify {NAME} --import {__name__} -k two/` shows more; "
        assert hint == script + "`--allow-unproved`, in Python allow_unproved=True, uses it without a proof"
        assert fires(text, PLAIN, providers=["mine"], **setting(hint.removeprefix(script)))
    finally:
        lib._destroy()


def test_a_provider_that_cannot_be_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    text = f"{TWO}\n  impl mine  hinted.two(x)"
    with torch.library._scoped_library("hinted", "FRAGMENT") as lib:
        lib.define("two(Tensor x) -> Tensor")
        lib.impl("two", torch.empty_like, "Meta")
        hint = hint_of(text, PLAIN, providers=["mine"])
        assert hint == "`--allow-unproved`, in Python allow_unproved=True, uses it without a proof"
        assert fires(text, PLAIN, providers=["mine"], **setting(hint))


# ---- the model


@pytest.mark.slow
def test_a_float_of_a_module_that_is_an_input() -> None:
    class Norm(torch.nn.Module):
        eps = 1e-6

        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.gelu(rms(x, w, self.eps))

    def graph() -> GraphModule:
        (gm,) = post_grad_graphs(Norm(), (X, W), dynamic=True)
        return gm

    text = "fusion two(x, w) = rms_norm(x, w, eps=1e-6) |> gelu"
    hint = hint_of(text, (graph(),))
    assert (
        hint == hints.SPECIALIZE == "torch._dynamo.config.specialize_float = True keeps floats of a module as constants"
    )
    name = hint.partition(" = ")[0].removeprefix("torch._dynamo.config.")
    with torch._dynamo.config.patch({name: True}):
        assert fires(text, (graph(),))


# ---- nothing else


def test_every_hint_is_in_this_file() -> None:
    """Each is made by a function of `hints`, and what it says is quoted here."""
    here = Path(__file__).read_text(encoding="utf-8")
    made = {name for name in vars(hints) if name.endswith("_hint")}
    starts = {
        "keep_hint": "write `n` for", "attribute_hint": "leave `eps=1e-6` out", "switch_hint": "`--flag p.two=on`",
        "level_hint": "`--level O3`", "providers_hint": "`--providers op`", "relaxed_hint": "`--allow-relaxed`",
        "import_hint": "import the package", "tokens_hint": "`--tokens 1:256`", "unproved_hint": "`--allow-unproved`",
        "refuted_hint": "`fxrewrite verify",
    }  # fmt: skip
    assert made == starts.keys()
    assert all(here.count(start) > 1 for start in starts.values())
