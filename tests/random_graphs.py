"""Random programs, captured and rewritten: nothing that can be seen from outside moves.

    python tests/random_graphs.py --fuzz 5              # five minutes of other seeds; failures print a script
    python tests/random_graphs.py --seed 17             # one program: its source, and which rules fire

The rules of the test (`RULES`) and the default packs are on together. A program that fails is cut down and printed as a
file that shows the failure.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import sympy
import torch
from attrs import define, field
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_module
from torch._inductor.decomposition import select_decomp_table
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from capture import INPUTS, export_graph, make_fx_graph, run
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import record
from fxrewrite.verify import context
from fxrewrite.verify.context import NotCaptured
from fxrewrite.verify.programs import OTHER_ROWS, Program, shrunk, tensor
from graph_checks import assert_same, check_metadata, written_nodes
from random_chains import program_of

__all__ = ["F", "check", "tensor", "torch"]  # what a printed script needs

RULES = """
# One rule of each shape, true bit for bit, over every floating dtype.
dtype any = {bf16, f16, f32, f64}
rule negated_twice(x: any[*B]): neg(neg(x)) => x
rule abs_of_negated(x: any[*B]): abs(neg(x)) => abs(x)
fusion mul_add(x: any[*B, D], y: any[*B, D], z: any[*B, D]) = x * y + z
fusion difference_scaled(x: any[*B, D], y: any[*B, D], z: any[*B, D]) = (x - y) * z
fusion twice_plus_one(x: any[*B, D]) = x * 2.0 + 1.0
fusion thrice_plus_one(x: any[*B, D]) = x * 3.0 + 1.0
fusion leaky(x: any[*B, D]; a: float) = maximum(x, x * a)
fusion divided(x: f32[*B, D], s: f32[1]) = clamp(x / s, -4.0, 4.0)
fusion sum_and_product(x: any[*B, D], y: any[*B, D]) = t * y, t where t = x + y
fusion largest_and_rest(x: any[*B, D]) = x - m, m where m = amax(x, -1, keepdim=true)
fusion halves_swapped(x: any[*B, 2*D]) = b - a where a = x[..., :D], b = x[..., D:]
fusion each_scaled(x: any[*B, D], y: any[*B, D], *s: any[*B, D]) = *q where n = x - y, each q = n * s
fusion quotient(x: any[*B, D], y: any[*B, D], z: any[*B, D]) = (x + y) / z
rule kept(x: any[*B, D], y: any[*B, D], z: any[*B, D]): n / z => quotient(x, y, z) where keep n = x + y
op centred(x: any[*B, D]) -> (y: any[*B, D])
  = x - amax(x, -1, keepdim=true)
  property rowwise(x)
op doubled_rows(x: any[*B, D]) -> (y: any[*B, D])
  = x + x
  property rowwise(x)
fusion centred_doubled(x) = centred(x) |> doubled_rows
"""


@cache
def the_pass(provider: str) -> RewritePass:
    """The default packs and the test's rules, with one provider."""
    file, diagnostics = parse(RULES, "random.rw")
    assert not diagnostics
    return make_pass(make_config(["default", file], providers=[provider], strict=True))


aten = torch.ops.aten


@define
class Tally:
    """What a run of seeds saw. `fired`: rule -> in how many graphs."""

    graphs: int = 0
    with_site: int = 0
    not_captured: int = 0
    fired: Counter[str] = field(factory=Counter)

    def add(self, fired: Iterable[str]) -> None:
        """Count one graph."""
        fired = set(fired)
        self.graphs += 1
        self.with_site += any(is_fusing(name) for name in fired)
        self.fired.update(fired)


def is_fusing(name: str) -> bool:
    """Is it a rule of the main stage, not of clean-up?"""
    return any(r.name == name and r.stage == "fuse" for r in the_pass("op").engine.active.values())


# ---- capture


class _Module(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Tensor) -> Any:
        return self.fn(*args)


CAPTURES: dict[str, Callable[[Callable[..., Any], Sequence[Tensor]], GraphModule]] = {
    "as it is": make_fx_graph,
    "functional": lambda fn, args: make_fx_graph(functionalize(fn, remove="mutations"), args),
    "dynamic": lambda fn, args: _dynamic(fn, args),
    "aot": lambda fn, args: _aot(fn, args),
    "export": lambda fn, args: export_graph(_Module(fn), args, decompose=False),
    "core": lambda fn, args: export_graph(_Module(fn), args, decompose=True),
}


def captured(fn: Callable[..., Any], args: Sequence[Tensor], how: str) -> tuple[GraphModule, list[Any]]:
    """The graph of `fn(*args)` and what it computes. Raises NotCaptured where torch makes none, or none that runs."""
    try:
        fn(*copy.deepcopy(args))
        gm = CAPTURES[how](fn, args)
        before = observed(gm, args)
    except Exception as error:
        raise NotCaptured(f"{type(error).__name__}: {error}") from error
    outputs = tree_leaves(gm.graph.output_node().args[0])
    for node, given in zip(outputs, before[len(args) :], strict=True):
        if not _as_foreseen(given, node.meta["val"]):
            raise NotCaptured(f"{node} has other strides than torch foresaw")
    return gm, before


def _as_foreseen(given: Tensor, val: Tensor) -> bool:
    sizes, strides = ([n if isinstance(n, int) else n.node.hint for n in of] for of in (val.shape, val.stride()))
    return all(s == t for n, s, t in zip(sizes, strides, given.stride(), strict=True) if n > 1)


def _aot(fn: Callable[..., Any], args: Sequence[Tensor]) -> GraphModule:
    with torch.no_grad():
        gm: Any = aot_export_module(_Module(fn), args, trace_joint=False, decompositions=select_decomp_table())[0]
    gm.meta[INPUTS] = tuple(args)
    return gm


def _dynamic(fn: Callable[..., Any], args: Sequence[Tensor]) -> GraphModule:
    """The first of two or more axes of every input is free."""
    gm = context.captured(fn, args, "dynamic")
    gm.meta[INPUTS] = tuple(args)
    return gm


# ---- the property


def check(
    fn: Callable[..., Any], args: Sequence[Tensor], how: str, longer: Sequence[Tensor] | None = None
) -> list[str]:
    """Capture, rewrite with each provider, and compare everything that can be seen. The rules that fired.

    `longer`: the inputs again with more rows, for a dynamic graph. Raises AssertionError where anything moved,
    NotCaptured where there is no graph.
    """
    gm, before = captured(fn, args, how)
    kept = copy.deepcopy(gm)
    fired = rewritten(gm, "op")
    assert_same(before, observed(gm, args))
    assert how == "as it is" or not computed_twice(gm), f"computed twice: {computed_twice(gm)}"
    if how == "dynamic" and longer is not None and fired and holds_for_longer(gm):
        assert_same(observed(kept, longer), observed(gm, longer))
    again = [f for f in rewritten(gm, "op") if is_fusing(f)]
    assert not again, f"a second run fires {again}"
    if how == "as it is" and len(set(map(id, args))) < len(args):
        check_apart(fn, args)
    by_definition = rewritten(kept, "definition")
    assert not [f for f in by_definition if is_fusing(f) and f not in ("negated_twice", "abs_of_negated")]
    if by_definition:
        assert_same(before, observed(kept, args))
    return fired


def check_apart(fn: Callable[..., Any], args: Sequence[Tensor]) -> None:
    """Capture with a tensor of its own for each input; compare where one tensor is given for two."""
    gm, _ = captured(fn, [copy.deepcopy(a) for a in args], "as it is")
    kept = copy.deepcopy(gm)
    rewritten(gm, "op")
    assert_same(observed(kept, args), observed(gm, args))


def observed(gm: GraphModule, args: Sequence[Tensor]) -> list[Any]:
    """What a run leaves: the inputs, which may have been written, and the outputs."""
    given = copy.deepcopy(list(args))
    return [*given, *run(gm, given)]


def rewritten(gm: GraphModule, provider: str) -> list[str]:
    """Rewrite in place; lint, metadata, and the graph as it was where nothing fired."""
    text, nodes = str(gm.graph), list(gm.graph.nodes)
    with record() as log:
        the_pass(provider)(gm.graph)
    gm.graph.lint()
    gm.recompile()
    if not log.fired():
        assert str(gm.graph) == text
        assert all(a is b for a, b in zip(gm.graph.nodes, nodes, strict=True))
        return []
    check_metadata(gm)
    for node in written_nodes(gm):
        if isinstance(node.meta["val"], Tensor):
            assert node.meta.get("tensor_meta") == _extract_tensor_metadata(node.meta["val"]), node
    return [*log.fired()]


NAMED = {"mul_add": aten.mul.Tensor, "difference_scaled": aten.sub.Tensor, "divided": aten.div.Tensor}


def computed_twice(gm: GraphModule) -> list[str]:
    """What a fused op computes for itself and others still read: the first step of a rule that does not keep it."""
    twice: list[str] = []
    for node in written_nodes(gm):
        first = NAMED.get(getattr(node.target, "_opname", ""))
        if first is not None:
            operands = list(node.args[:2])
            orders = (operands, operands[::-1]) if first is aten.mul.Tensor else (operands,)
            others = gm.graph.find_nodes(op="call_function", target=first)
            twice += [str(n) for n in others if list(n.args) in orders and n not in _below(node)]
    return twice


def _below(node: Node) -> set[Node]:
    """Everything that a node is computed from: a product that is also an operand stays for that."""
    seen: set[Node] = set()
    todo = [node]
    while todo:
        new = set(todo.pop().all_input_nodes) - seen
        seen |= new
        todo += new
    return seen


def holds_for_longer(gm: GraphModule) -> bool:
    """Do the guards of a dynamic graph hold with more rows?"""
    for node in gm.graph.find_nodes(op="placeholder"):
        val = node.meta["val"]
        if val.ndim > 1 and isinstance(val.shape[0], torch.SymInt):
            rows, guards = val.shape[0].node.expr, val.fake_mode.shape_env.guards
            return all(g.expr.subs(rows, int(val.shape[0].node.hint) + OTHER_ROWS) == sympy.true for g in guards)
    return False


def check_program(program: Program) -> list[str]:
    """`check` of a program."""
    longer = program.arguments(longer=True) if program.how == "dynamic" else None
    return check(program.function(), program.arguments(), program.how, longer)


# ---- many


def failure(program: Program) -> str | None:
    """How it fails, or None; what cannot be captured does not."""
    try:
        check_program(program)
    except NotCaptured:
        return None
    except Exception as error:  # noqa: BLE001 (whatever the engine raises is what is looked for)
        return f"{type(error).__name__}: {error}"
    return None


def check_seed(seed: int, tally: Tally) -> None:
    """One program. Raises AssertionError with a script that shows what it found, cut down."""
    program = program_of(seed)
    try:
        tally.add(check_program(program))
    except NotCaptured:
        tally.not_captured += 1
    except Exception as error:
        small = shrunk(program, lambda p: failure(p) is not None)
        said = failure(small)
        raise AssertionError(f"seed {seed}: {said}\n\n{small.script('random_graphs')}") from error


def fuzz(minutes: float, seed: int) -> Tally:
    """Seeds from `seed` on until the time is over; what is found is printed."""
    tally, end = Tally(), time.monotonic() + 60 * minutes
    found = 0
    while time.monotonic() < end:
        try:
            check_seed(seed, tally)
        except AssertionError as error:
            found += 1
            print(f"\n# {error}\n", flush=True)
        seed += 1
    print(f"{found} failures in {tally.graphs} graphs, {tally.with_site} with a site, up to seed {seed}")
    return tally


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Random programs, rewritten and compared.")
    parser.add_argument("--fuzz", type=float, metavar="MINUTES", help="run seeds for so long")
    parser.add_argument("--seed", type=int, help="the one to run, or with --fuzz the first; else any beyond the tests'")
    options = parser.parse_args()
    if options.fuzz is not None:
        first = random.randrange(10**4, 10**9) if options.seed is None else options.seed
        tally = fuzz(options.fuzz, first)
        print(", ".join(f"{n} {c}" for n, c in tally.fired.most_common()))
        return
    program = program_of(options.seed or 0)
    print(program.script("random_graphs"))
    try:
        print("# fired:", ", ".join(check_program(program)) or "nothing")
    except NotCaptured as error:
        print("# not captured:", error)
    except AssertionError:
        traceback.print_exc()


if __name__ == "__main__":
    main()
