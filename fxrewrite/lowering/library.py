"""Every op that a program declares, as an op of `torch.library`: `fxrewrite::<name>`, and `.dyn` beside it.

    op = op_for(program, "rms_norm_fp8")            # an OpOverload; registered when it is first asked for
    qx, sx = op(x, w, None, 1e-6)                   # operands, then attributes, by position or by name
    op_for(program, "rms_norm_fp8", dyn=True)       # float attributes are 0-d tensors

The kernel evaluates the definition eagerly; the fake kernel, which gives shapes to a compiler, reads the declared types
only. A gradient is that of the definition, which is evaluated again in the backward pass.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from attrs import define, field
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_unflatten

from fxrewrite.dsl import digest, sources
from fxrewrite.dsl.core import Attribute, Dtype, OpDef, Program, ResultInfo
from fxrewrite.dsl.evaluate import UNKNOWN, Bindings, EvaluationError, bind, evaluate, evaluate_bound, value
from fxrewrite.dsl.scalars import sizes
from fxrewrite.lowering.eager import NO_GRADIENT, Torch
from fxrewrite.lowering.layouts import empty, stored, stored_shape
from fxrewrite.lowering.schema import schema
from fxrewrite.patterns.calls import Declared
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.patterns.groups import Groups

NAMESPACE = "fxrewrite"
OVERLOADS = {"": False, ".dyn": True}  # overload -> are float attributes tensors?


def op_for(program: Program, name: str, dyn: bool = False) -> OpOverload:
    """The torch op of `name` in `program`, registered now if it is not yet. Any thread may call this.

    It is `torch.ops.fxrewrite.<name>`, or `<name>_<digest>` where that name belongs to another definition: the shipped
    one if there is one, else the first that was registered. Raises EvaluationError where the program has no such op.
    """
    packet = getattr(getattr(torch.ops, NAMESPACE), _registry.name_of(program, name))
    return packet.dyn if dyn else packet.default


def declared(program: Program, target: Any) -> Declared | None:
    """What a torch op is in the language; None for an op of another library."""
    if not isinstance(target, OpOverload) or target.namespace != NAMESPACE:
        return None
    registered = target._opname
    found = _registry.definitions.get(registered)
    if found is None:
        return None
    owner, op = found
    visible = op.name in program.ops and digest.of_op(program, op.name) == _registry.digests[registered]
    return Declared(owner, op, target._overloadname == "dyn", visible)


def name_of(program: Program, name: str) -> str:
    """The name under which an op of `program` is registered. Raises EvaluationError where the program has none."""
    return _registry.name_of(program, name)


def register(program: Program) -> None:
    """Register every op of `program`, for code that names them and was compiled elsewhere (a warm cache, an export)."""
    for name in program.ops:
        _registry.name_of(program, name)


@define
class _Registry:
    """Which definitions are registered, under which names."""

    library: torch.library.Library = field(factory=lambda: torch.library.Library(NAMESPACE, "FRAGMENT"))
    lock: threading.RLock = field(factory=threading.RLock)
    digests: dict[str, str] = field(factory=dict)  # registered name -> digest of the definition
    definitions: dict[str, tuple[Program, OpDef]] = field(factory=dict)  # registered name -> the definition
    found: dict[tuple[int, str], tuple[weakref.ref[Program], str]] = field(
        factory=dict
    )  # (id of a program, op) -> name

    def name_of(self, program: Program, name: str) -> str:
        """The registered name of an op of `program`."""
        known = self.found.get((id(program), name))
        if known is not None and known[0]() is program:
            return known[1]
        with self.lock:
            registered = self.register(program, name)
            self.found[id(program), name] = (weakref.ref(program), registered)
            return registered

    def register(self, program: Program, name: str) -> str:
        """Register an op of `program`, unless its definition is registered, and return its name there."""
        if name not in program.ops:
            raise EvaluationError(f"no op is called `{name}`")
        meaning = digest.of_op(program, name)
        plain = self.digests.get(name, meaning) == meaning and (name in self.digests or _may_take_name(program, name))
        registered = name if plain else f"{name}_{meaning[:8]}"
        if registered not in self.digests:
            for overload, dyn in OVERLOADS.items():
                _register(self.library, registered + overload, program, program.ops[name], dyn)
            self.digests[registered] = meaning
            self.definitions[registered] = (program, program.ops[name])
        return registered


_registry = _Registry()  # the one registry of ops: torch's own is global too


def _may_take_name(program: Program, name: str) -> bool:
    """Is the plain name free for this definition? A shipped op keeps its name, whatever is registered first."""
    if name not in shipped_names():
        return True
    span = program.ops[name].span
    return span is not None and program.sources.get(span.file) == shipped_names()[name]


@cache
def shipped_names() -> dict[str, str]:
    """The shipped ops and fusions: name to the text of the file that declares it."""
    files = (*sources.vocabulary_sources(), *map(sources.shipped_source, sources.shipped()))
    return {name: file.text for file in files for name in file.declares("op", "fusion")}


# ---- one op


def _register(library: torch.library.Library, name: str, program: Program, op: OpDef, dyn: bool) -> None:
    qualified = f"{NAMESPACE}::{name}"
    library.define(name + schema(op, dyn), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, _kernel(program, op), "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, fake_of(program, op), lib=library)
    backward, save = backward_of(program, op)
    torch.library.register_autograd(qualified, backward, setup_context=save, lib=library)


def _kernel(program: Program, op: OpDef) -> Callable[..., Any]:
    """Evaluates the definition; results lie in the declared layouts, in memory of their own."""

    def kernel(*args: Any) -> Any:
        operands, attributes = split_arguments(op, args)
        bindings = bind(program, op, operands, attributes, Torch())
        return _results(op, evaluate_bound(bindings), bindings, args)

    return kernel


def fake_of(program: Program, op: OpDef) -> Callable[..., Any]:
    """Results without data, from the declared types; where those leave a size open, from the definition."""

    def fake(*args: Any) -> Any:
        operands, attributes = split_arguments(op, args)
        bindings = bind(program, op, operands, attributes, Torch())
        declared = [_declared(r, bindings, _device(args)) for r in op.results]
        if any(d is None for d in declared):
            declared = [_like(r, v, bindings) for r, v in zip(op.results, evaluate_bound(bindings))]
        return declared[0] if len(declared) == 1 else tuple(declared)

    return fake


def split_arguments(op: OpDef, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The operands and the attributes among the positional arguments of a torch op; what is left out stays out."""
    count = len(op.operands)
    attributes = {a.name: _attribute(a, v) for a, v in zip(op.attributes, args[count:]) if not _filled_in(a, v)}
    return list(args[:count]), attributes


def _attribute(a: Attribute, given: Any) -> Any:
    if a.type == "group" and isinstance(given, str):
        return Groups().named(given)  # a definition may ask for its size
    return NAMES.get(given, str(given)) if isinstance(given, torch.dtype) else given


def _filled_in(a: Attribute, given: Any) -> bool:
    """Is it a default that torch filled in for autograd? It writes a dtype as the number that stands in the schema."""
    return a.type == "dtype" and isinstance(given, int)


def _device(args: Sequence[Any]) -> torch.device:
    leaves, _ = tree_flatten(list(args))
    return next((a.device for a in leaves if isinstance(a, Tensor) and a.ndim), torch.device("cpu"))


def _declared(result: ResultInfo, bindings: Bindings, device: torch.device) -> Any:
    """An empty tensor (a list of them) of the declared type; None where the type leaves something open."""
    dtype, shape = _known_type(result, bindings)
    if dtype is None or shape is None:
        return None
    count = next((len(bindings.operands[o.name]) for o in bindings.op.operands if o.star), 0) if result.star else 1
    made = [empty(shape, _layout(result, bindings), dtype, device) for _ in range(count)]
    return made if result.star else made[0]


def _known_type(result: ResultInfo, bindings: Bindings) -> tuple[torch.dtype | None, tuple[Any, ...] | None]:
    """The declared dtype and sizes of a result; None for what the type leaves open."""
    dtype: Any = UNKNOWN if result.type.dtype is None else value(result.type.dtype, bindings)
    shape: Any = UNKNOWN if result.type.shape is None else sizes(result.type.shape, bindings)
    return DTYPES[dtype.name] if isinstance(dtype, Dtype) else None, None if shape is UNKNOWN else tuple(shape)


def _agrees(op: OpDef, result: ResultInfo, found: Tensor, bindings: Bindings) -> None:
    """Raise EvaluationError where the definition gives another type than the op declares."""
    dtype, shape = _known_type(result, bindings)
    shape = None if shape is None else stored_shape(shape, _layout(result, bindings))
    if (dtype or found.dtype, tuple(found.shape) if shape is None else shape) != (found.dtype, tuple(found.shape)):
        said = f"declared {dtype or found.dtype} {list(found.shape if shape is None else shape)}"
        raise EvaluationError(f"{op.name}: `{result.name}` is {found.dtype} {list(found.shape)}, {said}")


def _like(result: ResultInfo, found: Any, bindings: Bindings) -> Any:
    """An empty tensor (a list of them) of the type of a value, in the declared layout."""
    layout = _layout(result, bindings)
    made = [empty(v.shape, layout, v.dtype, v.device) for v in (found if result.star else [found])]
    return made if result.star else made[0]


def _layout(result: ResultInfo, bindings: Bindings) -> str:
    layout = result.type.layout
    return layout if isinstance(layout, str) else bindings.attributes[layout.name]


def _results(op: OpDef, values: Sequence[Any], bindings: Bindings, args: Sequence[Any]) -> Any:
    """Values as the op returns them: in the declared layout, none in the memory of an argument or of another result."""
    leaves, _ = tree_flatten(list(args))
    taken = {a.untyped_storage().data_ptr() for a in leaves if isinstance(a, Tensor)} - {0}
    out: list[Any] = []
    for result, found in zip(op.results, values):
        made: list[Tensor] = []
        for v in found if result.star else [found]:
            _agrees(op, result, v, bindings)
            made.append(stored(v, _layout(result, bindings), taken))
            taken.add(made[-1].untyped_storage().data_ptr())
        out.append(made if result.star else made[0])
    return out[0] if len(out) == 1 else tuple(out)


# ---- gradients


def _save_for_backward(ctx: Any, inputs: Any, output: Any) -> None:
    leaves, ctx.spec = tree_flatten(list(inputs))
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(t for t in tree_flatten(output)[0] if t.dtype in NO_GRADIENT))
    ctx.save_for_backward(*(a for a in leaves if isinstance(a, Tensor)))
    ctx.others = [None if isinstance(a, Tensor) else (a,) for a in leaves]  # a tensor's place holds None


def backward_of(program: Program, op: OpDef) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The gradient of the definition, evaluated again on the saved arguments; and what saves them."""
    return _backward(program, op), _save_for_backward


def _backward(program: Program, op: OpDef) -> Callable[..., Any]:

    def backward(ctx: Any, *grads: Any) -> Any:
        again = torch.is_grad_enabled()  # a second derivative is asked for
        saved = iter(ctx.saved_tensors)
        leaves = [next(saved) if other is None else other[0] for other in ctx.others]
        with torch.enable_grad():
            inputs = [a.view_as(a) if isinstance(a, Tensor) and a.requires_grad else a for a in leaves]
            operands, attributes = split_arguments(op, tree_unflatten(inputs, ctx.spec))
            values = evaluate(program, op, operands, attributes, Torch())
        wanted = [i for i, a in enumerate(inputs) if isinstance(a, Tensor) and a.requires_grad]
        found = _gradients(values, grads, [inputs[i] for i in wanted], again)
        out: list[Any] = [None] * len(leaves)
        for i, g in zip(wanted, found):
            out[i] = g
        given = tree_unflatten(out, ctx.spec)
        for i, attribute in enumerate(op.attributes, len(op.operands)):
            if attribute.type == "list" and i < len(given):
                given[i] = None  # one for the list, not one for each of its numbers
        return tuple(given)[: len(ctx.needs_input_grad)]  # torch filled in defaults behind it

    return backward


def _gradients(
    values: Sequence[Any], grads: Sequence[Any], inputs: list[Tensor], again: bool
) -> Sequence[Tensor | None]:
    pairs = [(v, g) for v, g in zip(_flat(values), _flat(grads)) if g is not None and v.requires_grad]
    if not pairs or not inputs:
        return [None] * len(inputs)
    outputs, given = zip(*pairs)
    return torch.autograd.grad(outputs, inputs, given, allow_unused=True, create_graph=again)


def _flat(nested: Sequence[Any]) -> list[Any]:
    return [x for item in nested for x in (item if isinstance(item, list | tuple) else [item])]
