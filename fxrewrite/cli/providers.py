"""What can run an op on this machine, as verbs show it."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.core import OpDef, Program


def device() -> str:
    """The kind of device that providers are asked for."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def providers_of(program: Program, op: OpDef, config: Any) -> list[dict[str, Any]]:
    """Every provider of an op as JSON: whether it may be used here, and what is against it."""
    from fxrewrite.lowering.proofs import Proofs
    from fxrewrite.lowering.providers import candidates

    found = candidates(op, device(), config.allow_relaxed, Proofs(program, allow=config.allow_unproved))
    return [{"name": c.name, "on": c.on, "reason": c.reason} for c in found]
