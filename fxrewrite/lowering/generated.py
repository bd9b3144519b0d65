"""Generated kernels as providers: for each declared op two more ops of `torch.library`, with the same arguments.

`fxrewrite_generated::<name>` is opaque: one graph serves every number of tokens, and the schedule is looked up when it
runs. `fxrewrite_triton::<name>` (`visible`) shows its kernel to a compiler, which then has a graph for each bucket
of tokens. Shapes come from the declared types, and gradients from the definition, as those of the registered op do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field, frozen
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import NO_DEFAULT, Dtype, DtypeVar, OpDef, Program
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.dsl.scalars import Env, sizes
from fxrewrite.lowering import library
from fxrewrite.lowering.given import ROWS, Given, NotExpressible
from fxrewrite.lowering.schema import schema, signature
from fxrewrite.patterns.dtypes import NAMES, to_core

if TYPE_CHECKING:
    from fxrewrite.lowering.codegen import Lowered

OPAQUE, VISIBLE = "fxrewrite_generated", "fxrewrite_triton"
DEVICES = ("cuda",)
TYPICAL = 4096  # columns
TYPICAL_ATTRIBUTES = {"eps": 1e-6, "G": 128}  # those that have no default
OLDEST = 89  # compute capability, as a number: casts to FP8 are instructions there


# ---- may it be used


def why_not(
    program: Program, op: OpDef, device: str, operands: Sequence[Any], attributes: Mapping[str, Any]
) -> str | None:
    """What speaks against a generated kernel of `op` for these operands, tensors or fake ones; None where it serves."""
    absent = unavailable(device)
    if absent is not None:
        return absent
    if any(isinstance(v, Tensor | torch.fx.Node) or hasattr(v, "nodes") for v in attributes.values()):
        return "a float attribute is a value of the graph"
    try:
        _lower(program, op.name, [given(o) for o in operands], {n: to_core(v) for n, v in attributes.items()})
    except EvaluationError as error:
        return str(error)
    return None


def unavailable(device: str) -> str | None:
    """Why no kernel is generated on a device type here; None where one can be."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if find_spec("fxrewrite_kernels") is None:
        return "fxrewrite_kernels is not installed"
    if device == "cpu" and interpreted():
        return None
    if device not in DEVICES:
        return f"kernels are generated for {', '.join(DEVICES)}, not for {device}"
    if not torch.cuda.is_available():
        return "there is no GPU here"
    if torch.version.hip is not None:
        return "no kernel is generated for ROCm yet"
    major, minor = torch.cuda.get_device_capability()
    return None if major * 10 + minor >= OLDEST else f"this GPU is sm_{major}{minor}: FP8 casts need sm_{OLDEST}"


def interpreted() -> bool:
    """Does Triton run its kernels in its interpreter, on a CPU?"""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _lower(program: Program, name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Lowered:
    """What `codegen.lower` makes of an op; it needs the package of kernels."""
    from fxrewrite.lowering.codegen import lower

    return lower(program, name, operands, attributes)


def given(value: Any, specialized: bool = False) -> Any:
    """What the generator needs to know of an operand: its dtype and sizes, all leading axes as one. `specialized`: a
    width that is a symbol becomes a number, which a graph that is being traced then depends on."""
    if isinstance(value, list | tuple):
        return [given(v, specialized) for v in value]
    if value is None:
        return None
    if not isinstance(value, Tensor):
        raise NotExpressible(f"the operand {value!r} is no tensor")
    shape = tuple(value.shape)
    if specialized:
        shape = (*shape[:-1], *map(int, shape[-1:]))
    if shape and not isinstance(shape[-1], int):
        raise NotExpressible(f"the width {shape[-1]} is not known when the graph is compiled")
    return Given(NAMES.get(value.dtype, str(value.dtype)), shape if len(shape) < 2 else (ROWS, shape[-1]))


def in_general(program: Program, op: OpDef, device: str) -> str | None:
    """What speaks against generated kernels of `op` on a device type, for operands of its declared types; None where
    they can be generated."""
    absent = unavailable(device)
    if absent is not None:
        return absent
    try:
        _lower(program, op.name, typical(op, TYPICAL), attributes_of(op, {}))
    except EvaluationError as error:
        return str(error)
    return None


def typical(op: OpDef, width: int, dtype: str = "bf16") -> list[Any]:
    """Operands of the declared types, with `width` for each size: classes are `dtype` where they may be; of optional
    ones, bounds are absent. Raises NotExpressible for operands of another kind."""
    out: list[Any] = []
    for o in op.operands:
        shape = o.type.shape or ()
        names = {n for d in shape if not isinstance(d, Star) for n in dims.names(d)}
        known = Env(
            dims=dict.fromkeys(names, width) | {"T": ROWS},
            stars={d.name: (ROWS,) for d in shape if isinstance(d, Star)},
        )
        found = sizes(shape, known)
        declared = o.type.dtype
        if isinstance(declared, DtypeVar):
            name = dtype if dtype in declared.members else declared.members[0]
        elif isinstance(declared, Dtype):
            name = declared.name
        else:
            raise NotExpressible(f"`{o.name}` has no fixed dtype", o.span)
        one = None if o.optional and found == (1,) else Given(name, found)
        out.append([one, one] if o.star else one)
    return out


def attributes_of(op: OpDef, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen attributes, with typical ones that the op has. Raises NotExpressible where another one has no
    default."""
    given = {**TYPICAL_ATTRIBUTES, **chosen}
    for a in op.attributes:
        if a.default is NO_DEFAULT and a.name not in given:
            raise NotExpressible(f"the attribute `{a.name}` has no default", a.span)
    return {n: v for n, v in given.items() if op.attribute(n) is not None}


# ---- the ops


def op_for(program: Program, name: str, visible: bool = False) -> OpOverload:
    """The torch op that runs the generated kernels of an op; registered when it is first asked for."""
    registered = library.name_of(program, name)
    with _registry.lock:
        known = _registry.names[visible]
        if registered not in known:
            (_register_visible if visible else _register_opaque)(registered, Generated(program, program.ops[name]))
            known.add(registered)
    return getattr(getattr(torch.ops, VISIBLE if visible else OPAQUE), registered).default


def register(program: Program) -> None:
    """Register the opaque op of all that can be generated here: code from a cache names it before any pass runs."""
    if unavailable(DEVICES[0]) is None:
        for name, op in program.ops.items():
            if in_general(program, op, DEVICES[0]) is None:
                op_for(program, name)


def state() -> str:
    """What kernels are generated for here, or why none are: equal states emit the same ops."""
    return unavailable(DEVICES[0]) or f"sm_{torch.cuda.get_device_capability()}"


@define
class _Registry:
    """Which ops are registered: opaque (False) and visible ones (True)."""

    library: torch.library.Library = field(factory=lambda: torch.library.Library(OPAQUE, "FRAGMENT"))
    lock: threading.RLock = field(factory=threading.RLock)
    names: dict[bool, set[str]] = field(factory=lambda: {False: set(), True: set()})


_registry = _Registry()  # torch's own registry is global too


def _register_opaque(name: str, run: Generated) -> None:
    lib = _registry.library
    lib.define(name + schema(run.op, False), tags=(torch.Tag.pt2_compliant_tag,))
    lib.impl(name, run, "CPU" if interpreted() else "CUDA")
    qualified = f"{OPAQUE}::{name}"
    torch.library.register_fake(qualified, library.fake_of(run.program, run.op), lib=lib)
    backward, save = library.backward_of(run.program, run.op)
    torch.library.register_autograd(qualified, backward, setup_context=save, lib=lib)


def _register_visible(name: str, run: Generated) -> None:
    qualified = f"{VISIBLE}::{name}"

    def visible(*args: Any, **kwargs: Any) -> Any:
        return run.visible(*args, **kwargs)

    visible.__signature__ = signature(run.op)  # pyright: ignore[reportFunctionMemberAccess]
    op: Any = torch.library.triton_op(qualified, visible, mutates_args={})
    backward, save = library.backward_of(run.program, run.op)
    op.register_autograd(backward, setup_context=save)


# ---- running


@define(eq=False)
class Generated:
    """Runs an op by generated kernels. What was looked up once for operands of these types is kept."""

    program: Program
    op: OpDef
    _plans: dict[Any, _Plan] = field(init=False, factory=dict)

    def __call__(self, *args: Any) -> Any:
        """The results, from kernels that are launched now."""
        return self.plan(args).run(args, None)

    def visible(self, *args: Any) -> Any:
        """The results, from kernels that a tracer sees."""
        return self.plan(args).run(args, torch.library.wrap_triton)

    def plan(self, args: Sequence[Any]) -> _Plan:
        """How arguments of these types are served. Raises NotExpressible where no kernel can be generated for them."""
        key = tuple([_key(a) for a in args])
        found = self._plans.get(key)
        if found is None:
            operands, attributes = library.split_arguments(self.op, args)
            core = {n: to_core(v) for n, v in attributes.items()}
            lowered = _lower(self.program, self.op.name, [given(o, specialized=True) for o in operands], core)
            found = self._plans[key] = _Plan(lowered, _launcher(lowered.definition, args))
        return found


def _key(a: Any) -> Any:
    if isinstance(a, Tensor):
        return a.dtype, a.ndim > 1, int(a.shape[-1]) if a.ndim else 1
    return tuple([_key(x) for x in a]) if isinstance(a, list | tuple) else a


def _launcher(definition: Any, args: Sequence[Any]) -> Any:
    from fxrewrite_kernels.emit import INTERPRETER
    from fxrewrite_kernels.launch import Launcher
    from fxrewrite_kernels.prove import target_for

    if interpreted():
        return Launcher(definition, INTERPRETER)
    device = next(a.device for a in args if isinstance(a, Tensor))
    with _disable_current_modes():  # a compiler may be tracing: the proof is run, not traced
        return Launcher(definition, target_for(definition, device))


@frozen(eq=False)
class _Plan:
    """A kernel, and how arguments and results are those of the op."""

    lowered: Lowered
    launcher: Any

    def run(self, args: Sequence[Any], wrap: Callable[[Any], Any] | None) -> Any:
        """The results as the op returns them."""
        tensors: list[Tensor] = [args[i] if j is None else args[i][j] for i, j in self.lowered.inputs]
        rows = [x for i, x in zip(self.lowered.definition.inputs, tensors, strict=True) if i.kind == "rows"]
        leading = rows[0].shape[:-1]
        if any(x.shape[:-1] != leading for x in rows[1:]):
            raise EvaluationError(f"the leading axes of operands differ: {[list(x.shape) for x in rows]}")
        if len(leading) == 1:
            return self._listed(self._launched(tensors, wrap))
        results = self._launched([flat(x) for x in tensors], wrap)
        return self._listed([r.view(*leading, r.shape[-1]) for r in results])

    def _launched(self, tensors: list[Tensor], wrap: Callable[[Any], Any] | None) -> list[Tensor]:
        device = tensors[0].device
        results = self.launcher.results(self.launcher.tokens(tensors), device)
        if device.type == "cuda" and wrap is None and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self.launcher(tensors, results)
        else:
            self.launcher(tensors, results, wrap=wrap)
        return results

    def _listed(self, results: list[Tensor]) -> Any:
        if self.lowered.results == (None,):
            return results[0]
        left = iter(results)
        out = [next(left) if n is None else [next(left) for _ in range(n)] for n in self.lowered.results]
        return out[0] if len(out) == 1 else tuple(out)


def flat(x: Tensor) -> Tensor:
    """A tensor with its leading axes as one."""
    return x if x.ndim <= 2 else x.reshape(-1, x.shape[-1])


__all__ = [
    "Generated",
    "attributes_of",
    "flat",
    "given",
    "in_general",
    "op_for",
    "register",
    "state",
    "typical",
    "unavailable",
    "why_not",
]
