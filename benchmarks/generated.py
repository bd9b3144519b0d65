"""Generated kernels on a GPU: `python -m benchmarks.generated check|times|host --out FILE.json`.

`check` holds every kernel of the shipped norm and activation packs against its definition, op by op. `times` measures
them beside a kernel that only loads and stores the same bytes, Inductor's code for the definition, and the two ops.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from fxrewrite_kernels.analyse import segments
from fxrewrite_kernels.emit import DEVICE
from fxrewrite_kernels.ir import COLUMNS, GROUPS, Builder, Definition, Output, define_kernel
from fxrewrite_kernels.launch import Launcher
from fxrewrite_kernels.prove import alone, differing, target_for
from fxrewrite_kernels.schedule import Schedule

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.evaluate import evaluate
from fxrewrite.lowering.codegen import lower
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.generated import given

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import generated_ops as ops  # what the tests use, too

WIDTHS = (64, 100, 2880, 4096, 14336, 16384, 20000)
TOKENS = (0, 1, 3, 128, 1000)
CHECK_SECONDS = 150
TIME_SECONDS = 135
WORKERS = 14
CACHED = 200e6  # bytes that two buffers of one cell lie apart: more than L2 holds
VARIANTS: dict[str, tuple[Any, ...]] = {
    "recip": (True,), "wide": (True,), "late": (True,), "narrow": (True,), "ue8m0": (True,), "L": ("col", "tma"),
    "approximate": ("tanh",), "bound": (True,), "smin": (0.0,), "qeps": (0.0,), "eps": (1e-5,),
}  # fmt: skip


@cache
def program() -> Program:
    return packs.load(ops.PACKS)


@cache
def names() -> tuple[str, ...]:
    return tuple(ops.expressible(program(), list(program().ops)))


# ---- check


def check(out: Path) -> int:
    """Every kernel x dtypes x widths x tokens x layouts. Returns how many cases are wrong."""
    start = time.time()
    found: dict[str, Any] = {"cases": 0, "rows": 0, "moved": 0, "wrong": [], "errors": [], "unfinished": 0}
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        jobs = [pool.submit(checked, *task) for task in tasks()]
        try:
            for job in as_completed(jobs, timeout=CHECK_SECONDS):
                for case, outcome in job.result():
                    found["cases"] += 1
                    if isinstance(outcome, str):
                        found["errors"].append([case, outcome])
                        print("ERROR", case, outcome[:300], flush=True)
                        continue
                    unexplained, moved, rows = outcome
                    found["rows"] += rows
                    found["moved"] += moved
                    if unexplained:
                        found["wrong"].append([case, outcome])
                        print("WRONG", case, outcome, flush=True)
        except TimeoutError:
            found["unfinished"] = sum(not j.done() for j in jobs)
            for j in jobs:
                j.cancel()
    found["functions"] = proved()
    found["seconds"] = time.time() - start
    out.write_text(json.dumps(found, indent=1))
    said = {k: v if not isinstance(v, list) else len(v) for k, v in found.items() if k != "functions"}
    print(said, "\nfunctions of one value, differing values:", found["functions"])
    return len(found["wrong"]) + len(found["errors"])


def tasks() -> Iterator[tuple[Any, ...]]:
    """Plain attributes everywhere; every variant at one width."""
    for width in (4096, 2880, 100, 64, 14336, 16384, 20000):
        for name in names():
            if "G" in ops.required(program().ops[name]) and group_of(width) is None:
                continue
            for dtype in ("bf16", "f16"):
                yield name, dtype, width, TOKENS, {}
        if width == 2880:
            for name in names():
                for attribute, values in VARIANTS.items():
                    for value in values if has(name, attribute) else ():
                        yield name, "bf16", width, (3, 128), {attribute: value}


def has(name: str, variant: str) -> bool:
    op = program().ops[name]
    return any(o.name == "ub" for o in op.operands) if variant == "bound" else op.attribute(variant) is not None


def group_of(width: int) -> int | None:
    """The largest group that divides a width."""
    return next((g for g in (128, 64, 32) if width % g == 0), None)


def checked(name: str, dtype: str, width: int, tokens: Sequence[int], chosen: dict[str, Any]) -> list[Any]:
    """The cases of one task: `(case, outcome or error)`."""
    torch.set_num_threads(1)
    out: list[Any] = []
    weighted = width in (4096, 2880) and any(o.name == "w" and o.optional for o in program().ops[name].operands)
    weights = (None, "f32", "none") if weighted else (None,)
    for rows in tokens:
        for weight in weights:
            layout = {1: "plain", 3: "odd", 128: "strided"}.get(rows, "plain")
            case = [name, dtype, width, rows, layout, weight, chosen]
            try:
                given_: dict[str, Any] = {"G": group_of(width) or 128} | chosen
                o = ops.check(program(), name, dtype, width, rows, "cuda", layout, weight=weight, **given_)
                out.append((case, (o.unexplained, o.moved, o.rows)))
            except Exception as error:  # noqa: BLE001  what goes wrong is the result
                out.append((case, f"{type(error).__name__}: {error}"))
    if width == 4096 and not chosen and dtype == "bf16":
        out += special(name)
    return out


def special(name: str) -> list[Any]:
    """Rows of zeros, infinities, NaN, subnormal and huge values."""
    case = [name, "hostile"]
    try:
        o = ops.check(program(), name, "bf16", 4096, 2 * len(ops.HOSTILE), "cuda", hostile=True)
        return [(case, (o.unexplained, o.moved, o.rows))]
    except Exception as error:  # noqa: BLE001  what goes wrong is the result
        return [(case, f"{type(error).__name__}: {error}")]


def proved() -> dict[str, int]:
    """Functions of one value in all definitions: on how many values the approximate kernel differs."""
    found: dict[str, int] = {}
    for name in names():
        definition = lowered(name, 4096).definition
        for i, segment in enumerate(segments(definition)):
            found[f"{name}.{i}"] = differing(alone(segment), torch.device("cuda"))
    return found


def lowered(name: str, width: int, **chosen: Any) -> Any:
    op = program().ops[name]
    values = ops.operands(op, "bf16", width, 2, "cuda")
    return lower(program(), name, [given(v) for v in values], ops.required(op, **chosen))


# ---- times

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


def times(out: Path) -> int:
    """The grid; what does not fit into the time is left out, and said so."""
    start = time.time()
    cells = [(n, d, t) for t in (8192, 1024, 128, 16) for d in (4096, 8192, 16384) for n in MAIN]
    cells += [(n, d, t) for t in (8192, 1024, 16) for d in (4096, 8192) for n in OTHERS]
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        compiled = list(pool.map(compile_cell, [c for c in cells if by_inductor(*c)]))
    print(
        f"compiled {len(compiled)} by Inductor in {time.time() - start:.0f} s",
        [c for c in compiled if c][:3],
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    left = 0
    for cell in cells:
        if time.time() - start > TIME_SECONDS:
            left += 1
            continue
        try:
            rows.append(measured(*cell))
            print(line(rows[-1]), flush=True)
        except Exception as error:  # noqa: BLE001  the other cells are measured all the same
            print("ERROR", cell, type(error).__name__, str(error)[:300], flush=True)
        torch.cuda.empty_cache()
    host = {}
    try:
        host = host_cost()
    except Exception as error:  # noqa: BLE001  the table is worth having without it
        print("ERROR host", type(error).__name__, str(error)[:500])
    found = {"device": torch.cuda.get_device_name(), "rows": rows, "left_out": left, "host_us": host}
    out.write_text(json.dumps(found, indent=1))
    print("host cost, us an op:", host, "left out:", left)
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


def measured(name: str, width: int, tokens: int) -> dict[str, Any]:
    """Microseconds of each contender in one cell."""
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
    if by_inductor(name, width, tokens):
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
    from fxrewrite_kernels.ir import SIZES

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


def main() -> int:
    """Run one part; the exit code is 1 where a kernel is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generated", description=__doc__)
    parser.add_argument("part", choices=["check", "times", "host"])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    given_ = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    return int({"check": check, "times": times, "host": host}[given_.part](given_.out) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
