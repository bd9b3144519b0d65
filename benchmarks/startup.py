"""What stands between a person and the first answer: commands, imports, packs, rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.report import Column, Goal, Table
from benchmarks.settings import Settings
from benchmarks.timing import Times, command, in_turn

PARSE_MS = 150.0  # of CPU: an editor's language server imports the parser
WARM_MS, COLD_MS = 300.0, 900.0  # wall time of whole processes: help and `check` of the shipped packs; with no cache
EDITED_MS = 250.0  # the same, of `check FILE` after an edit
LOAD_MS = (
    100.0  # of CPU: all shipped packs parsed, checked and compiled, with a warm cache, in a process that has torch
)
MAIN = "import sys; from fxrewrite.cli import main; sys.argv = ['fxrewrite', *sys.argv[1:]]; sys.exit(main())"
FILE = "silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n"
# Times inside one process whose imports are over: packs read for the first time and again, rules compiled.
INSIDE = """
import gc, json, time
import torch
from fxrewrite.dsl import packs
from fxrewrite.lowering import backend, config
gc.disable()  # one collection walks all of torch, whoever makes the object that sets it off
seconds = {}
def timed(name, work):
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    seconds[name] = time.process_time() - cpu, time.perf_counter() - wall
    return result
everything = packs.shipped()
program = timed("read", lambda: packs.load(everything))
timed("compile", lambda: backend.RewritePass(program, config.make_config(everything)))
print(json.dumps(seconds))
"""


def run(settings: Settings) -> list[Table]:
    """The table of processes, and that of what happens inside one."""
    with tempfile.TemporaryDirectory() as folder:
        warm = {
            "FXREWRITE_CACHE_DIR": str(Path(folder) / "warm"),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "",  # as installed: the first run of each, which is not timed, compiles modules
        }
        file = Path(folder) / "one.rw"
        file.write_text(FILE)
        return [_processes(settings, file, warm), _inside(settings, warm)]


HELP, SHIPPED, ONE, COLD, PARSE = (
    "fxrewrite --help", "fxrewrite check (the shipped packs)", "fxrewrite check FILE, edited since",
    "fxrewrite check, nothing cached", "import fxrewrite.dsl.parse",
)  # fmt: skip


def _processes(settings: Settings, file: Path, warm: dict[str, str]) -> Table:
    python = [sys.executable, "-c"]

    def cold(times: Times) -> None:
        with tempfile.TemporaryDirectory() as empty:
            command([*python, MAIN, "check"], {**warm, "FXREWRITE_CACHE_DIR": str(Path(empty) / "cold")})(times)

    def edited(times: Times) -> None:
        file.write_text(f"{FILE}# edit {time.monotonic_ns()}\n")
        command([*python, MAIN, "check", str(file)], warm)(times)

    names = {
        "python, doing nothing": command([*python, "pass"], warm),
        HELP: command([*python, MAIN, "--help"], warm),
        SHIPPED: command([*python, MAIN, "check"], warm),
        ONE: edited,
        COLD: cold,
        PARSE: command([*python, "import fxrewrite.dsl.parse"], warm),
        "import torch": command([*python, "import torch"], warm),
    }
    failed: dict[str, str] = {}
    for name, thing in names.items():
        try:
            thing(Times())
        except RuntimeError as error:
            failed[name] = str(error).strip().splitlines()[-1]
    times = in_turn({n: t for n, t in names.items() if n not in failed}, settings.starts, warm=0)
    base = times["python, doing nothing"]
    rows = tuple((n, t.wall_ms, t.best_ms, t.best_ms - base.best_ms) for n, t in times.items())
    rows += tuple((n, None, None, None) for n in failed)
    limits = {HELP: WARM_MS, SHIPPED: WARM_MS, ONE: EDITED_MS, COLD: COLD_MS}
    goals = tuple(Goal(f"{n}, wall", times[n].wall_ms, limit, "ms") for n, limit in limits.items() if n in times)
    if PARSE in times:
        goals += (Goal(f"{PARSE}, above bare Python", times[PARSE].best_ms - base.best_ms, PARSE_MS, "ms"),)
    columns = (
        Column("process"),
        Column("wall, best", "ms"),
        Column("CPU, best", "ms"),
        Column("CPU above bare Python", "ms"),
    )
    return Table("startup: processes", columns, rows, tuple(f"failed: {n}: {why}" for n, why in failed.items()), goals)


def _inside(settings: Settings, environment: dict[str, str]) -> Table:
    cpu: dict[str, list[float]] = {}
    wall: dict[str, list[float]] = {}
    for _ in range(settings.starts):
        done = subprocess.run(
            [sys.executable, "-c", INSIDE],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
            cwd=tempfile.gettempdir(),
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        for name, (c, w) in found.items():
            cpu.setdefault(name, []).append(1e3 * c)
            wall.setdefault(name, []).append(1e3 * w)
    names = {"read": "read all shipped packs, checked", "compile": "compile their rules"}
    rows = tuple((names[n], min(cpu[n]), min(wall[n])) for n in names)
    columns = (Column("inside a process that has torch"), Column("CPU, best", "ms"), Column("wall, best", "ms"))
    goal = Goal("all shipped packs, read and compiled", sum(map(min, cpu.values())), LOAD_MS, "ms")
    return Table("startup: packs and rules", columns, rows, ("warm caches; garbage collection is off",), (goal,))
