"""Fixtures and hooks that all tests share."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch.fx import GraphModule


os.environ.setdefault("FXREWRITE_ALLOW_UNPROVED", "1")  # most stubs have no right kernel; test_proofs.py unsets it
collect_ignore_glob = ["*.rw"]  # files that tests read, wrong ones among them; the shipped ones are verified by name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no GPU; torch is imported only if there is such a test."""
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch.cuda.is_available() is False"))


@pytest.fixture(autouse=True)
def compiles_anew() -> Iterator[None]:
    """Every compile runs its passes: an earlier test, or an earlier run of the tests, answers for none of them."""
    if "torch" not in sys.modules:
        yield
        return
    import capture

    with capture.no_caches():
        yield


@pytest.fixture
def files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Path]:
    """Makes files, by name, in an empty folder that the test runs in, and gives the folder."""

    def make(files: dict[str, str]) -> Path:
        monkeypatch.chdir(tmp_path)
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


@cache
def _captured(
    kind: str, quant: str, shared_scale: bool, dynamic: bool, group: int, sizes: tuple[tuple[str, Any], ...]
) -> GraphModule:
    import capture
    import fp8_linear
    import models

    model = fp8_linear.quantize(models.make(kind, **dict(sizes)), quant, shared_scale, group)
    (graph,) = capture.post_grad_graphs(model, models.inputs(model), dynamic)
    return graph


@pytest.fixture
def model_graph() -> Callable[..., GraphModule]:
    """A fresh copy of the post-grad graph of a quantized model: `model_graph("llama", "token", hidden=256)`.

    Keywords: `shared_scale`, `dynamic`, `group`, and those of `models.make`. A capture takes 2 s (static) to 14 s
    (dynamic), so each is made once a process.
    """

    def graph_of(
        kind: str, quant: str, *, shared_scale: bool = True, dynamic: bool = False, group: int = 64, **sizes: Any
    ) -> GraphModule:
        return copy.deepcopy(_captured(kind, quant, shared_scale, dynamic, group, tuple(sorted(sizes.items()))))

    return graph_of
