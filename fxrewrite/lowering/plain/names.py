"""Names and scalars of rules as Python."""

from __future__ import annotations

import keyword
import re
from typing import Any

from fxrewrite.dsl.core import Dtype, Lit, Ref
from fxrewrite.lowering.plain.choices import Dead
from fxrewrite.patterns.dtypes import to_graph

TAKEN = {
    "CallFunction", "KeywordArg", "MultiOutputPattern", "aten", "bound", "either", "every", "holds", "k", "match",
    "number", "one", "order", "prims", "result", "same", "torch",
}  # fmt: skip
NUMBERED = re.compile(r"(n|r)\d+|(dtype|shape|size)_\d+")


def safe(name: str) -> str:
    """A name that neither Python nor the emitted functions use otherwise."""
    return f"{name}_" if keyword.iskeyword(name) or name in TAKEN or NUMBERED.fullmatch(name) else name


def scalar_text(a: Any) -> str:
    """An attribute of a call. Raises Dead where it is computed."""
    if isinstance(a, Ref):
        return safe(a.name)
    if isinstance(a, Lit | Dtype):
        return value_text(a.value if isinstance(a, Lit) else a)
    raise Dead("its right side computes an attribute")


def value_text(value: Any) -> str:
    """A number, a string, a dtype, None."""
    if isinstance(value, Dtype):
        return str(to_graph(value))
    return string(value) if isinstance(value, str) else repr(value)


def string(text: str) -> str:
    """A string literal as formatters write it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
