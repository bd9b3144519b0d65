"""A torch op without its overload: a call for each overload that takes the arguments as they are written."""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve

from fxrewrite.dsl.core import Either, Extern, Fresh, Lit, Nothing, Number, Operand, Taken, Term, TorchCall


def spelled_out(t: Extern) -> Term:
    """What `t` may be in a graph: one call for each overload that fits; `t` where its op is not in this build."""
    fitting = tuple(evolve(t, call=evolve(t.call, op=name)) for name in fitting_overloads(t.call, t.returned))
    if not fitting or fitting == (t,):
        return t
    return fitting[0] if len(fitting) == 1 else Either(fitting, type=t.type)


def overloads_of(term: Any) -> tuple[Extern, ...]:
    """The calls that a term of the normal form is, where it is a torch call."""
    choices: tuple[Any, ...] = term.choices if isinstance(term, Either) else (term,)
    return tuple(c for c in choices if isinstance(c, Extern))


def fitting_overloads(call: TorchCall, returned: int | None = 0) -> list[str]:
    """The dotted names of the overloads, the default as it is written and first."""
    space, *name = call.op.split(".")
    packet = getattr(getattr(torch.ops, space), name[0], None) if len(name) == 1 else None
    if packet is None:
        return []
    names = sorted(packet.overloads(), key=lambda n: n != "default")
    fitting = [n for n in names if _fits(call, getattr(packet, n)._schema, returned)]
    return [call.op if n == "default" else f"{call.op}.{n}" for n in fitting]


def _fits(call: TorchCall, schema: Any, returned: int | None) -> bool:
    """Does an overload work on tensors, take what is given, need no more, and write what is marked and nothing else?"""
    arguments = schema.arguments
    positional = [a for a in arguments if not a.kwarg_only]
    by_name = {a.name: a for a in arguments[len(call.args) :]}
    if len(call.args) > len(positional) or not all(n in by_name for n, _ in call.kwargs):
        return False
    if not any("Tensor" in str(a.type) for a in arguments) or (returned or 0) >= max(len(schema.returns), 1):
        return False
    given = [*zip(positional, call.args, strict=False), *((by_name.pop(n), v) for n, v in call.kwargs)]
    left = [a for a in arguments[len(call.args) :] if a.name in by_name]
    free = all(a.has_default_value() or (call.rest and not a.is_write) for a in left)
    return free and all(_takes(a, v) for a, v in given)


def _takes(argument: Any, given: Any) -> bool:
    """May this be given for an argument? A tensor is no number, and a buffer stands where one is written."""
    if argument.is_write != isinstance(given, Fresh | Taken):
        return isinstance(given, Nothing) or given in (Lit(None), Number(Lit(None)))
    is_tensor = isinstance(given, Operand) and given.type.shape is not None
    return not is_tensor or "Tensor" in str(argument.type)
