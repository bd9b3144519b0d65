"""Which arguments of torch ops a call fills, whatever they held: those that a form binds with `out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Fresh, Program, TorchCall
from fxrewrite.patterns.effects import arguments_by_name


def filled(program: Program, torch_op: Callable[[str], Any]) -> frozenset[tuple[Any, str]]:
    """Each (overload, argument) that a call fills. `torch_op(name)`: the overload, or None."""
    found: set[tuple[Any, str]] = set()
    for op in program.ops.values():
        for call in (c for form in op.forms for c in walk(form.outputs) if isinstance(c, TorchCall)):
            target = torch_op(call.op)
            if target is not None:
                found |= {(target, name) for name, given in arguments_by_name(call, target) if isinstance(given, Fresh)}
    return frozenset(found)
