"""Exact helpers that generated kernels are made of, as text: each kernel carries those that it uses.

Sources: PTX ISA for `rcp.approx.ftz.f32` (1 ulp) and `cvt.rn.satfinite`; OCP 8-bit Floating Point 1.0 for E4M3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HEAD = "import triton\nimport triton.language as tl\n"
LIBDEVICE = "from triton.language.extra import libdevice\n"

MAXIMUM = '''
@triton.jit
def _max(a, b):
    """The larger; NaN stays NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
'''
RCP = '''
@triton.jit
def _rcp(b):
    """About 1 / b."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [b], dtype=tl.float32, is_pure=True, pack=1)
'''
RECIPROCAL = '''
@triton.jit
def _reciprocal(b):
    """1 / b, correctly rounded for 2^-126 < |b| < 2^126. Minus is a product: Triton's own is 0 - x."""
    r = _rcp(b)
    return tl.fma(tl.fma(b * -1.0, r, 1.0), r, r)
'''
BY_ROW = '''
@triton.jit
def _by_row(a, b, r, z):
    """a / b where r is 1 / b, rounded once for the row, and z is r too; b and z are 0 outside of _in_range."""
    q = a * r
    p = tl.fma(tl.fma(b, q, a * -1.0) * -1.0, z, q)
    return tl.where(p == p, p, q)
'''
BY_ROW_BOUNDED = '''
@triton.jit
def _by_row_bounded(a, b, r, z):
    """As _by_row where |a / b| is known to be small."""
    q = a * r
    return tl.fma(tl.fma(b, q, a * -1.0) * -1.0, z, q)
'''
IN_RANGE = '''
@triton.jit
def _in_range(b):
    """Is |b| within 2^-100 and 2^126, so that the steps of _by_row are exact?"""
    return (tl.abs(b) > 7.9e-31) & (tl.abs(b) < 8.5e37)
'''
TO_RANGE = '''
@triton.jit
def _to_range(b):
    """The power of two that brings a tiny or huge b into the range of _by_row, with what is divided by it."""
    less = tl.where(tl.abs(b) > 1.2e30, 5.421010862427522e-20, 1.0)
    return tl.where(tl.abs(b) < 1e-30, 18446744073709551616.0, less)
'''
HOLD = '''
@triton.jit
def _hold(v):
    """A bfloat16 tile that stays packed in registers: the compiler would keep its float32 copy alive."""
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=tl.bfloat16, is_pure=True, pack=2)
'''
E4M3 = '''
@triton.jit
def _e4m3(v):
    """To E4M3: to the nearest, ties to even; saturates, keeps NaN (cvt.rn.satfinite)."""
    return v.to(tl.float8e4nv)
'''

# ---- the interpreter of Triton 3.6 truncates float32 to bfloat16, loses subnormal bfloat16 both ways, and carries on
# the way to FP8: there, all of it is integer arithmetic

BF16_BY_HAND = '''
@triton.jit
def _bf16(v):
    """To the nearest bfloat16, ties to even."""
    b = v.to(tl.uint32, bitcast=True)
    code = (b + 0x7fff + ((b >> 16) & 1)) >> 16
    return tl.where(v == v, code, 0x7fc0).to(tl.uint16).to(tl.bfloat16, bitcast=True)
'''
F32_BY_HAND = '''
@triton.jit
def _f32(v):
    """A bfloat16 in float32."""
    return (v.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
'''
E4M3_BY_HAND = '''
@triton.jit
def _e4m3(v):
    """The code of E4M3 as a byte: to the nearest, ties to even; saturates, keeps NaN; by integer arithmetic."""
    size = tl.minimum(tl.abs(v), 448.0)
    b = size.to(tl.uint32, bitcast=True)
    normal = ((b + 0x7ffff + ((b >> 20) & 1)) >> 20) - 960
    small = (size * 512.0 + 8388608.0).to(tl.uint32, bitcast=True) - 0x4b000000
    code = tl.where(size < 0.015625, small, normal)
    code = tl.where(v == v, code, 0x7f)
    return (code | ((v.to(tl.uint32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)
'''
TANH_BY_EXP = '''
@triton.jit
def _tanh(v):
    """1 - 2 / (exp(2v) + 1): the interpreter has no tanh."""
    return 1.0 - 2.0 / (tl.exp(v * 2.0) + 1.0)
'''
ROW_MAX = '''
@triton.jit
def _row_max(v, axis: tl.constexpr, keep: tl.constexpr):
    """The largest along an axis; NaN stays NaN."""
    return tl.reduce(v, axis, _max, keep_dims=keep)
'''
ROW_MAX_BY_HAND = '''
@triton.jit
def _row_max(v, axis: tl.constexpr, keep: tl.constexpr):
    """The largest along an axis; NaN stays NaN, which the interpreter's maximum drops."""
    lost = tl.max((v != v).to(tl.int32), axis, keep_dims=keep)
    return tl.where(lost > 0, float("nan"), tl.max(v, axis, keep_dims=keep))
'''
ROUND_BY_HAND = '''
@triton.jit
def _round(v):
    """To the nearest integer, ties to even, with the sign of v."""
    near = (tl.abs(v) + 8388608.0) - 8388608.0
    near = tl.where(v < 0.0, near * -1.0, near)
    near = tl.where(near == 0.0, v * 0.0, near)
    return tl.where(tl.abs(v) < 8388608.0, near, v)
'''

DEVICE: dict[str, str] = {
    "_max": MAXIMUM, "_rcp": RCP, "_reciprocal": RECIPROCAL, "_by_row": BY_ROW, "_by_row_bounded": BY_ROW_BOUNDED,
    "_in_range": IN_RANGE, "_to_range": TO_RANGE, "_hold": HOLD, "_e4m3": E4M3, "_row_max": ROW_MAX,
}  # fmt: skip
INTERPRETED: dict[str, str] = {
    "_row_max": ROW_MAX_BY_HAND, "_bf16": BF16_BY_HAND, "_f32": F32_BY_HAND,
    "_e4m3": E4M3_BY_HAND, "_tanh": TANH_BY_EXP,
    "_round": ROUND_BY_HAND,
}  # fmt: skip


def text(used: Iterable[str], interpreted: bool) -> str:
    """Imports, and the helpers of these names with those that they call."""
    known = INTERPRETED if interpreted else DEVICE
    wanted = set(used)
    for name in reversed(known):  # a helper stands behind those that it calls
        if name in wanted:
            wanted |= {other for other in known if other != name and re.search(rf"\b{other}\b", known[name])}
    helpers = "\n".join(source for name, source in known.items() if name in wanted)
    return HEAD + ("" if interpreted else LIBDEVICE) + "\n" + helpers


__all__ = ["DEVICE", "INTERPRETED", "text"]
