"""How fast generated kernels are on a GPU: beside a kernel that loads and stores the same and computes nothing,
Inductor's code for the definition, and the two ops one after the other."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from fxrewrite_kernels.emit import DEVICE
from fxrewrite_kernels.ir import COLUMNS, GROUPS, SIZES, Builder, Definition, Output, define_kernel
from fxrewrite_kernels.launch import Launcher
from fxrewrite_kernels.prove import target_for
from fxrewrite_kernels.schedule import Schedule

from benchmarks.kernels_common import WORKERS, lowered, ops, program
from fxrewrite.dsl.evaluate import evaluate
from fxrewrite.lowering.codegen import lower
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.generated import given

TIME_SECONDS = 135
CACHED = 200e6  # bytes that two buffers of one cell lie apart: more than L2 holds

MAIN = {  # fusion -> the two ops
    "silu_mul_fp8_static": ("silu_mul", "quant_fp8_static"),
    "silu_mul_fp8": ("silu_mul", "quant_fp8"),
    "silu_mul_fp8_group": ("silu_mul", "quant_fp8_group"),
    "add_rms_norm_fp8_static": ("add_rms_norm", "quant_fp8_static"),
    "add_rms_norm_fp8": ("add_rms_norm", "quant_fp8"),
    "add_rms_norm_fp8_group": ("add_rms_norm", "quant_fp8_group"),
}
OTHERS = {
    "rms_norm_fp8": ("rms_norm", "quant_fp8"),
    "rms_norm_fp8_static": ("rms_norm", "quant_fp8_static"),
    "gelu_mul_fp8_static": ("gelu_mul", "quant_fp8_static"),
    "swiglu_clamped_fp8": ("swiglu_clamped", "quant_fp8"),
    "layer_norm_fp8_group": ("layer_norm", "quant_fp8_group"),
    "silu_mul_int8": ("silu_mul", "quant_int8"),
    "add_rms_norm_int8": ("add_rms_norm", "quant_int8"),
}
SHAPED = (
    Schedule("tile", 1024, 4),
    Schedule("tile", 2048, 8),
    Schedule("tile", 4096, 16),
    Schedule("tile", 1024, 4, cg=True),
)


def times(out: Path, seconds: float = TIME_SECONDS) -> int:
    """The grid; what does not fit into the time is left out, and said so."""
    start = time.time()
    cells = [(n, d, t) for t in (8192, 1024, 128, 16) for d in (4096, 8192, 16384) for n in MAIN]
    cells += [(n, d, t) for t in (8192, 1024, 16) for d in (4096, 8192) for n in OTHERS]
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        compiled = list(
            pool.map(compile_cell, [c for c in cells if by_inductor(*c)] if seconds >= TIME_SECONDS else [])
        )
    print(
        f"compiled {len(compiled)} by Inductor in {time.time() - start:.0f} s",
        [c for c in compiled if c][:3],
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    left = 0
    for cell in cells:
        if time.time() - start > seconds:
            left += 1
            continue
        try:
            rows.append(measured(*cell, beside=by_inductor(*cell) and seconds >= TIME_SECONDS))
            print(line(rows[-1]), flush=True)
        except Exception as error:  # noqa: BLE001  the other cells are measured all the same
            print("ERROR", cell, type(error).__name__, str(error)[:300], flush=True)
        torch.cuda.empty_cache()
    found = {"device": torch.cuda.get_device_name(), "rows": rows, "left_out": left}
    out.write_text(json.dumps(found, indent=1))
    print("left out:", left)
    return 0


def by_inductor(name: str, width: int, tokens: int) -> bool:
    """Is Inductor's code measured in this cell? It takes seconds to compile."""
    return name in MAIN and width in (4096, 8192) and tokens in (1024, 8192)


def compile_cell(cell: tuple[str, int, int]) -> str:
    """Fill Inductor's cache; "" where that went well."""
    try:
        name, width, tokens = cell
        op = program().ops[name]
        args = ops.operands(op, "bf16", width, tokens, "cuda")
        inductor(name, args)(*args)
        return ""
    except Exception as error:  # noqa: BLE001  it is said, and the cell goes without
        return f"{cell}: {type(error).__name__}: {str(error)[:200]}"


def inductor(name: str, args: Sequence[Any]) -> Callable[..., Any]:
    """Inductor's code for the definition, at static sizes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    attributes = ops.required(program().ops[name])
    graph = make_fx(lambda *a: evaluate(program(), name, a, attributes, Torch()))(*args)
    return torch.compile(graph, dynamic=False)


def measured(name: str, width: int, tokens: int, beside: bool) -> dict[str, Any]:
    """Microseconds of each contender in one cell. `beside`: Inductor's code, too."""
    low = lowered(name, width)
    definition = low.definition
    size = traffic(definition, tokens)
    sets = max(2, min(64, math.ceil(CACHED / size)))
    op = program().ops[name]
    operands = [ops.operands(op, "bf16", width, tokens, "cuda") for _ in range(sets)]
    inputs = [ops.picked(o, low.inputs) for o in operands]
    device = torch.device("cuda")
    launcher = Launcher(definition, target_for(definition, device))
    results = [launcher.results(tokens, device) for _ in range(sets)]
    row: dict[str, Any] = {"op": name, "width": width, "tokens": tokens, "bytes": size}
    row["generated"] = replayed([lambda i=i, r=r: launcher(i, r) for i, r in zip(inputs, results)])
    shape = Launcher(shaped(definition), DEVICE)
    row["shaped"] = min(
        replayed([lambda i=i, r=r, s=s: shape(i, r, s) for i, r in zip(inputs, results)])
        for s in SHAPED
        if s.block <= width
    )
    row["pair"] = replayed(pair(name, operands, tokens, device))
    if beside:
        code = inductor(name, operands[0])
        code(*operands[0])
        row["inductor"] = replayed([lambda o=o: code(*o) for o in operands])
    return row


def pair(name: str, operands: list[list[Any]], tokens: int, device: torch.device) -> list[Callable[[], None]]:
    """The two ops of a fusion, each by its generated kernel; what lies between is written and read."""
    first, second = (MAIN | OTHERS)[name]
    op, ops_ = program().ops[name], program().ops
    calls: list[Callable[[], None]] = []
    launchers: list[Any] = []
    for one in operands:
        by_name = dict(zip([o.name for o in op.operands], one))
        a_args = [by_name[o.name] for o in ops_[first].operands]
        if not launchers:
            launchers.append(ready(first, a_args, device))
        (a, a_sources) = launchers[0]
        a_results = a.results(tokens, device)
        b_args = [a_results[0], *(by_name[o.name] for o in ops_[second].operands[1:])]
        if len(launchers) == 1:
            launchers.append(ready(second, b_args, device))
        (b, b_sources) = launchers[1]
        b_results = b.results(tokens, device)
        a_in, b_in = ops.picked(a_args, a_sources), ops.picked(b_args, b_sources)

        def call(
            a: Any = a, b: Any = b, a_in: Any = a_in, b_in: Any = b_in, ar: Any = a_results, br: Any = b_results
        ) -> None:
            a(a_in, ar)
            b(b_in, br)

        calls.append(call)
    return calls


def ready(name: str, args: Sequence[Any], device: torch.device) -> tuple[Launcher, Any]:
    low = lower(program(), name, [given(v) for v in args], ops.required(program().ops[name]))
    return Launcher(low.definition, target_for(low.definition, device)), low.inputs


def traffic(d: Definition, tokens: int) -> int:
    """Bytes that a kernel must read and write."""
    read = sum(i.width * SIZES[i.dtype] * (tokens if i.kind == "rows" else 1) for i in d.inputs)
    count = {COLUMNS: d.width, GROUPS: d.width // max(d.group, 1)}
    return read + sum(tokens * count.get(o.node.axis, 1) * SIZES[o.node.dtype] for o in d.outputs)


def shaped(d: Definition) -> Definition:
    """The same loads and stores, and nothing computed."""
    build = Builder()
    loads = [n for n in d.nodes if n.op == "load" and n.axis == COLUMNS]
    total = None
    for n in loads:
        x = build.to(build.load(d.input(n.attr[0]), n.attr[1], n.attr[2]), "f32")
        total = x if total is None else build.apply("add", total, x)
    assert total is not None
    outputs = [
        Output(o.name, build.to(total, o.node.dtype) if o.node.axis == COLUMNS else build.const(1.0), "row")
        for o in d.outputs
    ]
    return define_kernel("shaped", d.inputs, outputs, d.width)


def replayed(calls: Sequence[Callable[[], Any]]) -> float:
    """Microseconds a call: the median of replays of a CUDA graph of all calls."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept: list[Any] = []
    repeat = max(1, 8 // len(calls))
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            kept += [c() for c in calls]
    graph.replay()
    torch.cuda.synchronize()
    took: list[float] = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    return sorted(took)[len(took) // 2] * 1e3 / (len(calls) * repeat)


def line(row: dict[str, Any]) -> str:
    """A cell for people."""
    ceiling, pair_ = row["shaped"] / row["generated"], row["pair"] / row["generated"]
    other = f"  inductor {row['inductor'] / row['generated']:.2f}x" if "inductor" in row else ""
    where = f"{row['op']:<26} {row['width']:>6} {row['tokens']:>6}"
    return f"{where} {row['generated']:>8.2f} us  ceiling {ceiling:.2f}  pair {pair_:.2f}x{other}"
