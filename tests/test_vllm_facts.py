"""The natives that ask vLLM: what they say of a fake one, and None wherever it does not say."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import fake_vllm
from fake_vllm import KINDS, Impl, config, layer
from fxrewrite.dsl import registered
from fxrewrite.integrations.vllm import KEYS, allreduce_limit, attn_fuses


def test_the_packs_may_name_both() -> None:
    for name in ("attn_fuses", "allreduce_limit"):
        assert registered.function(registered.NATIVES, f"fxrewrite.integrations.vllm:{name}") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_asked_by_name(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fake_vllm.install(monkeypatch, config({"a": layer(Impl([kind])), "b": layer(Impl([])), "moe": layer()}))
    assert attn_fuses("a", kind) is True
    assert attn_fuses("b", kind) is False
    assert [other for other in KINDS if attn_fuses("a", other)] == [kind]
    assert attn_fuses("moe", kind) is None
    assert attn_fuses("none of this name", kind) is None
    assert attn_fuses("a", "kind of no meaning") is None


def test_a_name_may_be_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch, config({"a": layer(Impl(["rope_kv"])), "b": layer(Impl([]))}))
    assert attn_fuses(SimpleNamespace(value="a"), "rope_kv") is True
    assert attn_fuses(SimpleNamespace(value="b"), "rope_kv") is False


@pytest.mark.parametrize(
    ("kinds", "said"), [((["rope_kv"], ["rope_kv"]), True), (([], []), False), ((["rope_kv"], []), None)]
)
def test_of_a_name_that_only_the_run_gives_all_layers_agree(
    monkeypatch: pytest.MonkeyPatch, kinds: Any, said: bool | None
) -> None:
    layers = {str(i): layer(Impl(k)) for i, k in enumerate(kinds)}
    fake_vllm.install(monkeypatch, config({**layers, "moe": layer()}))
    assert attn_fuses(object(), "rope_kv") is said


def test_both_group_sizes_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Impl([])
    monkeypatch.setattr(one, "fused_output_quant_supported", lambda key: key == "kFp8Dynamic128Sym", raising=True)
    fake_vllm.install(monkeypatch, config({"a": layer(one)}))
    assert attn_fuses("a", "fp8_group") is False


def test_a_version_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch, config({"a": layer(Impl(KINDS)), "old": layer(SimpleNamespace())}))
    assert [attn_fuses("old", kind) for kind in KINDS] == [None] * len(KINDS)
    del sys.modules[KEYS].kFp8Dynamic64Sym  # type: ignore[attr-defined]
    assert attn_fuses("a", "fp8_group") is None
    monkeypatch.setitem(sys.modules, KEYS, None)  # type: ignore[arg-type]
    assert attn_fuses("a", "fp8_static") is None
    assert attn_fuses("a", "rope_kv") is True


def test_without_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch, None)
    assert (attn_fuses("a", "rope_kv"), allreduce_limit(2)) == (None, None)


@pytest.mark.parametrize("module", [None, ModuleType("vllm.config")])
def test_without_vllm(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    monkeypatch.delitem(sys.modules, "vllm.config", raising=False)
    if module is not None:
        monkeypatch.setitem(sys.modules, "vllm.config", module)
    assert (attn_fuses("a", "rope_kv"), allreduce_limit(2)) == (None, None)
    assert "vllm" not in sys.modules, "it is not imported to be asked"


def test_the_limit_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(monkeypatch, config({}, {2: 64 << 20}))
    assert (allreduce_limit(2), allreduce_limit(3)) == (64 << 20, 0)
    fake_vllm.install(monkeypatch, config({}))
    assert allreduce_limit(2) is None
