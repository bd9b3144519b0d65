"""A `vllm` of a few modules, with what `fxrewrite.integrations.vllm` asks of the real one, and nothing more."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fxrewrite.integrations.vllm import KEYS, QUANTIZED

KINDS = ("rope_kv", "qk_norm_rope_kv", "fp8_static", "nvfp4", "fp8_group")


class Impl:
    """An attention implementation that can do the fusions of some kinds."""

    def __init__(self, kinds: Collection[str]):
        self.kinds = kinds

    def fused_rope_kvcache_supported(self) -> bool:
        return "rope_kv" in self.kinds

    def fused_qk_norm_rope_kvcache_supported(self) -> bool:
        return "qk_norm_rope_kv" in self.kinds

    def fused_output_quant_supported(self, quant_key: str) -> bool:
        return any(quant_key in QUANTIZED.get(kind, ()) for kind in self.kinds)


def layer(impl: Any = None) -> Any:
    """An attention layer, or one without an implementation: a MoE layer is in the same table."""
    return SimpleNamespace() if impl is None else SimpleNamespace(impl=impl)


def config(layers: Mapping[str, Any], limits: Mapping[int, int] | None = None) -> Any:
    """A config with these layers; `limits`: bytes of an all-reduce, by number of ranks."""
    passes = SimpleNamespace() if limits is None else SimpleNamespace(flashinfer_max_size=limits.get)
    return SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=dict(layers), pass_config=passes))


def install(patch: pytest.MonkeyPatch, current: Any) -> None:
    """Put the modules where an import finds them; `current` is vLLM's current config."""
    modules: dict[str, Any] = {"vllm": {}, "vllm.config": dict(get_current_vllm_config_or_none=lambda: current)}
    parts = KEYS.split(".")
    modules |= {".".join(parts[:n]): {} for n in range(2, len(parts))}
    modules[KEYS] = {name: name for names in QUANTIZED.values() for name in names}
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        patch.setitem(sys.modules, name, module)
