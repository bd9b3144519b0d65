"""A Python function as the start of a rule: its graph is traced, read into values, and written as `.rw` text.

Where a value is the result of an op of the vocabulary the op is written, and of several such ops the one that covers
most of the graph; anything else is written in primitives. The only place of the project that traces Python.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from fxrewrite.dsl.check.builtins import RESERVED
from fxrewrite.dsl.core import PRIMITIVES
from fxrewrite.dsl.reader.tokens import KEYWORDS
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.lowering.engine import truth_of
from fxrewrite.lowering.impls import as_written
from fxrewrite.patterns.dtypes import NAMES
from fxrewrite.patterns.values import LOW, Value
from fxrewrite.patterns.views import Sweep, View

INFIX = {"add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("/", 5), "matmul": ("@", 5)}
_CALL = re.compile(r"[a-z_]\w*\(")
ATOM = 9  # how tightly a name or a call binds
REDUCTIONS = ("amax", "mean", "sum", "var")
NAMED_LATER = 60  # characters: a longer expression gets a name even where it is used once


LONGEST = 200  # steps: as deep as an expression may be


class Undraftable(Exception):
    """The graph holds what the language cannot say, in one line."""


def trace(function: Callable[..., Any], args: Sequence[Any]) -> GraphModule:
    """The graph of `function(*args)`, with Inductor's decompositions, on fake tensors of the same sizes.

    A placeholder stands for each tensor among `args`; what is no tensor is a constant. Raises what the function raises.
    """

    def called(*tensors: torch.Tensor) -> Any:
        left = iter(tensors)
        return function(*(next(left) if isinstance(a, torch.Tensor) else a for a in args))

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        # a copy of each: two arguments that are one tensor would become one input
        fakes = [mode.from_tensor(a.detach().clone()) for a in args if isinstance(a, torch.Tensor)]
        traced = make_fx(called, decomposition_table=select_decomp_table(), tracing_mode="real")(*fakes)
        # some decompositions write in place: what they wrote is traced again, without
        return make_fx(torch.func.functionalize(traced, remove="mutations"), tracing_mode="real")(*fakes)


def _steps(values: Sequence[Value], outputs: Sequence[Any]) -> int:
    """How many steps the longest chain of values up to the outputs has. Arguments stand before what is made of them."""
    found: dict[int, int] = {}
    for v in values:
        found[id(v)] = 1 + max((found.get(id(a), 0) for a in v.args if isinstance(a, Value)), default=0)
    return max((found.get(id(v), 0) for v in outputs), default=0)


def draft(gm: GraphModule, name: str, parameters: Sequence[str], sizes: Mapping[int, str]) -> str:
    """The text of a fusion called `name` whose definition is the graph.

    `parameters`: a name for each placeholder. `sizes`: the name of a dim by its size in the graph. Raises Undraftable.
    """
    sweep = Sweep(make_pass(make_config([])).engine.library)
    sweep.truth = truth_of(gm.graph)
    sweep.read(gm.graph)
    tensors = [(n, p) for n, p in zip(gm.graph.find_nodes(op="placeholder"), parameters, strict=True)]
    low = {node.meta["val"].dtype for node, _ in tensors} & set(LOW)
    writer = _Writer(dict(sizes), low.pop() if len(low) == 1 else None)
    for node, parameter in tensors:
        value = sweep.table.of_node[node]
        if not isinstance(value, Value):
            raise Undraftable(f"{parameter} is no tensor: give it a number with --input")
        writer.names[value] = parameter
    outputs = [sweep.table.of_node.get(n) for n in tree_leaves(gm.graph.output_node().args[0])]
    if not all(isinstance(v, Value) for v in outputs):
        raise Undraftable("a fusion returns tensors")
    if _steps(sweep.table.all, outputs) > LONGEST:
        raise Undraftable("the graph is a longer chain than a rule may be")
    written = ", ".join(writer.outputs(dict.fromkeys(outputs)))
    signature = ", ".join(writer.parameter(sweep.table.of_node[n], p) for n, p in tensors)
    lines = [f"fusion {name}({signature}) = {written}"]
    if writer.parts:
        lines.append("  where " + ",\n        ".join(writer.parts))
    return "\n".join(lines) + "\n"


@define(eq=False)
class _Writer:
    """Values as text. `names`: what has a name already; `parts`: the bindings under `where`, in order."""

    sizes: dict[int, str]
    low: torch.dtype | None  # the one 16-bit dtype of the parameters: any other may stand in its place
    names: dict[Value, str] = field(factory=dict)
    uses: dict[Value, int] = field(factory=dict)
    parts: list[str] = field(factory=list)
    typed: set[Value] = field(factory=set)  # parameters that an op of the vocabulary takes: it knows their type
    views: dict[Value, tuple[View, int] | None] = field(factory=dict)

    # ---- which views, and what is used twice

    def view(self, v: Value) -> tuple[View, int] | None:
        """The op of the vocabulary that a value is a result of: of several the one whose operands lie deepest."""
        if v not in self.views:
            found = [
                (view, i)
                for views in v.views.values()
                for view, i in views
                if not view.op.is_fusion and not view.carried and all(_plain(a) for a in view.args)
            ]
            self.views[v] = min(found, key=lambda f: max((a.n for a in _tensors(f[0])), default=0), default=None)
        return self.views[v]

    def count(self, outputs: Sequence[Any]) -> None:
        """Count the uses of every value that will be written."""
        todo = list(outputs)
        while todo:
            v = todo.pop()
            self.uses[v] = self.uses.get(v, 0) + 1
            if self.uses[v] == 1 and v not in self.names:
                found = self.view(v)
                todo += _tensors(found[0]) if found else [a for a in _leaves(v.args) if isinstance(a, Value)]

    # ---- text

    def parameter(self, v: Value, name: str) -> str:
        """A parameter, with its type where no op of the vocabulary has one for it."""
        if v in self.typed:
            return name
        dtype = "lowp" if v.dtype == self.low else NAMES[v.dtype]
        return f"{name}: {dtype}[{', '.join(self.size(s) for s in v.shape)}]"

    def outputs(self, found: Iterable[Any]) -> list[str]:
        """The outputs as text, named where two results would be called the same."""
        found = list(found)
        self.count(found)
        made = [self.text(v)[0] for v in found]
        taken = {self.names[v] for v in found if v in self.names}
        for i, v in enumerate(found):
            if v in self.names:
                made[i] = self.names[v]
                continue
            view = self.view(v)
            called = view[0].op.results[view[1]].name if view else "y"
            if called in taken:
                called = made[i] = self.name(v, made[i], "y", taken)
            taken.add(called)
        return made

    def size(self, s: Any) -> str:
        """A size: the dim of that name, a half or a double of one, or a number."""
        if s in self.sizes:
            return self.sizes[s]
        for known, name in self.sizes.items():
            if known and s == 2 * known:
                return f"2*{name}"
            if s and 2 * s == known:
                return f"{name}//2"
        return str(s)

    def text(self, v: Any, least: int = 0) -> tuple[str, int]:
        """A value as text that binds at least as tightly as `least`, in parentheses where it must."""
        if not isinstance(v, Value):
            return self.constant(v), ATOM
        if v not in self.names:
            made, strength = self.expression(v)
            if v in self.names:
                return self.names[v], ATOM
            if self.uses.get(v, 0) > 1 or len(made) > NAMED_LATER:
                return self.name(v, made), ATOM
            return (f"({made})", ATOM) if strength < least else (made, strength)
        return self.names[v], ATOM

    def name(self, v: Value, made: str, stem: str = "t", beside: Iterable[str] = ()) -> str:
        """Give a value a name under `where`, none of those in `beside`."""
        name = self.fresh(stem, beside)
        self.parts.append(f"{name} = {made}")
        self.names[v] = name
        return name

    def fresh(self, stem: str, beside: Iterable[str] = ()) -> str:
        """A name that nothing has yet."""
        taken = {*self.names.values(), *beside}
        return next(n for i in range(10**6) if (n := f"{stem}{i or ''}") not in taken and is_free(n))

    def expression(self, v: Value) -> tuple[str, int]:
        """A value as a call of the vocabulary, or a primitive."""
        found = self.view(v)
        if found is not None:
            return self.declared(v, found[0])
        return self.primitive(v)

    def declared(self, v: Value, view: View) -> tuple[str, int]:
        """A call of an op; where it has several results they are bound together."""
        op = view.op
        args = list(view.args[: len(op.operands)])
        while args and args[-1] is None and op.operands[len(args) - 1].has_default:
            args.pop()
        for a in args:
            self.typed |= {a} if isinstance(a, Value) else set()
        first, *rest = [self.text(args[0]), *(self.text(a, 1) for a in args[1:])]
        piped = first[0].endswith(")") and bool(_CALL.match(first[0])) and isinstance(args[0], Value)
        call, strength = f"{op.name}({', '.join(t for t, _ in (first, *rest))})", ATOM
        if piped and self.view(args[0]) is not None:
            others = f"({', '.join(t for t, _ in rest)})" if rest else ""
            call, strength = f"{first[0]} |> {op.name}{others}", 0
        if len(op.results) == 1:
            return call, strength
        for result, info in zip(view.results, op.results, strict=True):
            used = isinstance(result, Value) and result in self.uses
            self.names[result] = self.fresh(info.name if used else f"_{info.name}")
        self.parts.append(f"({', '.join(self.names[r] for r in view.results)}) = {call}")
        return self.names[v], ATOM

    def primitive(self, v: Value) -> tuple[str, int]:
        """One primitive of the core."""
        op, args, attrs = v.op, v.args, v.attrs
        if op in INFIX:
            sign, strength = INFIX[op]
            left, right = self.text(args[0], strength)[0], self.text(args[1], strength + 1)[0]
            return f"{left} {sign} {right}", strength
        if op == "neg":
            return f"-{self.text(args[0], ATOM)[0]}", 7
        if op == "to":
            return self.cast(args[0], attrs[0]), ATOM
        if op == "clamp":
            return self.clamp(*args)
        if op == "slice":
            return self.slice(v)
        if op in ("reshape", "expand"):
            return f"{op}({self.text(args[0])[0]}, [{', '.join(self.size(s) for s in v.shape)}])", ATOM
        if op in REDUCTIONS:
            axes, keepdim = attrs
            axis = str(axes[0]) if len(axes) == 1 else f"[{', '.join(map(str, axes))}]"
            return f"{op}({self.text(args[0])[0]}, {axis}, keepdim={self.constant(keepdim)})", ATOM
        if op == "cat":
            return f"cat([{', '.join(self.text(a)[0] for a in args)}], {', '.join(map(self.constant, attrs))})", ATOM
        if op not in PRIMITIVES or any(not _plain(a) for a in args):
            called = args[0].op if op == "getitem" else op
            raise Undraftable(f"the graph calls {called}, which rules do not match by a word of the language")
        attrs = (attrs,) if op == "permute" else attrs
        inside = [self.text(a)[0] for a in args] + [self.constant(a) for a in attrs]
        return f"{op}({', '.join(inside)})", ATOM

    def cast(self, x: Value, dtype: torch.dtype) -> str:
        """A cast: to the 16-bit dtype of the parameters by one of them."""
        if dtype != self.low:
            return f"{NAMES[dtype]}({self.text(x)[0]})"
        parameter = next(n for v, n in self.names.items() if v.op == "input" and v.dtype == dtype)
        return f"to({self.text(x)[0]}, {parameter}.dtype)"

    def clamp(self, x: Value, lo: Any, hi: Any) -> tuple[str, int]:
        """A clamp, which may be open at one end."""
        made = self.text(x)[0]
        if hi is None:
            return f"clamp_min({made}, {self.constant(lo)})", ATOM
        if lo is None:
            return f"clamp_max({made}, {self.constant(hi)})", ATOM
        return f"clamp({made}, {self.constant(lo)}, {self.constant(hi)})", ATOM

    def slice(self, v: Value) -> tuple[str, int]:
        """A slice of the last axis as an index, of another as a call."""
        axis, start, stop, step = v.attrs
        x = self.text(v.args[0], ATOM)[0]
        begin, end = self.size(start) if start else "", "" if stop is None else self.size(stop)
        index = f"{begin}:{end}" + (f":{step}" if step != 1 else "")
        return f"{x}[{', '.join(['...', index] + [':'] * (-axis - 1))}]", ATOM

    def constant(self, c: Any) -> str:
        """A constant as the language writes it."""
        if isinstance(c, bool) or c is None:
            return {True: "true", False: "false", None: "none"}[c]
        if isinstance(c, torch.dtype):
            return NAMES[c]
        if isinstance(c, tuple | list):
            return f"[{', '.join(map(self.constant, c))}]"
        if isinstance(c, str):
            return f'"{c}"'
        if isinstance(c, int) or (isinstance(c, float) and math.isfinite(c)):
            return repr(c if isinstance(c, int) else as_written(c))
        raise Undraftable(f"{c!r} has no spelling in the language")


def is_free(name: str) -> bool:
    """May a parameter or part be called so?"""
    reserved = name in RESERVED or name in KEYWORDS or keyword.iskeyword(name)
    return not reserved and bool(re.fullmatch(r"_?[a-z]\w*", name))


def _plain(a: Any) -> bool:
    """Is it a tensor of the graph or a constant?"""
    return isinstance(a, Value | int | float | str | torch.dtype) or a is None or isinstance(a, tuple)


def _leaves(args: Any) -> list[Any]:
    return [x for a in args for x in (_leaves(a) if isinstance(a, tuple | list) else [a])]


def _tensors(view: View) -> list[Value]:
    return [a for a in _leaves(view.args[: len(view.op.operands)]) if isinstance(a, Value)]
