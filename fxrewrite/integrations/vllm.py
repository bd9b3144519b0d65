"""What vLLM knows of the layers and the machine of the model that it compiles: natives of the shipped vocabulary.

Asked of vLLM's current config, which vLLM sets while it builds and compiles a model. A process that has not imported
vLLM has none, so it is never imported for this. Without a config, of a layer that it does not know, and where the
running version lacks a name that is asked for, the answer is None: unknown.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

ASKED = {  # kind of fusion -> the question that vLLM's attention implementations answer
    "rope_kv": "fused_rope_kvcache_supported",
    "qk_norm_rope_kv": "fused_qk_norm_rope_kvcache_supported",
}
QUANTIZED = {  # kind -> vLLM's keys of the quantizations that the output must be able to have: all of them
    "fp8_static": ("kFp8StaticTensorSym",),
    "nvfp4": ("kNvfp4Dynamic",),
    "fp8_group": ("kFp8Dynamic64Sym", "kFp8Dynamic128Sym"),  # a rule does not say which group size it has
}
KEYS = "vllm.model_executor.layers.quantization.utils.quant_utils"


def attn_fuses(layer: Any, kind: str) -> bool | None:
    """Can the attention of `layer` do `kind` itself? None where vLLM does not say.

    `layer`: a name, or what holds one as `.value`. Of a name that the graph is only given at run time: what all layers
    have in common. `kind`: a key of `ASKED` or `QUANTIZED`.
    """
    layers = _layers()
    name = getattr(layer, "value", layer)
    if isinstance(name, str):
        return _says(layers[name], kind) if name in layers else None
    return _common(_says(each, kind) for each in layers.values() if hasattr(each, "impl"))


def allreduce_limit(world: int) -> int | None:
    """The largest message, in bytes, that the fused all-reduce of this machine takes among `world` ranks.

    0 where vLLM has none for so many ranks, None where vLLM does not say.
    """
    asked = getattr(getattr(_compilation_config(), "pass_config", None), "flashinfer_max_size", None)
    if asked is None:
        return None
    limit = asked(world)
    return 0 if limit is None else int(limit)


def _compilation_config() -> Any:
    """That of vLLM's current config, or None."""
    config = sys.modules.get("vllm.config")
    current = getattr(config, "get_current_vllm_config_or_none", None)
    return None if current is None else getattr(current(), "compilation_config", None)


def _layers() -> dict[str, Any]:
    """The layers that hold state, by name."""
    return getattr(_compilation_config(), "static_forward_context", None) or {}


def _says(layer: Any, kind: str) -> bool | None:
    impl = getattr(layer, "impl", None)
    if kind in ASKED:
        return _answer(getattr(impl, ASKED[kind], None))
    asked, names = getattr(impl, "fused_output_quant_supported", None), QUANTIZED.get(kind, ())
    known = [_key(name) for name in names]
    if asked is None or not known or None in known:
        return None
    return _all(_answer(asked, key) for key in known)


def _key(name: str) -> Any:
    """What vLLM calls a quantization by, or None."""
    try:
        return getattr(importlib.import_module(KEYS), name, None)
    except ImportError:
        return None


def _answer(question: Callable[..., Any] | None, *about: Any) -> bool | None:
    return None if question is None else bool(question(*about))


def _all(answers: Iterable[bool | None]) -> bool | None:
    found = list(answers)
    return False if False in found else None if None in found else True


def _common(answers: Iterable[bool | None]) -> bool | None:
    found = set(answers)
    return found.pop() if len(found) == 1 else None
