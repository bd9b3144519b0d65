"""Random straight-line programs: primitives of the language on two tensors, ending in one rounded output or several."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from fxrewrite.dsl.core import Dtype, Prim
from fxrewrite.verify.inputs import values
from fxrewrite.verify.straight import Recorder, Recording, record

WIDE, NARROW = "f32", ("bf16", "f16", "e4m3fn", "e4m3fnuz", "e5m2", "i8", "f32")
TOP = {"e4m3fn": 448.0, "e4m3fnuz": 240.0, "e5m2": 57344.0, "i8": 127.0}
LAST = ((-1,), True)


class Steps:
    """The primitives of an algebra as methods; what they give is in f32."""

    def __init__(self, algebra: Recorder):
        self.algebra = algebra

    def __call__(self, op: str, *args: Any, params: tuple[Any, ...] = ()) -> Any:
        return self.algebra.primitive(op, args, params, Prim(op, ()))

    def to(self, x: Any, dtype: str) -> Any:
        return self("to", x, params=(Dtype(dtype),))

    def through(self, x: Any, dtype: str) -> Any:
        """Rounded to a dtype, and f32 again."""
        return self.to(self.to(x, dtype), WIDE)

    def turned(self, x: Any) -> Any:
        """Rows and columns exchanged."""
        return self("permute", x, params=((1, 0),))

    def code(self, x: Any, dtype: str) -> Any:
        """What an output is: clamped where the format does not hold everything."""
        if dtype in TOP:
            x = self("clamp", self("round", x) if dtype == "i8" else x, -TOP[dtype], TOP[dtype])
        return self.to(x, dtype)


def _reduced(op: str) -> Callable[[Steps, Any, Any], Any]:
    return lambda s, a, b: s("mul", s(op, a, params=LAST), s("sub", b, a))


STEPS: dict[str, Callable[[Steps, Any, Any], Any]] = {
    **{op: lambda s, a, b, op=op: s(op, a, b) for op in "add sub mul maximum minimum".split()},
    **{op: lambda s, a, b, op=op: s(op, a) for op in "abs neg exp exp2 tanh erf sigmoid round ceil floor".split()},
    **{op: lambda s, a, b, op=op: s(op, s("abs", a)) for op in "sqrt rsqrt log log1p log2".split()},
    **{f"{op} of any": lambda s, a, b, op=op: s(op, a) for op in "sqrt rsqrt log log1p log2 reciprocal".split()},
    **{f"through {t}": lambda s, a, b, t=t: s.through(a, t) for t in ("bf16", "f16")},
    **{op: _reduced(op) for op in "amax sum mean var".split()},
    "div by a number": lambda s, a, b: s("div", a, 448.0),
    "div": lambda s, a, b: s("div", a, b),
    "by a number": lambda s, a, b: s("add", s("mul", a, 0.7978845608028654), 0.1),
    "clamp": lambda s, a, b: s("clamp", a, -448.0, 448.0),
    "bounded": lambda s, a, b: s("clamp", a, b, None),
    "centred": lambda s, a, b: s("sub", a, s("mean", a, params=LAST)),
    "power of two": lambda s, a, b: s("exp2", s("ceil", s("log2", s("clamp", s("abs", a), 1e-10, None)))),
    "turned": lambda s, a, b: s.turned(s("reshape", s.turned(a), params=((a.tensor.shape[1], a.tensor.shape[0]),))),
    "gate": lambda s, a, b: s("fdiv", a, s("add", s("exp", s("neg", b)), 1.0)),
    "e2m1": lambda s, a, b: s("round_e2m1", a),
    "product": lambda s, a, b: s("matmul", s("matmul", a, s.turned(b)), a),
    "scattered": lambda s, a, b: s("slice_scatter", a, s("slice", b, params=(-1, 0, 1, 1)), params=(-1, 0, 1, 1)),
    "all": lambda s, a, b: s("mul", s("amax", a, params=((), False)), b),
}


def random_program(seed: int, length: int, inputs: list[torch.Tensor]) -> Recording:
    """A program of about `length` steps, the same for the same seed."""
    choice = random.Random(seed)

    def definition(algebra: Recorder, operands: Any) -> dict[str, Any]:
        s = Steps(algebra)
        made = [s.to(x, WIDE) for x in operands]
        for _ in range(length):
            made.append(STEPS[choice.choice(list(STEPS))](s, choice.choice(made), choice.choice(made)))
        if choice.random() < 0.3:  # a scale and its codes
            scale = s("clamp", s("div", s("amax", s("abs", made[-1]), params=LAST), 448.0), 1e-6, None)
            return {"q": s.code(s("div", made[-1], scale), "e4m3fn"), "s": scale}
        return {"y": s.code(made[-1], choice.choice(NARROW)), "h": s.code(choice.choice(made), "bf16")}

    return record(definition, inputs)


def hostile(kinds: tuple[str, str], shape: tuple[int, int], seed: int) -> list[torch.Tensor]:
    """Two tensors of kinds of values."""
    generator = torch.Generator().manual_seed(seed)
    return [values(kind, shape, torch.bfloat16, generator) for kind in kinds]
