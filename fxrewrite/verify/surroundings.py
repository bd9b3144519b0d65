"""What stands around a site in a random program: other ops, views, copies, writes, the same again, other results."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fxrewrite.verify.programs import LAYOUTS, Builder, Impossible

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
Chain = Callable[[Builder], None]
VIEWS = (
    "{x}.reshape(-1, {x}.shape[-1])", "{x}.unsqueeze(0)", "{x}.transpose(0, 1)", "{x}.flatten(0, 1)", "{x}[1:]",
    "{x}.view({x}.shape)", "{x}.clone()", "{x}.contiguous()", "{x}[..., :8]", "{x}.permute(1, 0)", "{x}.t()",
    "{x}.unflatten(-1, (2, -1))", "{x}.reshape(*{x}.shape[:-1], -1, 4)", "{x}.squeeze(0)", "{x}.expand_as({x})",
    "{x}.float().to({x}.dtype)", "{x}[:, None]", "{x}.chunk(2, -1)[0]", "{x}.split(4, -1)[1]", "{x}[..., ::2]",
)  # fmt: skip
# A maximum of 0.0 and -0.0 is either: torch decides by its place in memory, so no two values here tie in that way.
POINTWISE = (
    "-{x}", "{x}.abs()", "F.relu({x})", "torch.sigmoid({x})", "{x} * 2.0", "{x} * 0.5", "{x} + 1.0", "1.0 - {x}",
    "{x}.clamp(-4, 4)", "{x}.clamp(min=0.5)", "{x}.float()", "{x}.bfloat16()", "{x}.double()", "{x}.to(torch.float16)",
    "{x} * {x}", "{x}.square()", "{x} - {x}.amax(-1, keepdim=True)", "{x} / 448", "torch.tanh({x})",
    "{x}.half().float()",
    "torch.where({x} > 0, {x}, -{x})", "F.pad({x}, (0, 8))", "torch.cat([{x}, {x}], -1)", "F.gelu({x})", "{x} * -1.0",
)  # fmt: skip
PAIRED = ("{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / {y}", "torch.maximum({x}, {y} + 1)",
          "torch.add({x}, {y}, alpha=2)", "torch.cat([{x}, {y}], 0)", "{x} @ {y}.transpose(-1, -2)")  # fmt: skip
WRITES = (
    "{x}.add_(1)", "{x}[1:].mul_(2)", "{x}[..., ::2].zero_()", "{x}.neg_()", "{x}[0].fill_(3)", "{x}.copy_({x} * 2)",
    "{x}.t().add_(1)", "{x}.view(-1)[1:3].fill_(-0.0)", "{x}.clamp_(min=0)", "{x}.chunk(2, -1)[1].mul_(3)",
)  # fmt: skip


# ---- operands


def source(b: Builder, dtypes: tuple[torch.dtype, ...] = FLOATS) -> str:
    """A tensor with rows: one that there is, or a new input."""
    if b.chance(0.5):
        try:
            return b.pick(lambda v: v.dtype in dtypes and v.ndim > 1 and v.shape[-1] % 8 == 0 and v.shape[-1] <= 64)
        except Impossible:
            pass
    shape = (b.rows, *((3,) if b.chance(0.3) else ()), b.draw.choice((8, 16, 32)))
    layout = b.draw.choice(LAYOUTS) if b.chance(0.25) else "plain"
    x = b.input(b.draw.choice(dtypes), shape, layout)
    return between(b, x, 0.15)


def like(b: Builder, x: str) -> str:
    """Another tensor of the type of `x`; sometimes `x` itself, or a view of it."""
    if b.chance(0.08):
        return b.let(f"{x}.view({x}.shape)") if b.chance(0.5) else x
    if b.chance(0.35):
        return b.pick(lambda v: v.dtype == b.dtype(x) and v.shape == b.values[x].shape)
    return b.input(b.dtype(x), b.shape(x), b.draw.choice(LAYOUTS) if b.chance(0.15) else "plain")


def between(b: Builder, x: str, p: float = 0.12) -> str:
    """`x`, or with probability `p` a view or copy of it."""
    if not b.chance(p):
        return x
    try:
        return b.let(b.draw.choice(VIEWS).format(x=x))
    except Impossible:
        return x


# ---- what is in the way


def other(b: Builder) -> None:
    """Any op of any values."""
    x = source(b)
    kind = b.draw.choice((VIEWS, POINTWISE, POINTWISE, PAIRED))
    made = b.let(b.draw.choice(kind).format(x=x, y=like(b, x)))
    if b.chance(0.3):
        b.results.append(made)


def write(b: Builder) -> None:
    """A write to a value, or to a view of it, that others may have read or will read."""
    x = b.pick(lambda v: v.is_floating_point() and v.element_size() > 1 and v.ndim > 0)
    b.do(b.draw.choice(WRITES).format(x=x))


def repeated(b: Builder) -> None:
    """The statements before, once more."""
    count = b.draw.randint(1, 8)
    if not any(s.targets for s in b.statements[-count:]):
        raise Impossible("nothing to repeat")
    b.again([s for s in b.statements[-count:] if s.targets])


def returned_again(b: Builder) -> None:
    """A value between two ops, or a view of a result, that is returned too."""
    x = b.pick(lambda v: True)
    b.results.append(between(b, x, 0.5))


AROUND: tuple[Chain, ...] = (other, other, other, repeated, repeated, write, write, returned_again)
