"""What stands between a person and the first answer: commands, imports, packs, rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.report import Column, Goal, Table
from benchmarks.settings import Settings
from benchmarks.timing import Times, command, in_turn

PARSE_MS = 150.0  # of CPU: an editor's language server imports the parser
MAIN = "import sys; from fxrewrite.cli import main; sys.argv = ['fxrewrite', *sys.argv[1:]]; sys.exit(main())"
FILE = "silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n"
# Times inside one process whose imports are over: packs read for the first time and again, rules compiled.
INSIDE = """
import json, time
import torch
from fxrewrite.dsl import packs
from fxrewrite.lowering import backend, config
seconds = {}
def timed(name, work):
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    seconds[name] = time.process_time() - cpu, time.perf_counter() - wall
    return result
program = timed("first", packs.load)
timed("again", packs.load)
timed("compile", lambda: backend.RewritePass(program, config.make_config()))
print(json.dumps(seconds))
"""


def run(settings: Settings) -> list[Table]:
    """The table of processes, and that of what happens inside one."""
    with tempfile.TemporaryDirectory() as folder:
        warm = {"FXREWRITE_CACHE_DIR": str(Path(folder) / "warm"), "PYTHONPATH": str(ROOT)}
        file = Path(folder) / "one.rw"
        file.write_text(FILE)
        return [_processes(settings, file, warm), _inside(settings, warm)]


def _processes(settings: Settings, file: Path, warm: dict[str, str]) -> Table:
    python = [sys.executable, "-c"]
    load = "from fxrewrite.dsl import packs; packs.load()"

    def cold(times: Times) -> None:
        with tempfile.TemporaryDirectory() as empty:
            command([*python, load], {**warm, "FXREWRITE_CACHE_DIR": str(Path(empty) / "cold")})(times)

    names = {
        "python, doing nothing": command([*python, "pass"], warm),
        "fxrewrite --help": command([*python, MAIN, "--help"], warm),
        "fxrewrite check FILE": command([*python, MAIN, "check", str(file)], warm),
        "import fxrewrite.dsl.parse": command([*python, "import fxrewrite.dsl.parse"], warm),
        "load the shipped packs, nothing cached": cold,
        "load the shipped packs, parse table cached": command([*python, load], warm),
        "import torch": command([*python, "import torch"], warm),
    }
    times: dict[str, Times] = {}
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
    parse = times.get("import fxrewrite.dsl.parse")
    goals = (
        (Goal("import fxrewrite.dsl.parse, above bare Python", parse.best_ms - base.best_ms, PARSE_MS, "ms"),)
        if parse
        else ()
    )
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
    names = {"first": "load the shipped packs", "again": "load them again", "compile": "compile their rules"}
    rows = tuple((names[n], min(cpu[n]), min(wall[n])) for n in names)
    columns = (Column("inside a process that has torch"), Column("CPU, best", "ms"), Column("wall, best", "ms"))
    return Table("startup: packs and rules", columns, rows, ("parse table cached",))
