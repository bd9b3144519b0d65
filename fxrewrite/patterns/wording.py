"""How reports say what a rule asks for and what stood in the graph: nothing that two layers of a model differ in."""

from __future__ import annotations

from typing import Any

import torch

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import Apply, Call, Choose, Extern, Lit, Number, Operand, Prim, Ref, Result, Size
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.dsl.wording import said
from fxrewrite.patterns.dialect import called
from fxrewrite.patterns.dtypes import NAMES, to_core
from fxrewrite.patterns.events import source_place
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.hints import short
from fxrewrite.patterns.values import Value, single
from fxrewrite.patterns.views import View


def expected_text(t: Any) -> str:
    """What a term asks for."""
    if isinstance(t, tuple) and len(t) == 2 and isinstance(t[0], Call):
        name = next((n for n, s in t[0].attrs if s is t[1]), "")
        return f"{t[0].op}: {name} = {text(t[1])}"
    if isinstance(t, Result):
        return f"a result of {t.call.op}"
    if isinstance(t, Prim):
        return f"`{t.op}`"
    if isinstance(t, Operand):
        return f"the value that `{t.name}` is" if not t.optional else f"`{t.name}`"
    if isinstance(t, Extern):
        return f"a result of {t.call.op}"
    if isinstance(t, Choose):
        return "one of the cases"
    return text(t)


def type_wanted(t: Any) -> str:
    """The type that a term asks for."""
    dtype = getattr(t.type, "dtype", None)
    return f"{t.name}: {t.type}" if isinstance(t, Operand) else f"a value of {dtype}" if dtype else expected_text(t)


def type_found(v: Any) -> str:
    """The type of what stood there."""
    return f"{NAMES.get(v.dtype, v.dtype)}[{', '.join(map(str, v.shape))}]" if isinstance(v, Value) else text(v)


def found_text(v: Any) -> str:
    """What stood there."""
    if isinstance(v, Value):
        names = list(dict.fromkeys(name for name, views in v.views.items() for w, i in views))
        node = v.nodes[0] if v.nodes else None
        if names:
            return f"a result of {' or '.join(names)}" + (f" ({node_text(node)})" if node is not None else "")
        same = node is None or v.op in ("reshape", node_text(node)) or v.op == "input"
        return _op_text(v) + ("" if same else f" ({node_text(node)})")
    return text(v)


def _op_text(v: Value) -> str:
    if v.op == "reshape":
        return f"a reshape of {found_text(v.args[0])}"
    return "an input of the graph" if v.op == "input" else f"`{v.op}`"


def node_text(node: Any) -> str:
    """A node by its op; what is no op by its name."""
    if node.op == "output":
        return "the output of the graph"
    return called(node) if node.op == "call_function" else node.name


def describe(node: Any) -> str:
    """A node by its op and its line of the model."""
    place = source_place(node) if node.op == "call_function" else ""
    return node_text(node) + (f" ({place})" if place else "")


def values_text(condition: Any, env: SiteEnv) -> str:
    """What the names of a condition are at a site: `D = 100, G = 64`."""
    known = {said(x): env.value(x) for x in _facts(condition)}
    return ", ".join(f"{name} = {text(to_core(v))}" for name, v in known.items() if v is not UNKNOWN)


def _facts(x: Any) -> list[Any]:
    """The attributes and sizes of a condition, and what it asks of operands, in order."""
    if isinstance(x, Ref):
        return [x]
    if isinstance(x, Size):
        return [Size(dims.name(n)) for n in sorted(dims.names(x.dim))]
    if not isinstance(x, Apply):
        return []
    if any(isinstance(a, Operand) for a in x.args) and x.op != "is_none":
        return [x]
    return [fact for a in x.args for fact in _facts(a)]


def as_written(number: float) -> float:
    """The shortest decimal with the same float32, where `number` is one: 9.999999974752427e-07 is 1e-06."""
    if single(number) != number:
        return number
    return next((x for digits in range(1, 9) if single(x := float(f"{number:.{digits}g}")) == number), number)


def text(x: Any) -> str:
    """A constant, a scalar of a rule or an op, as text."""
    if isinstance(x, str):
        return x
    if isinstance(x, Lit):
        return text(x.value)
    if isinstance(x, Ref):
        return x.name
    if isinstance(x, Number):
        return text(x.value)
    if isinstance(x, View):
        return x.op.name
    if isinstance(x, Apply):
        return said(x)
    if x is None:
        return "none"
    if isinstance(x, torch.dtype):
        return NAMES.get(x, str(x))
    if isinstance(x, float):
        return short(as_written(x))
    return {True: "true", False: "false"}[x] if isinstance(x, bool) else str(x)
