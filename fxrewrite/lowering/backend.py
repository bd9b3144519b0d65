"""The rules in front of Inductor: a `torch.compile` backend, options for plain Inductor, and rewriting without a
compiler.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

from fxrewrite.dsl.core import Program
from fxrewrite.dsl.syntax import File
from fxrewrite.lowering import cold_runs, library
from fxrewrite.lowering.cold_runs import ColdRun
from fxrewrite.lowering.config import Config, check_flags, load_program, make_config
from fxrewrite.lowering.graph_pass import RewritePass, logger
from fxrewrite.lowering.providers import unknown_names
from fxrewrite.patterns.events import cache_hits, recording

HOOK = "post_grad_custom_pre_pass"
Packs = Sequence[str | Path | File] | str | Path | None


def make_pass(config: Config, program: Program | None = None) -> RewritePass:
    """The pass for these settings (`program`: their rules, checked already). Raises RuleError where a file is wrong."""
    start = time.perf_counter()
    program = load_program(config) if program is None else program
    seconds = Counter({"parse": time.perf_counter() - start})
    for line in (*check_flags(program, config), *unknown_names(program, config.providers)):
        logger.warning(line)
    return RewritePass(program, config, seconds)


def backend(
    packs: Packs = None, *, level: str = "O2", flags: Mapping[str, bool] | None = None,
    providers: Iterable[str] | None = None, tokens: tuple[int, int | None] | None = None,
    allow_relaxed: bool = False, strict: bool = False, groups: Mapping[str, int] | None = None,
    replicated: Iterable[str] = (), allow_unproved: bool | None = None, options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A backend for `torch.compile(model, backend=...)`: Inductor with the rules of `packs` in it.

    `packs` replaces the shipped list ("default" names it). `level`: O0 to O3; `flags`: flag, pack or `pack.rule` -> on
    or off. `providers`: see `fxrewrite packs`. `tokens`: a range of token counts that may be assumed. `strict`: an
    error in a rule raises. `groups`: name of a process group -> number of ranks, where torch does not know it;
    `replicated`: patterns of the names of inputs that are equal on all ranks. `allow_unproved`: forms and providers
    that call other packages' ops need no proof; where it is not given, `FXREWRITE_ALLOW_UNPROVED` of the environment
    says. `options`: of Inductor. Raises RuleError where a rule file is wrong, ConfigError where a setting is.
    """
    config = make_config(
        packs, level, flags, providers, allow_relaxed, tokens, strict, groups, replicated, allow_unproved
    )
    pass_ = make_pass(config)

    def compile_with_rules(gm: GraphModule, example_inputs: list[Any], **kwargs: Any) -> Any:
        return _compile(gm, example_inputs, pass_, {**(options or {}), **kwargs.get("options", {})})

    compile_with_rules.rewrite_pass = pass_  # type: ignore[attr-defined]
    return compile_with_rules


def _compile(gm: GraphModule, example_inputs: list[Any], pass_: RewritePass, options: Mapping[str, Any]) -> Any:
    from torch._inductor.compile_fx import compile_fx

    cold = ColdRun(pass_, cold_runs.key(pass_, gm, example_inputs, options))
    other = options.get(HOOK) or getattr(inductor_config, HOOK)
    patches = {**options, HOOK: cold if other is pass_ else chained(cold, other)}
    before = cache_hits()
    compiled = compile_fx(gm, example_inputs, config_patches=patches)
    for log in recording():
        log.known += cache_hits() - before
    if cold.graphs == 0:
        for log in recording():
            log.hits += 1
            log.waiting.discard(id(pass_))
            log.stored += cold_runs.load(cold.key)
            log.sources.update(pass_.engine.program.sources)
    return compiled


def chained(pass_: RewritePass | ColdRun, other: Any) -> Any:
    """Our pass after one that the user has on the same hook."""
    return pass_ if other is None or other is pass_ else _Chain(other, pass_)


class _Chain(CustomGraphPass):
    def __init__(self, first: Any, second: RewritePass | ColdRun):
        self.first, self.second = first, second

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.first(graph)
        self.second(graph)

    def __deepcopy__(self, memo: Any) -> _Chain:
        return self

    def uuid(self) -> Any:
        first = self.first.uuid() if hasattr(self.first, "uuid") else None
        return None if first is None else (first, self.second.uuid())


@lru_cache(maxsize=1)
def _default() -> Callable[..., Any]:
    return backend()


def fxrewrite(gm: GraphModule, example_inputs: list[Any], **kwargs: Any) -> Any:
    """`torch.compile(model, backend="fxrewrite")`: the shipped packs at their defaults. `options=` goes to
    `backend`.
    """
    options = kwargs.pop("options", None)
    return (backend(**options) if options else _default())(gm, example_inputs)


def inductor_options(packs: Packs = None, **settings: Any) -> dict[str, Any]:
    """Options for plain Inductor, `torch.compile(model, options=...)`, with our pass on its post-grad hook. `settings`
    as `backend`, but for `options`. A pass that the configuration has on the hook runs before ours.
    """
    pass_ = make_pass(make_config(packs, **settings))
    return {HOOK: chained(pass_, getattr(inductor_config, HOOK))}


def rewrite(
    program: GraphModule | torch.export.ExportedProgram, packs: Packs = None, **settings: Any
) -> GraphModule | torch.export.ExportedProgram:
    """Rewrite a graph in place, without a compiler, and return it. `settings` as `backend`.

    Every node needs `meta["val"]` (as `make_fx` with fake tensors, aot_autograd and `torch.export` leave it). Raises
    ValueError where it is missing, RuleError where a rule file is wrong.
    """
    return rewrite_by(make_pass(make_config(packs, **settings)), program)


def rewrite_by(pass_: Callable[[Graph], Any], program: Any) -> Any:
    """`rewrite` with a pass that is made already."""
    gm = program.graph_module if isinstance(program, torch.export.ExportedProgram) else program
    if not isinstance(gm, GraphModule):
        raise TypeError(
            f"rewrite takes a GraphModule or an ExportedProgram, not {type(program).__name__}; trace it first"
        )
    bare = _without_value(gm)
    if bare is not None:
        raise ValueError(f"node {bare.name} has no meta['val']; trace with fake tensors (make_fx, torch.export)")
    names = _output_names(gm)
    nested = [m for m in gm.modules() if isinstance(m, GraphModule) and m is not gm and _without_value(m) is None]
    for graph_module in (*reversed(nested), gm):  # branches of a `cond` before what holds it, as Inductor has it
        pass_(graph_module.graph)
        graph_module.graph.lint()
        graph_module.recompile()
    if isinstance(program, torch.export.ExportedProgram):
        _rename_outputs(program, dict(zip(names, _output_names(gm), strict=True)))
    return program


def _without_value(gm: GraphModule) -> Node | None:
    """The first call of a graph that no fake value is known of."""
    return next((n for n in gm.graph.nodes if n.op == "call_function" and n.users and "val" not in n.meta), None)


def register_ops(packs: Packs = None) -> None:
    """Register the ops of `packs`, for a rewritten program that is loaded (`torch.export.load`) in another process."""
    library.register(load_program(make_config(packs)))


def _output_names(gm: GraphModule) -> list[str]:
    """The nodes that a graph returns, by name; "" for what is no node."""
    return [a.name if isinstance(a, Node) else "" for a in tree_leaves(gm.graph.output_node().args[0])]


def _rename_outputs(program: torch.export.ExportedProgram, names: Mapping[str, str]) -> None:
    """An exported program knows its outputs by the names of their nodes."""
    specs = [spec.arg for spec in program.graph_signature.output_specs]
    for call in program.module_call_graph:
        specs += call.signature.outputs if call.signature is not None else []
    for arg in specs:
        if getattr(arg, "name", "") in names:
            arg.name = names[arg.name]  # type: ignore[union-attr]
