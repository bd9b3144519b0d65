"""What a call of a generated kernel costs the host."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.kernels_common import program
from benchmarks.kernels_times import ready


def host_cost() -> dict[str, float]:
    """Microseconds of host time an op in compiled code, at 16 tokens: opaque, visible, a bare launch."""
    from fxrewrite.lowering.generated import op_for

    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.ones(4096, device="cuda", dtype=torch.bfloat16)
    found: dict[str, float] = {}
    for visible in (False, True):
        found |= {
            f"{'visible' if visible else 'opaque'}, {how}": us
            for how, us in of_op(op_for(program(), "rms_norm", visible), x, w)
        }
    launcher, _ = ready("rms_norm", [x, w], torch.device("cuda"))
    results = launcher.results(16, x.device)
    found["launcher"] = wall(lambda: launcher([x, w], results))
    schedule = next(iter(launcher._kernels))
    kernel = launcher._kernels[schedule]
    args = launcher._arguments([x, w], results, 16)
    grid = schedule.grid(launcher.definition, 16)
    found["bare launch"] = wall(lambda: kernel[grid](*args, num_warps=schedule.warps))
    return found


def host(out: Path) -> int:
    """The cost of a call alone."""
    found = host_cost()
    out.write_text(json.dumps(found, indent=1))
    print("host cost, us an op:", found)
    return 0


def of_op(op: Any, x: torch.Tensor, w: torch.Tensor) -> Iterator[tuple[str, float]]:
    """A chain of 16 calls of one op, compiled for one size and for all, and a call that is not compiled."""

    def chain(x: Any, w: Any) -> Any:
        for _ in range(16):
            x = op(x, w, 1e-6)
        return x

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(chain, dynamic=dynamic)
        assert torch.equal(compiled(x, w), chain(x, w))
        yield "dynamic" if dynamic else "static", wall(partial(compiled, x, w)) / 16
    yield "eager", wall(lambda: op(x, w, 1e-6))


def wall(call: Callable[[], Any], count: int = 200) -> float:
    """Microseconds of host time a call: the median of five."""
    for _ in range(10):
        call()
    took: list[float] = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        took.append((time.perf_counter() - start) / count * 1e6)
    return sorted(took)[2]
