"""The lines of a kernel, and where the rows and columns of its tiles lie."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from attrs import define, field
from fxrewrite_kernels.emit.target import Target
from fxrewrite_kernels.ir import COLUMNS, GROUPS, Definition
from fxrewrite_kernels.schedule import Schedule


@define(eq=False)
class Tiles:
    """The kernel so far: its lines, and the tiles that a program has.

    `tile` is a suffix of names: "" where a program has one tile, "_0", "_1", ... in a row of several; `tiles` are all
    of them. `full`: the tiles of which no column is masked.
    """

    definition: Definition
    schedule: Schedule
    target: Target
    lines: list[str] = field(init=False, factory=list[str])
    tile: str = field(init=False, default="")
    tiles: list[str] = field(init=False, factory=lambda: [""])
    full: set[str] = field(init=False, factory=set[str])
    _depth: int = field(init=False, default=1)

    def line(self, text: str) -> None:
        """One more line."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def indented(self) -> Generator[None]:
        """The lines of a block."""
        self._depth += 1
        yield
        self._depth -= 1

    def shape(self) -> list[int]:
        """The shape of a tile."""
        group, block = self.definition.group, self.schedule.block
        columns = [block // group, group] if group else [block]
        return [self.schedule.rows, *columns] if self.schedule.rows > 1 else columns

    def begin_rows(self) -> None:
        """Name the rows of a program, in 64 bits: a tensor may have more than 2^31 elements."""
        rows = self.schedule.rows
        if rows == 1:
            self.line("row = tl.program_id(0).to(tl.int64)")
            return
        index = ":, None, None" if self.definition.group else ":, None"
        self.line(f"row = (tl.program_id(0).to(tl.int64) * {rows} + tl.arange(0, {rows}))[{index}]")
        self.line("rm = row < T")

    def begin_tile(self, first: int | str) -> None:
        """Name the columns `c`, the groups `g` and their masks of the tile that begins at column `first`."""
        width, group, block, tile = self.definition.width, self.definition.group, self.schedule.block, self.tile
        rows = "None, " if self.schedule.rows > 1 else ""
        if group:
            start = f"{first} // {group}" if isinstance(first, str) else first // group
            self.line(f"g{tile} = ({_from(start, block // group)})[{rows}:, None]")
            self.line(f"c{tile} = g{tile} * {group} + tl.arange(0, {group})[{rows}None, :]")
        else:
            self.line(f"c{tile} = ({_from(first, block)})[{rows}:]")
        if width % block == 0 or (isinstance(first, int) and first + block <= width):
            self.full.add(tile)
            return
        self.line(f"cm{tile} = c{tile} < {width}")
        if group:
            self.line(f"gm{tile} = g{tile} < {width // group}")

    def mask(self, rows: bool, axis: str) -> str:
        """The mask of a load or store; "" where nothing is masked."""
        masks = ["rm"] if self.schedule.rows > 1 and rows else []
        if self.tile not in self.full and axis in (COLUMNS, GROUPS):
            masks.append(f"{'cm' if axis == COLUMNS else 'gm'}{self.tile}")
        return " & ".join(masks)


def _from(first: int | str, count: int) -> str:
    return f"tl.arange(0, {count})" if first == 0 else f"{first} + tl.arange(0, {count})"
