"""Kernels whose programs see all they need at once: a block of columns, or a row in tiles that registers hold."""

from __future__ import annotations

from fxrewrite_kernels.emit.values import Values
from fxrewrite_kernels.ir import ONE, Node

FIRST = {"rows": 0, "vector": 1, "scalar": 2}  # loads of rows are many bytes: they begin before anything waits


def write_whole(values: Values) -> None:
    """The body of a kernel of the kinds `tile` and `row`."""
    schedule, width = values.schedule, values.definition.width
    count = -(-width // schedule.block) if schedule.kind == "row" else 1
    values.tiles = [""] if count == 1 else [f"_{k}" for k in range(count)]
    if not schedule.per_sm:
        values.begin_rows()
    for k, tile in enumerate(values.tiles):
        values.tile = tile
        values.begin_tile(k * schedule.block if schedule.kind == "row" else f"tl.program_id(1) * {schedule.block}")
    values.tile = ""
    if schedule.per_sm:
        _many_rows(values)
    else:
        _nodes(values, in_order(values))


def _many_rows(values: Values) -> None:
    """A program takes every n-th row; what is the same for all rows is read once."""
    for n in in_order(values):
        if n.op == "load" and not n.rows:
            _each(values, n)
    if values.target.interpreted:  # its `range` takes no bounds that are tensors, with numpy 2.4
        values.line("row_ = tl.program_id(0)")
        values.line("while row_ < T:")
    else:
        values.line("for row_ in tl.range(tl.program_id(0), T, tl.num_programs(0)):")
    with values.indented():
        values.line("row = tl.full((), 0, tl.int64) + row_")
        _nodes(values, in_order(values))
        if values.target.interpreted:
            values.line("row_ += tl.num_programs(0)")


def _nodes(values: Values, order: list[Node]) -> None:
    for n in order:
        _each(values, n)


def _each(values: Values, n: Node) -> None:
    """A value in all tiles, stored as soon as it is there."""
    for tile in values.tiles if n.axis != ONE else [""]:
        values.tile = tile
        values.define(n)
        values.store(n)
    values.tile = ""


def in_order(values: Values) -> list[Node]:
    """Loads of rows first, then of vectors and scalars, then the rest as it stands."""
    loads = [n for n in values.definition.nodes if n.op == "load"]
    loads.sort(key=lambda n: FIRST[values.definition.input(n.attr[0]).kind])
    return loads + [n for n in values.definition.nodes if n.op != "load"]
