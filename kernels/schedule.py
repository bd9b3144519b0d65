"""How a definition is laid over the machine: a table that was measured, and rules for what is not in it.

Nothing is tuned when a model runs. `h200.json` was fitted on an H200: by class, power of two at or above the width, and
tokens at most 16, 128, 1024, or more. `choose` gives a schedule for every width and device.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from attrs import frozen
from fxrewrite_kernels.analyse import has_row_reduction, row_tiles
from fxrewrite_kernels.ir import Definition

BUCKETS = (16, 128, 1024)  # tokens; what is more is the last bucket
SHORT = 512  # columns: several rows of this width make a tile
HELD = 16384  # columns of a row that registers hold
ELEMENTS = 8  # of 16 bits, a thread and tile: what one load of 16 bytes brings
THREADS = 32  # a warp
PROCESSORS = 132  # of an H200
ROWS = (1, 1, 4, 16)  # of a tile of short rows, by bucket: enough programs for the processors come first


@frozen
class Schedule:
    """`kind`: "tile" (blocks of columns), "row" (a row in registers, in tiles) or "loop" (passes over a row).

    `block`: columns of a tile. `rows`: rows of a tile. `per_sm`: programs a processor that each take many rows, 0 for a
    program a tile. `cg`: rows are loaded past L1. `hold`: 16-bit tiles stay packed across a reduction.
    """

    kind: str
    block: int
    warps: int
    rows: int = 1
    per_sm: int = 0
    cg: bool = False
    hold: bool = False

    def grid(self, definition: Definition, tokens: int) -> tuple[int, ...]:
        """Programs of a launch."""
        if self.per_sm:
            return (min(tokens, PROCESSORS * self.per_sm),)
        down = -(-tokens // self.rows)
        return (down, -(-definition.width // self.block)) if self.kind == "tile" else (down,)


def bucket(tokens: int) -> int:
    """The bucket of a number of tokens, from 0."""
    return sum(bool(tokens > limit) for limit in BUCKETS)  # of a symbol these are the only questions


def class_of(definition: Definition) -> str:
    """`tile`, `group`, `amax n` or `norm n`: which reductions there are, and how many rows are read."""
    if not has_row_reduction(definition):
        return "group" if definition.group else "tile"
    kind = "norm" if any(n.op == "row_sum" for n in definition.nodes) else "amax"
    return f"{kind}{row_tiles(definition)}"


def choose(definition: Definition, tokens: int) -> Schedule:
    """The schedule for a number of tokens: of the table, else of the rules."""
    width = max(power_of_two(definition.width), definition.group)
    found = _table().get((class_of(definition), width, bucket(tokens)))
    if found is not None and found.block >= definition.group:
        return found
    if has_row_reduction(definition):
        return _by_rows(width, tokens)
    return _by_tiles(definition, width, tokens)


def _by_tiles(definition: Definition, width: int, tokens: int) -> Schedule:
    if width <= SHORT:
        return Schedule("tile", width, 4, min(max(1, 1024 // width), ROWS[bucket(tokens)]))
    block, warps = ((1024, 4), (1024, 4), (1024, 4), (4096, 8))[bucket(tokens)]
    block = max(definition.group, min(block, width))
    return Schedule("tile", block, max(1, min(warps, block // (ELEMENTS * THREADS // 2))))


def _by_rows(width: int, tokens: int) -> Schedule:
    many = bucket(tokens) == len(BUCKETS)
    if width > HELD:
        return Schedule("loop", 2048, 8) if many else Schedule("loop", 4096, 16)
    if width <= SHORT:
        return Schedule("row", width, 4, min(max(1, 2048 // width), ROWS[bucket(tokens)]))
    warps = min(16, max(4, width // 512)) if many else min(32, max(4, width // (ELEMENTS * THREADS)))
    return Schedule("row", warps * ELEMENTS * THREADS, warps)


def power_of_two(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(0, (n - 1).bit_length())


@cache
def _table() -> dict[tuple[str, int, int], Schedule]:
    rows: list[dict[str, Any]] = json.loads(files("fxrewrite_kernels").joinpath("h200.json").read_text())["rows"]
    return {
        _key(row): Schedule(**{k: v for k, v in row.items() if k not in ("class", "tokens", "width")}) for row in rows
    }


def _key(row: dict[str, Any]) -> tuple[str, int, int]:
    tokens = row["tokens"]
    return row["class"], row["width"], len(BUCKETS) if tokens is None else bucket(tokens)


__all__ = ["BUCKETS", "Schedule", "bucket", "choose", "class_of", "power_of_two"]
