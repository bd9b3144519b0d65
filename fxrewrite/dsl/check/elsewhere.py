"""What a name of Python, torch or NumPy is called here: the hints for those who come from there."""

from __future__ import annotations

from fxrewrite.dsl.check.builtins import BUILTINS, DTYPES
from fxrewrite.dsl.formats import DTYPE_HINTS

MODULES = ("torch", "F", "nn", "np", "numpy", "math", "tl", "triton", "jnp", "functional", "self")
_FUNCTIONS = {
    "max": "`amax(x, -1)` over an axis, `maximum(x, y)` of two",
    "min": "`minimum(x, y)` of two; over an axis `-amax(-x, -1)`",
    "view": "write `reshape(x, [T, D])`", "flatten": "write `reshape(x, [_])`",
    "squeeze": "write `reshape(x, [T])`", "view_as": "write `reshape(x, y.shape)`",
    "transpose": "write `permute(x, [1, 0])`", "t": "write `permute(x, [1, 0])`", "mT": "write `permute(x, [1, 0])`",
    "swapaxes": "write `permute(x, [1, 0])`",
    "concat": "write `cat([a, b], -1)`", "concatenate": "write `cat([a, b], -1)`", "hstack": "write `cat([a, b], -1)`",
    "mm": "write `a @ b`", "bmm": "write `a @ b`", "dot": "write `a @ b`", "einsum": "write `a @ b`",
    "linear": "write `x @ permute(w, [1, 0])`",
    "multiply": "write `a * b`", "divide": "write `a / b`", "subtract": "write `a - b`", "true_divide": "write `a / b`",
    "negative": "write `-x`", "absolute": "write `abs(x)`", "expit": "write `sigmoid(x)`", "inverse": "write `1 / x`",
    "cast": "write `to(x, bf16)`", "astype": "write `to(x, bf16)`", "type": "write `to(x, bf16)`",
    "clip": "write `clamp(x, lo, hi)`", "silu_": "write `silu(x)`", "swish": "write `silu(x)`",
    "softmax": "write it out: `e / sum(e, -1, keepdim=true) where e = exp(x - amax(x, -1, keepdim=true))`",
    "arange": "an operand holds positions: take it as a parameter", "narrow": "write `slice(x, d, a, b)`",
    "len": "write `x.shape[0]`", "size": "write `x.shape[d]`", "isinstance": "a type says it: `x: real[*B, D]`",
    "type_as": "write `to(x, y.dtype)`", "assert_": "write `requires c`",
}  # fmt: skip
_CASTS = {name: dtype for name, dtype in DTYPE_HINTS.items() if name.isalpha()}
_METHODS = {
    **{name: f"write `{dtype}({{x}})`" for name, dtype in _CASTS.items()},
    "bfloat16": "write `bf16({x})`",
    "contiguous": "write `clone({x})`; as a condition `contiguous({x})`",
    "view": "write `reshape({x}, [{args}])`", "reshape": "write `reshape({x}, [{args}])`",
    "permute": "write `permute({x}, [{args}])`", "size": "write `{x}.shape[{args}]`", "dim": "dims of types say it",
    "item": "take the number as an attribute: `; eps: float`", "numel": "write `numel({x})`",
}  # fmt: skip


def function_hint(name: str) -> str:
    """What to write for a function of another library, or nothing."""
    return _FUNCTIONS.get(name, "")


def method_hint(name: str, x: str, arguments: list[str]) -> str:
    """What to write for `x.name(arguments)`."""
    args = ", ".join(arguments)
    if name in _METHODS:
        return _METHODS[name].format(x=x, args=args)
    known = _FUNCTIONS.get(name) if name not in BUILTINS else None
    return known or f"write `{name}({', '.join([x, *map(_own_dtype, arguments)])})`"


def _own_dtype(text: str) -> str:
    """`torch.float32` as it is called here."""
    name = text.removeprefix("torch.")
    return DTYPE_HINTS.get(name, name if name in DTYPES else text)
