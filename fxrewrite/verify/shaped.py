"""Operands as dtypes, sizes and layouts, before they have values; and with values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import Generator, Tensor

from fxrewrite.dsl import registered
from fxrewrite.dsl.binding import is_element
from fxrewrite.dsl.check.terms import operands_of, walk
from fxrewrite.dsl.core import Apply, Dtype, Operand, OperandInfo, Sample
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify import inputs, samples
from fxrewrite.verify.assignment import Assignment, element
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.indices import POSITIONS, Bound, bounds_of
from fxrewrite.verify.layouts import placed
from fxrewrite.verify.relations import Typed
from fxrewrite.verify.samples import samples_of
from fxrewrite.verify.scales import quantization_scales

EVERY = "every kind"
INDICES = ("i64", "i32")  # dtypes of what may be positions


@frozen
class Spec:
    """One tensor. `role`: what its values are like (data, weight, scale, factor, index). `bound`: of indices. `fact`: a
    native that must hold of it. `sample`: what the text says of its values.
    """

    dtype: str
    shape: tuple[int, ...]
    role: str
    layout: str = "contiguous"
    bound: Bound | None = None
    fact: str | None = None
    sample: Sample | None = None

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"{self.dtype}[{sizes}]" + ("" if self.layout == "contiguous" else f" {self.layout}")


@frozen
class Shaped:
    """What a claim is tried on but for values: a `Spec`, a list of them, a string or None for each operand."""

    names: tuple[str, ...]
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)

    def __str__(self) -> str:
        parts = [f"{n} {_said(s)}" for n, s in zip(self.names, self.operands) if not isinstance(s, str)]
        parts += [f"{n}={v}" for n, v in self.attributes.items() if n not in self.defaults or self.defaults[n] != v]
        return ", ".join(parts)


def _said(spec: Any) -> str:
    if isinstance(spec, list | tuple):
        return "[" + ", ".join(map(_said, spec)) + "]"
    return "none" if spec is None else str(spec)


def shaped(claim: Claim, chosen: Assignment, layouts: Callable[[], str] = lambda: "contiguous") -> Shaped:
    """The operands of a choice. `layouts` gives the layout of each tensor in turn."""
    op, env = claim.op, chosen.env(claim.op)
    cases = [*op.equations, claim.candidate, *((claim.reference,) if claim.reference else ())]
    terms = [t for case in cases for t in case.outputs]
    conditions = (*op.requires, *claim.candidate.guards)
    bounds = bounds_of(claim.program, op, terms, conditions, env) if any(map(_is_integer, op.operands)) else {}
    made: list[Any] = []
    sampled = samples_of(claim.program, op)
    scales = quantization_scales(claim.program, op, terms, {**chosen.attributes, **chosen.dtypes})
    laid = _wanted_layouts(conditions)
    facts = _facts(conditions)
    for o in op.operands:
        if o.name in chosen.absent or o.kind == "str":
            made.append(None if o.kind == "tensor" else "layer")
        elif o.star:
            each = [_spec(o, element(o, i, env), layouts(), bounds) for i in range(chosen.length)]
            made.append([_factor(s) if o.name not in scales else s for s in each])
        else:
            layout = laid.get(o.name) or layouts()
            spec = _spec(o, chosen.types.get(o.name) or env.typed(o.type), layout, bounds)
            spec = spec if o.name in scales else _factor(spec)
            made.append(evolve(spec, fact=facts.get(o.name), sample=sampled.get(o.name)))
    defaults = {a.name: a.default for a in op.attributes}
    return Shaped(tuple(o.name for o in op.operands), tuple(made), chosen.attributes, defaults)


def _is_integer(info: OperandInfo) -> bool:
    return isinstance(info.type.dtype, Dtype) and info.type.dtype.name in INDICES


def _wanted_layouts(conditions: tuple[Any, ...]) -> dict[str, str]:
    """The layouts that conditions want: `contiguous(x)`, and column-major for `contiguous(permute(x, ...))`."""
    asked = [x.args[0] for x in walk(conditions) if isinstance(x, Apply) and x.op == "contiguous"]
    return {o.name: "contiguous" if x is o else "transposed" for x in asked for o in operands_of((x,))}


def _facts(conditions: tuple[Any, ...]) -> dict[str, str]:
    """The natives that conditions ask of an operand, where operands can be made that they hold of."""
    natives = [c for c in conditions if isinstance(c, Apply) and c.op.startswith(registered.MARK) and len(c.args) == 1]
    sources = {c.args[0].name: c.op.removeprefix(registered.MARK) for c in natives if isinstance(c.args[0], Operand)}
    return {name: source for name, source in sources.items() if source in inputs.FACTS}


def _spec(info: OperandInfo, typed: Typed, layout: str, bounds: Mapping[str, Bound]) -> Spec:
    dtype = typed.dtype.name if isinstance(typed.dtype, Dtype) else str(typed.dtype)
    shape = tuple(typed.shape)
    if not DTYPES[dtype].is_floating_point:
        return Spec(dtype, shape, "index", layout, bounds.get(info.name) if dtype in INDICES else None)
    if info.type.shape is None:
        return Spec(dtype, shape, "data", layout)
    if is_element(info.type) or (dtype == "f32" and len(shape) > 1 and shape[-1] == 1):
        return Spec(dtype, shape, "scale", layout)
    return Spec(dtype, shape, "weight" if len(info.type.shape or ()) == 1 and len(shape) == 1 else "data", layout)


def _factor(spec: Spec) -> Spec:
    """A scale of no quantization."""
    return evolve(spec, role="factor") if spec.role == "scale" else spec


# ---- values


@frozen
class Given:
    """Operands and attributes for a claim. `label`: kind, dims, dtypes and layouts, for people."""

    operands: list[Any]
    attributes: dict[str, Any]
    label: str


def filled(made: Shaped, kind: str, seed: int, number: int) -> Given:
    """`made` with values of a kind. `number` turns what goes with it: weights, scales, what the other operands hold."""
    fill = _Fill(kind, seed, number)
    operands = [fill(spec) for spec in made.operands]
    return Given(operands, dict(made.attributes), f"{kind}: {made}")


class _Fill:
    """The values of the operands of one case, in order."""

    def __init__(self, kind: str, seed: int, number: int):
        self.kind, self.seed, self.number = kind, seed, number
        self.generator = torch.Generator().manual_seed(seed * 7919 + number)
        self.count = 0
        self.first: Tensor | None = None

    def __call__(self, spec: Any) -> Any:
        if isinstance(spec, list):
            return [self(s) for s in spec]
        if not isinstance(spec, Spec):
            return spec
        made = self.sampled(spec) if self.is_sampled(spec) else _ROLES[spec.role](self, spec, DTYPES[spec.dtype])
        made = made if spec.fact is None else inputs.FACTS[spec.fact](made)
        self.count += 1
        return placed(made, spec.layout)

    def is_sampled(self, spec: Spec) -> bool:
        """Are its values those that a `sample` says? In every other plain case, and for scales in every other."""
        return (
            spec.sample is not None
            and self.number % 2 == 1
            and (self.kind == "normal" or spec.role in ("scale", "factor"))
        )

    def sampled(self, spec: Spec) -> Tensor:
        """Values of a `sample`."""
        assert spec.sample is not None
        drawn = samples.drawn(spec.sample, spec.shape, self.generator)
        dtype = DTYPES[spec.dtype]
        return inputs.rounded(drawn, dtype) if dtype.is_floating_point else drawn.to(dtype)

    def index(self, spec: Spec, dtype: torch.dtype) -> Tensor:
        """Positions, or integers: in two of three cases of the whole range, else small ones, of which f32 holds sums
        and products."""
        bound = spec.bound
        if bound is not None:
            return inputs.integers(spec.shape, dtype, self.generator, bound.size, bound.distinct)
        small = spec.dtype in INDICES and (self.number + self.count) % 3 == 2
        return inputs.integers(spec.shape, dtype, self.generator, POSITIONS if small else None, False)

    def scale(self, spec: Spec, dtype: torch.dtype) -> Tensor:
        """One scale, or one a row."""
        if math.prod(spec.shape) == 1:
            return inputs.scale(self.number + self.count, spec.shape, dtype)
        return inputs.rounded(torch.exp2(torch.randn(spec.shape, generator=self.generator) * 3) * 0.037, dtype)

    def factor(self, spec: Spec, dtype: torch.dtype) -> Tensor:
        """A scale; in every fourth case what no scale of a quantization is, in a quarter of the rows if there is one a
        row."""
        made = self.scale(spec, dtype)
        if self.number % 4:
            return made
        value = inputs.FACTORS[(self.number // 4 + self.count - 1) % len(inputs.FACTORS)]
        there = torch.rand(spec.shape, generator=self.generator) < 0.25
        other = inputs.rounded(torch.full(spec.shape, value), dtype)
        return other if made.numel() == 1 else torch.where(there, other, made)

    def weight(self, spec: Spec, dtype: torch.dtype) -> Tensor:
        """Near one, normal, powers of two, of mixed magnitude, in turn; powers of two where sums are to be exact."""
        g, shape, turn = self.generator, spec.shape, (self.number + self.count) % 4
        if self.kind == inputs.EXACT or turn == 2:
            return torch.exp2(torch.randint(-1, 2, shape, generator=g).float()).to(dtype)
        if turn == 0:
            return (1 + 0.2 * torch.randn(shape, generator=g)).to(dtype)
        return inputs.values("normal" if turn == 1 else "mixed", shape, dtype, g)

    def data(self, spec: Spec, dtype: torch.dtype) -> Tensor:
        """Values of the kind. Those of a second operand: of the kind, normal, or what cancels the first, row by row."""
        made = self.of_kind(spec.shape, dtype, self.count)
        if self.first is None:
            self.first = made
            return made
        if spec.shape == self.first.shape and len(spec.shape) > 1 and self.kind not in (inputs.EXACT, *inputs.SPECIAL):
            made = self.beside(made, self.first.to(torch.float32))
        return made

    def of_kind(self, shape: tuple[int, ...], dtype: torch.dtype, turn: int) -> Tensor:
        if self.kind != EVERY:
            return inputs.values(self.kind, shape, dtype, self.generator)
        if not shape:
            return inputs.values("normal", shape, dtype, self.generator)
        rows = every(math.prod(shape[:-1]), shape[-1], dtype, self.seed + 13 * turn)
        return rows.roll(5 * turn, 0).reshape(shape)

    def beside(self, made: Tensor, first: Tensor) -> Tensor:
        """Every fourth row cancels most of the first operand's, every other fourth is normal."""
        near = -first * (1 + 2.0**-6 * torch.randn(first.shape, generator=self.generator))
        rows = torch.arange(math.prod(made.shape[:-1])).reshape(*made.shape[:-1], 1)
        normal = inputs.values("normal", tuple(made.shape), made.dtype, self.generator)
        cancelling = inputs.rounded(near, made.dtype)
        return torch.where(rows % 4 == 1, cancelling, torch.where(rows % 4 == 3, normal, made))


_ROLES: dict[str, Callable[[_Fill, Spec, torch.dtype], Tensor]] = {
    "index": _Fill.index, "scale": _Fill.scale, "factor": _Fill.factor, "weight": _Fill.weight, "data": _Fill.data,
}  # fmt: skip


@lru_cache(maxsize=64)
def every(rows: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Rows of every kind. The tensor is shared: nobody writes to operands."""
    return inputs.mixed((rows, width), dtype, Generator().manual_seed(seed))
