"""Hand-written kernels, by op and device type. A kernel is one more provider of a declared op, held to the same proof.

    register("silu_mul_fp8", "cuda", torch.ops.mylib.silu_mul_fp8)

Packages outside this one register theirs in the same way, when they are imported.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# (op, device type) -> an object with `default`, and `dyn` for 0-d float attributes
_kernels: dict[tuple[str, str], Any] = {}
_sources: dict[tuple[str, str], str] = {}  # (op, device type) -> digest of the files that the kernel comes from


def register(op: str, device: str, target: Any, files: Iterable[str | Path] = ()) -> None:
    """Make `target` (an OpOverloadPacket, or anything with `.default` and `.dyn`) the kernel of `op` on `device`
    ("cuda", "cpu").

    It takes the operands and then every attribute of the op, by position, and gives its results. `files`: what it comes
    from beside the file that calls this; where the text of one changes, caches of compiled code begin anew. Raises
    ValueError where the op has a kernel on that device already.
    """
    if (op, device) in _kernels:
        raise ValueError(f"{op} has a kernel on {device} already")
    _kernels[op, device] = target
    _sources[op, device] = _digest([traceback.extract_stack(limit=2)[0].filename, *files])


def unregister(op: str, device: str) -> None:
    """Take a kernel back. Raises KeyError where there is none."""
    del _kernels[op, device]
    del _sources[op, device]


def find(op: str, device: str) -> Any | None:
    """The kernel of `op` on `device`, or None."""
    return _kernels.get((op, device))


def names() -> list[tuple[str, str]]:
    """Every (op, device type) that has a kernel."""
    return sorted(_kernels)


def states() -> list[tuple[str, str, str]]:
    """Every kernel as (op, device type, digest of its source): equal lists are the same kernels."""
    return sorted((*at, source) for at, source in _sources.items())


def _digest(files: Iterable[str | Path]) -> str:
    texts = [p.read_bytes() if p.is_file() else b"" for p in map(Path, files)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


__all__ = ["find", "names", "register", "states", "unregister"]
