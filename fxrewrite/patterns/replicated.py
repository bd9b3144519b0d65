"""Is a value equal on every rank of a group? Shown for what an all-reduce or all-gather over it gives, for inputs that
the host declares, and for what is computed from such values, their sizes and constants alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import sympy

from fxrewrite.dsl.core import OpDef, Prim
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.groups import Group
from fxrewrite.patterns.values import Symbol, Table, Value, values_in

SAME = ("psum", "pconcat")  # what these give is equal on all ranks
COMPUTES = ("aten.", "prims.")  # torch ops that depend on nothing but their arguments


class Replicated:
    """Answers for one graph. `inputs`: patterns of the names of inputs and parameters that are equal on all ranks."""

    def __init__(self, table: Table, inputs: Sequence[str]):
        self.table, self.inputs = table, tuple(inputs)
        self.known: dict[str, list[bool]] = {}
        self.sizes: dict[str, set[Any]] = {}  # symbols in the shapes of what is shown
        self.pure: set[int] = set()
        self.counted = 0

    def __call__(self, x: Any, group: Any = None) -> Any:
        """True where it is shown, else UNKNOWN."""
        if isinstance(x, tuple):
            return True if all(self(one, group) is True for one in x) else UNKNOWN
        if type(x) is not Value:
            return True if x is None or isinstance(x, bool | int | float | str) else UNKNOWN
        if not isinstance(group, Group):
            return UNKNOWN
        known = self.known.setdefault(group.name, [])
        if self.counted < len(self.table.all):
            self.pure.update(id(v) for v in self.table.by_key.values())
            self.counted = len(self.table.all)
        for v in self.table.all[len(known) : x.n + 1]:
            known.append(self._shown(v, group, known))
            if known[-1]:
                self.sizes.setdefault(group.name, set()).update(_symbols(v.shape))
        return known[x.n] or UNKNOWN

    def _shown(self, v: Value, group: Group, known: list[bool]) -> bool:
        if v.op in ("input", "get_attr"):
            name = str(v.attrs[0] if v.op == "input" else v.args[0])
            return any(fnmatchcase(name, pattern) for pattern in self.inputs)
        declared = [(view.op, view.args) for views in v.views.values() for view, _ in views]
        if any(_equals_on_all_ranks(op) and group in args for op, args in declared):
            return True
        plain = "." not in v.op or v.op.startswith(COMPUTES)
        if not plain and not any(not op.effects for op, _ in declared):
            return False
        if id(v) not in self.pure or any(op.effects for op, _ in declared):
            return False
        return all(known[a.n] for a in values_in(v.args)) and _symbols((v.args, v.attrs)) <= self.sizes.get(
            group.name, set()
        )


def _equals_on_all_ranks(op: OpDef) -> bool:
    terms = [t for case in op.equations for t in case.outputs]
    return bool(terms) and all(isinstance(t, Prim) and t.op in SAME for t in terms)


def _symbols(x: Any) -> set[Any]:
    """The symbols of sizes and other integers, which may be the numbers of one rank."""
    if isinstance(x, tuple):
        return set().union(*map(_symbols, x))
    expr = x.expr if isinstance(x, Symbol) else x
    return set(expr.free_symbols) if isinstance(expr, sympy.Basic) else set()
