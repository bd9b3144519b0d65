"""The models whose counts are pinned in `expect.toml` beside this file: those of `tests/test_counts.py`, exported."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[2] / "examples"))  # for the command line; pytest has it there

import fp8_linear
import models


def quantized(kind: str, quant: str, **settings: Any) -> tuple[nn.Module, tuple[Tensor]]:
    """A tiny random model with FP8 linears, and its inputs."""
    model = fp8_linear.quantize(models.make(kind), quant, **settings)
    return model, models.inputs(model)


llama_token = partial(quantized, "llama", "token")
llama_static = partial(quantized, "llama", "static")
llama_own_scales = partial(quantized, "llama", "static", shared_scale=False)
llama_group = partial(quantized, "llama", "group", group=64)

qwen3_token = partial(quantized, "qwen3", "token")
qwen3_static = partial(quantized, "qwen3", "static")
qwen3_own_scales = partial(quantized, "qwen3", "static", shared_scale=False)
qwen3_group = partial(quantized, "qwen3", "group", group=64)

phi3_token = partial(quantized, "phi3", "token")
phi3_static = partial(quantized, "phi3", "static")
phi3_own_scales = partial(quantized, "phi3", "static", shared_scale=False)
phi3_group = partial(quantized, "phi3", "group", group=64)

gemma3_token = partial(quantized, "gemma3", "token")
gemma3_static = partial(quantized, "gemma3", "static")
gemma3_own_scales = partial(quantized, "gemma3", "static", shared_scale=False)
gemma3_group = partial(quantized, "gemma3", "group", group=64)
