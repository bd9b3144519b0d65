"""Whose kernel a torch op is: torch's, ours, or that of another package, which a form or `impl` makes claims about.

The package of an op is that of the Python file which registers it; where none does, that of its namespace.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Case, TorchCall
from fxrewrite.patterns.forms import MissingOp, torch_op

TORCH = frozenset(
    "aten prims prim rngprims c10d _c10d_functional _c10d_functional_autograd symm_mem inductor higher_order quantized "
    "_quantized quantized_decomposed mkldnn mkldnn_prepacked mkl onednn sparse profiler".split()
)
OURS = frozenset({"fxrewrite", "fxrewrite_kernels"})
OF_NAMESPACE = {"_C": "vllm", "_C_cache_ops": "vllm", "_moe_C": "vllm", "_rocm_C": "vllm"}  # written in C++
ELSEWHERE = re.compile(r"Meta|Autograd|Autocast|ADInplaceOrView|Func|Python")  # keys at which no result is computed
REGISTERED = re.compile(r"^(\w+)(?:\[alias\])?: registered at (.*):\d+", re.M)


def foreign(case: Case) -> tuple[str, ...]:
    """The ops in a spelling that are neither torch's nor ours, each once."""
    called = dict.fromkeys(t.op for t in walk((case.outputs, case.binds)) if isinstance(t, TorchCall))
    return tuple(op for op in called if op.partition(".")[0] not in TORCH | OURS)


def is_here(ops: tuple[str, ...]) -> bool:
    """Are all of these registered in this process?"""
    try:
        return all(map(torch_op, ops))
    except MissingOp:
        return False


def release(op: str) -> str | None:
    """`package==version` of what owns an op of this process; None where that is not known or may change."""
    packages = {_package(name) for name in modules(op)}
    package = packages.pop() if len(packages) == 1 else None
    return None if package is None else _released(package)


def registration(op: str) -> Any:
    """What tells one registration of an op in this process from another."""
    name = torch_op(op).name()
    return torch._C._dispatch_dump(name), OPDEFS.get(name)


def _files(name: str) -> Iterator[str]:
    """The files in which an op and its kernels are registered."""
    defined: Any = OPDEFS.get(name)
    if defined is not None:
        yield from map(_file_of, (defined._init_fn, *defined._backend_fns.values()))
    else:
        found = REGISTERED.findall(torch._C._dispatch_dump(name))
        yield from (file for key, file in found if not ELSEWHERE.match(key))


def _file_of(function: Any) -> str:
    """Where a kernel is written that may stand in a closure of torch; nothing where that is not known."""
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):
        return ""
    inner = inspect.getclosurevars(function).nonlocals.get("fn")
    return function.__code__.co_filename if inner is None else _file_of(inner)


def modules(op: str) -> list[str]:
    """The modules that register an op and its kernels; `__main__` for what is in none."""
    return sorted({_module(op.partition(".")[0], file) for file in _files(torch_op(op).name())})


@cache
def _module(namespace: str, file: str) -> str:
    if file.endswith((".cpp", ".cu", ".cc", ".hip", ".h")):
        return OF_NAMESPACE.get(namespace, namespace)
    return next((n for n, m in sys.modules.copy().items() if getattr(m, "__file__", None) == file), "__main__")


@cache
def _package(module: str) -> str | None:
    """The distribution to which a module belongs."""
    found = set(_distributions().get(module.partition(".")[0], [])) - {"torch"}
    return found.pop() if len(found) == 1 else None


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _released(package: str) -> str | None:
    """A distribution with its version; None of one that is edited where it lies."""
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    return None if '"editable": true' in (found.read_text("direct_url.json") or "") else f"{package}=={found.version}"
