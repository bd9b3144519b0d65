"""`fxrewrite demo`: the main job on real models. Its substance is `examples/demo.py` of a source checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from fxrewrite.cli.options import Misuse, json_option

NEEDED = ("transformers",)


@click.command("demo")
@json_option
def command(as_json: bool) -> None:
    """Compile Llama, Qwen3, Phi-3 and Gemma 3 (tiny, random) with the rules, and account for every site.

    It takes a few minutes. The exit code is 1 where a count or a distance is not what it must be.
    """
    sys.exit(load().run(as_json))


def load() -> Any:
    """The module `examples/demo.py`. Raises Misuse where there is none, or where it lacks a package."""
    folder = Path(__file__).resolve().parents[2] / "examples"
    if not (folder / "demo.py").is_file():
        raise Misuse("the demo needs a source checkout: its models are in examples/", "git clone it, then: make demo")
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        raise Misuse(f"the demo needs {' and '.join(absent)}", "pip install -e '.[dev]'")
    sys.path.insert(0, str(folder))  # the processes that it starts import it by name
    return import_module("demo")
