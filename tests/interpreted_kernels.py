"""Run by `test_kernels.py` in a process where Triton interprets: checks kernels, prints one JSON object of outcomes.

TRITON_INTERPRET=1 python tests/interpreted_kernels.py SUITE ...
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from fxrewrite_kernels.emit import INTERPRETER
from fxrewrite_kernels.ir import Builder, Input, Output, define_kernel
from fxrewrite_kernels.launch import Launcher
from fxrewrite_kernels.schedule import Schedule

from fxrewrite.dsl import packs
from fxrewrite.dsl.core import Program
from generated_ops import PACKS, bits, check, expressible

Cases = Iterator[tuple[str, tuple[str, str, int, int], dict[str, Any]]]  # id, (op, dtype, width, rows), how
ROWS = [
    Schedule("row", 128, 4), Schedule("row", 256, 4, rows=2), Schedule("row", 128, 4, per_sm=1),
    Schedule("row", 512, 4, rows=4), Schedule("loop", 128, 4), Schedule("loop", 256, 4),
]  # fmt: skip
TILES = [Schedule("tile", 128, 4), Schedule("tile", 256, 4, rows=2, cg=True), Schedule("tile", 512, 4, rows=4)]
BY_ROW = ("add_rms_norm_fp8_group", "layer_norm_fp8", "swiglu_clamped_fp8", "silu_mul_int8")
BY_TILE = ("silu_mul_fp8_group", "swiglu_clamped_fp8_group", "silu_and_mul_fp8_static", "gelu_fp8_static")
VARIANTS: dict[str, tuple[Any, ...]] = {
    "recip": (True,), "wide": (True,), "late": (True,), "narrow": (True,), "ue8m0": (True,), "L": ("col", "tma"),
    "approximate": ("tanh",), "smin": (0.0,), "qeps": (0.0,), "bound": (True,), "weight": ("f32", "none"),
}  # fmt: skip
LAYOUTS = {1: "plain", 3: "odd", 17: "strided"}


def sizes(program: Program, names: list[str]) -> Cases:
    """Every fusion at three widths, one with a last tile that is not full, and 0, 1, 3, 17 rows; ops at 1 and 3."""
    for name in names:
        groups = program.ops[name].attribute("G") is not None
        for width in (128 if groups else 100, 384, 1152):
            for rows in (0, 1, 3, 17) if program.ops[name].is_fusion else (1, 3):
                how = {"layout": LAYOUTS.get(rows, "plain")}
                yield f"{name} {width} {rows}", (name, "bf16", width, rows), how


def variants(program: Program, names: list[str]) -> Cases:
    """Every attribute that changes roundings or layouts, and float16, of every fusion."""
    for name in (n for n in names if program.ops[n].is_fusion):
        op = program.ops[name]
        yield f"{name} f16", (name, "f16", 384, 3), {}
        operands = {o.name: o.optional for o in op.operands}
        for attribute, values in VARIANTS.items():
            known = {"bound": "ub" in operands, "weight": "w" in operands}
            for value in values if known.get(attribute, op.attribute(attribute) is not None) else ():
                if value != "none" or operands["w"]:
                    yield f"{name} {attribute}={value}", (name, "bf16", 384, 3), {attribute: value}


def schedules(program: Program, names: list[str]) -> Cases:
    """Every kind of schedule, with tiles that do not divide the width."""
    for ops, found in ((BY_ROW, ROWS), (BY_TILE, TILES)):
        for name in ops:
            for i, schedule in enumerate(found):
                yield f"{name} {i}", (name, "bf16", 384, 5), {"schedule": schedule, "layout": "strided"}
                if i % 2 == 0:
                    yield f"{name} {i} f16", (name, "f16", 640, 5), {"schedule": schedule, "layout": "odd"}


def hostile(program: Program, names: list[str]) -> Cases:
    """Rows of zeros of both signs, infinities, NaN, subnormal and huge values, alone and everywhere."""
    for name in (n for n in names if program.ops[n].is_fusion):
        yield f"{name} hostile", (name, "bf16", 384, 18), {"hostile": True}


def casts() -> dict[str, int]:
    """How many of the codes of E4M3, midpoints and their neighbours, and of float32 values on the way to bfloat16,
    are rounded wrongly."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    finite = codes[codes.isfinite()].unique()
    middle = (finite[1:] + finite[:-1]) / 2
    inf = torch.tensor(torch.inf)
    near = [middle, torch.nextafter(middle, inf), torch.nextafter(middle, -inf)]
    extreme = torch.tensor([464.0, 465.0, 1e30, torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-40, -1e-40])
    x = torch.cat([codes, *near, extreme, -extreme])
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(-(2**31), 2**31 - 1, (4096,), generator=generator, dtype=torch.int64).to(torch.int32)
    ties = (patterns & -65536) | 0x8000
    wide = torch.cat([patterns, ties, ties + 1, ties - 1]).view(torch.float32)
    wide = wide[~wide.isnan()]
    return {
        "e4m3": differing(x, "e4m3fn", x.clamp(-448, 448).to(torch.float8_e4m3fn)),
        "bf16": differing(wide, "bf16", wide.bfloat16()),
    }


def differing(x: torch.Tensor, dtype: str, wanted: torch.Tensor) -> int:
    """How many values a kernel that only casts gets wrong; a NaN is a NaN."""
    build, source = Builder(), Input("x", "rows", "f32", len(x))
    made = define_kernel("cast", [source], [Output("y", build.to(build.load(source), dtype))], len(x))
    launcher = Launcher(made, INTERPRETER)
    (found,) = launcher.results(1, x.device)
    launcher([x[None]], [found], Schedule("tile", 1 << (len(x) - 1).bit_length(), 4))
    same = (bits(found[0]) == bits(wanted)) | (found[0].float().isnan() & wanted.float().isnan())
    return int((~same).sum())


SUITES = {"sizes": sizes, "variants": variants, "schedules": schedules, "hostile": hostile}


def outcomes(suite: str, program: Program, names: list[str]) -> dict[str, Any]:
    """Case -> [rows that are not explained, rows that only a moved sum explains], or what was raised."""
    found: dict[str, Any] = {}
    for case, what, how in SUITES[suite](program, names):
        try:
            outcome = check(program, *what, **how)
            found[case] = [outcome.unexplained, outcome.moved]
        except Exception as error:  # noqa: BLE001  the test that reads this says it
            found[case] = f"{type(error).__name__}: {error}"
    return found


def ops(program: Program) -> dict[str, Any]:
    """The registered ops on a CPU: what `opcheck` says, and whether results are those of the definition's op."""
    from fxrewrite.lowering import generated, library

    x, s = torch.randn(2, 3, 256).bfloat16(), torch.tensor([0.02])
    rows, w = torch.randn(5, 256).bfloat16(), torch.randn(256).bfloat16()
    pairs = [(generated.op_for(program, n), library.op_for(program, n)) for n in ("silu_and_mul_fp8_static", "silu")]
    group = {"eps": 1e-6, "G": 128, "L": "tma", "ue8m0": True, "qeps": 1e-10, "smin": 0.0, "qt": torch.float8_e4m3fn}
    each = {"eps": 1e-6, "recip": False, "qt": torch.float8_e4m3fn}
    by_group = [f.op_for(program, "add_rms_norm_fp8_group")(rows, rows, w, **group) for f in (generated, library)]
    lists = [
        f.op_for(program, "add_rms_norm_fp8_static_each")(rows, rows, w, [s, s], **each) for f in (generated, library)
    ]
    torch.library.opcheck(generated.op_for(program, "silu"), (rows.requires_grad_(),))
    torch.library.opcheck(generated.op_for(program, "quant_fp8"), (rows.detach(),))
    try:
        generated.op_for(program, "silu_mul")(x, x[:1])
        differ = ""
    except Exception as error:  # noqa: BLE001  what it says is looked at
        differ = "leading axes" if "leading axes" in str(error) else str(error)
    flat = [*by_group, *([*found[0], found[1]] for found in lists)]
    return {
        "opcheck": True,
        "equal": bool(torch.equal(bits(pairs[0][0](x, s)), bits(pairs[0][1](x, s))))
        and all(torch.equal(bits(a), bits(b)) for one, other in (flat[:2], flat[2:]) for a, b in zip(one, other)),
        "layouts": [r.stride() for r in by_group[0]] == [r.stride() for r in by_group[1]],
        "differ": differ,
    }


def main(suites: list[str]) -> None:
    warnings.simplefilter("ignore")  # numpy tells of each NaN
    program = packs.load(PACKS)
    names = list(expressible(program, list(program.ops)))
    found: dict[str, Any] = {s: outcomes(s, program, names) for s in suites if s in SUITES}
    if "casts" in suites:
        found["casts"] = casts()
    if "ops" in suites:
        found["ops"] = ops(program)
    print(json.dumps({"names": names, **found}))


if __name__ == "__main__":
    main(sys.argv[1:])
