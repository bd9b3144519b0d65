"""The packs about collectives on graphs of two ranks: each rule fires on its program, bit for bit on every rank, and on
none of its twins: another group or axis, an average, an operand that ranks may differ in, a group of unknown size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

import engine_stubs
import fake_vllm
import rank_stubs
from capture import INPUTS, make_fx_graph
from engine_programs import inputs
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Log, record
from graph_checks import assert_same
from rank_sites import LAYERS, NO_SITE, SITES, SIZE, How, Site
from rank_stubs import Ranks

LIMIT = 64 << 20  # bytes of a message, far above those of the programs
KNOWN = {"tp": SIZE, "dp": SIZE}  # the groups, and their sizes


class Machine:
    """Ranks that meet in this process, a fake vLLM that tells of its all-reduce, and passes made with them."""

    def __init__(self, ranks: Ranks, patch: pytest.MonkeyPatch):
        self.ranks, self.patch = ranks, patch
        self.pass_of: Callable[..., RewritePass] = cache(self._pass_of)

    def _pass_of(
        self, pack: str, by: tuple[str, ...], machine: tuple[tuple[str, Any], ...], groups: tuple[tuple[str, int], ...],
        replicated: tuple[str, ...],
    ) -> RewritePass:  # fmt: skip
        engine_stubs.pretend(self.patch, **{"world": SIZE, **dict(machine)})
        config = make_config([pack], level="O3", providers=by, strict=True, groups=dict(groups), replicated=replicated)
        return make_pass(config)

    def of_rank(self, gm: GraphModule, shared: str, rank: int) -> Sequence[Any]:
        """The inputs of a rank: those that are not shared are in another order on each."""
        args: Sequence[Tensor] = copy.deepcopy(gm.meta[INPUTS])
        names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
        same = [bool(shared) and name[0] in shared for name in names]
        return [
            x if s or rank == 0 else torch.roll(x.view(torch.uint8) if x.element_size() == 1 else x, 1, 0).view(x.dtype)
            for x, s in zip(args, same)
        ]

    def rewrite(
        self,
        gm: GraphModule,
        site: Site,
        groups: dict[str, int] | None = None,
        replicated: tuple[str, ...] | None = None,
        limit: int = LIMIT,
    ) -> Log:
        """Rewrite and compare, on each rank."""
        fake_vllm.install(self.patch, fake_vllm.config({}, {SIZE: limit}))
        run = partial(self.ranks.run, gm, lambda rank: self.of_rank(gm, site.shared, rank))
        before, text = run(), str(gm.graph)
        shared = (site.shared,) if site.shared else ()
        rewrite = self.pass_of(
            site.pack,
            site.by,
            tuple(site.machine.items()),
            tuple((KNOWN if groups is None else groups).items()),
            shared if replicated is None else replicated,
        )
        with record() as log:
            rewrite(gm.graph)
        gm.graph.lint()
        gm.recompile()
        if not log.fired():
            assert str(gm.graph) == text
            return log
        for a, b in zip(before, run(), strict=True):
            assert_same(a, b)
        return log


def rolled(x: Tensor) -> Tensor:
    """The same numbers elsewhere."""
    plain = x.view(torch.uint8) if x.element_size() == 1 else x
    return plain.flatten().roll(1).reshape(x.shape).view(x.dtype)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with rank_stubs.declared() as ranks, pytest.MonkeyPatch.context() as patch:
        yield Machine(ranks, patch)


def captured(site: Site, how: How) -> GraphModule:
    args = inputs(*(part for arg in site.args.values() for part in arg))
    gm = make_fx_graph(partial(site.run, **how), args)
    for node, name in zip(gm.graph.nodes, site.args):
        node.name = node.target = name
    return gm


@pytest.mark.parametrize("rule", SITES)
def test_a_rule_fires(machine: Machine, rule: str) -> None:
    site = SITES[rule]
    log = machine.rewrite(captured(site, {}), site)
    assert dict(log.fired()) == {rule: 1}
    assert {x for e in log.events if e.fired for x in e.by.split(", ")} <= set(site.by)


@pytest.mark.parametrize(("rule", "name"), [(r, n) for r, x in SITES.items() for n in x.alike])
def test_it_fires_on_what_is_alike(machine: Machine, rule: str, name: str) -> None:
    site = SITES[rule]
    assert dict(machine.rewrite(captured(site, site.alike[name]), site).fired()) == {rule: 1}


@pytest.mark.parametrize(("rule", "name"), [(r, n) for r, x in SITES.items() for n in x.twins])
def test_it_does_not_fire_on_a_twin(machine: Machine, rule: str, name: str) -> None:
    site = SITES[rule]
    how, otherwise, reason = site.twins[name]
    log = machine.rewrite(captured(site, how), site, **otherwise)
    assert rule not in log.fired()
    assert reason in [e.reason for e in log.missed(rule)] or reason == NO_SITE


def test_what_one_block_gathers_the_next_one_shards(machine: Machine) -> None:
    """Between blocks the residual stays in parts: of three norms two find theirs gathered."""
    log = machine.rewrite(captured(LAYERS, {}), LAYERS)
    assert dict(log.fired()) == {"sp_first": 1, "sp_block": 2, "shard_of_gather": 2}


def test_a_shard_of_another_group_is_not_met(machine: Machine) -> None:
    log = machine.rewrite(captured(LAYERS, dict(group="dp")), LAYERS)
    assert "shard_of_gather" not in log.fired()
    assert "guard unknown" in [e.reason for e in log.missed("sp_block")]


def test_every_rule_of_the_packs_is_here(machine: Machine) -> None:
    packs = {x.pack for x in SITES.values()}
    rules = {r.name for x in packs for r in machine.pass_of(x, ("op",), (), (), ()).engine.program.rules}
    assert rules == {*SITES, "shard_of_gather"}
