"""Hand-written kernels, by op and device type. A kernel is one more provider of a declared op, held to the same proof.

    register("silu_mul_fp8", "cuda", torch.ops.mylib.silu_mul_fp8)

Packages outside this one register theirs in the same way, when they are imported.
"""

from __future__ import annotations

from typing import Any

# (op, device type) -> an object with `default`, and `dyn` for 0-d float attributes
_kernels: dict[tuple[str, str], Any] = {}


def register(op: str, device: str, target: Any) -> None:
    """Make `target` (an OpOverloadPacket, or anything with `.default` and `.dyn`) the kernel of `op` on `device`
    ("cuda", "cpu").

    It takes the operands and then every attribute of the op, by position, and gives its results. Raises ValueError
    where the op has a kernel on that device already.
    """
    if (op, device) in _kernels:
        raise ValueError(f"{op} has a kernel on {device} already")
    _kernels[op, device] = target


def unregister(op: str, device: str) -> None:
    """Take a kernel back. Raises KeyError where there is none."""
    del _kernels[op, device]


def find(op: str, device: str) -> Any | None:
    """The kernel of `op` on `device`, or None."""
    return _kernels.get((op, device))


def names() -> list[tuple[str, str]]:
    """Every (op, device type) that has a kernel."""
    return sorted(_kernels)


__all__ = ["find", "names", "register", "unregister"]
