"""Every generated kernel against its definition, op by op, on a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from fxrewrite_kernels.analyse import segments
from fxrewrite_kernels.prove import alone, differing

from benchmarks.kernels_common import WORKERS, lowered, names, ops, program

TOKENS = (0, 1, 3, 128, 1000)
CHECK_SECONDS = 150
VARIANTS: dict[str, tuple[Any, ...]] = {
    "recip": (True,), "wide": (True,), "late": (True,), "narrow": (True,), "ue8m0": (True,), "L": ("col", "tma"),
    "approximate": ("tanh",), "bound": (True,), "smin": (0.0,), "qeps": (0.0,), "eps": (1e-5,),
}  # fmt: skip


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
