"""Rules about collectives hold over 1, 2, 4 and 8 ranks of one process, and wrong ones do not; on two processes of gloo
both sides give what they give here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache, reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from fxrewrite.dsl import packs
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.equal import check_equal
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.profiles import QUICK
from fxrewrite.verify.rank_sums import in_order, total
from fxrewrite.verify.ranked import RankedClaim, is_ranked, must_be_equal, on_ranks, ranked_claims, ranked_profile
from fxrewrite.verify.same import same_values
from fxrewrite.verify.sets import contains, counts, point
from fxrewrite.verify.straight import record
from fxrewrite.verify.strategies import cases

PACKS = ("sequence_parallel", "allreduce_rms", "async_tp", "minimax")
SPLIT = ["sp_first", "sp_block", "shard_of_gather", "gather_quant_static", "gather_quant_token", "gather_quant_group"]


@cache
def shipped() -> dict[str, Claim]:
    """The rules about ranks."""
    return {c.name: c for c in claims(packs.load(PACKS)) if c.kind == "rule" and is_ranked(c)}


def tried(claim: RankedClaim, count: int) -> Finding:
    profile = ranked_profile(QUICK, claim.size)
    return check_equal(claim, islice(cases(claim, profile, seed=0), count))[0]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("rule", SPLIT)
def test_a_rule_that_moves_work_between_ranks_holds(rule: str, size: int) -> None:
    count = 1 if size == 8 else 2
    found = [tried(c, count) for c in ranked_claims(shipped()[f"sequence_parallel.{rule}"], [size])]
    assert {f.outcome for f in found} == {"passed"} if size > 1 else {"trivial"}, found


@pytest.mark.parametrize("rule", [f"sequence_parallel.{r}" for r in SPLIT])
def test_what_must_be_equal_on_all_ranks_is(rule: str) -> None:
    """Without the guard `replicated`, an operand that differs shows that the rule is wrong."""
    claim = shipped()[rule]
    guards = tuple(g for g in claim.op.requires if getattr(g, "op", "") != "replicated")
    free = evolve(claim, op=evolve(claim.op, requires=guards))
    count = 6  # an upper bound of scales is none in a third of the cases
    outcomes = {tried(c, count).outcome for c in ranked_claims(free, [2]) if c.way == "moved"}
    guarded = rule.split(".")[1] in ("sp_first", "sp_block", "gather_quant_static", "gather_quant_token")
    assert outcomes == ({"failed"} if guarded else {"passed"})


def test_a_fusion_is_its_definition_on_every_rank() -> None:
    fused = [c for n, c in shipped().items() if not n.startswith("sequence_parallel")]
    found = {c.name: tried(next(iter(ranked_claims(c, [2]))), 1) for c in fused}
    assert len(found) == 13 and {f.outcome for f in found.values()} == {"trivial", "passed"}, (
        found
    )  # `scaled_mm` is a `ref`


WRONG = {
    "an average": """
form all_reduce.ranks_avg = _c10d_functional.wait_tensor(_c10d_functional.all_reduce(x, "avg", g.name))""",
    "gathered for summed": """
rule ranks_gathered(x: real[T, D]): all_reduce(x) => all_gather(shard(x, d=0), d=0)
  requires rows(x) % g.size == 0""",
    "a missing reduction": """
rule ranks_unreduced(x: real[T, D]): rms_norm(all_reduce(x), w) => all_gather(rms_norm(shard(x, d=0), w), d=0)
  requires rows(x) % g.size == 0""",
    "another axis": """
rule ranks_axis(x: real[T, D]): rms_norm(all_gather(x, d=0), w) => all_gather(rms_norm(x, w), d=-1)""",
    "another shard": """
rule ranks_shard(x: real[T, D]): shard(all_gather(x, d=0, g=g), d=1, g=g) => x""",
    "the scale of a part": """
rule ranks_tensor(x: real[T, D]): quant_fp8_tensor(all_gather(x, d=0)) => all_gather(qx, d=0), sx
  where (qx, sx) = quant_fp8_tensor(x)
  decreasing rows(x)""",
    "the norm before the sum": """
rule ranks_before(x: lowp[T, D]): rms_norm(all_reduce(x), w) => all_reduce(rms_norm(x, w))""",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_fails(what: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong_ranks.rw"
    path.write_text(WRONG[what].strip() + "\n")
    program = packs.load([str(path)])
    claim = next(c for c in claims(program) if c.span is not None and c.span.file == str(path))
    found = [tried(c, 3) for c in ranked_claims(claim, [2, 4])]
    assert "failed" in {f.outcome for f in found}, found


# ---- sums over ranks


def every_sum(parts: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """All orders, each partial sum kept in f32 or rounded."""
    if len(parts) == 1:
        return [parts[0]]
    found: list[Tensor] = []
    for mask in range(1, (1 << len(parts)) - 1, 2):
        left, right = ([p for i, p in enumerate(parts) if (mask >> i & 1) == side] for side in (1, 0))
        kept = [(a + b).float().double() for a in every_sum(left, dtype) for b in every_sum(right, dtype)]
        found += kept + [s.float().to(dtype).double() for s in kept]
    return found


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_bounds_of_a_sum_are_reached(ranks: int, dtype: torch.dtype) -> None:
    torch.manual_seed(ranks)
    parts = [torch.randn(48).to(dtype) for _ in range(ranks)]
    sums = torch.stack([s.float().to(dtype).double() for s in every_sum([p.double() for p in parts], dtype)])
    found = total([point(p) for p in parts], {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype])
    assert torch.equal(sums.amin(0), found.lo) and torch.equal(sums.amax(0), found.hi)
    assert counts(found).one == (48 if ranks == 2 else counts(found).one)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_right_sums_are_admitted_and_wrong_ones_are_not(ranks: int) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(8, 16).bfloat16() for _ in range(ranks)]
    found = total([point(p) for p in parts], "bf16")
    ring = reduce(torch.add, parts[3:] + parts[:3])
    tree = reduce(torch.add, [a + b for a, b in zip(parts[::2], parts[1::2])])
    once = reduce(torch.add, [p.float() for p in parts]).bfloat16()
    for right in (in_order(parts), ring, tree, once):
        assert bool(contains(found, point(right).lo).all())
    for wrong in (once / ranks, in_order(parts[1:]), once + once.abs() * 2**-3):
        assert float((~contains(found, point(wrong).lo)).float().mean()) > 0.5


def test_undefined_sums() -> None:
    """Infinities of both signs, what overflows on the way, and sums that are exact in every order."""
    inf = torch.tensor([float("inf"), 60000.0, 1.0, -0.0]).half()
    parts = [
        inf,
        torch.tensor([-float("inf"), 60000.0, 2.0, -0.0]).half(),
        torch.tensor([1.0, -60000.0, 4.0, -0.0]).half(),
    ]
    found = total([point(p) for p in parts], "f16")
    assert bool(contains(found, torch.tensor([float("nan"), float("inf"), 7.0, -0.0], dtype=torch.float64)).all())
    assert contains(found, torch.tensor([1.0, 60000.0, 7.5, 0.0], dtype=torch.float64)).tolist() == [
        False,
        True,
        False,
        False,
    ]


# ---- two processes


PROCESS = """
import sys
import torch, torch.distributed as dist
rank, store, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
from test_verify_ranks import on_this_rank
torch.save(on_this_rank(rank), f"{path}.{rank}")
dist.destroy_process_group()
"""


def gloo_cases() -> list[tuple[str, RankedClaim, Any]]:
    """The rules over two ranks, with operands of the first one."""
    found: list[tuple[str, RankedClaim, Any]] = []
    for rule in SPLIT:
        for ranked in ranked_claims(shipped()[f"sequence_parallel.{rule}"], [2]):
            given = next(iter(cases(ranked, ranked_profile(QUICK, 2), seed=1)))
            found.append((f"{rule}, {ranked.way}", ranked, given))
    return found


def on_this_rank(rank: int) -> dict[str, dict[str, Tensor]]:
    """Both sides of each rule, by collectives of torch."""
    import torch.distributed as dist

    name: Any = dist.group.WORLD
    world = Group(name.group_name, 2)
    outputs: dict[str, dict[str, Tensor]] = {}
    for label, ranked, given in gloo_cases():
        same = must_be_equal(ranked)
        operands = [
            on_ranks(x, 2, "equal" if o.name in same else ranked.way)[rank] if isinstance(x, Tensor) else x
            for o, x in zip(ranked.op.operands, given.operands)
        ]
        plain = Claim(*(getattr(ranked, a) for a in ("kind", "name", "program", "op", "candidate", "reference")))
        attributes = {n: world if isinstance(v, Group) else v for n, v in given.attributes.items()}
        pins = tuple((n, world if isinstance(v, Group) else v) for n, v in ranked.candidate.pins)
        plain = evolve(plain, candidate=evolve(ranked.candidate, pins=pins))
        outputs[f"{label}: left"] = plain.expected(Torch(), operands, attributes)
        outputs[f"{label}: right"] = plain.claimed(Torch(), operands, attributes)
    return outputs


@pytest.mark.slow
def test_two_processes_of_gloo_agree_with_one(tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    store, path = tmp_path / "store", tmp_path / "outputs"
    here = Path(__file__).parent
    commands = [[sys.executable, str(script), str(rank), str(store), str(path)] for rank in range(2)]
    running = [
        subprocess.Popen(c, env={"PYTHONPATH": f"{here}:{here.parent}", "OMP_NUM_THREADS": "1", "PATH": ""})
        for c in commands
    ]
    assert [p.wait(timeout=120) for p in running] == [0, 0]
    found = [torch.load(f"{path}.{rank}") for rank in range(2)]
    for label, ranked, given in gloo_cases():
        for side, definition in (("left", ranked.expected), ("right", ranked.claimed)):
            want = record(lambda a, xs, d=definition, g=given: d(a, xs, g.attributes), given.operands).results
            for name, y in want.items():
                result, rank = name.split("@")
                assert same_values(y, found[int(rank)][f"{label}: {side}"][result]), (label, side, name)
