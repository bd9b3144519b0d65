"""Definitions on torch tensors, op by op: every primitive with the roundings that a definition declares.

    evaluate(program, "silu_and_mul", [x], {}, Torch())

An elementwise step on a 16-bit tensor is computed in float32 and rounded once. Eager torch does the same, with two
exceptions on a CPU (torch 2.13): it rounds a number that is added to a 16-bit tensor to 16 bits first, and its 16-bit
erf is less exact. Code that Inductor generates has neither, and neither has this.

A float attribute may be a 0-d tensor (overload `.dyn`): it acts as a Python number does, rounded to the dtype in which
the step computes, so that `m + eps` is `add(m, convert_element_type(eps, float32))`, bit for bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import SymBool, Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import TorchDispatchMode

from fxrewrite.dsl import registered
from fxrewrite.dsl.core import Dtype, OpDef, Prim
from fxrewrite.dsl.evaluate import UNKNOWN, Algebra, Buffer, EvaluationError, Overwritten
from fxrewrite.lowering import packing, ranks
from fxrewrite.lowering.layouts import empty
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.patterns.values import LOW


@frozen
class TensorNumber:
    """A number that is a 0-d tensor: it takes the dtype of the step that it is used in, and gives it none."""

    value: Tensor

    def to(self, dtype: torch.dtype) -> Tensor:
        """The number, rounded to `dtype`."""
        return self.value.to(dtype)


class Torch(Algebra):
    """The algebra of torch tensors (fake ones too)."""

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Tensor:
        """The tensor of a primitive; TypeError or RuntimeError are torch's own."""
        return PRIMITIVES[op](*args, *params)

    def dtype(self, value: Any) -> str | None:
        """The short name of the dtype of a tensor."""
        return NAMES.get(value.dtype, str(value.dtype)) if isinstance(value, Tensor) else None

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes of a tensor."""
        return tuple(value.shape) if isinstance(value, Tensor) else None

    def number(self, value: Any) -> Any:
        """A number; a 0-d tensor becomes a `TensorNumber`."""
        return TensorNumber(value) if isinstance(value, Tensor) else value

    def torch_call(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[Any, Any]]:
        """A registered torch op; one of aten means its decomposition, if it has one. Nothing given is overwritten."""
        made, named, written = torch_arguments(args, kwargs)
        results = self.torch_op(op)(*made, **named)
        return results if isinstance(results, tuple | list) else (results,), written

    def torch_op(self, name: str) -> Callable[..., Any]:
        """What computes a torch op. Raises EvaluationError where this process has none of this name."""
        return torch_op(name)

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """What the `ref` of an op returns: operands by position, attributes by name, dtypes as torch has them."""
        found = None if op.ref is None else registered.function(registered.REFS, op.ref)
        if found is None:
            return super().reference(op, operands, attributes)
        results = found(*operands, **{n: DTYPES[v.name] if isinstance(v, Dtype) else v for n, v in attributes.items()})
        return results if isinstance(results, tuple | list) else (results,)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """`contiguous(x)`, or a native; what else there is can only a graph tell."""
        if name.startswith(registered.MARK):
            return registered.call(name, args)
        return args[0].is_contiguous() if name == "contiguous" and isinstance(args[0], Tensor) else UNKNOWN

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison of symbolic sizes or of 0-d tensors."""
        found = COMPARISONS[op](left, right)
        if isinstance(found, Tensor):
            return UNKNOWN if is_fake(found) else bool(found)
        if not isinstance(found, SymBool):
            return bool(found)
        return _known(found)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _known(condition: SymBool) -> Any:
    """A symbolic condition, where it is settled without a new guard on the sizes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if statically_known_true(condition):
        return True
    return False if statically_known_true(torch.sym_not(condition)) else UNKNOWN


# ---- primitives


def _elementwise(op: Callable[..., Tensor]) -> Callable[[Any, Any], Tensor]:
    """A binary step; a number takes the dtype of the tensor beside it."""

    def step(x: Any, y: Any) -> Tensor:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return op(x, y)
        dtype = x.dtype if isinstance(x, Tensor) else y.dtype
        wide = torch.float32 if dtype in LOW else dtype
        a, b = (v.to(wide) if isinstance(v, Tensor | TensorNumber) else v for v in (x, y))
        return op(a, b).to(dtype)

    return step


def _quotient(x: Any, y: Any) -> Tensor:
    """Division, rounded once: a number divides as a tensor on a GPU, where torch multiplies by its reciprocal."""
    return _DIVISION(x, y) if not _is_reciprocal(x, y) else torch.div(_wide(x), _tensor(y, _wide(x))).to(x.dtype)


def _is_reciprocal(x: Any, y: Any) -> bool:
    """Would torch multiply by a reciprocal where it is asked to divide?"""
    return isinstance(x, Tensor) and x.is_cuda and x.dtype.is_floating_point and not isinstance(y, Tensor)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in LOW else x


_DIVISION = _elementwise(torch.div)


def _unary(op: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A unary step that rounds."""
    return lambda x: op(x.float()).to(x.dtype) if x.dtype in LOW else op(x)


def _extreme(op: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """maximum or minimum, which torch does not have for a number."""

    def step(x: Any, y: Any) -> Tensor:
        like = x if isinstance(x, Tensor) else y
        return op(_tensor(x, like), _tensor(y, like))

    return step


def _tensor(value: Any, like: Tensor) -> Tensor:
    """A number as a 0-d tensor of the dtype and device of `like`."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, TensorNumber):
        return value.value.to(like.device, like.dtype)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def clamp(x: Tensor, lo: Any, hi: Any) -> Tensor:
    """x bounded by numbers, 0-d tensors or tensors, None for no bound; NaN stays NaN, and `hi` wins over `lo`."""
    plain = not any(isinstance(b, Tensor | TensorNumber) for b in (lo, hi))
    if plain:
        return x if lo is None and hi is None else torch.clamp(x, lo, hi)
    if lo is not None:
        x = torch.maximum(x, _tensor(lo, x))
    return x if hi is None else torch.minimum(x, _tensor(hi, x))


def _reduction(op: Callable[..., Tensor], **fixed: Any) -> Callable[[Tensor, tuple[int, ...], bool], Tensor]:
    def step(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
        return op(x, dim=dims or tuple(range(x.ndim)), keepdim=keepdim, **fixed)

    return step


def _slice(x: Tensor, dim: int, start: Any, stop: Any, step: Any) -> Tensor:
    return torch.ops.aten.slice.Tensor(x, dim, start, stop, step)


def _slice_scatter(x: Tensor, y: Tensor, dim: int, start: Any, stop: Any, step: Any) -> Tensor:
    return torch.slice_scatter(x, y, dim, start, stop, step)


def _cat(*xs_and_dim: Any) -> Tensor:
    return torch.cat(xs_and_dim[:-1], xs_and_dim[-1])


def _to(x: Tensor, dtype: Dtype) -> Tensor:
    """A cast. No gradient passes into E8M0, which holds neither zero nor negative numbers."""
    target = DTYPES[dtype.name]
    return (x.detach() if target in NO_GRADIENT else x).to(target)


NO_GRADIENT = tuple(DTYPES[name] for name in ("e8m0fnu",) if name in DTYPES)  # a build may lack it
ROUNDING = "exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh erf".split()
EXACT = "abs neg ceil floor round clone".split()

PRIMITIVES: dict[str, Callable[..., Tensor]] = {
    **{op: _unary(getattr(torch, op)) for op in ROUNDING},
    **{op: getattr(torch, op) for op in EXACT},
    "add": _elementwise(torch.add),
    "sub": _elementwise(torch.sub),
    "mul": _elementwise(torch.mul),
    "div": _quotient,
    "fdiv": _quotient,
    "maximum": _extreme(torch.maximum),
    "minimum": _extreme(torch.minimum),
    "clamp": clamp,
    "to": _to,
    "reshape": torch.reshape,
    "permute": torch.permute,
    "expand": lambda x, shape: x.expand(shape),
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "cat": _cat,
    "amax": _reduction(torch.amax),
    "mean": _reduction(torch.mean),
    "sum": _reduction(torch.sum),
    "var": _reduction(torch.var, correction=0),
    "matmul": torch.matmul,
    "round_e2m1": packing.round_e2m1,
    "pack2": packing.pack2,
    "pack4": packing.pack4,
    "swizzle": packing.swizzle,
    "psum": ranks.psum,
    "pshard": ranks.pshard,
    "pconcat": ranks.pconcat,
}


# ---- torch ops


def torch_op(name: str) -> Callable[..., Any]:
    """What computes the torch op called `name` (`aten.gelu`, `_C.rms_norm`, `aten.add.Tensor`).

    The meaning of an aten op is its decomposition in Inductor's table, not the eager kernel. Raises EvaluationError
    where no such op is registered.
    """
    found = registered_op(name)
    return partial(_decomposed, found) if name.startswith("aten.") else found


def registered_op(name: str) -> Any:
    """The torch op called `name`, as it is registered. Raises EvaluationError where there is none."""
    namespace, _, rest = name.partition(".")
    found: Any = getattr(torch.ops, namespace)
    try:
        for part in rest.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise EvaluationError(f"this process has no torch op called {name}") from None
    return found


class _Decompose(TorchDispatchMode):
    """Runs every op that Inductor's table takes apart as its decomposition."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        from torch._inductor.decomposition import select_decomp_table

        decomposition = select_decomp_table().get(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        if func is torch.ops.aten.div.Tensor and _is_reciprocal(*args[:2]):
            return func(args[0], _tensor(args[1], args[0]))
        return func(*args, **(kwargs or {}))


def _decomposed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with _Decompose():
        return op(*args, **kwargs)


def torch_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], dict[Any, Tensor]]:
    """The arguments of a call as torch takes them, and what it writes of them, by slot: memory of its own."""
    like = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
    written: dict[Any, Tensor] = {}
    made = [_argument(a, written, like) for a in args]
    return made, {k: _argument(v, written, like) for k, v in kwargs.items()}, written


def _argument(argument: Any, written: dict[Any, Tensor], like: Tensor | None) -> Any:
    """An argument as torch takes it; what the call writes is a buffer of its own."""
    if isinstance(argument, Dtype):
        return DTYPES[argument.name]
    if isinstance(argument, TensorNumber):
        return argument.value
    if isinstance(argument, Overwritten):
        written[argument.slot] = argument.value.clone()
        return written[argument.slot]
    if isinstance(argument, Buffer):
        if argument.dtype is None or argument.shape is None or like is None:
            raise EvaluationError(f"the buffer `out` in slot {argument.slot} has no known type")
        dtype = DTYPES[argument.dtype.name]
        written[argument.slot] = empty(argument.shape, argument.layout, dtype, like.device)
        return written[argument.slot]
    return [_argument(a, written, like) for a in argument] if isinstance(argument, tuple | list) else argument
