"""Steps as lines of Python that need only torch."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fxrewrite.dsl.formats import SCALE_TILE
from fxrewrite.lowering import packing
from fxrewrite.lowering.layouts import stored_shape
from fxrewrite.verify.call_text import literal
from fxrewrite.verify.elsewhere import SOURCE
from fxrewrite.verify.straight import Slot, Step, Straight

LISTED = 64  # elements: a tensor with more is written as its bytes
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "fdiv": "/"}
PACKING = ("round_e2m1", "pack2", "pack4", "swizzle")


def function(name: str, program: Straight) -> str:
    """A Python function of the inputs that runs the steps and returns the outputs by name."""
    names = [f"x{i}" for i in range(len(program.inputs))] + [f"v{i}" for i in range(len(program.steps))]
    lines = [f"def {name}({', '.join(names[: len(program.inputs)])}):"]
    for slot, step in enumerate(program.steps, len(program.inputs)):
        lines.append(f"    {names[slot]} = {expression(step, names)}")
    outputs = ", ".join(f"{n!r}: {names[s]}" for n, s in program.outputs)
    return "\n".join([*lines, f"    return {{{outputs}}}"])


def expression(step: Step, names: Sequence[str]) -> str:
    """A step as an expression over the names of slots."""
    args = [names[a.index] if isinstance(a, Slot) else literal(a) for a in step.args]
    if step.opaque is not None:
        return step.text.format(*args) if step.text else f"NotImplemented  # {step.op}"
    return _SPELLED.get(step.op, _call)(step, args)


def helpers(programs: Iterable[Straight]) -> str:
    """The source of the functions that the steps call beyond torch."""
    steps = [s for p in programs for s in p.steps]
    casts = [SOURCE] if any(s.op == "to" and s.dtype == "e4m3fn" for s in steps) else []
    return "\n\n".join([*casts, *(_packing() if {s.op for s in steps}.intersection(PACKING) else ())])


def _packing() -> Iterator[str]:
    functions = [f for _, f in inspect.getmembers(packing, inspect.isfunction) if f.__module__ == packing.__name__]
    constants = f"E2M1_MAX = {packing.E2M1_MAX}\nSCALE_TILE = {SCALE_TILE!r}\nTensor = torch.Tensor"
    yield from (constants, inspect.getsource(stored_shape), *map(inspect.getsource, functions))


def _call(step: Step, args: Sequence[str]) -> str:
    if step.op in INFIX:
        return f"{args[0]} {INFIX[step.op]} {args[1]}"
    if step.op in PACKING:
        return f"{step.op}({', '.join(args)})"
    return f"torch.{step.op}({', '.join([*args, *map(literal, step.params)])})"


def _reduction(step: Step, args: Sequence[str]) -> str:
    dims, keep = step.params
    named = f"dim={literal(tuple(dims))}, " if dims else ""
    extra = ", correction=0" if step.op == "var" else ""
    if not dims and not keep and step.op != "var":
        return f"torch.{step.op}({args[0]})"
    return f"torch.{step.op}({args[0]}, {named or f'dim=tuple(range({args[0]}.ndim)), '}keepdim={keep}{extra})"


def _clamp(step: Step, args: Sequence[str]) -> str:
    if not any(isinstance(a, Slot) for a in step.args[1:]):
        return f"torch.clamp({', '.join(args)})"
    found = args[0]
    for bound, how in ((args[1], "maximum"), (args[2], "minimum")):
        found = found if bound == "None" else f"torch.{how}({found}, {bound})"
    return found


def _cast(step: Step, args: Sequence[str]) -> str:
    """To e4m3fn as machines do it that do not saturate: who clamps sees no difference."""
    return f"to_e4m3fn({args[0]})" if step.dtype == "e4m3fn" else f"{args[0]}.to({literal(step.params[0])})"


def _extreme(step: Step, args: Sequence[str]) -> str:
    like = next(a for a, given in zip(args, step.args) if isinstance(given, Slot))
    made = [a if isinstance(g, Slot) else f"torch.full((), {a}, dtype={like}.dtype)" for a, g in zip(args, step.args)]
    return f"torch.{step.op}({', '.join(made)})"


_SPELLED: dict[str, Callable[[Any, Sequence[str]], str]] = {
    **dict.fromkeys(("amax", "mean", "sum", "var"), _reduction),
    **dict.fromkeys(("maximum", "minimum"), _extreme),
    "clamp": _clamp,
    "to": _cast,
    "reshape": lambda step, args: f"{args[0]}.reshape({literal(step.params[0])})",
    "expand": lambda step, args: f"{args[0]}.expand({literal(step.params[0])})",
    "slice": lambda step, args: f"torch.ops.aten.slice.Tensor({', '.join([*args, *map(literal, step.params)])})",
    "cat": lambda step, args: f"torch.cat([{', '.join(args)}], {step.params[0]})",
    "psum": lambda step, args: " + ".join(args),
}


# ---- tensors


def tensor(x: Tensor) -> str:
    """A tensor as Python, with its strides; large ones by their bytes."""
    dtype, shape = str(x.dtype), tuple(x.shape)
    if x.numel() <= LISTED:
        wide = x.detach().to(torch.float64 if x.dtype.is_floating_point else torch.int64)
        made = (
            f"torch.tensor({wide.tolist()!r}, dtype=torch.float64).to({dtype})"
            if x.dtype.is_floating_point
            else f"torch.tensor({wide.tolist()!r}, dtype={dtype})"
        )
        made = made if x.numel() else f"torch.empty({shape!r}, dtype={dtype})"
    else:
        raw = x.detach().contiguous().reshape(-1).view(torch.uint8)
        code = base64.b64encode(bytes(raw.tolist())).decode()
        made = f"torch.frombuffer(bytearray(base64.b64decode({code!r})), dtype={dtype}).reshape({shape!r})"
    if x.is_contiguous():
        return made
    return f"torch.empty_strided({shape!r}, {x.stride()!r}, dtype={dtype}).copy_({made})"
