"""Capture graphs for tests: what Inductor's post-grad hook sees, a `make_fx` trace, an export; and run them op by op.

    graphs = post_grad_graphs(model, args, dynamic=True)   # exactly Inductor's graphs, code generation never starts
    outputs = run(graphs[0])                                # on the real inputs that the compiled model got
    before, after = copy.deepcopy(graphs[0]), graphs[0]     # a copy shares the real inputs and the fake mode

Every graph has `meta["val"]` on its nodes, and `gm.meta["inputs"]`: the real value of each placeholder, in order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

INPUTS = "inputs"  # the key of a graph's real inputs in `GraphModule.meta`


def post_grad_graphs(
    model: Callable[..., Any], args: Sequence[Any], dynamic: bool = False, grad: bool = False
) -> list[GraphModule]:
    """The graphs that Inductor's `post_grad_custom_pre_pass` sees when `model(*args)` is compiled whole, in order.

    Everything up to the hook is Inductor's own work; there it is stopped, and the graph is run op by op in the place of
    the compiled code. One forward graph without `grad`; with it, also the backward graph (of the sum of the output, or
    of its first element). Raises RuntimeError if Inductor did not come as far as the hook.
    """
    graphs: list[GraphModule] = []

    def stop_at_hook(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[[list[Any]], Any]:
        graph = _stopped_graph(gm, example_inputs, kwargs)
        graphs.append(graph)

        def run_boxed(boxed: list[Any]) -> Any:
            graph.meta[INPUTS] = tuple(boxed)
            boxed.clear()
            return run(graph)

        run_boxed._boxed_call = True  # type: ignore[attr-defined]
        return run_boxed

    def backend(gm: GraphModule, example_inputs: list[Any]) -> Any:
        return compile_fx(gm, example_inputs, inner_compile=stop_at_hook)  # type: ignore[arg-type]

    torch._dynamo.reset()
    with no_caches(), torch.set_grad_enabled(grad):
        result = torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=True)(*args)
        if grad:
            (result[0] if isinstance(result, tuple) else result).float().sum().backward()
    torch._dynamo.reset()
    counters.clear()
    return graphs


@contextmanager
def no_caches() -> Iterator[None]:
    """Switch off what could answer for the compiler (`force_disable_caches` leaves a folder behind each time)."""
    with (
        inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch_config.patch(enable_autograd_cache=False, enable_remote_autograd_cache=False),
        dynamo_config.patch(automatic_dynamic_local_pgo=False, automatic_dynamic_remote_pgo=False),
    ):
        yield


class _AtHook(Exception):
    """The hook was reached; compilation goes no further."""


class _Stop(CustomGraphPass):
    """Keeps a copy of the graph that it is given and ends the compilation."""

    def __init__(self) -> None:
        self.seen: GraphModule | None = None

    def __call__(self, graph: torch.fx.Graph) -> None:
        owner = graph.owning_module
        assert owner is not None
        self.seen = GraphModule(owner, copy.deepcopy(graph))
        raise _AtHook

    def __deepcopy__(self, memo: dict[int, Any]) -> _Stop:
        return self

    def uuid(self) -> None:
        return None


def _stopped_graph(gm: GraphModule, example_inputs: Sequence[Any], kwargs: dict[str, Any]) -> GraphModule:
    stop = _Stop()
    with inductor_config.patch(post_grad_custom_pre_pass=stop):
        try:
            compile_fx_inner(gm, example_inputs, **kwargs)
        except Exception as error:
            if stop.seen is None:
                raise RuntimeError("Inductor failed before its post-grad hook") from error
    if stop.seen is None:
        raise RuntimeError("Inductor did not call its post-grad hook: the graph has no op")
    return stop.seen


def make_fx_graph(fn: Callable[..., Any], args: Sequence[Any]) -> GraphModule:
    """Trace `fn(*args)` with Inductor's decompositions on fake tensors (about 20 ms).

    Close to a post-grad graph, but `view` is not `reshape` yet, nothing is functionalized, and each size is a constant.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        with torch.no_grad():
            gm = make_fx(fn, decomposition_table=select_decomp_table(), tracing_mode="real")(*fakes)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    gm.meta[INPUTS] = tuple(args)
    return gm


def export_graph(model: nn.Module, args: Sequence[Any], decompose: bool, dynamic: bool = False) -> GraphModule:
    """The graph of `torch.export`: training IR, or core ATen with `decompose`.

    Parameters and buffers are its first placeholders. With `dynamic`, every axis longer than 1 of every input is free.
    """
    shapes = None
    if dynamic:
        shapes = tuple(
            dict.fromkeys(range(a.ndim), torch.export.Dim.AUTO) if isinstance(a, torch.Tensor) else None for a in args
        )
    with torch.no_grad():
        program = torch.export.export(model, tuple(args), dynamic_shapes=shapes)
        if decompose:
            program = program.run_decompositions()
    gm = program.graph_module
    gm.meta[INPUTS] = tuple(program._graph_module_flat_inputs(tuple(args), {}))
    return gm


def aot_graph(model: nn.Module, args: Sequence[Any], dynamic: bool = False) -> GraphModule:
    """The graph that a compiler behind aot_autograd gets when it asks for no decompositions."""
    graphs: list[GraphModule] = []

    def compiler(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)

        def call(*inputs: Any) -> Any:
            gm.meta.setdefault(INPUTS, inputs)
            return gm(*inputs)

        return call

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=aot_autograd(fw_compiler=compiler), dynamic=dynamic, fullgraph=True)(*args)
    (graph,) = graphs
    return graph


def bare_graph(model: nn.Module, args: Sequence[Any]) -> GraphModule:
    """`make_fx` of a module without a table of decompositions, its parameters and buffers the first inputs."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def call(*given: Any) -> Any:
        return torch.func.functional_call(model, dict(zip(state, given, strict=False)), given[len(state) :])

    inputs = (*(t.detach() for t in state.values()), *args)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        gm = make_fx(call, tracing_mode="real")(*map(mode.from_tensor, inputs))
    gm.graph.eliminate_dead_code()
    gm.recompile()
    gm.meta[INPUTS] = inputs
    return gm


def run(gm: GraphModule, args: Sequence[Any] | None = None) -> list[Any]:
    """Execute the graph op by op, eagerly, and return its outputs as a flat list (tensors, ints, None).

    `args` are the values of the placeholders in order: the real inputs of the capture if not given. Sizes are computed
    by the graph's own size nodes, so a dynamic graph runs on other sizes too.
    """
    with torch.no_grad():
        outputs = torch.fx.Interpreter(gm).run(*(gm.meta[INPUTS] if args is None else args), enable_io_processing=False)
    return list(tree_leaves(outputs, is_leaf=lambda leaf: leaf is None))
