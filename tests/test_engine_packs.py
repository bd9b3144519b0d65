"""The packs about caches, attention and rope on graphs as an engine traces them: each rule fires on its program, in
both spellings of an op that writes, bit for bit in what is returned and in what caches hold, and on none of its twins.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch._inductor import config as inductor_config
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule, Node

import engine_stubs
import fake_vllm
from capture import INPUTS, run
from engine_programs import inputs
from engine_sites import PROGRAMS, How, Program
from engine_stubs import Caches
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record
from graph_checks import assert_same, check_metadata

MINE = """
impl rope_kv_cache_q8.mine(Dh=_, recip=true)
  engine_test.rope_cache_q8(out qx, q, mut kh as k3, v, pos, cs, s, neox, layer)
  where kh = reshape(k, [T, _, Dh]), k2 = reshape(k3, [T, _])
impl qk_norm_mrope_kv_cache.mine(Dh=_)
  engine_test.norm_mrope_cache(out q2, out k2, qkv, wq, wk, pos, cs, eps, sec[0], sec[1], sec[2], il, neox, layer)
  where (q, k, v) = split(qkv, [Nq, Nk, Nk], -1)
"""


# ---- one graph


class Engine:
    """The ops of an engine in this process, a fake vLLM that tells of its layers, and passes made with them."""

    def __init__(self, caches: Caches, patch: pytest.MonkeyPatch, folder: Path):
        self.caches, self.patch, self.folder = caches, patch, folder
        self.pass_of: Callable[..., RewritePass] = cache(self._pass_of)
        (folder / "mine.rw").write_text(MINE)
        able = fake_vllm.layer(fake_vllm.Impl(fake_vllm.KINDS))
        self.layers = {"a": able, "b": able, "weak": fake_vllm.layer(fake_vllm.Impl([]))}
        fake_vllm.install(patch, fake_vllm.config(self.layers))

    def _pass_of(self, pack: str, by: str, **machine: Any) -> RewritePass:
        engine_stubs.pretend(self.patch, **machine)
        packs = [pack, self.folder / "mine.rw"] if by == "mine" else [pack]
        return make_pass(make_config(packs, level="O3", flags={pack: True}, providers=[by], strict=True))

    def results(self, gm: GraphModule) -> tuple[list[Any], dict[str, tuple[Tensor, Tensor]]]:
        """What a graph returns, op by op, and what the caches hold then."""
        self.caches.reset()
        outputs = run(gm, copy.deepcopy(gm.meta[INPUTS]))
        return outputs, self.caches.content()

    def rewrite(self, gm: GraphModule, program: Program) -> Log:
        """Rewrite and compare."""
        before, held = self.results(gm)
        text = str(gm.graph)
        with record() as log:
            self.pass_of(program.pack, program.by, **program.machine)(gm.graph)
        gm.graph.lint()
        gm.recompile()
        if not log.fired():
            assert str(gm.graph) == text
            return log
        check_metadata(gm)
        after, holds = self.results(gm)
        assert_same(before, after)
        assert held.keys() == holds.keys()
        for name in held:
            assert_same(held[name], holds[name])
        return log

    def captured(self, program: Program, how: How, v2: bool = True) -> GraphModule:
        """The graph of a program, as AOTAutograd makes it; ops that write are `auto_functionalized`, or its `v2`."""
        args, graphs = inputs(*program.args), list[GraphModule]()

        def keep(gm: GraphModule, example_inputs: Any) -> GraphModule:
            graphs.append(gm)
            return gm

        with inductor_config.patch(enable_auto_functionalized_v2=v2), torch.no_grad():
            traced: Any = aot_function(
                lambda *args: program.run(*args, **how), fw_compiler=keep, decompositions=select_decomp_table()
            )
            self.caches.reset()
            traced(*copy.deepcopy(args))
        graphs[0].meta[INPUTS] = args
        return graphs[0]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_stubs.declared() as caches, pytest.MonkeyPatch.context() as patch:
        yield Engine(caches, patch, tmp_path_factory.mktemp("engine"))


# ---- each rule


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("rule", PROGRAMS)
def test_a_rule_fires(engine: Engine, rule: str, v2: bool) -> None:
    program = PROGRAMS[rule]
    log = engine.rewrite(engine.captured(program, {}, v2), program)
    assert dict(log.fired()) == {rule: 1}
    assert [e.by for e in log.events if e.fired] == [program.by]


@pytest.mark.parametrize(("rule", "name"), [(r, n) for r, x in PROGRAMS.items() for n in x.alike])
def test_it_fires_on_what_is_alike(engine: Engine, rule: str, name: str) -> None:
    program = PROGRAMS[rule]
    assert dict(engine.rewrite(engine.captured(program, program.alike[name]), program).fired()) == {rule: 1}


@pytest.mark.parametrize(("rule", "name"), [(r, n) for r, x in PROGRAMS.items() for n in x.twins])
def test_it_does_not_fire_on_a_twin(engine: Engine, rule: str, name: str) -> None:
    program = PROGRAMS[rule]
    how, reason = program.twins[name]
    log = engine.rewrite(engine.captured(program, how), program)
    assert rule not in log.fired()
    assert reason in [e.reason for e in log.missed(rule)]


def test_every_rule_of_the_packs_is_here(engine: Engine) -> None:
    packs = {x.pack for x in PROGRAMS.values()}
    rules = {r.name for pack in packs for r in engine.pass_of(pack, "op").engine.program.rules}
    assert rules == set(PROGRAMS)


# ---- effects that only the order shows


def writes(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if n.target is torch.ops.vllm.unified_kv_cache_update.default]


def reads(gm: GraphModule) -> list[Node]:
    return [n for n in gm.graph.nodes if torch.ops.vllm.unified_attention_with_output.default in n.args]


def test_a_write_that_nothing_depends_on_is_kept(engine: Engine) -> None:
    """vLLM may leave the dependence out: then only the order of the graph says what is read."""
    program = PROGRAMS["rope_kv_cache"]
    gm = engine.captured(program, {}, v2=False)
    (attention,) = reads(gm)
    attention.kwargs = {**attention.kwargs, "kv_cache_dummy_dep": None}
    assert not writes(gm)[0].users
    assert dict(engine.rewrite(gm, program).fired()) == {"rope_kv_cache": 1}


def test_a_fused_write_is_an_effect_too(engine: Engine) -> None:
    """What a rule wrote, or vLLM's own pass, keeps its order with what comes after."""
    program, quant = PROGRAMS["rope_kv_cache"], PROGRAMS["attn_fp8"]
    gm = engine.captured(program, {}, v2=False)
    assert engine.rewrite(gm, program).fired()
    assert not engine.rewrite(gm, program).fired()
    (fused,) = (n for n in gm.graph.nodes if torch.ops.vllm.fused_rope_and_unified_kv_cache_update.default in n.args)
    effects = engine.pass_of(quant.pack, quant.by).engine.library.effects
    assert fused.args[0] not in effects, "of a pack that is not loaded nothing is known"
    ours = engine.pass_of(program.pack, program.by).engine.library.effects
    assert ours[fused.args[0]] == (("writes", "layer_name"),)


@pytest.mark.parametrize(("layers", "fires"), [(("a", "b"), True), (("a", "weak"), False)])
def test_a_layer_whose_name_is_an_input(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, layers: tuple[str, ...], fires: bool
) -> None:
    """One graph for many layers: the rule fires if all layers can; two unknown names may be one layer."""
    fake_vllm.install(monkeypatch, fake_vllm.config({name: engine.layers[name] for name in layers}))
    program = PROGRAMS["rope_kv_cache"]
    gm = engine.captured(program, {}, v2=False)
    first = next(iter(gm.graph.nodes))
    with gm.graph.inserting_before(first):
        name = gm.graph.placeholder("layer")
    name.meta["val"] = "a"
    for node in (*writes(gm), *reads(gm)):
        node.args = tuple(name if a == "a" else a for a in node.args)
        node.kwargs = {k: name if v == "a" else v for k, v in node.kwargs.items()}
    gm.meta[INPUTS] = ("a", *gm.meta[INPUTS])
    log = engine.rewrite(gm, program)
    assert bool(log.fired()) is fires, log.report()
    assert fires or "unknown" in log.missed("rope_kv_cache")[0].found


def test_without_vllm_nothing_is_known(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm.config")
    program = PROGRAMS["attn_fp8"]
    log = engine.rewrite(engine.captured(program, {}), program)
    (event,) = log.missed("attn_fp8")
    assert (event.reason, event.expected) == ("guard unknown", 'attn_fuses(layer, "fp8_static")')
    assert "attn_fuses" in log.report()


def test_an_op_that_nothing_can_run_stays(engine: Engine) -> None:
    """The definition holds ops of an engine: the registered op could not run it."""
    program = evolve(PROGRAMS["rope_kv_cache"], by="op")
    log = engine.rewrite(engine.captured(program, {}), program)
    assert not log.fired()
    assert [e.reason for e in log.missed("rope_kv_cache")] == ["provider missing"]
