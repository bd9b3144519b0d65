"""How often each rule fires on Hugging Face models with FP8 linears, what stays and why, and that nothing moves.

With L decoder layers one norm has no residual before it, 2L-1 have one, and there are L activations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.fx import GraphModule, Node

import capture
import fp8_linear
import fxrewrite
import models
from fxrewrite import ops
from fxrewrite.dsl.evaluate import evaluate
from fxrewrite.lowering import engine
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.library import split_arguments
from fxrewrite.lowering.replace import fire
from fxrewrite.verify.same import bits, difference
from graph_checks import PACKS, Rewritten, rewrite_checked

LOW = (torch.bfloat16, torch.float16)
Graphs = Callable[..., GraphModule]
QUANTS: dict[str, dict[str, Any]] = {
    "token": dict(quant="token"),
    "static": dict(quant="static"),
    "own scales": dict(quant="static", shared_scale=False),
    "group 64": dict(quant="group", group=64),
    "group 128": dict(quant="group", group=128, hidden=256),
}
SUFFIX = {
    "token": "fp8",
    "static": "fp8_static",
    "own scales": "fp8_static",
    "group 64": "fp8_group",
    "group 128": "fp8_group",
}
PACKED = {
    "fp8": "fused_silu_quant",
    "fp8_static": "silu_and_mul_fp8_static",
    "fp8_group": "silu_and_mul_fp8_group",
}


def expected(kind: str, quant: str, layers: int = 2) -> dict[str, int]:
    """The counts for a model with `layers` decoder layers."""
    suffix = SUFFIX[quant]
    each = (
        "_each" if quant == "own scales" and kind != "phi3" else ""
    )  # Phi-3 packs q, k, v and gate, up: one quant a norm
    activation = PACKED[suffix] if kind == "phi3" else f"{'gelu' if kind == 'gemma3' else 'silu'}_mul_{suffix}"
    return {f"rms_norm_{suffix}{each}": 1, f"add_rms_norm_{suffix}{each}": 2 * layers - 1, activation: layers}


def graph_of(model_graph: Graphs, kind: str, quant: str, **more: Any) -> GraphModule:
    settings = {**QUANTS[quant], **more}
    return model_graph(kind, settings.pop("quant"), **settings)


# ---- counts


@pytest.mark.parametrize("quant", [q for q in QUANTS if q != "group 128"])
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in ("llama", "phi3") else pytest.mark.slow) for k in models.KINDS]
)
def test_counts(model_graph: Graphs, kind: str, quant: str) -> None:
    done = rewrite_checked(graph_of(model_graph, kind, quant))
    assert done.fired == expected(kind, quant)
    check_what_stays(done, kind, quant)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "quant"), [(k, q) for k in models.KINDS for q in QUANTS])
def test_counts_of_wider_models(model_graph: Graphs, kind: str, quant: str) -> None:
    """Every model and quantization once, half of them in each dtype."""
    dtype = LOW[([*models.KINDS].index(kind) + [*QUANTS].index(quant)) % 2]
    done = rewrite_checked(graph_of(model_graph, kind, quant, hidden=256, dtype=dtype))
    assert done.fired == expected(kind, quant)


@pytest.mark.slow
@pytest.mark.parametrize("kind", models.KINDS)
def test_counts_of_float16(model_graph: Graphs, kind: str) -> None:
    assert rewrite_checked(graph_of(model_graph, kind, "token", dtype=torch.float16)).fired == expected(kind, "token")


@pytest.mark.slow
def test_counts_grow_with_the_layers(model_graph: Graphs) -> None:
    done = rewrite_checked(graph_of(model_graph, "llama", "token", layers=5))
    assert done.fired == expected("llama", "token", 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "quant", "more"),
    [
        ("llama", "token", {}),
        ("llama", "own scales", {}),
        ("qwen3", "group 64", {}),
        ("phi3", "static", {}),
        ("phi3", "token", dict(dtype=torch.float16)),
        ("gemma3", "token", {}),
        ("gemma3", "group 128", {}),
    ],
)
def test_counts_of_free_sizes(model_graph: Graphs, kind: str, quant: str, more: dict[str, Any]) -> None:
    gm = graph_of(model_graph, kind, quant, dynamic=True, **more)
    done = rewrite_checked(gm)
    assert done.fired == expected(kind, quant)
    check_what_stays(done, kind, quant)
    norms = [n for n in gm.graph.nodes if "rms_norm" in str(n.target)]
    assert len(norms) == 4
    assert {n.target._overloadname for n in norms} == {"dyn"}, "eps is an input of the graph"
    assert str(gm.graph).count("aten._assert") == 0


def check_what_stays(done: Rewritten, kind: str, quant: str, layers: int = 2) -> None:
    """The quant before o_proj has no norm before it; the last norm has no quant behind it. Both are said."""
    suffix = SUFFIX[quant]
    operand = [
        e
        for e in done.log.missed(f"rms_norm_{suffix}")
        if e.expected == "a result of rms_norm" and "permute" in e.found
    ]
    assert [(e.reason, e.span is not None) for e in operand] == [("other op", True)] * layers
    assert all("fp8_linear.py" in e.source for e in operand)
    last = [e for e in done.log.missed(f"add_rms_norm_{suffix}") if e.expected == f"a quant_{suffix} among its users"]
    assert len([e for e in last if e.reason == "other op" and "mm" in e.found and "modeling_" in e.source]) == 1


# ---- torchao


@pytest.mark.slow
def test_counts_of_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = torchao_graph(monkeypatch)
    done = rewrite_checked(gm)
    assert done.fired == expected("llama", "token")
    narrow = [
        n.args[[a.name for a in n.target._schema.arguments].index("narrow")] for n in gm.graph.nodes if is_fused(n)
    ]
    assert narrow == [True] * 6, "torchao divides the scale in bfloat16"


def torchao_graph(monkeypatch: pytest.MonkeyPatch) -> GraphModule:
    """Llama in bf16 with the linears of the decoder quantized by torchao, dynamically per row."""
    torchao = pytest.importorskip("torchao.quantization")
    from torchao.quantization import quant_api

    monkeypatch.setattr(quant_api, "_check_hardware_support", lambda granularity: None)  # it refuses a CPU
    model = models.make("llama", dtype=torch.bfloat16)
    config = torchao.Float8DynamicActivationFloat8WeightConfig(granularity=torchao.PerRow())
    torchao.quantize_(model, config, filter_fn=lambda m, name: isinstance(m, torch.nn.Linear) and ".layers." in name)
    (graph,) = capture.post_grad_graphs(model, models.inputs(model))
    return graph


# ---- nothing moves when Inductor generates the code


@pytest.fixture
def exact_roundings() -> Any:
    """Inductor keeps the roundings of the graph."""
    torch._dynamo.reset()
    with inductor_config.patch(emulate_precision_casts=True), torch.no_grad():
        yield
    torch._dynamo.reset()


def quantized(kind: str, quant: str, **sizes: Any) -> tuple[torch.nn.Module, tuple[Tensor]]:
    settings = dict(QUANTS[quant])
    model = fp8_linear.quantize(models.make(kind, **sizes), settings.pop("quant"), **settings)
    return model, models.inputs(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "quant", "dynamic"),
    [("llama", "token", True), ("qwen3", "group 64", False), ("phi3", "static", False), ("gemma3", "token", False)],
)
def test_whole_compilation(exact_roundings: None, kind: str, quant: str, dynamic: bool) -> None:
    model, args = quantized(kind, quant)
    plain = torch.compile(model, dynamic=dynamic)(*args)
    torch._dynamo.reset()
    with fxrewrite.record() as log:
        fused = torch.compile(model, backend=fxrewrite.backend(PACKS, providers=["op"]), dynamic=dynamic)(*args)
    assert dict(log.fired()) == expected(kind, quant)
    exact = models.float32_copy(model)(*args)
    distance = [(logits.float() - exact).pow(2).mean().sqrt() for logits in (fused, plain)]
    assert distance[0] <= 1.1 * distance[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "quant"), [("llama", "token"), ("phi3", "static")])
def test_sites_without_a_reduction_are_equal_when_compiled(exact_roundings: None, kind: str, quant: str) -> None:
    model, args = quantized(kind, quant)
    plain = torch.compile(model)(*args)
    torch._dynamo.reset()
    with fxrewrite.record() as log:
        fused = torch.compile(model, backend=fxrewrite.backend("act_quant", providers=["op"]))(*args)
    assert sum(log.fired().values()) == 2
    assert difference(plain, fused) is None


STEPS = range(-3, 4)  # units in the last place of the reciprocal root: a mean in another order, another rsqrt


class Nudged(Torch):
    """Tensors, with every reciprocal root moved by some units in the last place."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def primitive(self, op: str, args: Any, params: Any, term: Any) -> Tensor:
        found = super().primitive(op, args, params, term)
        if op == "rsqrt":
            for _ in range(abs(self.steps)):
                found = torch.nextafter(found, torch.full_like(found, torch.inf if self.steps > 0 else 0.0))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "quant"), [("llama", "token"), ("gemma3", "group 64"), ("qwen3", "own scales")])
def test_replayed_sites_differ_by_reduction_noise_only(
    exact_roundings: None, model_graph: Graphs, monkeypatch: pytest.MonkeyPatch, kind: str, quant: str
) -> None:
    """Each site's inputs and outputs are taken from code that Inductor makes of the graph before. Every row of outputs
    is what the definition gives for these inputs, bit for bit, with the reciprocal root a few units in the last place
    off.
    """
    before = graph_of(model_graph, kind, quant)
    after = copy.deepcopy(before)
    names = {n.name for n in before.graph.nodes}
    replaced = note_what_is_replaced(monkeypatch, names)
    rewrite_checked(after)
    sites = [Site(node, names, replaced) for node in after.graph.nodes if is_fused(node)]
    computed = compiled_values(before, {name for site in sites for name in site.needs})
    assert [site.is_explained(computed) for site in sites] == [True] * 6


def note_what_is_replaced(monkeypatch: pytest.MonkeyPatch, old: set[str]) -> dict[Node, str]:
    """Filled while rules fire: a new node -> the name of the node that it stands for."""
    replaced: dict[Node, str] = {}

    def noting(plan: Any, *args: Any) -> None:
        outputs = [
            (o.value, replaced.get(o.node, o.node.name))
            for o in plan.outputs
            if o.node in replaced or o.node.name in old
        ]
        fire(plan, *args)
        replaced.update({value.nodes[0]: name for value, name in outputs})

    monkeypatch.setattr(engine, "fire", noting)
    return replaced


def is_fused(node: Node) -> bool:
    return str(node.target).startswith("fxrewrite.")


class Site:
    """A fused op of a rewritten graph, with what it reads and replaces, by name in the graph before."""

    def __init__(self, node: Node, before: set[str], replaced: dict[Node, str]) -> None:
        self.node, self.before, self.replaced = node, before, replaced
        self.outputs = {name: new for new, name in replaced.items() if node is new or node in self._made_from(new)}
        assert self.outputs
        inputs = {self._name(n) for n in self._made_from(node)}
        self.needs = {*self.outputs, *inputs} - {None}

    def _name(self, node: Node) -> str | None:
        """What the node is called in the graph before, if it is there."""
        return self.replaced.get(node, node.name if node.name in self.before else None)

    def _made_from(self, node: Node) -> set[Node]:
        """The nodes that a new node is computed from, down to those of the graph before and to fused ops."""
        found: set[Node] = set()
        for a in node.all_input_nodes:
            found.add(a)
            if self._name(a) is None and not is_fused(a):
                found |= self._made_from(a)
        return found

    def is_explained(self, computed: dict[str, Any]) -> bool:
        """Is every row of the outputs that of the definition, for one step of the reciprocal root?"""
        answers = [self._evaluate(steps, computed) for steps in STEPS]
        widest = max(answers[0].values(), key=lambda t: t.shape[-1])
        tokens = widest.numel() // widest.shape[-1]
        rows = lambda t: bits(t).reshape(tokens, -1)  # noqa: E731
        per_step = [torch.stack([(rows(a) == rows(computed[n])).all(1) for n, a in x.items()]).all(0) for x in answers]
        return bool(torch.stack(per_step).any(0).all())

    def _evaluate(self, steps: int, computed: dict[str, Any]) -> dict[str, Tensor]:
        op = ops.shipped_program().ops[self.node.target._schema.name.split("::")[1]]  # type: ignore[union-attr]
        cache: dict[Node, Any] = {}

        def value(node: Node) -> Any:
            name = self._name(node)
            if name is not None and node not in self.outputs.values():
                return computed[name]
            if node not in cache:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)
                if node is self.node:
                    operands, attributes = split_arguments(op, args)
                    results = evaluate(ops.shipped_program(), op, operands, attributes, Nudged(steps))
                    cache[node] = results[0] if len(results) == 1 else results
                else:
                    cache[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return cache[node]

        return {name: value(node) for name, node in self.outputs.items()}


def compiled_values(gm: GraphModule, names: set[str]) -> dict[str, Any]:
    """The values of these nodes as code that Inductor generates for the whole graph computes them."""
    gm = copy.deepcopy(gm)
    wanted = [n for n in gm.graph.nodes if n.name in names]
    (output,) = gm.graph.find_nodes(op="output")
    output.args = (tuple(wanted),)
    gm.recompile()
    inputs = list(gm.meta[capture.INPUTS])
    found = torch._inductor.compile(gm, inputs)(*inputs)  # type: ignore[operator]
    return dict(zip([n.name for n in wanted], found))
