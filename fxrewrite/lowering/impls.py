"""Writing an `impl` at a site: its spelling, on nodes of a graph. A torch op that writes is functionalized."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from attrs import frozen
from torch.fx import Node

from fxrewrite.dsl.core import Case, Dtype, OneOf, OpDef, Prim, Program, Taken, TorchCall, Wild
from fxrewrite.dsl.evaluate import Bindings, Buffer, EvaluationError, Overwritten, bind, case_holds, evaluate_terms
from fxrewrite.dsl.scalars import UNKNOWN, holds
from fxrewrite.dsl.wording import said, text, with_values
from fxrewrite.lowering.editor import Editor
from fxrewrite.lowering.layouts import stored_shape, strides
from fxrewrite.lowering.proofs import Proofs
from fxrewrite.lowering.types import ResultType
from fxrewrite.lowering.write import Primitives
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.patterns.forms import MissingOp, torch_op
from fxrewrite.patterns.hints import SPECIALIZE, import_hint
from fxrewrite.patterns.overloads import fitting_overloads
from fxrewrite.patterns.values import dims_of
from fxrewrite.patterns.wording import as_written

aten = torch.ops.aten
FUNCTIONALIZED = torch.ops.higher_order.auto_functionalized  # gives what the op returns, then each written argument


class NotServed(Exception):
    """An `impl` cannot stand at a site; the text says why, `hint` what to type so that it can. `unproved`: all that it
    lacks is a proof."""

    def __init__(self, why: str, hint: str = "", unproved: bool = False):
        super().__init__(why)
        self.hint, self.unproved = hint, unproved


def can_provide(case: Case) -> bool:
    """May a form be written? It is one bound call with every argument given."""
    call = case.torch_call
    return call is not None and not call.rest and not any(isinstance(a, Wild) for a in _arguments(call))


def calls_of(case: Case) -> list[TorchCall]:
    """Every torch call in a spelling, each once."""
    found: dict[TorchCall, None] = {}
    todo: list[Any] = list(case.outputs)
    while todo:
        t = todo.pop()
        call = getattr(t, "call", None)
        if isinstance(call, TorchCall):
            if call not in found:
                found[call] = None
                todo += _arguments(call)
        elif isinstance(t, Prim):
            todo += t.args
        elif isinstance(t, Taken):
            todo.append(t.value)
        elif isinstance(t, OneOf):
            todo.append(t.choices[0])
        elif isinstance(t, tuple):
            todo += cast("tuple[Any, ...]", t)
    return list(found)


def _arguments(call: TorchCall) -> list[Any]:
    return [*call.args, *(v for _, v in call.kwargs)]


def missing_op(case: Case) -> str | None:
    """The first torch op of a spelling that this process lacks."""
    for call in calls_of(case):
        try:
            torch_op(call.op)
        except MissingOp:
            return call.op
    return None


# ---- one site


@frozen
class Site:
    """Where an op is emitted. `nodes`: its operands (nodes, lists of them, None). `types`: what its results must be."""

    program: Program
    op: OpDef
    nodes: Sequence[Any]
    attributes: Mapping[str, Any]
    types: Sequence[ResultType]
    editor: Editor
    like: Node
    facts: Mapping[str, Any]
    proofs: Proofs


def write(case: Case, site: Site) -> list[Any]:
    """Write a spelling and give a node (or a list of nodes) for each result.

    Raises NotServed, the graph as it was, where its pins or guards do not hold, an argument cannot be given, a result
    has another type than the op declares, or it is not proved. What else its fake kernel or a native raises
    passes, the graph as it was.
    """
    made, cursor = len(site.editor.made), site.editor.cursor
    try:
        absent = missing_op(case)
        if absent is not None:
            raise NotServed(f"{absent} is not in this build", import_hint(absent))
        bindings = bind(site.program, site.op, site.nodes, site.attributes, Nodes(site.editor, site.like), site.facts)
        _require(case, bindings)
        results = [_listed(r) for r in evaluate_terms(case.outputs, bindings)]
        for result, declared, type_ in zip(results, site.op.results, site.types, strict=True):
            _fits(result, declared.name, type_)
        _is_proved(case, site, results)
        return results
    except EvaluationError as error:
        site.editor.undo(made, cursor)
        raise NotServed(str(error)) from error
    except Exception:
        site.editor.undo(made, cursor)
        raise


def _is_proved(case: Case, site: Site, results: Sequence[Any]) -> None:
    """Raise NotServed where what another package computes is not known to be the op."""
    device = next((n.meta["val"].device for r in results for n in (r if isinstance(r, list) else [r])), None)
    found = site.proofs.against(site.op, "impl", case, device, site.program)
    if found is not None:
        raise NotServed(found.why, found.hint, unproved=True)


def _listed(result: Any) -> Any:
    return list(result) if isinstance(result, list | tuple | Results) else result


def _require(case: Case, bindings: Bindings) -> None:
    """Raise NotServed where a pin or a guard does not hold. A float rounded to float32 counts as what was written."""
    given = bindings.attributes
    bindings.attributes = {n: as_written(v) if isinstance(v, float) else v for n, v in given.items()}
    if case_holds(case, bindings) is not True:
        for guard in case.guards:
            held = holds((guard,), bindings)
            if held is not True:
                raise NotServed(f"{with_values(guard, bindings)} is {'unknown' if held is None else 'false'}")
        raise NotServed(
            "it serves " + ", ".join(f"{n} = {said(v)}" for n, v in case.pins if not _is(bindings, n, v)) + " only"
        )
    bindings.attributes = given


def _is(bindings: Bindings, name: str, pinned: Any) -> bool:
    return case_holds(Case("", (), ((name, pinned),)), bindings) is True


def _fits(result: Any, name: str, type_: ResultType) -> None:
    for j, node in enumerate(result if isinstance(result, list) else [result]):
        val, wanted = node.meta["val"], type_.of_element(j)
        if val.dtype != wanted.dtype or dims_of(val) != wanted.shape:
            got, want = _type_text(val.dtype, dims_of(val)), _type_text(wanted.dtype, wanted.shape)
            raise NotServed(f"its result `{name}` is {got}, not {want}")


def _type_text(dtype: torch.dtype, shape: Sequence[Any]) -> str:
    return f"{NAMES.get(dtype, dtype)}[{', '.join(map(str, shape))}]"


# ---- the algebra


class Results(Sequence[Any]):
    """What a call returns, taken apart where it is asked for."""

    def __init__(self, length: int, take: Callable[[int], Any]):
        self.length, self.take = length, take
        self.taken: dict[int, Any] = {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self.length:
            raise IndexError(i)
        if i not in self.taken:
            self.taken[i] = self.take(i)
        return self.taken[i]


class Nodes(Primitives):
    """The algebra of nodes, with torch ops."""

    def torch_call(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[Any, Any]]:
        """A torch op; one that writes as `auto_functionalized`, which a compiler turns back without copies."""
        target = self.overload(op, args, kwargs)
        schema = target._schema
        types = {a.name: a for a in schema.arguments}
        positions = [a.name for a in schema.arguments]
        if len(args) > len(positions):
            raise NotServed(f"{op} takes {len(positions)} arguments, not {len(args)}")
        given = {name: (name, a) for name, a in kwargs.items()} | {
            n: (i, a) for i, (n, a) in enumerate(zip(positions, args))
        }
        if "device" in types and "device" not in given:  # a tensor that the spelling makes lies where the site is
            kwargs = {**kwargs, "device": self.device}
            given["device"] = ("device", self.device)
        named = {name: self.argument(a, types[name], op) for name, (_, a) in given.items()}
        if not schema.is_mutable:
            count = min(len(args), len(positions))
            node = self.call(target, *(named[n] for n in positions[:count]), **{n: named[n] for n in kwargs})
            return self._taken(node, len(schema.returns), len(schema.returns) > 1), {}
        everything = {a.name: named.get(a.name, a.default_value) for a in schema.arguments}
        node = self.call(FUNCTIONALIZED, target, **everything)
        written = [a.name for a in schema.arguments if a.is_write]
        offset = max(len(schema.returns), 1)
        slots = {given[n][0]: self._item(node, offset + i) for i, n in enumerate(written) if everything[n] is not None}
        return self._taken(node, len(schema.returns), True), slots

    def overload(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The overload of a torch op that torch itself would call with such arguments, where the text names none."""
        fitting = fitting_overloads(TorchCall(op, tuple(args), tuple(kwargs.items())))
        if len(fitting) < 2:
            return torch_op(fitting[0] if fitting else op)
        given, named = torch.fx.map_arg((list(args), dict(kwargs)), lambda n: n.meta["val"])
        try:
            name = torch._C._jit_resolve_packet(op.replace(".", "::"), *given, **named)
        except RuntimeError as error:
            raise NotServed(f"no overload of {op} takes this: {error}".split("\n")[0]) from error
        return getattr(getattr(getattr(torch.ops, op.split(".")[0]), op.split(".")[1]), name or "default")

    def _taken(self, node: Node, count: int, several: bool) -> Results:
        return Results(count, lambda i: self._item(node, i) if several else self._whole(node))

    def _item(self, node: Node, i: int) -> Any:
        return self._whole(self.call(operator.getitem, node, i))

    def _whole(self, node: Node) -> Any:
        """A node, or a list of nodes where its value is a list."""
        val = node.meta["val"]
        return (
            [self.call(operator.getitem, node, j) for j in range(len(val))] if isinstance(val, list | tuple) else node
        )

    # ---- arguments

    def argument(self, a: Any, declared: Any, op: str) -> Any:
        """An argument as a graph has it, for an argument of the schema. Raises NotServed where it cannot be given."""
        if isinstance(a, Buffer):
            return self.buffer(a)
        if isinstance(a, Overwritten):
            return a.value
        if isinstance(a, tuple | list):
            return [self.argument(x, declared, op) for x in cast("Iterable[Any]", a)]
        if isinstance(a, Node) and isinstance(declared.type, torch.FloatType) and isinstance(_val(a), torch.Tensor):
            raise NotServed(
                f"`{declared.name}` of {op} is a float, and here it is a tensor of the graph ({a.name})", SPECIALIZE
            )
        if isinstance(a, bool | int | float | str | Node | torch.device) or a is None:
            return a
        return DTYPES[a.name] if isinstance(a, Dtype) else self.editor.written_size(a)

    def buffer(self, a: Buffer) -> Node:
        """A buffer for a call to fill, on the device of the site."""
        if a.dtype is None or a.shape is None or UNKNOWN in a.shape:
            raise NotServed(f"the type of the buffer in argument {a.slot} is not known here")
        made: Any = dict(dtype=DTYPES[a.dtype.name], device=self.device, pin_memory=False)
        sizes = self.sizes(stored_shape(a.shape, a.layout))
        if a.layout in ("row", "swizzled"):
            return self.call(aten.empty.memory_format, sizes, **made)
        if a.layout == "col":  # stored with its last two axes exchanged
            *lead, rows, columns = sizes
            stored = self.call(aten.empty.memory_format, [*lead, columns, rows], **made)
            rank = len(sizes)
            return self.call(aten.permute.default, stored, [*range(rank - 2), rank - 1, rank - 2])
        if any(isinstance(s, Node) for s in sizes):
            raise NotServed(f"the strides of the layout {text(a.layout)} are known for fixed sizes only")
        return self.call(aten.empty_strided.default, sizes, list(strides(tuple(sizes), a.layout)), **made)


def _val(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, Node) else None
