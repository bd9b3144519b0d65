"""Terms with one node replaced. Equal parts stay one object, as the evaluator wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from fxrewrite.dsl import core
from fxrewrite.dsl.check.terms import walk

# What a node is made of. Types and places are not parts: they say about a term what the checker found out.
PARTS: dict[type, tuple[str, ...]] = {
    core.Number: ("value",),
    core.Prim: ("args", "params"),
    core.TorchCall: ("args", "kwargs"),
    core.Taken: ("value",),
    core.OneOf: ("choices",),
    core.Extern: ("call",),
    core.Call: ("args", "attrs"),
    core.Result: ("call",),
    core.Choose: ("cases",),
    core.Either: ("choices",),
    core.Each: ("body",),
    core.Apply: ("args",),
}


def nodes(whole: Any) -> Iterator[Any]:
    """Every node once, each before its parts."""
    return (x for x in walk(whole) if type(x) in PARTS)


def replaced(whole: Any, old: Any, new: Any) -> Any:
    """`whole` with every occurrence of the node `old` replaced by `new`; what does not hold it is the same object."""
    return _replaced(whole, {id(old): new})


def _replaced(x: Any, done: dict[int, Any]) -> Any:
    if isinstance(x, tuple):
        made = tuple([_replaced(y, done) for y in x])
        return x if all(a is b for a, b in zip(x, made)) else made
    if type(x) not in PARTS:
        return done.get(id(x), x)
    if id(x) not in done:
        parts = {part: getattr(x, part) for part in PARTS[type(x)]}
        made = {part: _replaced(value, done) for part, value in parts.items()}
        done[id(x)] = x if all(made[p] is parts[p] for p in parts) else evolve(x, **made)
    return done[id(x)]


def unreachable(node: Any) -> Any:
    """The node as one that cannot be evaluated."""
    if isinstance(node, core.Prim | core.Call | core.TorchCall):
        return evolve(node, op="unreachable")
    if isinstance(node, core.Result):
        return evolve(node, index=NOWHERE)
    return evolve(node, returned=NOWHERE) if isinstance(node, core.Extern) else core.Choose(())


NOWHERE = 1 << 20  # a result that no op has
