"""Kernels for rows that registers do not hold: a pass over the row for each level of reductions, and one to write.

A 16-bit output that a pass has written is read again by the later ones, in place of what it is made of.
"""

from __future__ import annotations

from attrs import define, field
from fxrewrite_kernels.emit.values import Values, masked_by, start_of
from fxrewrite_kernels.emit.whole import in_order
from fxrewrite_kernels.ir import COLUMNS, LOW, ONE, ROW_REDUCTIONS, Node

AGAIN, LAST = ', eviction_policy="evict_last"', ', eviction_policy="evict_first"'


def write_loop(values: Values) -> None:
    """The body of a kernel of the kind `loop`."""
    values.begin_rows()
    for n in values.definition.nodes:
        if n.axis == ONE and values.facts.level[n.number] == 0:
            values.define(n)
    top = max(values.facts.level[o.node.number] for o in values.definition.outputs)
    passes = Passes(values, top)
    for level in range(top + 1):
        passes.write(level)


@define(eq=False)
class Passes:
    """The passes over a row; `stored` are the values that may be read again from an output."""

    values: Values
    top: int
    stored: set[int] = field(init=False, factory=set[int])

    def write(self, level: int) -> None:
        """The pass that computes what lies `level` reductions deep, and the reductions on top of it."""
        values, of = self.values, self.values.facts.level
        nodes = values.definition.nodes
        reductions = [n for n in nodes if n.op in ROW_REDUCTIONS and of[n.args[0].number] == level]
        written = {
            o.node.number for o in values.definition.outputs if o.node.axis != ONE and of[o.node.number] == level
        }
        needed = self._needed([n.args[0] for n in reductions] + [n for n in nodes if n.number in written])
        for n in reductions:
            values.line(f"a{n.number} = tl.full({tuple(values.shape())}, {start_of(n)}, tl.float32)")
        if needed & self.stored:
            values.line("tl.debug_barrier()")  # another thread of the block may have written it
        values.line(f"for first in tl.range(0, {values.definition.width}, {values.schedule.block}):")
        with values.indented():
            self._columns(level, needed, written)
            for n in reductions:
                values.line(f"a{n.number} = {values.joined(n, f'a{n.number}', values.masked(n))}")
        self._forget()
        self.stored |= {n.number for n in nodes if n.number in written and n.dtype in LOW and n.axis == COLUMNS}
        for n in reductions:
            values.assign(n, values.reduced(n, f"a{n.number}"))
        self._of_rows(level + 1)

    def _needed(self, roots: list[Node]) -> set[int]:
        """What a pass computes for these; what is stored is read, not computed."""
        needed: set[int] = set()
        todo = list(roots)
        while todo:
            n = todo.pop()
            if n.number not in needed and n.axis != ONE:
                needed.add(n.number)
                if n.number not in self.stored:
                    todo += n.args
        return needed

    def _columns(self, level: int, needed: set[int], written: set[int]) -> None:
        values = self.values
        values.begin_tile("first")
        for n in in_order(values):
            if n.number not in needed:
                continue
            later = level < self.top
            if n.number in self.stored:
                output = next(o for o in values.definition.outputs if o.node is n)
                mask = masked_by(values.mask(True, COLUMNS), "0.0")
                values.assign(n, f"tl.load({values.address(output)}{mask}{AGAIN if later else LAST})")
            elif n.op == "load":
                again = not n.rows or (later and not self._is_covered(n, written))
                values.define(n, AGAIN if again else LAST)
            else:
                values.define(n)
                if n.number in written:
                    values.store(n)

    def _is_covered(self, n: Node, written: set[int]) -> bool:
        """Is every use of a load behind a value that this pass writes, so that the next reads that instead?"""
        users = self.values.facts.users.get(n.number, ())
        outputs = {o.node.number for o in self.values.definition.outputs}
        return bool(users) and all(
            (u.number in written and u.dtype in LOW)
            or (u.number not in outputs and u.op not in ROW_REDUCTIONS and self._is_covered(u, written))
            for u in users
        )

    def _forget(self) -> None:
        """Names of columns end with a pass."""
        values = self.values
        axes = {n.number: n.axis for n in values.definition.nodes}
        values.names = {key: name for key, name in values.names.items() if axes.get(key[0]) == ONE}
        values.extra.clear()
        values.full.clear()

    def _of_rows(self, level: int) -> None:
        """What is one a row and known now."""
        values = self.values
        for n in values.definition.nodes:
            if n.axis == ONE and values.facts.level[n.number] == level:
                values.define(n)
                values.store(n)
