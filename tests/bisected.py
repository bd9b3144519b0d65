"""A model with twenty pairs of activations, and rules for them of which one is wrong; as `module:function`."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FIRST = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "erf": torch.erf, "abs": torch.abs}
SECOND = {"ceil": torch.ceil, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "erf": torch.erf}
PAIRS = list(product(FIRST, SECOND))
WRONG = "rule bisected_wrong: tanh(erf(x)) => bisected_relu_erf(x)"


def rules(wrong: str = WRONG, at: str = "erf_tanh") -> str:
    """A fusion for each pair, but for the pair `at` the wrong rule."""
    fusions = {f"{a}_{b}": f"fusion bisected_{a}_{b}(x: f32[*B, D]) = {b}({a}(x))" for a, b in PAIRS}
    return "\n".join({**fusions, at: wrong}.values()) + "\n"


class Chain(nn.Module):
    """Each pair of activations `repeats` times, a linear layer behind it."""

    def __init__(self, repeats: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.repeats = repeats
        self.mix = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.repeats):
            for a, b in PAIRS:
                x = x + self.mix(SECOND[b](FIRST[a](x))) / 8  # no error dies on its way
        return x


def rows() -> tuple[Tensor]:
    return (torch.randn(4, 16, generator=torch.Generator().manual_seed(1)),)


def chain() -> tuple[nn.Module, tuple[Tensor]]:
    return Chain(4), rows()


class Half(nn.Module):
    """One good pair, one wrong pair, and a half of the columns."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.erf(torch.erf(torch.relu(x))))[:, 4:][:, 4:12]


def half() -> tuple[nn.Module, tuple[Tensor]]:
    return Half(), rows()


def half_without_inputs() -> torch.export.ExportedProgram:
    program = torch.export.export(*half())
    program.example_inputs = None
    return program


def zeros() -> Tensor:
    return torch.zeros(4, 16)


def too_wide() -> tuple[Tensor]:
    return (torch.zeros(4, 17),)


@torch.library.custom_op("bisected::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    """One more in each call."""
    calls.append(len(calls))
    return x + len(calls)


@torch.library.custom_op("bisected::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    """A kernel of tanh(erf(x)) that is wrong."""
    return torch.tanh(torch.erf(x)) + 1


@torch.library.custom_op("bisected::refusing", mutates_args=())
def refusing(x: Tensor) -> Tensor:
    """A kernel that serves nobody."""
    raise ValueError("no such device")


calls: list[int] = []
for op in (counted, shifted, refusing):
    op.register_fake(torch.empty_like)


class Counting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.bisected.counted(x)


def counting() -> tuple[nn.Module, tuple[Tensor]]:
    return Counting(), rows()


class Drawing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(torch.relu(F.dropout(x, 0.5)))


def drawing() -> tuple[nn.Module, tuple[Tensor]]:
    return Drawing(), rows()


class Called(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.fxrewrite.bisected_called(x)


def called() -> tuple[nn.Module, tuple[Tensor]]:
    return Called(), rows()


class Counter(nn.Module):
    """Writes to a buffer what it also returns."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4, 16))

    def forward(self, x: Tensor) -> Tensor:
        self.get_buffer("last").copy_(torch.tanh(torch.erf(x)))
        return x + 1


def writing() -> tuple[nn.Module, tuple[Tensor]]:
    return Counter(), rows()


def near(before: Tensor, after: Tensor) -> bool:
    """Within a tenth."""
    return bool(((before - after).abs() < 0.1).all())


def nothing(before: Any, after: Any) -> None:
    """Forgets to answer."""


def raises(before: Any, after: Any) -> bool:
    raise KeyError("logits")
