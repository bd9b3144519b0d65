"""From a definition to a kernel that runs: source, module, memory of the results, launch.

    launcher = Launcher(definition)
    results = launcher.results(tokens, device)
    launcher(inputs, results)

The source lies in a private folder, under the digest of its text: a file that is not what it must be is written anew.
Triton keeps what it compiles in a cache of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
from fxrewrite_kernels.analyse import Analysis, analyse
from fxrewrite_kernels.emit import Source, Target, emit
from fxrewrite_kernels.ir import COLUMNS, GROUPS, Definition, Output
from fxrewrite_kernels.schedule import Schedule, choose

logger = logging.getLogger("fxrewrite")
TMA_ROWS = 4  # a TMA descriptor wants strides that are multiples of 16 bytes: four float32 scales
DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "e4m3fn": torch.float8_e4m3fn, "i8": torch.int8,
}  # fmt: skip


@define(eq=False)
class Launcher:
    """Runs a definition on tensors, with the schedule for their number of rows."""

    definition: Definition
    target: Target = field(factory=Target)
    _facts: Analysis | None = field(init=False, default=None)
    _kernels: dict[Schedule, Any] = field(init=False, factory=dict[Schedule, Any])
    _paired: set[str] = field(init=False, factory=set[str])

    def __attrs_post_init__(self) -> None:
        self._paired = {n.attr[0] for n in self.definition.nodes if n.op == "load" and n.attr[2] == 2}

    def source(self, schedule: Schedule) -> Source:
        """The text of the kernel for a schedule."""
        if self._facts is None:
            self._facts = analyse(self.definition)
        return emit(self.definition, schedule, self.target, self._facts)

    def results(self, tokens: Any, device: torch.device) -> list[torch.Tensor]:
        """Memory for the results of a number of rows, in their layouts."""
        return [empty(self.definition, o, tokens, device) for o in self.definition.outputs]

    def __call__(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], schedule: Schedule | None = None,
        wrap: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        """Compute `results` from `inputs`: rows as [tokens, width], in the order of the definition.

        `wrap`: what a tracer puts around the kernel. No row, no launch.
        """
        tokens = self.tokens(inputs)
        if isinstance(tokens, int) and tokens == 0:
            return
        chosen = schedule or choose(self.definition, tokens)
        kernel = self._kernels.get(chosen)
        if kernel is None:
            kernel = self._kernels[chosen] = load(self.source(chosen))
        run = kernel if wrap is None else wrap(kernel)
        arguments = self._arguments(inputs, results, tokens, traced=wrap is not None)
        run[chosen.grid(self.definition, tokens)](*arguments, num_warps=chosen.warps)

    def tokens(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The number of rows."""
        return next(x.shape[0] for i, x in zip(self.definition.inputs, inputs, strict=True) if i.kind == "rows")

    def _arguments(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], tokens: Any, traced: bool = False
    ) -> list[Any]:
        rows = [i.kind == "rows" for i in self.definition.inputs]
        read = [self._readable(i.name, x, traced) for i, x in zip(self.definition.inputs, inputs, strict=True)]
        written = list(results)
        if self.target.interpreted:  # its FP8 is made by hand, as bytes
            written = [x.view(torch.uint8) if x.dtype is torch.float8_e4m3fn else x for x in written]
        between = [
            x.stride(1)
            for o, x in zip(self.definition.outputs, results, strict=True)
            if o.node.axis == GROUPS and o.layout != "row"
        ]
        return [
            *read,
            *(x.stride(0) for x, is_rows in zip(read, rows, strict=True) if is_rows),
            *written,
            *between,
            tokens,
        ]

    def _readable(self, name: str, x: torch.Tensor, traced: bool) -> torch.Tensor:
        """A tensor as the kernel reads it: columns side by side; pairs of columns as words, which lie evenly."""
        if x.ndim and x.stride(-1) != 1 and x.shape[-1] != 1:
            return x.contiguous()
        uneven = name in self._paired and (x.stride(0) % 2 or (x.storage_offset() % 2 if traced else x.data_ptr() % 4))
        if uneven:
            return x.clone(memory_format=torch.contiguous_format)
        return x


def empty(definition: Definition, output: Output, tokens: Any, device: torch.device) -> torch.Tensor:
    """Memory for one result."""
    dtype = DTYPES[output.node.dtype]
    if output.node.axis == COLUMNS:
        return torch.empty((tokens, definition.width), dtype=dtype, device=device)
    if output.node.axis != GROUPS:
        return torch.empty((tokens, 1), dtype=dtype, device=device)
    shape = (tokens, definition.width // definition.group)
    if output.layout == "row":
        return torch.empty(shape, dtype=dtype, device=device)
    height = at_least_one(tokens)
    if output.layout == "tma":
        height = (height + TMA_ROWS - 1) // TMA_ROWS * TMA_ROWS
    return torch.empty_strided(shape, (1, height), dtype=dtype, device=device)


def at_least_one(tokens: Any) -> Any:
    """The larger of a number of rows, which may be a symbol, and 1."""
    return torch.sym_max(tokens, 1)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


# ---- modules


def load(source: Source) -> Any:
    """The kernel of a source, from the module that holds its text."""
    module = _module(source.text)
    return getattr(module, source.name)


@cache
def _module(text: str) -> Any:
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    path = folder() / f"{digest}.py"
    if _read(path) != text:
        write(path, text)
    name = f"fxrewrite_generated_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton asks for the module of a kernel
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def _read(path: Path) -> str | None:
    """The text of a kernel that is there; None where it is damaged, or another user could have written it."""
    try:
        found = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    if hashlib.sha256(found.encode()).hexdigest()[:24] == path.stem:
        return found
    logger.warning("a generated kernel in the cache was damaged, and is written anew: %s", path.name)
    return None


def write(path: Path, text: str) -> None:
    """Write a file: a reader sees all of it, or none."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.replace(path)


@cache
def folder() -> Path:
    """`$FXREWRITE_CACHE_DIR`, else `fxrewrite` in the cache folder of this user; there `kernels`."""
    if chosen := os.environ.get("FXREWRITE_CACHE_DIR"):
        base = Path(chosen).expanduser()
    else:
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = (shared if shared.is_absolute() else Path.home() / ".cache") / "fxrewrite"
    folder = base / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


__all__ = ["DTYPES", "Launcher", "empty", "folder", "load", "write"]
