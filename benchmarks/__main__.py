"""`python -m benchmarks [NAME ...] [--json] [--compile] [--plot FILE.svg]`: run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

from attrs import evolve

from benchmarks.plot import svg
from benchmarks.report import Machine, Table
from benchmarks.settings import SMALL, Settings

NAMES = {
    "matching": "all shipped rules beside one plain Inductor pattern, on a 32-layer Llama with FP8 linears",
    "registration": "variants of a fusion as rules and through Inductor's register_replacement",
    "startup": "commands, imports, packs and rules from nothing",
    "scaling": "more nodes, more rules",
    "products": "how near right and wrong products come to what the contract allows",
}


def main(arguments: list[str] | None = None) -> int:
    """Run and print. Returns the exit code."""
    listing = "\n".join(f"  {name:<14} {text}" for name, text in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=f"What fxrewrite costs.\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--compile", action="store_true", help="matching: also the cold compile of the model, which takes minutes"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="scaling: also draw it")
    parser.add_argument("--small", action="store_true", help="sizes that only show that it runs")
    given = parser.parse_args(arguments)
    unknown = [n for n in given.names if n not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    settings = evolve(SMALL if given.small else Settings(), compile=given.compile)
    _quiet()
    machine = Machine.here()
    if not given.json:
        print(machine.line(), flush=True)
    tables: dict[str, list[Table]] = {}
    for name in given.names or NAMES:
        tables[name] = run(name, settings)
        if not given.json:
            for table in tables[name]:
                print("\n" + "\n".join(table.lines()), flush=True)
    if given.plot and "scaling" in tables:
        Path(given.plot).write_text(svg(tables["scaling"][0], machine))
    if given.json:
        found = {name: [t.to_json() for t in made] for name, made in tables.items()}
        print(json.dumps({"machine": machine.to_json(), "benchmarks": found}, indent=2))
    return 0


def run(name: str, settings: Settings) -> list[Table]:
    """The tables of one benchmark."""
    return import_module(f"benchmarks.{name}").run(settings)


def _quiet() -> None:
    """One thread, so that CPU time is that of the work; and no remarks of libraries between the figures."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    logging.getLogger("torchao").setLevel(logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
