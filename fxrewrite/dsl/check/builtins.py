"""The functions that the language has built in: how each is called, and what term it makes.

`TENSOR` arguments become terms, `SCALAR` ones scalars. A new built-in is one line in `BUILTINS` and, where its type does not follow
its first argument, one line in `typing.RESULT_TYPES`.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from fxrewrite.dsl.core import BINARY, UNARY, Lit

REQUIRED: Any = object()


@frozen
class Argument:
    """One parameter of a built-in: `kind` is "tensor", "tensors" (a list), or "scalar"."""

    name: str
    kind: str
    default: Any = REQUIRED


@frozen
class Builtin:
    """`prim`: the primitive that it makes (`typing.build` knows the ones that make more than one)."""

    prim: str
    arguments: tuple[Argument, ...]


def _parse(prim: str, text: str) -> Builtin:
    """`"x ; dims=() keepdim=false"`: tensors before the semicolon, scalars after it; `?` marks one that may be `none`."""
    tensors, _, scalars = text.partition(";")
    arguments: list[Argument] = []
    for word in tensors.split():
        kind = "tensors" if word[0] == "*" else "tensor"
        arguments.append(Argument(word.strip("*?"), kind, Lit(None) if word.endswith("?") else REQUIRED))
    for word in scalars.split():
        name, has_default, default = word.partition("=")
        arguments.append(Argument(name, "scalar", _DEFAULTS[default] if has_default else REQUIRED))
    return Builtin(prim, tuple(arguments))


_DEFAULTS: dict[str, Lit] = {
    "all": Lit(()),
    "false": Lit(False),
    "none": Lit(None),
    "0": Lit(0),
    "1": Lit(1),
    "-1": Lit(-1),
}

BUILTINS: dict[str, Builtin] = {
    name: _parse(prim, text)
    for name, prim, text in [
        *((op, op, "x") for op in UNARY),
        *((op, op, "x y") for op in BINARY),
        ("to", "to", "x ; dtype"),
        ("clamp", "clamp", "x lo? hi?"),
        ("clamp_min", "clamp", "x lo"),
        ("clamp_max", "clamp", "x hi"),
        ("relu", "relu", "x"),
        ("square", "square", "x"),
        ("pow", "pow", "x ; exponent"),
        ("amax", "amax", "x ; dims=all keepdim=false"),
        ("mean", "mean", "x ; dims=all keepdim=false"),
        ("sum", "sum", "x ; dims=all keepdim=false"),
        ("var", "var", "x ; dims=all keepdim=false"),
        ("reshape", "reshape", "x ; shape"),
        ("expand", "expand", "x ; shape"),
        ("permute", "permute", "x ; order"),
        ("unsqueeze", "unsqueeze", "x ; dim"),
        ("slice", "slice", "x ; dim=0 start=0 stop=none step=1"),
        ("slice_scatter", "slice_scatter", "x y ; dim=0 start=0 stop=none step=1"),
        ("cat", "cat", "*xs ; dim=0"),
        ("split", "split", "x ; sizes dim=0"),
        ("chunk", "chunk", "x ; chunks dim=0"),
        ("clone", "clone", "x"),
        ("matmul", "matmul", "x y"),
    ]
}

FACTS = ("sm", "rocm", "world", "tokens")  # names of the machine and of the site, for conditions
PREDICATES = (
    "rows bytes contiguous fresh donated written broadcasts replicated same_shape same_layout identity widens compose up numel"
).split()  # functions of conditions and scalars
