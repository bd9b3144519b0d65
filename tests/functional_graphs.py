"""Graphs as `torch.compile` makes them functional: mutable ops under `auto_functionalized`, v1 or v2.

gm = functional(fn, args, v2=True)      # fn may call ops that write to what it made
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_function
from torch._inductor import config as inductor_config
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule

import capture

VERSIONS = pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])


def random(*shape: int) -> Tensor:
    """A bfloat16 tensor, the same for a shape every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def functional(fn: Callable[..., Any], args: Sequence[Any], v2: bool) -> GraphModule:
    """`fn` as Inductor's decompositions and functionalization make it (0.1 s)."""
    graphs: list[GraphModule] = []

    def keep(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        gm.meta[capture.INPUTS] = tuple(args)
        graphs.append(gm)
        return gm

    with (
        torch.no_grad(),
        inductor_config.patch(enable_auto_functionalized_v2=v2),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        compiled = aot_function(fn, keep, decompositions=select_decomp_table(), keep_inference_input_mutations=True)
        compiled(*(a.clone() for a in args))
    (gm,) = graphs
    return gm
