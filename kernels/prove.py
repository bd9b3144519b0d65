"""The proof that functions of one 16-bit value may take approximate instructions: all 65,536 values are tried.

It runs when a kernel is first generated on a device, and what it found is kept in the cache, by the text of the
function and the device. A function that fails it is computed by exact instructions.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import torch
from fxrewrite_kernels.analyse import PROVABLE, Segment, segments
from fxrewrite_kernels.emit import DEVICE, EXACT, Target, emit
from fxrewrite_kernels.ir import Builder, Definition, Input, Node, Output, define_kernel
from fxrewrite_kernels.launch import Launcher, folder, write
from fxrewrite_kernels.schedule import Schedule

VALUES = 1 << 16
WIDTH = 1024  # columns of the tensor that holds all values
SCHEDULE = Schedule("tile", WIDTH, 4)


def target_for(definition: Definition, device: torch.device) -> Target:
    """`DEVICE` where every function of one value is proved on this device, else `EXACT`."""
    return DEVICE if all(is_proved(alone(s), device) for s in segments(definition)) else EXACT


def alone(segment: Segment) -> Definition:
    """The kernel that computes nothing but a segment."""
    build = Builder()
    source = Input("x", "rows", PROVABLE, WIDTH)
    made: dict[int, Node] = {segment.source.number: build.load(source)}

    def copied(n: Node) -> Node:
        if n.number not in made:
            if n.op == "const":
                made[n.number] = build.const(n.attr[0])
            elif n.op == "to":
                made[n.number] = build.to(copied(n.args[0]), n.dtype)
            else:
                made[n.number] = build.apply(n.op, *map(copied, n.args))
        return made[n.number]

    return define_kernel("function", [source], [Output("y", copied(segment.result))], WIDTH)


def is_proved(function: Definition, device: torch.device) -> bool:
    """Are the approximate and the exact kernel of a function equal on all values of this device?"""
    exact, fast = (emit(function, SCHEDULE, target).text for target in (EXACT, DEVICE))
    return exact == fast or _tried(exact, fast, function, device)


def _tried(exact: str, fast: str, function: Definition, device: torch.device) -> bool:
    key = hashlib.sha256(f"{exact}\n{fast}\n{_machine(device.index or 0)}".encode()).hexdigest()[:24]
    path = folder() / f"proof-{key}.json"
    try:
        return bool(json.loads(path.read_text())["equal"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    differ = differing(function, device)
    write(path, json.dumps({"equal": differ == 0, "differ": differ, "machine": _machine(device.index or 0)}))
    return differ == 0


def differing(function: Definition, device: torch.device) -> int:
    """On how many of all values the two kernels of a function differ; a NaN is a NaN."""
    values = torch.arange(VALUES, device=device, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    found: list[torch.Tensor] = []
    for target in (EXACT, DEVICE):
        launcher = Launcher(function, target)
        results = launcher.results(VALUES // WIDTH, device)
        launcher([values.view(-1, WIDTH)], results, SCHEDULE)
        found.append(results[0])
    a, b = found
    same = (a.view(torch.int16) == b.view(torch.int16)) | (a.isnan() & b.isnan())
    return int((~same).sum().item())


@cache
def _machine(index: int) -> str:
    """The device and what compiles for it."""
    import triton  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

    release: Any = triton.__version__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return f"{torch.cuda.get_device_name(index)}, triton {release}, torch {torch.__version__}"


__all__ = ["alone", "differing", "is_proved", "target_for"]
