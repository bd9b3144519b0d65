"""What the emitter asks about a definition: levels, functions of one value, quotients, products, masked columns."""

from __future__ import annotations

from attrs import frozen
from fxrewrite_kernels.ir import COLUMNS, ONE, ROW_REDUCTIONS, Definition, Node

PROVABLE = "bf16"  # the dtype whose one-value functions take approximate instructions, proved on all 65,536 values
NARROW = ("e4m3fn", "i8")
SAFE_DIVISOR = 1e-30  # above this, a quotient by a constant is subnormal only where its numerator is negligible


@frozen(eq=False)
class Analysis:
    """Facts about the nodes of a definition, by their numbers.

    `level`: how many row reductions lie below a node. `unary`: the inside of functions that map one 16-bit value to
    one. `divisors`: what columns are divided by, once a row or group; `tame` are those within 2^-100 and 2^126.
    `bounded`: quotients that are small because their divisor is made of the largest numerator. `coarse`: quotients of
    which only a narrow rounding is used. `fused`: products that feed a sum, which the compiler would round together
    with it.
    """

    users: dict[int, tuple[Node, ...]]
    level: dict[int, int]
    unary: frozenset[int]
    divisors: frozenset[int]
    tame: frozenset[int]
    bounded: frozenset[int]
    coarse: frozenset[int]
    fused: frozenset[int]


def analyse(definition: Definition) -> Analysis:
    """The facts about a definition."""
    users = users_of(definition)
    nodes = definition.nodes
    coarse = frozenset(n.number for n in nodes if n.op == "div" and _is_coarse(n, users))
    return Analysis(
        users=users,
        level=levels(definition),
        unary=frozenset(i for s in segments(definition) for i in s.inner),
        divisors=frozenset(n.args[1].number for n in nodes if n.op == "div" and is_by_row(n) and n.number in coarse),
        tame=frozenset(n.number for n in nodes if is_above_tiny(n) and is_below_huge(n)),
        bounded=frozenset(n.number for n in nodes if n.op == "div" and _is_bounded(n)),
        coarse=coarse,
        fused=frozenset(
            n.number for n in nodes if n.op == "mul" and any(u.op in ("add", "sub") for u in users.get(n.number, ()))
        ),
    )


def users_of(definition: Definition) -> dict[int, tuple[Node, ...]]:
    """The nodes that read each node."""
    found: dict[int, list[Node]] = {}
    for n in definition.nodes:
        for a in dict.fromkeys(n.args):
            found.setdefault(a.number, []).append(n)
    return {number: tuple(nodes) for number, nodes in found.items()}


def levels(definition: Definition) -> dict[int, int]:
    """How many row reductions lie below each node, itself included."""
    level: dict[int, int] = {}
    for n in definition.nodes:
        level[n.number] = max([level[a.number] for a in n.args], default=0) + (n.op in ROW_REDUCTIONS)
    return level


# ---- functions of one value


@frozen(eq=False)
class Segment:
    """A function of one 16-bit value: from `source` to `result`, by way of the nodes `inner`."""

    source: Node
    result: Node
    inner: frozenset[int]


def segments(definition: Definition) -> list[Segment]:
    """The largest parts of a definition that map one value of `PROVABLE` to one, column by column."""
    users = users_of(definition)
    found: list[Segment] = []
    for n in definition.nodes:
        if n.op == "to" and n.dtype == PROVABLE and n.axis == COLUMNS:
            source, inner = _cone(n)
            if source is not None and all(u.number in inner or u is n for i in inner for u in users[i]):
                found.append(Segment(source, n, inner))
    return found


def _cone(result: Node) -> tuple[Node | None, frozenset[int]]:
    """The one 16-bit value that `result` is computed from, and what lies between; None where it is no such function."""
    inner: set[int] = set()
    sources: dict[int, Node] = {}
    todo = list(result.args)
    while todo:
        x = todo.pop()
        if x.op == "const" or x.number in inner:
            continue
        if x.axis != COLUMNS or x.op == "group_max" or (x.op == "load" and x.dtype != PROVABLE):
            return None, frozenset()
        if x.dtype == PROVABLE:
            sources[x.number] = x
        else:
            inner.add(x.number)
            todo += x.args
    return (next(iter(sources.values())), frozenset(inner)) if len(sources) == 1 else (None, frozenset())


# ---- quotients


def is_by_row(quotient: Node) -> bool:
    """Are columns divided by one value a row or group, which is no constant?"""
    x, by = quotient.args
    return x.axis == COLUMNS and by.axis != COLUMNS and by.op != "const"


def _is_bounded(quotient: Node) -> bool:
    """Is the divisor made of the largest absolute value of the numerators?"""
    x, by = quotient.args
    seen: set[int] = set()
    todo = [by]
    while todo:
        n = todo.pop()
        if n.number in seen:
            continue
        seen.add(n.number)
        if n.op in ("row_max", "group_max"):
            return n.args[0].op == "abs" and _bare(n.args[0].args[0]) is _bare(x)
        if n.op in ("div", "max", "to", "exp2", "ceil", "log2"):
            todo += n.args
    return False


def _bare(n: Node) -> Node:
    return _bare(n.args[0]) if n.op == "to" and n.dtype == "f32" else n


def _is_coarse(n: Node, users: dict[int, tuple[Node, ...]]) -> bool:
    """Does every use of a value end in a rounding to a few bits, so that a subnormal may be off by its last bit?"""
    found = users.get(n.number, ())
    return bool(found) and all(
        (u.op == "to" and u.dtype in NARROW) or (u.op in ("max", "min", "round") and _is_coarse(u, users))
        for u in found
    )


def is_far_from_zero(quotient: Node, users: dict[int, tuple[Node, ...]]) -> bool:
    """Can a quotient by a constant be subnormal only where nothing reads it so: bounded from below at either side?"""

    def bounded(n: Node) -> bool:
        return n.op == "max" and any(a.op == "const" and a.attr[0] >= SAFE_DIVISOR for a in n.args)

    found = users.get(quotient.number, ())
    return bounded(quotient.args[0]) or (bool(found) and all(bounded(u) for u in found))


def is_above_tiny(n: Node) -> bool:
    """Is a divisor no less than 2^-100, by a bound that the definition has?"""
    if n.op == "max":
        return any((a.op == "const" and a.attr[0] >= SAFE_DIVISOR) or is_above_tiny(a) for a in n.args)
    if n.op == "div":
        x, by = n.args
        return by.op == "const" and 0 < by.attr[0] < 1e4 and x.op == "max" and any(
            a.op == "const" and a.attr[0] >= 1e4 * SAFE_DIVISOR for a in x.args
        )  # fmt: skip
    return n.op in _ROUNDS_UP and is_above_tiny(n.args[0])


def is_below_huge(n: Node) -> bool:
    """Is a divisor at most 2^126: a quotient of a float32, or a power of two next to one?"""
    if n.op == "div":
        return n.args[1].op == "const" and n.args[1].attr[0] >= 8
    if n.op == "max":
        return all((a.op == "const" and a.attr[0] < 1e37) or is_below_huge(a) for a in n.args)
    return n.op in _ROUNDS_UP and is_below_huge(n.args[0])


_ROUNDS_UP = ("exp2", "ceil", "log2")  # together: up to a power of two


# ---- masked columns


def is_zero_where_masked(n: Node) -> bool:
    """Is the value 0 in a column whose loads are 0, whatever the row holds? Then a sum or a maximum needs no mask."""
    if n.op == "load":
        return n.axis == COLUMNS
    if n.op in ("to", "abs", "neg", "round", "ceil", "floor", "tanh", "erf"):
        return is_zero_where_masked(n.args[0])
    if n.op in ("add", "sub"):
        return all(is_zero_where_masked(a) for a in n.args)
    if n.op == "mul":  # 0 * inf is NaN: a factor of the row may be infinite
        return any(is_zero_where_masked(a) for a in n.args) and all(
            a.op == "const" or is_zero_where_masked(a) for a in n.args
        )
    return False


def has_row_reduction(definition: Definition) -> bool:
    """Does a row have to be read as a whole?"""
    return any(n.op in ROW_REDUCTIONS for n in definition.nodes)


def row_tiles(definition: Definition) -> int:
    """How many rows of `width` columns are read."""
    return len({n.attr for n in definition.nodes if n.op == "load" and n.rows and n.axis != ONE})


__all__ = [
    "PROVABLE", "Analysis", "Segment", "analyse", "has_row_reduction", "is_by_row", "is_far_from_zero",
    "is_zero_where_masked", "levels", "row_tiles", "segments", "users_of",
]  # fmt: skip
