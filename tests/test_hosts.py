"""Every host that a graph may come from: the hooks of plain Inductor, our backend, exports, nested graphs, training.

The rules here hold no exp, rsqrt or reduction: what a compiler makes of the one side and of the other is equal bit for
bit where it keeps declared roundings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch._inductor import config as inductor_config
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

import fxrewrite
from fxrewrite.patterns.events import Log, record
from graph_checks import check_metadata

HOOKS = (
    "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass",
)  # fmt: skip
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
RULES = """fusion mul_add(x: real[*B, D], y: real[*B, D]) = x * y + x
fusion relu_fp8_static(x: lowp[*B, D], s) = relu(x) |> quant_fp8_static(s)
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rules") / "exact.rw"
    path.write_text(RULES)
    return str(path)


@pytest.fixture(autouse=True)
def exact_roundings() -> Iterator[None]:
    torch._dynamo.reset()
    with inductor_config.patch(emulate_precision_casts=True):
        yield


def sample(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


X, Y, S = sample(6, 64), sample(6, 64).flip(0), torch.full((1,), 0.02)


def quant(x: Tensor, s: Tensor) -> Tensor:
    return (x.float() / s).clamp(-448, 448).to(E4M3)


def step(x: Tensor, y: Tensor) -> Tensor:
    return x * y + x


def both(x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return quant(torch.relu(y), s), step(x, y)


def options(rules: str, hook: str | None = None, **more: Any) -> dict[str, Any]:
    made = fxrewrite.inductor_options(rules, providers=["op"], **more)
    return made if hook is None else {hook: next(iter(made.values()))}


def recorded(run: Callable[[], Any]) -> tuple[Any, Log]:
    with record() as log:
        found = run()
    return found, log


def same(found: Any, wanted: Any) -> None:
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert torch.equal(a.float(), b.float())


# ---- torch.compile


@pytest.mark.slow
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_of_plain_inductor(rules: str, hook: str) -> None:
    compiled = torch.compile(both, options=options(rules, hook))
    found, log = recorded(lambda: compiled(X, Y, S))
    assert log.fired() == {"relu_fp8_static": 1, "mul_add": 1}
    same(found, both(X, Y, S))


@pytest.mark.slow
def test_the_backend_on_several_graphs_after_a_break(rules: str) -> None:
    def broken(x: Tensor, y: Tensor) -> Tensor:
        x = step(x, y)
        torch._dynamo.graph_break()
        return step(x, y)

    backend = fxrewrite.backend(rules, providers=["op"])
    found, log = recorded(lambda: torch.compile(broken, backend=backend)(X, Y))
    assert (log.fired(), log.graphs) == ({"mul_add": 2}, 2)
    assert sorted({e.graph for e in log.events if e.fired}) == [0, 1]
    same(found, broken(X, Y))


@pytest.mark.slow
def test_autocast(rules: str) -> None:
    """The product is cast by autocast; what follows it is in bf16."""
    linear = nn.Linear(64, 64)

    def model(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return step(linear(x), y)

    with torch.no_grad():
        backend = fxrewrite.backend(rules, providers=["op"])
        found, log = recorded(lambda: torch.compile(model, backend=backend)(X.float(), Y))
        assert log.fired() == {"mul_add": 1}
        same(found, model(X.float(), Y))


class Tied(nn.Module):
    """An embedding whose table is also the last product."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 64, dtype=BF16)
        self.head = nn.Linear(64, 32, bias=False, dtype=BF16)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor, y: Tensor) -> Tensor:
        return self.head(step(self.embed(ids), y))


@pytest.mark.slow
def test_tied_weights(rules: str) -> None:
    model, ids = Tied(), torch.arange(6)
    backend = fxrewrite.backend(rules, providers=["op"])
    with torch.no_grad():
        found, log = recorded(lambda: torch.compile(model, backend=backend)(ids, Y))
        assert log.fired() == {"mul_add": 1}
        same(found, model(ids, Y))


# ---- training


class Trained(nn.Module):
    """In float32, where torch 2.11 too has no rounding to drop on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return step(self.lin(x), y)


@pytest.mark.slow
def test_gradients_are_the_same(rules: str) -> None:
    models = [Trained()]
    models.append(copy.deepcopy(models[0]))
    plain, ours = torch.compile(models[0]), torch.compile(models[1], options=options(rules))
    xs, y = [X.float().requires_grad_(), X.float().requires_grad_()], Y.float()
    wanted = plain(xs[0], y)
    torch._dynamo.reset()
    found, log = recorded(lambda: ours(xs[1], y))
    assert log.fired()["mul_add"] == 1
    same(found, wanted)
    for out in (wanted, found):
        out.float().sum().backward()
    same([xs[1].grad, models[1].lin.weight.grad], [xs[0].grad, models[0].lin.weight.grad])


SAVED = """fusion kept(x: lowp[*B, D], y: lowp[*B, D]) = {outputs} where r = exp(x), z = r * y
"""


@pytest.mark.parametrize(("outputs", "fired"), [("z", 0), ("z, r", 1)])
def test_what_is_saved_is_not_computed_twice(tmp_path: Path, outputs: str, fired: int) -> None:
    """`exp(x)` is saved for the backward pass: a rule that swallows it would have it computed twice."""
    path = tmp_path / "saved.rw"
    path.write_text(SAVED.format(outputs=outputs))
    x = X.clone().requires_grad_()
    graphs: list[GraphModule] = []

    def keep(gm: GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=default_partition)
    torch.compile(lambda x, y: torch.exp(x) * y, backend=backend)(x, Y)
    with record() as log:
        fxrewrite.rewrite(graphs[0], str(path), providers=["op"])
    assert log.fired() == ({"kept": 1} if fired else {})
    reasons = {e.reason for e in log.events if not e.fired and e.rule == "kept"}
    assert reasons == (set() if fired else {"shared value"})


# ---- without a compiler


class Branches(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, y: step(x, y), lambda x, y: step(y, x) * 2, (x, y))


def branch_values(model: Callable[..., Any]) -> list[Tensor]:
    return [model(X.abs(), Y), model(-X.abs(), Y)]


def test_branches_of_an_exported_program(rules: str) -> None:
    program = torch.export.export(Branches(), (X, Y)).run_decompositions()
    with record() as log:
        fxrewrite.rewrite(program, rules, providers=["op"])
    assert log.fired() == {"mul_add": 2}
    same(branch_values(program.module()), branch_values(Branches()))
    for name, gm in program.graph_module.named_modules():
        if name:
            check_metadata(gm)


@pytest.mark.slow
def test_branches_when_compiled(rules: str) -> None:
    backend = fxrewrite.backend(rules, providers=["op"])
    with torch.no_grad():
        found, log = recorded(lambda: branch_values(torch.compile(Branches(), backend=backend)))
        assert log.fired() == {"mul_add": 2}
        same(found, branch_values(Branches()))


class Both(nn.Module):
    def forward(self, x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return both(x, y, s)


@pytest.mark.parametrize("decompose", [False, True])
def test_an_exported_program_is_saved_and_loaded(rules: str, decompose: bool, tmp_path: Path) -> None:
    program = torch.export.export(Both(), (X, Y, S))
    program = program.run_decompositions() if decompose else program
    with record() as log:
        fxrewrite.rewrite(program, rules, providers=["op"])
    assert log.fired() == {"relu_fp8_static": 1, "mul_add": 1}
    torch.export.save(program, tmp_path / "both.pt2")
    same(torch.export.load(tmp_path / "both.pt2").module()(X, Y, S), both(X, Y, S))
