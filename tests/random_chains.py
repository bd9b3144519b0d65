"""What random programs are made of: spellings of ops of the vocabulary and of the test's rules, and what is in the way.

program = program_of(17)    # the same each time; `FEATURED[17 % len(FEATURED)]` is in it
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from attrs import evolve

from fxrewrite.verify.programs import Builder, Impossible, Input, Program
from fxrewrite.verify.surroundings import AROUND, FLOATS, WRITES, Chain, between, like, source

LOW = FLOATS[:2]
FP8 = "torch.float8_e4m3fn"
KINDS = ("functional",) * 11 + ("core",) + ("as it is",) * 4 + ("dynamic", "dynamic", "aot", "export")
TWINS = 0.25  # of programs that have two inputs of one type: how often one tensor is given for both

FEATURED: dict[str, Chain] = {}  # rule -> the chain that spells its left side


def features(*rules: str) -> Callable[[Chain], Chain]:
    """Register the chain that spells these rules."""

    def register(chain: Chain) -> Chain:
        FEATURED.update(dict.fromkeys(rules, chain))
        return chain

    return register


# ---- operands


def fitting(b: Builder, x: str) -> str:
    """What broadcasts with `x`: mostly of its type, else a row, a 0-d or a one-element scale, or of another dtype."""
    if b.chance(0.75):
        return like(b, x)
    shape = b.draw.choice(((), (1,), b.shape(x)[-1:], b.shape(x)))
    return b.input(b.draw.choice(FLOATS), shape)


def weight(b: Builder, x: str) -> str:
    """One number a column, in the dtype of `x` or wider."""
    dtype = b.dtype(x) if b.chance(0.75) else torch.float32
    if b.chance(0.3):
        return b.pick(lambda v: v.dtype == dtype and v.shape == b.values[x].shape[-1:])
    return b.input(dtype, b.shape(x)[-1:])


def scale(b: Builder) -> str:
    """A scale of a tensor: one element, mostly with an axis."""
    shape = (1,) if b.chance(0.8) else ()
    if b.chance(0.4):
        return b.pick(lambda v: v.dtype == torch.float32 and v.shape == shape)
    return b.input(torch.float32, shape)


def either_way(b: Builder, x: str, op: str, y: str) -> str:
    """A commutative op, in one order or the other; eager torch rounds a 0-d factor first only where it stands first."""
    scalar = y in b.values and not b.shape(y)
    x, y = (x, y) if scalar or b.chance(0.5) else (y, x)
    return f"{x} {op} {y}" if op in "+*" else f"{op}({x}, {y})"


# ---- the test's rules


@features("negated_twice")
def negated_twice(b: Builder) -> None:
    x = source(b)
    b.results.append(b.let(f"-{between(b, b.let(f'-{x}'), 0.25)}"))


@features("abs_of_negated")
def abs_of_negated(b: Builder) -> None:
    b.results.append(b.let(f"{between(b, b.let(f'-{source(b)}'))}.abs()"))


@features("mul_add")
def mul_add(b: Builder) -> None:
    x = source(b)
    product = between(b, b.let(either_way(b, x, "*", fitting(b, x))))
    if b.chance(0.25):
        b.do(b.draw.choice(WRITES).format(x=b.draw.choice((x, product))))
    b.results.append(b.let(either_way(b, product, "+", fitting(b, product))))


@features("difference_scaled")
def difference_scaled(b: Builder) -> None:
    x = source(b)
    d = between(b, b.let(f"{x} - {like(b, x)}"))
    if b.chance(0.25):
        b.do(b.draw.choice(WRITES).format(x=b.draw.choice((x, d))))
    b.results.append(b.let(either_way(b, d, "*", fitting(b, d))))


@features("twice_plus_one", "thrice_plus_one")
def times_plus(b: Builder) -> None:
    product = b.let(either_way(b, source(b), "*", b.draw.choice(("2.0", "2", "3.0", "3", "2.5"))))
    b.results.append(b.let(either_way(b, between(b, product), "+", b.draw.choice(("1.0", "1", "1", "-1.0")))))


@features("leaky")
def leaky(b: Builder) -> None:
    x = source(b)
    a = b.input(torch.float32, ()) if b.chance(0.2) else b.draw.choice(("0.1", "0.01", "1", "1.5"))
    b.results.append(b.let(either_way(b, x, "torch.maximum", b.let(either_way(b, x, "*", a)))))


@features("divided")
def divided(b: Builder) -> None:
    bounds = "-4, 4" if b.chance(0.85) else b.draw.choice(("-4.5, 4", "-4, 5", "max=4"))
    x = source(b, (torch.float32,) * 3 + LOW)
    b.results.append(b.let(f"{between(b, b.let(f'{x} / {scale(b)}'))}.clamp({bounds})"))


@features("sum_and_product")
def sum_and_product(b: Builder) -> None:
    x = source(b)
    y = like(b, x)
    t = b.let(either_way(b, x, "+", y))
    results = [t, b.let(either_way(b, between(b, t), "*", y))]
    b.results += results if b.chance(0.6) else [b.draw.choice(results)]


@features("largest_and_rest")
def largest_and_rest(b: Builder) -> None:
    x = source(b)
    m = b.let(f"{x}.amax(-1, keepdim=True)")
    b.results += [m, b.let(f"{x} - {m}")] if b.chance(0.6) else [b.let(f"{x} - {m}")]


@features("halves_swapped")
def halves_swapped(b: Builder) -> None:
    x = source(b)
    half = b.shape(x)[-1] // 2
    first, second = (
        b.let(f"{x}.chunk(2, -1)", 2) if b.chance(0.5) else [b.let(f"{x}[..., :{half}]"), b.let(f"{x}[..., {half}:]")]
    )
    b.results.append(b.let(f"{second} - {first}" if b.chance(0.85) else f"{first} - {second}"))


@features("each_scaled")
def each_scaled(b: Builder) -> None:
    x = source(b)
    n = b.let(f"{x} - {like(b, x)}")
    for _ in range(b.draw.choice((2, 2, 3))):
        b.results.append(b.let(either_way(b, n, "*", like(b, x))))


@features("kept", "quotient")
def quotient(b: Builder) -> None:
    x = source(b)
    n = b.let(either_way(b, x, "+", like(b, x)))
    b.results.append(b.let(f"{between(b, n)} / {fitting(b, n)}"))
    if b.chance(0.5):
        b.results.append(b.draw.choice((n, b.let(f"{n}.abs()"), b.let(f"{n} / {like(b, n)}"))))


@features("centred_doubled")
def centred_doubled(b: Builder) -> None:
    x = source(b)
    c = between(b, b.let(f"{x} - {x}.amax(-1, keepdim=True)"), 0.4)
    b.results.append(b.let(f"{c} + {c}"))


# ---- the vocabulary


def rms_norm(b: Builder, x: str) -> str:
    """RMSNorm of `x` in one of its roundings."""
    eps = b.draw.choice(("1e-6", "1e-6", "1e-5", "1"))
    c = b.let(f"{x}.float()")
    squares = b.draw.choice((f"{c}.pow(2)", f"{c}.square()", f"{c} * {c}"))
    m = b.let(f"{b.let(squares)}.mean(-1, keepdim=True)")
    n = b.let(either_way(b, c, "*", b.let(f"torch.rsqrt({either_way(b, m, '+', eps)})")))
    kind = b.draw.choice(("early", "early", "early", "late", "gemma", "none"))
    if kind == "none":
        return b.let(f"{n}.to({x}.dtype)")
    w = weight(b, x)
    if kind == "early":
        n = b.let(f"{n}.to({w}.dtype)")
        return b.let(f"({either_way(b, n, '*', w)}).to({x}.dtype)")
    factor = f"{w}.float()" if kind == "late" else f"(1.0 + {w}.float())"
    return b.let(f"({either_way(b, n, '*', factor)}).to({x}.dtype)")


def add_rms_norm(b: Builder, x: str) -> str:
    """A residual sum, which is mostly returned too, and its norm."""
    h = b.let(either_way(b, x, "+", like(b, x)))
    if b.chance(0.7):
        b.results.append(h)
    return rms_norm(b, h)


def layer_norm(b: Builder, x: str) -> str:
    """torch's own."""
    w, bias = weight(b, x), weight(b, x)
    return b.let(f"F.layer_norm({x}, {x}.shape[-1:], {w}, {bias}, 1e-5)")


def silu_mul(b: Builder, x: str) -> str:
    """An activation times a gate."""
    act = b.draw.choice(("F.silu({x})", "F.silu({x})", "F.gelu({x})", "F.gelu({x}, approximate='tanh')"))
    return b.let(either_way(b, b.let(act.format(x=x)), "*", like(b, x)))


def silu_and_mul(b: Builder, x: str) -> str:
    """The same of the halves of one tensor."""
    if b.chance(0.5):
        g, u = b.let(f"{x}.chunk(2, -1)", 2)
    else:
        half = b.shape(x)[-1] // 2
        g, u = b.let(f"{x}[..., :{half}]"), b.let(f"{x}[..., {half}:]")
    return b.let(either_way(b, b.let(f"F.silu({g})"), "*", u))


def gelu(b: Builder, x: str) -> str:
    """An activation."""
    return b.let(f"F.gelu({x})")


def codes(b: Builder, y: str) -> str:
    """f32 to codes, saturated."""
    bound = "448" if b.chance(0.9) else "440"
    return b.let(f"{b.let(f'{y}.clamp(-{bound}, {bound})')}.to({FP8})")


def quant_static(b: Builder, x: str) -> list[str]:
    """One scale for the tensor."""
    s = scale(b)
    return [codes(b, b.let(f"{x}.float() / {s}" if b.chance(0.7) else f"{x}.float() * {s}.reciprocal()"))]


def quant_token(b: Builder, x: str) -> list[str]:
    """One scale a row."""
    a = b.let(f"{x}.abs()")
    s = b.let(f"{b.let(f'{a}.amax(-1, keepdim=True)')}.float() / 448")
    if b.chance(0.8):
        s = b.let(f"{s}.clamp(min={b.draw.choice(('1e-12', '4.359654017857143e-6'))})")
    return [codes(b, b.let(f"{x}.float() / {s}")), s]


def quant_tensor(b: Builder, x: str) -> list[str]:
    """One scale for the tensor, found from it."""
    s = b.let(f"({x}.abs().amax().float() / 448).clamp(min=1e-12).reshape(1)")
    return [codes(b, b.let(f"{x}.float() / {s}")), s]


def quant_group(b: Builder, x: str) -> list[str]:
    """One scale for some channels."""
    x = b.let(f"{x}.reshape(-1, {b.shape(x)[-1]})")
    y = b.let(f"{x}.float().reshape({x}.shape[0], -1, {b.draw.choice((4, 8))})")
    s = b.let(f"{y}.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448")
    q = codes(b, b.let(f"{y} / {s}"))
    return [b.let(f"{q}.reshape({x}.shape)"), b.let(f"{s}.reshape({x}.shape[0], -1)")]


def quant_int8(b: Builder, x: str) -> list[str]:
    """Eight bits, one scale a row."""
    s = b.let(f"{x}.abs().amax(-1, keepdim=True).float() / 127")
    return [b.let(f"torch.round({x}.float() / {s}).clamp(-128, 127).to(torch.int8)"), s]


FIRST: tuple[Callable[[Builder, str], str], ...] = (
    rms_norm, rms_norm, add_rms_norm, add_rms_norm, layer_norm, silu_mul, silu_mul, silu_and_mul, gelu,
)  # fmt: skip
QUANTS: tuple[Callable[[Builder, str], list[str]], ...] = (
    quant_static, quant_static, quant_token, quant_token, quant_tensor, quant_group, quant_int8,
)  # fmt: skip


def quantized(b: Builder) -> None:
    """A norm or activation and its quant, now and then two; a result, also the first, may be dead."""
    y = between(b, b.draw.choice(FIRST)(b, source(b, LOW if b.chance(0.9) else FLOATS)))
    for _ in range(2 if b.chance(0.15) else 1):
        results = b.draw.choice(QUANTS)(b, y)
        b.results += results if b.chance(0.6) else [b.draw.choice(results)]
    if b.chance(0.12):
        b.results.append(y)


def rotated(b: Builder) -> None:
    """A rope, of halves."""
    x = source(b, LOW)
    half = b.shape(x)[-1] // 2
    c, s = (b.input(b.dtype(x), (*b.shape(x)[:1], *(1,) * (len(b.shape(x)) - 2), half)) for _ in range(2))
    if b.chance(0.6):
        x = rms_norm(b, x)
    first, second = b.let(f"{x}[..., :{half}]"), b.let(f"{x}[..., {half}:]")
    b.results.append(b.let(f"torch.cat([{first} * {c} - {second} * {s}, {second} * {c} + {first} * {s}], -1)"))


CHAINS: tuple[Chain, ...] = (quantized,) * 8 + (rotated,)


def _attempt(b: Builder, chain: Chain) -> bool:
    try:
        chain(b)
    except Impossible:
        return False
    return True


def program_of(seed: int) -> Program:
    """The program of a number. One chain is of the rule whose turn it is."""
    draw = Random(seed)
    b = Builder(draw, rows=draw.choice((2, 4, 5, 6)))
    own = list(FEATURED.values())
    todo = [
        own[seed % len(own)],
        draw.choice(CHAINS),
        *(draw.choice((*own, *CHAINS)) for _ in range(draw.randint(0, 1))),
    ]
    draw.shuffle(todo)
    with torch.no_grad():
        for chain in todo:
            while b.chance(0.25):
                _attempt(b, draw.choice(AROUND))
            for _ in range(8):
                if _attempt(b, chain):
                    break
            while b.chance(0.3):
                _attempt(b, draw.choice(AROUND))
    how = draw.choice(KINDS)
    if how in ("export", "core") and any("F." in s.text for s in b.statements):
        how = (
            "aot"  # these keep activations whole, and what one of aten means is its decomposition, not its eager kernel
        )
    outputs = [r for r in dict.fromkeys(b.results) if b.chance(0.92)] or b.results[-1:]
    outputs = list(dict.fromkeys(between(b, o, 0.06) for o in outputs))
    draw.shuffle(outputs)
    return Program(how, tuple(_with_twin(b)), tuple(b.statements), tuple(outputs))


def _with_twin(b: Builder) -> list[Input]:
    """The inputs; sometimes one of them is another one once more, the same tensor."""
    pairs = [(i, j) for i in b.inputs for j in b.inputs if j is not i and j.shape == i.shape and j.dtype == i.dtype]
    if not pairs or not b.chance(TWINS):
        return b.inputs
    first, second = b.draw.choice(pairs)
    return [evolve(first, name=i.name, twin=first.name) if i is second else i for i in b.inputs]
