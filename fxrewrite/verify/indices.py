"""Integer operands that are positions in another: what they must be smaller than, and whether they must differ.

What indexes nothing has no bound. What a condition, a `ref` or an op of a package reads may be positions there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from fxrewrite.dsl.binding import EvaluationError, bind_operands
from fxrewrite.dsl.check.terms import operands_of, walk
from fxrewrite.dsl.core import MARK, Apply, Call, OpDef, Operand, Program, TorchCall
from fxrewrite.dsl.scalars import value
from fxrewrite.verify.relations import Types, argument

POSITIONS = 16  # of what nothing says


@frozen
class Bound:
    """Indices are below `size`; `distinct`: what is written at two equal ones depends on the order."""

    size: int
    distinct: bool = False


@define(eq=False)
class Bounds:
    """The bounds of integer operands in the terms of one item."""

    program: Program
    found: dict[str, Bound] = field(factory=dict[str, Bound])
    unknown: set[str] = field(factory=set[str])  # what is read by something that may index with it

    def look(self, terms: Iterable[Any], env: Types) -> Bounds:
        """Find the bounds that terms give, for the sizes in `env`."""
        for x in walk(tuple(terms)):
            if isinstance(x, TorchCall) and x.op in INDEXING:
                self.torch_call(x, env)
            elif isinstance(x, TorchCall) and _may_index(x.op):
                self.unknown.update(o.name for o in operands_of(x))
            elif isinstance(x, Call):
                self.call(x, env)
        return self

    def torch_call(self, call: TorchCall, env: Types) -> None:
        """A torch op that takes indices."""
        target, places, distinct = INDEXING[call.op]
        shape = env.shape_of(env.term(call.args[target]))
        places = call.args[places]
        listed = places.args if isinstance(places, Apply) else places if isinstance(places, tuple) else (places,)
        axis = int(value(call.args[1], env)) if call.op in ALONG else 0
        for i, place in enumerate(listed):
            if isinstance(shape, tuple):
                self.note(place, Bound(shape[axis + i], distinct))

    def call(self, call: Call, env: Types) -> None:
        """A declared op: the bounds of its operands are those of what it is given."""
        op = self.program.ops[call.op]
        inner = Types(attributes={n: value(a, env) for n, a in call.attrs})
        try:
            bind_operands(op, [argument(a, env) for a in call.args], inner)
        except EvaluationError:
            self.unknown.update(o.name for o in operands_of(call))
            return
        inside = Bounds(self.program).look((t for e in op.equations for t in e.outputs), inner)
        for info, given in zip(op.operands, call.args):
            if info.name in inside.found:
                self.note(given, inside.found[info.name])
            if op.ref is not None or info.name in inside.unknown:
                self.unknown.update(o.name for o in operands_of(given))

    def note(self, term: Any, bound: Bound) -> None:
        """A bound of what a term reads."""
        for o in operands_of(term) if not isinstance(term, tuple) else ():
            old = self.found.get(o.name, bound)
            self.found[o.name] = Bound(min(old.size, bound.size), old.distinct or bound.distinct)


def bounds_of(
    program: Program, op: OpDef, terms: Iterable[Any], conditions: Iterable[Any], env: Types
) -> Mapping[str, Bound]:
    """The bound of each integer operand of an op that is, or may be, positions: what its definition says, else the axes
    that are not its own."""
    bounds = Bounds(program).look(terms, env)
    found, unknown = bounds.found, bounds.unknown | _asked_of_natives(conditions)
    for o in op.operands:
        if o.kind == "tensor" and o.name not in found and (op.ref is not None or o.name in unknown):
            found[o.name] = Bound(min((POSITIONS, *_other_axes(op, o.name, env))))
    return found


def _asked_of_natives(conditions: Iterable[Any]) -> set[str]:
    """The operands whose values a condition asks about: a native's."""
    natives = [c for c in walk(tuple(conditions)) if isinstance(c, Apply) and c.op.startswith(MARK)]
    return {o.name for o in operands_of(tuple(natives))}


def _may_index(op: str) -> bool:
    """May a torch op, of which `INDEXING` does not say how, index with an operand? One of a package may."""
    package, _, name = op.partition(".")
    return package != "aten" or any(word in name for word in INDEXES)


def _other_axes(op: OpDef, name: str, env: Types) -> Iterable[int]:
    """The leading sizes of matrices that are no size of the operand."""
    own = next(o for o in op.operands if o.name == name).type.shape or ()
    for o in op.operands:
        shape = o.type.shape or ()
        if len(shape) > 1 and shape[0] not in own:
            found = env.shape_of(env.term(Operand(o.name, o.type)))
            if isinstance(found, tuple) and found:
                yield found[0]


INDEXING = {  # torch op: the position of what is indexed, of the indices, and whether these must differ
    "aten.index.Tensor": (0, 1, False),
    "aten.index_put.default": (0, 1, True),
    "aten.embedding.default": (0, 1, False),
    "aten.index_select.default": (0, 2, False),
    "aten.gather.default": (0, 2, False),
    "aten.scatter.src": (0, 2, True),
    "aten.index_copy.default": (0, 2, True),
    "aten.index_add.default": (0, 2, False),
}
ALONG = frozenset("aten.index_select.default aten.gather.default aten.scatter.src aten.index_copy.default".split())
INDEXES = ("index", "gather", "scatter", "embedding", "take", "put", "one_hot", "bincount", "select")
