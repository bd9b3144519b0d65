"""Narrow formats: the primitives over everything that they can be given, and the ops against a reference in numpy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fxrewrite import ops
from fxrewrite.lowering.eager import PRIMITIVES
from fxrewrite.lowering.layouts import stored_shape
from fxrewrite.lowering.packing import codes_e2m1, pack2, pack4, round_e2m1, swizzle

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # OCP MX 1.0, table 5: codes 0 to 7; 8 to 15 are these, negative
E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
LOW = (torch.bfloat16, torch.float16)


def raw(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def nearest(x: float) -> tuple[float, bool]:
    """The value of E2M1 nearest to x, by exact arithmetic, the even code on ties; and is it negative?"""
    negative = np.signbit(x)
    size = Fraction(abs(x)) if np.isfinite(x) else Fraction(10)
    code = min(range(8), key=lambda c: (abs(Fraction(E2M1[c]) - size), c % 2))
    return E2M1[code], bool(negative)


# ---- round_e2m1


def interesting() -> Tensor:
    """Values, midpoints, both with their neighbours, what saturates, zeros, subnormals, all of both signs."""
    values = np.array(E2M1, dtype=np.float32)
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, np.array([7, 100, 3.4e38], dtype=np.float32)])
    near = [np.nextafter(points, np.float32(s)).astype(np.float32) for s in (np.inf, -np.inf)]
    tiny = np.array([1e-45, 1.1754944e-38, 1e-30], dtype=np.float32)
    sizes = np.abs(np.concatenate([points, *near, tiny]))
    return torch.from_numpy(np.concatenate([sizes, -sizes]))


def test_every_midpoint_and_its_neighbours() -> None:
    x = interesting()
    found = round_e2m1(x)
    for given, got in zip(x.tolist(), found.tolist()):
        size, negative = nearest(given)
        assert (abs(got), bool(np.signbit(got))) == (size, negative), given


def test_midpoints_go_to_the_even_mantissa() -> None:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert round_e2m1(ties).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert round_e2m1(-ties).tolist() == [-0.0, -1.0, -1.0, -2.0, -2.0, -4.0, -4.0]


@pytest.mark.parametrize("dtype", LOW)
def test_every_16_bit_value(dtype: torch.dtype) -> None:
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype).float()
    x = x[~x.isnan()]
    table = torch.tensor(E2M1)
    distance = (x.abs().clamp(max=6)[:, None] - table).abs()
    best = distance.amin(-1, keepdim=True)
    even = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # the first of equal distance: even codes first
    code = even[(distance[:, even] == best).int().argmax(-1)]
    assert torch.equal(round_e2m1(x).abs(), table[code])
    assert torch.equal(torch.signbit(round_e2m1(x)), torch.signbit(x))


def test_what_the_format_does_not_have() -> None:
    x = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    found = round_e2m1(x)
    assert found.tolist() == [6.0, 6.0, 6.0, -6.0, 0.0, -0.0]
    assert torch.signbit(found).tolist() == [False, False, False, True, False, True]


# ---- packing


def test_all_16_codes() -> None:
    values = torch.tensor([*E2M1, *(-v for v in E2M1)])
    assert codes_e2m1(values).tolist() == list(range(16))
    assert torch.equal(round_e2m1(values), values)


def test_every_byte_of_two_codes() -> None:
    values = torch.tensor([*E2M1, *(-v for v in E2M1)])
    low, high = values.repeat(16), values.repeat_interleave(16)
    packed = pack2(torch.stack([low, high], -1).flatten())
    assert packed.tolist() == list(range(256))  # the first of two in the low nibble
    assert pack2(torch.zeros(3, 2, 8)).shape == (3, 2, 4)


def test_four_exponents_to_an_int32() -> None:
    parts = torch.randint(0, 256, (5, 12), dtype=torch.uint8)
    packed = pack4(parts.view(E8M0))
    assert packed.dtype == torch.int32
    assert packed.numpy().astype("<i4").tobytes() == parts.numpy().tobytes()
    edge = torch.tensor([[255, 254, 128, 255]], dtype=torch.uint8)
    assert pack4(edge.view(E8M0)).item() == int.from_bytes(bytes([255, 254, 128, 255]), "little", signed=True)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (129, 5), (300, 17), (32, 8), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.uint8, E4M3, E8M0])
def test_scales_in_tiles(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Byte by byte, by the formula of the cuBLAS documentation; what is no scale is a zero byte."""
    parts = torch.randint(1, 120, shape, dtype=torch.uint8)
    found = swizzle(parts.view(dtype))
    assert found.dtype == dtype
    assert found.shape == stored_shape(shape, "swizzled")
    across = found.shape[1] // 4
    flat, expected = raw(found).flatten(), torch.zeros(found.numel(), dtype=torch.uint8)
    for r in range(shape[0]):
        for c in range(shape[1]):
            tile = (r // 128) * across + c // 4
            expected[tile * 512 + (r % 32) * 16 + (r % 128 // 32) * 4 + c % 4] = parts[r, c]
    assert torch.equal(flat, expected)


def test_the_language_names_these_functions() -> None:
    named: dict[str, Callable[..., Any]] = {
        "round_e2m1": round_e2m1,
        "pack2": pack2,
        "pack4": pack4,
        "swizzle": swizzle,
    }
    assert all(PRIMITIVES[n] is f for n, f in named.items())


# ---- ops against numpy


def rows(dtype: torch.dtype, width: int = 128) -> Tensor:
    """Normal, zero, tiny, huge and subnormal rows, ties, powers of two, one outlier, minus zero."""
    info = torch.finfo(dtype)
    x = torch.randn(16, width, generator=torch.Generator().manual_seed(3))
    x[0], x[1], x[2], x[3] = 0.0, -0.0, x[2] * info.tiny, x[3] * info.tiny / 8
    x[4] *= info.max / 8
    x[5] = 2.0 ** torch.arange(width).remainder(20).sub(8)
    x[6] = torch.tensor([*E2M1, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0]).repeat(width // 16)
    x[7, 3] = 1000.0
    x[8] = torch.nextafter(x[5], torch.tensor(torch.inf))
    x[9] = -x[6]
    return x.clamp(-info.max, info.max).to(dtype)


def mx_exponent(block: np.ndarray[Any, Any], top: int) -> int:
    """The shared exponent of OCP MX 1.0, section 6.3: of the largest, less that of the largest code."""
    largest = float(np.abs(block).max())
    return max(int(np.frexp(largest)[1]) - 1 - top, -127) if largest else -127


def e2m1_code(x: float) -> int:
    size, negative = nearest(x)
    return E2M1.index(size) + 8 * negative


@pytest.mark.parametrize("dtype", LOW)
def test_mxfp4(dtype: torch.dtype) -> None:
    x = rows(dtype)
    codes, scales = ops.quant_mxfp4(x)
    assert (codes.shape, scales.shape, scales.dtype) == ((16, 64), (16, 4), E8M0)
    for row, got, exponents in zip(x.double().numpy(), codes.tolist(), raw(scales).tolist()):
        blocks = row.reshape(-1, 32)
        found = [mx_exponent(b, 2) for b in blocks]
        assert exponents == [e + 127 for e in found]
        wanted = [e2m1_code(float(v / 2.0**e)) for b, e in zip(blocks, found) for v in b]
        assert got == [a + 16 * b for a, b in zip(wanted[::2], wanted[1::2])]


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("qt", "top", "largest"), [(E4M3, 8, 448.0), (E5M2, 15, 57344.0)])
def test_mxfp8(dtype: torch.dtype, qt: torch.dtype, top: int, largest: float) -> None:
    x = rows(dtype)
    codes, scales = ops.quant_mxfp8(x, qt=qt)
    for row, got, exponents in zip(x.double(), codes, raw(scales).tolist()):
        blocks = row.reshape(-1, 32)
        found = [mx_exponent(b.numpy(), top) for b in blocks]
        assert exponents == [e + 127 for e in found]
        exact = torch.cat([b / 2.0**e for b, e in zip(blocks, found)])
        wanted = exact.clamp(-largest, largest).float().to(qt)  # division by a power of two is exact
        assert torch.equal(raw(got), raw(wanted))


@pytest.mark.parametrize("dtype", LOW)
def test_the_exponent_of_every_value(dtype: torch.dtype) -> None:
    """floor(log2(x)) in float32 is the exponent of x, whatever 16-bit value the largest of a block is."""
    x = torch.arange(1, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    block = torch.zeros(len(x), 32, dtype=dtype)
    block[:, 5] = x
    expected = (torch.frexp(x.float())[1] - 1 - 2).clamp(min=-127) + 127
    assert torch.equal(raw(ops.quant_mxfp4(block)[1]).flatten().int(), expected.int())


def test_blocks_with_what_is_no_number() -> None:
    x = torch.ones(2, 32).bfloat16()
    x[0, 3], x[1, 3] = float("nan"), float("inf")
    codes, scales = ops.quant_mxfp8(x)
    assert raw(scales).flatten().tolist() == [255, 255]  # NaN of E8M0
    assert codes.float().isnan().all()


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("gs", [1.0, 100.0, 0.013])
def test_nvfp4(dtype: torch.dtype, gs: float) -> None:
    """Step by step in float32: the scale is gs * (amax * RN(1/6)) as E4M3, and x goes times 1 / (scale * (1 / gs))."""
    x, one, f = rows(dtype), np.float32(1), np.float32(gs)
    codes, scales = ops.quant_nvfp4(x, torch.tensor([gs]), L="row")
    for row, got, given in zip(x.float().numpy(), codes.tolist(), scales):
        wanted: list[int] = []
        for block, scale in zip(row.reshape(-1, 16), given):
            with np.errstate(over="ignore"):
                exact = f * (np.abs(block).max() * np.float32(1 / 6))
            assert torch.equal(raw(scale), raw(torch.tensor(min(exact, 448.0)).to(E4M3)))
            s = np.float32(scale.float().item())
            factor = one / (s * (one / f)) if s else np.float32(0)
            with np.errstate(over="ignore"):
                wanted += [e2m1_code(float(v * factor)) for v in block]
        assert got == [a + 16 * b for a, b in zip(wanted[::2], wanted[1::2])]


def test_nvfp4_in_tiles() -> None:
    x, gs = torch.randn(130, 128).bfloat16(), torch.tensor([200.0])
    flat, tiles = ops.quant_nvfp4(x, gs, L="row"), ops.quant_nvfp4(x, gs)
    assert torch.equal(flat[0], tiles[0])
    assert (tiles[1].shape, tiles[1].dtype) == ((256, 8), E4M3)
    assert torch.equal(raw(tiles[1]), raw(swizzle(flat[1])))


def test_packed_group_scales() -> None:
    x = rows(torch.bfloat16, 512)
    codes, packed = ops.quant_fp8_group_packed(x, G=64)
    plain, scales = ops.quant_fp8_group(x, G=64, ue8m0=True)
    assert torch.equal(raw(codes), raw(plain))
    assert (packed.shape, packed.dtype, packed.stride()) == ((16, 2), torch.int32, (1, 16))
    exponents = [[np.frexp(s)[1] - 1 + 127 for s in row] for row in scales.tolist()]
    wanted = [[int.from_bytes(bytes(e[i : i + 4]), "little", signed=True) for i in (0, 4)] for e in exponents]
    assert packed.tolist() == wanted
