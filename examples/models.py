"""Tiny random Hugging Face models: real modelling code, no weights to download."""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers
from torch import Tensor, nn

KINDS = ("llama", "qwen3", "phi3", "gemma3")
VOCABULARY = 256
HEAD_SIZE = 16


class Logits(nn.Module):
    """A causal language model as a function from token ids i64[B, T] to logits [B, T, VOCABULARY], with no cache."""

    def __init__(self, lm: nn.Module) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, input_ids: Tensor) -> Tensor:
        """Token ids i64[B, T] -> logits lowp[B, T, VOCABULARY]."""
        return self.lm(input_ids=input_ids, use_cache=False).logits


def make(kind: str, layers: int = 2, hidden: int = 64, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Logits:
    """A random model of one of `KINDS`, in evaluation mode: `layers` decoder layers, `hidden` features (64 or 256).

    The norm weights are moved away from their initial 1 (Gemma: 0), so that a rule that drops a weight changes the
    result. Raises ValueError for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
    torch.manual_seed(seed)
    lm = _build(kind, layers, hidden).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return Logits(lm.requires_grad_(False))


def _build(kind: str, layers: int, hidden: int) -> nn.Module:
    sizes: dict[str, Any] = dict(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_SIZE,
        num_key_value_heads=hidden // HEAD_SIZE // 2,
        max_position_embeddings=128,
        initializer_range=hidden**-0.5,  # keeps activations near 1 through the layers, as in a trained model
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    if kind == "qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, head_dim=HEAD_SIZE))
    if kind == "phi3":
        return transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes))
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**sizes, head_dim=HEAD_SIZE, sliding_window=32))


def inputs(model: nn.Module, batch: int = 2, tokens: int = 16, seed: int = 0) -> tuple[Tensor]:
    """Random token ids i64[batch, tokens] for a model of `make`."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(VOCABULARY, (batch, tokens), generator=generator),)


def float32_copy(model: nn.Module) -> nn.Module:
    """A copy that computes in float32: bf16 and f16 tensors are widened, FP8 codes and their scales stay."""
    twin = copy.deepcopy(model)
    for tensor in (*twin.parameters(), *twin.buffers()):
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor.data = tensor.data.float()
    return twin
