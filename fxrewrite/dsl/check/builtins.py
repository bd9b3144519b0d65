"""The functions that the language has built in: how each is called, and what primitive it makes.

A new built-in is one line in `BUILTINS` and, where its type does not follow its first argument, one in `typing.MAKERS`.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from fxrewrite.dsl.core import BINARY, UNARY, Lit

REQUIRED: Any = object()
DTYPES = "bf16 f16 f32 f64 e4m3fn e4m3fnuz e5m2 e8m0fnu i8 i16 i32 i64 u8 bool".split()


@frozen
class Argument:
    """One parameter of a built-in: `kind` is "tensor", "tensors" (a list), or "scalar"."""

    name: str
    kind: str
    default: Any = REQUIRED


@frozen
class Builtin:
    """`prim`: the primitive that it makes (`typing.build` knows the ones that make more than one).

    `aten`: an aten op of this name with these arguments is the same function.
    """

    prim: str
    arguments: tuple[Argument, ...]
    aten: bool


def _parse(prim: str, text: str, aten: bool) -> Builtin:
    """Arguments from `"x lo? ; dims=all"`: tensors before the semicolon, scalars after it; `?`: may be `none`."""
    tensors, _, scalars = text.partition(";")
    arguments: list[Argument] = []
    for word in tensors.split():
        kind = "tensors" if word[0] == "*" else "tensor"
        arguments.append(Argument(word.strip("*?"), kind, Lit(None) if word.endswith("?") else REQUIRED))
    for word in scalars.split():
        name, has_default, default = word.partition("=")
        arguments.append(Argument(name, "scalar", _DEFAULTS[default] if has_default else REQUIRED))
    return Builtin(prim, tuple(arguments), aten)


_DEFAULTS: dict[str, Lit] = {
    "all": Lit(()),
    "false": Lit(False),
    "none": Lit(None),
    "0": Lit(0),
    "1": Lit(1),
    "-1": Lit(-1),
}
_NOT_ATEN = frozenset(  # aten.var divides by n - 1; aten.zeros takes more, aten.real is spelled by its parts
    "to fdiv var view_dtype zeros real_part imag_part round_e2m1 pack2 pack4 swizzle psum pshard pconcat".split()
)

BUILTINS: dict[str, Builtin] = {
    name: _parse(prim, text, name not in _NOT_ATEN)
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
        # torch ops with a type
        ("addmm", "addmm", "b x w"),
        ("stack", "stack", "*xs ; dim=0"),
        ("constant_pad_nd", "constant_pad_nd", "x ; pad value=0"),
        ("index_put", "index_put", "x *at y"),
        ("view_dtype", "view_dtype", "x ; dtype"),
        ("view_as_complex", "view_as_complex", "x"),
        ("view_as_real", "view_as_real", "x"),
        ("real_part", "real_part", "x"),
        ("imag_part", "imag_part", "x"),
        ("zeros", "zeros", "; shape dtype"),
        ("zeros_like", "zeros_like", "x"),
        # narrow formats, and their scales
        ("round_e2m1", "round_e2m1", "x"),
        ("pack2", "pack2", "x"),
        ("pack4", "pack4", "x"),
        ("swizzle", "swizzle", "x"),
        # over ranks
        ("psum", "psum", "x ; group"),
        ("pshard", "pshard", "x ; dim group"),
        ("pconcat", "pconcat", "x ; dim group"),
    ]
}
ATEN: dict[str, str] = {  # aten ops, overloads aside, that are a built-in of another name or of the same
    **{name: name for name, spec in BUILTINS.items() if spec.aten},
    "mm": "matmul",
}
REST = ("clone",)  # built-ins that may be called with `...`: arguments of the aten op that change no value

FACTS = ("sm", "rocm", "world", "tokens")  # names of the machine and of the site, for conditions

PREDICATES: dict[str, int] = {  # functions of conditions and scalars, with the number of their arguments
    **dict.fromkeys("rows bytes contiguous fresh donated written replicated identity numel".split(), 1),
    **dict.fromkeys("broadcasts same_shape same_layout widens compose up sizes fill".split(), 2),
    "covers": 3,
}
OF_LISTS = ("covers", "sizes", "fill")  # names that an `each` binds stand here for all their values

RESERVED: frozenset[str] = frozenset((*BUILTINS, *PREDICATES, *FACTS, *DTYPES, "finfo"))  # no item is called so
