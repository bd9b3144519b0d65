"""Several ranks in one process: what a definition means where every rank has operands of its own.

Primitives apply rank by rank; `psum`, `pconcat` and `pshard` mix ranks, and so do the collectives of torch. Where all
ranks have one value it is one slot: steps on it are recorded once, and what the ranks write of it must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, frozen

from fxrewrite.dsl.core import OpDef, Prim
from fxrewrite.dsl.evaluate import UNKNOWN, Algebra, EvaluationError, Overwritten
from fxrewrite.verify.straight import Recorded, Recorder


@frozen(eq=False)
class Ranked:
    """A value on each rank."""

    parts: tuple[Any, ...]

    @property
    def is_one(self) -> bool:
        """Is it one value, on all ranks?"""
        return len({p.slot if isinstance(p, Recorded) else id(p) for p in self.parts}) == 1


@define(eq=False)
class World(Algebra):
    """The algebra of `size` ranks, all of one group, over a recorder of their steps."""

    recorder: Recorder
    size: int

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Ranked:
        """Rank by rank, except what mixes ranks. EvaluationError for a group of another size."""
        if op not in OVER_RANKS:
            return self.each(lambda rank: self.recorder.primitive(op, _of(args, rank), params, term))
        self._same_group(params[-1])
        return OVER_RANKS[op](self, self.spread_out(args[0]), *params[:-1])

    def each(self, make: Callable[[int], Any]) -> Ranked:
        """What `make` gives for each rank."""
        return Ranked(tuple(make(rank) for rank in range(self.size)))

    def spread_out(self, value: Any) -> Ranked:
        """A value as each rank has it."""
        return value if isinstance(value, Ranked) else self.each(lambda _: value)

    def _same_group(self, group: Any) -> None:
        size = getattr(group, "size", self.size)
        if size != self.size:
            raise EvaluationError(f"a group of {size} ranks has no meaning in a world of {self.size}")

    def _axis(self, x: Ranked, dim: int) -> int:
        rank = len(self.shape(x))
        if not -rank <= dim < rank:
            raise EvaluationError(f"a tensor of {rank} axes has no axis {dim}")
        return dim % rank

    def psum(self, x: Ranked) -> Ranked:
        """The sum, on every rank."""
        total = self.recorder.sum_of_ranks(x.parts, None)
        return self.each(lambda _: total)

    def pconcat(self, x: Ranked, dim: int) -> Ranked:
        """The parts of all ranks along an axis, on every rank. EvaluationError where there is no such axis."""
        self._axis(x, dim)
        whole = x.parts[0] if self.size == 1 else self.recorder.primitive("cat", x.parts, [dim], Prim("cat", ()))
        return self.each(lambda _: whole)

    def pshard(self, x: Ranked, dim: int) -> Ranked:
        """Each rank's part along an axis. EvaluationError where it does not divide, or there is none."""
        axis = self._axis(x, dim)
        total = self.shape(x)[axis]
        if total % self.size:
            raise EvaluationError(f"an axis of {total} does not divide among {self.size} ranks")
        if self.size == 1:
            return x
        n = total // self.size
        return self.each(
            lambda r: self.recorder.primitive("slice", [x.parts[r]], [axis, r * n, (r + 1) * n, 1], Prim("slice", ()))
        )

    def dtype(self, value: Any) -> str | None:
        """The dtype, which all ranks share."""
        return self.recorder.dtype(at_rank(value, 0))

    def shape(self, value: Any) -> Any:
        """The sizes, which all ranks share."""
        return self.recorder.shape(at_rank(value, 0))

    def number(self, value: Any) -> Any:
        """A number."""
        return self.recorder.number(value)

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of numbers."""
        return self.recorder.decide(op, left, right)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """`replicated(x)`: is it one value on all ranks? Another fact: what all ranks agree on, else UNKNOWN."""
        if name == "replicated":
            return all(not isinstance(a, Ranked) or a.is_one for a in _leaves(args[0]))
        found = [self.recorder.predicate(name, tuple(_of(args, rank))) for rank in range(self.size)]
        return found[0] if all(f is found[0] or (f is not UNKNOWN and f == found[0]) for f in found) else UNKNOWN

    def torch_call(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A collective of torch, or another torch op, rank by rank. Raises EvaluationError for what meets elsewhere."""
        if op in COLLECTIVES:
            return (COLLECTIVES[op](self, self.spread_out(args[0]), *args[1:]),), {}
        if meets_elsewhere(op):
            raise EvaluationError(f"the ranks of {op} do not meet in one process")
        made = [self.recorder.torch_call(op, _of(args, r), _named(kwargs, r)) for r in range(self.size)]
        returned = [Ranked(parts) for parts in zip(*(m[0] for m in made), strict=True)]
        return returned, {slot: Ranked(tuple(m[1][slot] for m in made)) for slot in made[0][1]}

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of a `ref`, rank by rank."""
        made = [self.recorder.reference(op, _of(operands, rank), attributes) for rank in range(self.size)]
        return [Ranked(parts) for parts in zip(*made, strict=True)]

    def all_reduce(self, x: Ranked, op: str, group: Any) -> Ranked:
        """`_c10d_functional.all_reduce`: "sum", or "avg", the sum over the number of ranks."""
        if op not in ("sum", "avg"):
            raise EvaluationError(f'an all_reduce that is "{op}" has no meaning here')
        total = self.psum(x)
        return total if op == "sum" else self.primitive("div", [total, self.size], [], Prim("div", ()))


OVER_RANKS: dict[str, Callable[..., Ranked]] = {"psum": World.psum, "pconcat": World.pconcat, "pshard": World.pshard}
MEETING = ("vllm.", "symm_mem.", "_c10d_functional.")  # ops in which ranks meet, by what this process does not have
COLLECTIVES: dict[str, Callable[..., Ranked]] = {
    "_c10d_functional.all_reduce": World.all_reduce,
    "_c10d_functional.reduce_scatter_tensor": lambda w, x, op, n, g: w.pshard(w.all_reduce(x, op, g), 0),
    "_c10d_functional.all_gather_into_tensor": lambda w, x, n, g: w.pconcat(x, 0),
    "_c10d_functional.wait_tensor": lambda w, x: x,
}


def meets_elsewhere(op: str) -> bool:
    """Do the ranks of a torch op meet by what one process does not have?"""
    return op.startswith(MEETING) and op not in COLLECTIVES


def at_rank(value: Any, rank: int) -> Any:
    """What a rank has of a value; lists, tuples and overwritten arguments part by part."""
    if isinstance(value, Ranked):
        return value.parts[rank]
    if isinstance(value, list | tuple):
        return type(value)(at_rank(v, rank) for v in value)  # type: ignore[call-arg]
    return Overwritten(at_rank(value.value, rank), value.slot) if isinstance(value, Overwritten) else value


def _of(args: Sequence[Any], rank: int) -> list[Any]:
    return [at_rank(a, rank) for a in args]


def _named(kwargs: Mapping[str, Any], rank: int) -> dict[str, Any]:
    return {name: at_rank(value, rank) for name, value in kwargs.items()}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for v in value:
            yield from _leaves(v)
    else:
        yield value
