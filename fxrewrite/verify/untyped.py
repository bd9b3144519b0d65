"""Operands whose types nothing says, and parameters of built-ins that a rule binds: chosen along the left side.

`permute(permute(x, p), q) => permute(x, compose(p, q))` says nothing of `x`, and `p` must be an order of its axes. So
the left side is run on zeros from the inside out: an operand gets a shape where it is met first, a parameter a value
that fits the tensor it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

import torch
from attrs import define, field
from torch import Tensor

from fxrewrite.dsl.check.terms import operands_of
from fxrewrite.dsl.core import Dtype, Number, Operand, Prim, Ref, Result, Term
from fxrewrite.dsl.scalars import UNKNOWN, value
from fxrewrite.lowering.eager import PRIMITIVES
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.verify.domains import DATA, GROUPS
from fxrewrite.verify.free_names import parameters
from fxrewrite.verify.relations import Types

SHAPES = ((6,), (4, 6), (2, 3, 4), (64, 24), (1, 8), (5, 1), (129, 16), (3, 1, 5), (257,), (1,), (40, 3, 8), (0, 4))
NUMBERS = (0.5, 2.0, -1.0, 0.0, 1.0)
LIKE = 0.8  # the share of operands that have the dtype of another
BEYOND = 3  # elements: how far a slice may reach past its axis


class NoChoice(Exception):
    """What was chosen so far leaves nothing for the rest; the text says where."""


class NoType(NoChoice):
    """Nothing says the type of what an op takes or gives, whatever is chosen."""


@define(eq=False)
class Completion:
    """One run along the left side. `env`: what is chosen; `tensors`: zeros for each operand that has a shape."""

    env: Types
    dtypes: Mapping[str, str]
    random: Random
    tensors: dict[str, Tensor] = field(factory=dict[str, Tensor])
    done: dict[int, Tensor] = field(factory=dict[int, Tensor])

    def run(self, terms: Sequence[Term]) -> None:
        """Choose everything that `terms` leave open, into `env` and `tensors`. Raises NoChoice."""
        for term in terms:
            self.tensor(term)

    def tensor(self, term: Any) -> Tensor:
        """Zeros of the type of a term."""
        if id(term) not in self.done:
            if isinstance(term, Operand):
                self.done[id(term)] = self.operand(term, self.shape(term))
            elif isinstance(term, Prim) and term.op in PRIMITIVES:
                self.done[id(term)] = self.primitive(term)
            else:
                for a in term.call.args if isinstance(term, Result) else ():
                    self.argument(a)
                found = self.env.term(term)
                if UNKNOWN in (found.dtype, found.shape):
                    names = ", ".join(f"`{o.name}`" for o in operands_of(term)) or "a value"
                    raise NoType(f"the type of {names}")
                self.done[id(term)] = torch.zeros(found.shape, dtype=DTYPES[found.dtype.name])
        return self.done[id(term)]

    def argument(self, given: Any) -> None:
        """What a called op is given, for the operands in it."""
        if operands_of(given):
            for term in given if isinstance(given, tuple) else (given,):
                self.tensor(term)

    def operand(self, term: Operand, shape: Sequence[int]) -> Tensor:
        """An operand, of this shape where it has none yet."""
        if term.name not in self.tensors:
            known = self.env.term(term)
            sizes = shape if known.shape is UNKNOWN else known.shape
            dtype = self.dtype(term.name) if known.dtype is UNKNOWN else DTYPES[known.dtype.name]
            self.tensors[term.name] = torch.zeros(tuple(sizes), dtype=dtype)
        return self.tensors[term.name]

    def dtype(self, name: str) -> torch.dtype:
        """A dtype for an operand: mostly that of another."""
        others = [t.dtype for t in self.tensors.values()]
        own = DTYPES[self.dtypes[name]]
        return self.random.choice(others) if others and self.random.random() < LIKE else own

    def shape(self, term: Operand) -> tuple[int, ...]:
        """A shape for an operand: like another that has one, its leading axes or some of them 1, or any."""
        others = [tuple(t.shape) for t in self.tensors.values() if t.ndim]
        if not others:
            return self.random.choice(SHAPES)
        like = self.random.choice(others)
        lead: tuple[int, ...] = self.random.choice((like[:-1], tuple(1 for _ in like[:-1]), ()))
        return (*lead, like[-1])

    def primitive(self, term: Prim) -> Tensor:
        """A primitive: its first tensor, what it binds, its other tensors in the shapes that these leave them."""
        first = next((a for a in term.args if not isinstance(a, Number)), None)
        if first is None:
            raise NoChoice(f"{term.op} of numbers alone")
        x = self.tensor(first)
        names = parameters(term.op)
        params = list[Any]()
        for name, p in zip(names, term.params):
            params.append(self.parameter(term.op, name, p, x, dict(zip(names, params))))
        args = [x if a is first else self.beside(term.op, a, x, params) for a in term.args]
        try:
            return PRIMITIVES[term.op](*args, *params)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise NoChoice(f"{term.op}: {str(error).splitlines()[0]}") from error

    def beside(self, op: str, a: Any, x: Tensor, params: Sequence[Any]) -> Any:
        """Another argument of a primitive of `x`."""
        if isinstance(a, Number):
            return self.number(a)
        if not isinstance(a, Operand):
            return self.tensor(a)
        shape = tuple(x.shape)
        if op == "slice_scatter":
            shape = tuple(PRIMITIVES["slice"](x, *params).shape)
        elif op == "matmul":
            shape = (x.shape[-1], self.random.choice((1, 3, 16)))
        return self.operand(a, shape)

    def number(self, a: Number) -> Any:
        """A number, chosen where the rule binds it."""
        if isinstance(a.value, Ref) and self.env.attribute(a.value.name) is UNKNOWN:
            self.env.attributes[a.value.name] = self.random.choice(NUMBERS)
        found = value(a.value, self.env)
        if found is UNKNOWN:
            raise NoChoice("a number is not known")
        return found

    def parameter(self, op: str, name: str, p: Any, x: Tensor, before: Mapping[str, Any]) -> Any:
        """A parameter, chosen where the rule binds it and it has no value yet."""
        if isinstance(p, Ref) and self.env.attribute(p.name) is UNKNOWN:
            choose = self.dtype_of_cast if name == "dtype" else _CHOICES[op if op == "expand" else name]
            self.env.attributes[p.name] = choose(self.random, x, before)
        found = value(p, self.env)
        if found is UNKNOWN:
            raise NoChoice(f"`{name}` of {op} is not known")
        return found

    def dtype_of_cast(self, random: Random, x: Tensor, before: Mapping[str, Any]) -> Dtype:
        """What a value is cast to: often its own dtype, or that of an operand: conditions ask for these."""
        operand = random.choice(list(self.tensors.values()) or [x])
        likely = (NAMES[operand.dtype],) * 3 + (NAMES[x.dtype],)
        return Dtype(random.choice((*likely, random.choice(DATA), random.choice(DATA))))


# ---- parameters: a value for a tensor, given the parameters before it


def _shape(random: Random, x: Tensor, before: Mapping[str, Any]) -> tuple[int, ...]:
    """A shape of as many elements: the same, flat, two axes merged, an axis split, a new axis of 1."""
    shape: tuple[int, ...] = tuple(x.shape)
    choices: list[tuple[int, ...]] = [
        shape,
        shape,
        (x.numel(),),
        (*shape, 1),
        (1, *shape),
        shape[::-1],
        (*shape[:-1], 1, shape[-1]),
    ]
    if len(shape) > 1:
        choices.append((prod(shape[:2]), *shape[2:]))
    choices += [(*shape[:-1], n // k, k) for n in shape[-1:] for k in (2, 3) if n % k == 0]
    return random.choice(choices)


def _expanded(random: Random, x: Tensor, before: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(x.shape)
    return random.choice((shape, shape, tuple(4 if n == 1 else n for n in shape), (3, *shape)))


def _order(random: Random, x: Tensor, before: Mapping[str, Any]) -> tuple[int, ...]:
    axes = list(range(x.ndim))
    return tuple(random.choice((axes, [a - x.ndim for a in axes], random.sample(axes, x.ndim))))


def _dim(random: Random, x: Tensor, before: Mapping[str, Any]) -> int:
    return random.randrange(-x.ndim, x.ndim)


def _start(random: Random, x: Tensor, before: Mapping[str, Any]) -> int:
    return random.choice((0, 0, random.randint(0, x.shape[before["dim"]])))


def _stop(random: Random, x: Tensor, before: Mapping[str, Any]) -> int:
    size, start = x.shape[before["dim"]], before["start"] or 0
    return random.choice((size, size + BEYOND, random.randint(min(start, size), size)))


def _dims(random: Random, x: Tensor, before: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(random.sample(range(x.ndim), random.randint(1, x.ndim)))


_CHOICES: dict[str, Callable[[Random, Tensor, Mapping[str, Any]], Any]] = {
    "shape": _shape,
    "expand": _expanded,
    "order": _order,
    "dim": _dim,
    "start": _start,
    "stop": _stop,
    "step": lambda random, x, before: random.choice((1, 1, 2)),
    "dims": _dims,
    "keepdim": lambda random, x, before: random.random() < 0.5,
    "group": lambda random, x, before: GROUPS[0],
}
