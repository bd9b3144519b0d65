"""What the parts of `python -m benchmarks.generated` share."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from fxrewrite.lowering.codegen import lower
from fxrewrite.lowering.generated import given

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import generated_ops as ops  # what the tests use, too

WORKERS = 14  # processes that compile


@cache
def program() -> Program:
    return packs.load(ops.PACKS)


@cache
def names() -> tuple[str, ...]:
    return tuple(ops.expressible(program(), list(program().ops)))


def lowered(name: str, width: int, **chosen: Any) -> Any:
    op = program().ops[name]
    values = ops.operands(op, "bf16", width, 2, "cuda")
    return lower(program(), name, [given(v) for v in values], ops.required(op, **chosen))


__all__ = ["WORKERS", "lowered", "names", "ops", "program"]
