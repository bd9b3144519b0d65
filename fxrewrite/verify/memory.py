"""What a call of a torch op writes: all of what is marked `out` or `mut`, and nothing else.

    watched = Watched()
    claim.claimed(watched, operands, attributes)     # every call runs again in guarded memory
    watched.faults                                   # what it did there

Each argument lies between bytes that nobody may touch; a buffer holds one pattern and then another before the call; an
operand is given with other strides, which a kernel may refuse, and may not read or write wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map_only

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Apply
from fxrewrite.dsl.evaluate import Buffer
from fxrewrite.lowering import owners
from fxrewrite.lowering.eager import Torch, torch_arguments, torch_op
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.rows import close
from fxrewrite.verify.same import other_type, same_values

GUARD = 64  # elements before and behind
PATTERNS = (0xFF, 0x00)  # bytes of a buffer before it is filled: NaN, and zero
STRIDES = ("as they are", "rows of a wider parent", "every second column")


@frozen(eq=False)
class Guarded:
    """A tensor inside memory that is watched. `mine`: the bytes that a call may write."""

    name: str
    tensor: Tensor
    memory: Tensor
    before: Tensor
    mine: Tensor
    is_written: bool

    @classmethod
    def of(cls, name: str, x: Tensor, strides: str, is_written: bool, buffer: int | None) -> Guarded:
        """The values of `x`, or of a buffer the pattern, with guards around."""
        steps = x.stride() if buffer is not None else _strides(x, strides)
        extent = sum((n - 1) * s for n, s in zip(x.shape, steps)) + 1 if x.numel() else 0
        size = x.element_size()
        memory = torch.full(((extent + 2 * GUARD) * size,), 0xA5, dtype=torch.uint8, device=x.device)
        tensor = memory.view(x.dtype).as_strided(x.shape, steps, GUARD)
        inside = torch.zeros(extent + 2 * GUARD, dtype=torch.bool, device=x.device)
        if buffer is None:
            inside.as_strided(x.shape, steps, GUARD).fill_(True)
            tensor.copy_(x)
        else:  # what pads the columns of a layout is the call's too
            inside[GUARD : GUARD + extent] = True
            memory[GUARD * size : (GUARD + extent) * size] = buffer
        return cls(name, tensor, memory, memory.clone(), inside.repeat_interleave(size), is_written)

    def faults(self) -> Iterator[str]:
        """What was written that may not be."""
        changed = self.memory != self.before
        outside = int((changed & ~self.mine).sum())
        if outside:
            yield f"{outside} bytes beside `{self.name}` are written"
        if not self.is_written and bool((changed & self.mine).any()):
            yield f"`{self.name}` is written, which is marked neither `mut` nor `out`"


def strides_for(claim: Claim) -> tuple[str, ...]:
    """The strides that a claim is tried in: other ones than those of its operands, unless it says `contiguous`."""
    conditions = walk((claim.candidate.guards, claim.op.requires))
    dense = any(isinstance(c, Apply) and c.op == "contiguous" for c in conditions)
    return STRIDES[:1] if dense else STRIDES


def _strides(x: Tensor, how: str) -> tuple[int, ...]:
    """The strides of a copy of `x`."""
    if how == STRIDES[0] or x.ndim == 0:
        return x.stride() if 0 not in x.stride() else x.contiguous().stride()
    wider, step = (8, 1) if how == STRIDES[1] else (0, 2)
    steps = [step, x.shape[-1] * step + wider][: x.ndim]
    for n in reversed(x.shape[1:-1]):
        steps.append(steps[-1] * n)
    return tuple(reversed(steps))


@define
class Watched(Torch):
    """The algebra of torch tensors; each call of a torch op is run again in guarded memory, with each of `strides`."""

    faults: list[str] = field(factory=list[str])
    strides: Sequence[str] = STRIDES

    def torch_call(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the op gives on plain memory; torch's own ops are not watched."""
        if op.partition(".")[0] in owners.TORCH:
            return super().torch_call(op, args, kwargs)
        want = super().torch_call(op, _copied(list(args)), _copied(dict(kwargs)))  # what it may not write stays
        for strides in self.strides:
            for pattern in PATTERNS if any(isinstance(a, Buffer) for a in (*args, *kwargs.values())) else PATTERNS[:1]:
                self.faults += [f"{op}: {f}" for f in self._again(op, args, kwargs, want, strides, pattern)]
        return want

    def _again(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], want: Any, strides: str, pattern: int
    ) -> Iterator[str]:
        """What is wrong with a call in guarded memory."""
        try:
            ran = InGuards.run(op, args, kwargs, strides, pattern)
        except (RuntimeError, ValueError, AssertionError) as error:
            if strides == STRIDES[0]:
                yield f"it refuses arguments inside larger memory: {str(error).splitlines()[0]}"
            return
        yield from ran.faults()
        yield from _compared(want, ran.returned, ran.left, strides)
        yield from _shared(ran.call, ran.returned, ran.guards)


@define
class Strided(Torch):
    """The algebra of torch tensors; other packages' ops run in guarded memory, their arguments in other strides."""

    strides: str
    faults: list[str] = field(factory=list[str])

    def torch_call(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the op gives there. Raises what it raises where it refuses such strides."""
        if op.partition(".")[0] in owners.TORCH:
            return super().torch_call(op, args, kwargs)
        ran = InGuards.run(op, args, kwargs, self.strides, PATTERNS[0])
        self.faults += [f"{op}: {f}" for f in ran.faults()]
        return _listed(ran.returned), {slot: g.tensor for slot, g in ran.left.items()}


@frozen(eq=False)
class InGuards:
    """A call whose arguments lay in guarded memory. `left`: what it wrote, by slot. `said`: by its fake kernel."""

    call: Any
    guards: Sequence[Guarded]
    returned: Any
    left: Mapping[Any, Guarded]
    said: Sequence[Any]

    @classmethod
    def run(cls, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], strides: str, pattern: int) -> InGuards:
        """Call an op. Raises what it raises."""
        made, named, written = torch_arguments(args, kwargs)
        buffers = {id(written[a.slot]) for a in (*args, *kwargs.values()) if isinstance(a, Buffer)}
        call, guards = torch_op(op), dict[int, Guarded]()
        names = argument_names(call)

        def guard(x: Any, name: str) -> Any:
            if isinstance(x, list):
                return [guard(v, f"{name}[{i}]") for i, v in enumerate(x)]
            if not isinstance(x, Tensor):
                return x
            if id(x) not in guards:
                is_written = any(x is w for w in written.values())
                guards[id(x)] = Guarded.of(name, x, strides, is_written, pattern if id(x) in buffers else None)
            return guards[id(x)].tensor

        given = [guard(a, names[i] if i < len(names) else str(i)) for i, a in enumerate(made)]
        keywords = {k: guard(v, k) for k, v in named.items()}
        said = said_by_fake(call, given, keywords)
        returned = call(*given, **keywords)
        left = {slot: guards[id(w)] for slot, w in written.items()}
        return cls(call, list(guards.values()), returned, left, said)

    def faults(self) -> Iterator[str]:
        """What was written that may not be, and what is returned in another type or strides than graphs say."""
        for g in self.guards:
            yield from g.faults()
        for i, (want, y) in enumerate(zip(self.said, _listed(self.returned))):
            other = other_type(want, y) if isinstance(want, Tensor) else None
            if other is not None:
                yield f"result {i} is not what its fake kernel says: {other}"


def said_by_fake(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """What the fake kernel of an op says of its results; nothing where it has none for these arguments."""
    with FakeTensorMode():
        given, named = tree_map_only(Tensor, _fake, (list(args), dict(kwargs)))
        try:
            return _listed(call(*given, **named))
        except Exception:  # noqa: BLE001  it may raise anything: no graph holds such a call
            return ()


def _fake(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _copied(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        steps = _strides(argument, STRIDES[0])
        return torch.empty_strided(argument.shape, steps, dtype=argument.dtype, device=argument.device).copy_(argument)
    if isinstance(argument, list | tuple):
        return [_copied(a) for a in argument]
    return {k: _copied(v) for k, v in argument.items()} if isinstance(argument, dict) else argument


def _compared(want: Any, returned: Any, left: Mapping[Any, Guarded], strides: str) -> Iterator[str]:
    """Where what is returned or left depends on the memory that it was computed in."""
    equal: Callable[[Tensor, Tensor], bool] = same_values if strides == STRIDES[0] else close
    why = "what was there before" if strides == STRIDES[0] else f"strides ({strides})"
    for slot, y in want[1].items():
        if not equal(y, left[slot].tensor):
            yield f"what it leaves in `{left[slot].name}` depends on {why}"
    for i, (y, found) in enumerate(zip(want[0], _listed(returned))):
        if isinstance(y, Tensor) and not isinstance(found, Tensor):
            yield f"result {i} is no tensor"
        elif isinstance(y, Tensor) and not equal(y, found):
            yield f"result {i} depends on {why}"


def _shared(call: Any, returned: Any, guards: Any) -> Iterator[str]:
    """Results that are memory of an argument, where the schema does not say so."""
    schema = schema_of(call)
    for i, y in enumerate(_listed(returned)):
        said = schema is not None and i < len(schema.returns) and schema.returns[i].alias_info is not None
        for g in guards:
            if isinstance(y, Tensor) and not said and y.data_ptr() and _storage(y) == _storage(g.tensor):
                yield f"result {i} is memory of `{g.name}`, and its schema does not say so"


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _listed(returned: Any) -> Sequence[Any]:
    return returned if isinstance(returned, tuple | list) else (returned,)


def schema_of(call: Any) -> Any:
    """The schema of a torch op; None where it has several."""
    found = getattr(call, "default", call)
    return getattr(found, "_schema", None)


def argument_names(call: Any) -> list[str]:
    """The names of the arguments of a torch op."""
    schema = schema_of(call)
    return [] if schema is None else [a.name for a in schema.arguments]
