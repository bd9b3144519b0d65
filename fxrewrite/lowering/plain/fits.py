"""The check of a pattern as Python: ranks and sizes of operands, sizes that the graph states, and what was assumed."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from fxrewrite.dsl import dims
from fxrewrite.dsl.binding import is_element
from fxrewrite.dsl.core import OperandInfo
from fxrewrite.dsl.dims import Dim, Star
from fxrewrite.lowering.plain.choices import Dead
from fxrewrite.lowering.plain.layout import call, line, listed
from fxrewrite.lowering.plain.names import safe
from fxrewrite.lowering.plain.sizes import Free, known, named, names
from fxrewrite.lowering.plain.spelled import Captured
from fxrewrite.lowering.plain.structure import Structure


@define
class _Check:
    """The statements so far. `bound`: names of sizes that they bind."""

    any_rank: bool
    ranks: list[str] = field(factory=list)
    binds: list[str] = field(factory=list)
    conditions: list[str] = field(factory=list)
    bound: set[str] = field(factory=set)
    stars: set[str] = field(factory=set)

    def bind(self, name: str, text: str) -> None:
        self.binds.append(f"    {name} = {text}")
        self.bound.add(name)


def body(s: Structure, any_rank: bool) -> list[str]:
    """The body of a function of `k`, the values that a match binds: what else it binds, or None where it does not fit.

    `any_rank`: leading axes may be any number; else as many as the spelling has.
    """
    check = _Check(any_rank)
    present = [o for o in s.spelled.rule.operands if s.spelled.operands[o.name] is not None]
    open_: list[tuple[str, Dim]] = []
    for o in present:
        open_ += _axes(check, o, s)
    for name, size in s.sizes.items():
        if isinstance(size, list):
            check.ranks.append(f'len(k["{name}"]) == {len(size)}')
        listed_ = [(f"[{i}]", n) for i, n in enumerate(size)] if isinstance(size, list) else [("", size)]
        open_ += [(f'k["{name}"]{i}', n.dim if isinstance(n, Free) else dims.constant(n)) for i, n in listed_]
    _solve(check, open_)
    check.conditions += [f'number(k["{safe(n)}"])' for n in s.numbers]
    for op, left, right in s.spelled.assumed:
        check.conditions.append(f"holds({_operand(check, s, left)} {op} {_operand(check, s, right)})")
    return _statements(check, s, [safe(o.name) for o in present])


def _axes(check: _Check, o: OperandInfo, s: Structure) -> list[tuple[str, Dim]]:
    """Note the rank of an operand; its axes, with what each must be."""
    shape, name = o.type.shape or (), safe(o.name)
    if is_element(o.type):
        check.conditions.append(f"one({name})")
        return []
    starred = next((i for i, d in enumerate(shape) if isinstance(d, Star)), None)
    if starred is None:
        check.ranks.append(f"{name}.dim() == {len(shape)}")
        return [(f"{name}.shape[{i}]", d) for i, d in enumerate(shape) if isinstance(d, Dim)]
    star, after = shape[starred], len(shape) - starred - 1
    assert isinstance(star, Star) and starred == 0
    rank = len(s.spelled.operands[o.name].meta["val"].shape)  # type: ignore[union-attr]
    check.ranks.append(f"{name}.dim() {'>=' if check.any_rank else '=='} {after if check.any_rank else rank}")
    axes = [(f"{name}.shape[{i - len(shape)}]", d) for i, d in enumerate(shape) if isinstance(d, Dim)]
    if not check.any_rank:
        return [*((f"{name}.shape[{i}]", dims.name(f"{star.name}_{i}")) for i in range(rank - after)), *axes]
    lead = f"{name}.shape[:-{after}]" if after else f"{name}.shape"
    if star.name in check.stars:
        check.conditions.append(f"same({lead}, {star.name})")
    else:
        check.stars.add(star.name)
        check.bind(star.name, lead)
    return axes


def _solve(check: _Check, open_: list[tuple[str, Dim]]) -> None:
    """Bind each name where it stands alone, or is the one unknown of an axis; the other axes become conditions."""
    waiting = list(open_)
    while True:
        ready = next((x for x in waiting if x[1].name is not None and x[1].name not in check.bound), None)
        ready = ready or next((x for x in waiting if _solved(check, *x) is not None), None)
        if ready is None:
            break
        solved = _solved(check, *ready)
        if solved is not None:
            check.bind(*solved)
        if ready[1].name is not None:
            waiting.remove(ready)
    for text, dim in waiting:
        unbound = dims.names(dim) - check.bound
        if unbound:
            raise Dead(f"{text} does not tell {', '.join(sorted(unbound))}")
        check.conditions.append(f"holds({text} == {known(dim)})")


def _solved(check: _Check, text: str, dim: Dim) -> tuple[str, str] | None:
    """The unknown name of `dim == text` and its value."""
    unknown = dims.names(dim) - check.bound
    if len(unknown) != 1:
        return None
    found = dims.solve(dim, lambda n: named(n) if n in check.bound else None, named(text))
    if found is None:
        return None
    name, numerator, divisor = found
    value = numerator if isinstance(divisor, int) and divisor == 1 else numerator // divisor
    return name, f"{value}"


def _operand(check: _Check, s: Structure, x: Any) -> str:
    if isinstance(x, Captured):
        if x.name in s.spelled.fixed:
            return repr(s.spelled.fixed[x.name])
        if x.name not in s.captures:
            raise Dead(f"`{x.name}` stands in no pattern")
        return f'k["{safe(x.name)}"]'
    if names(x) - check.bound:
        raise Dead(f"nothing tells {', '.join(sorted(names(x) - check.bound))}")
    return f"{x!r}"


def _statements(check: _Check, s: Structure, present: list[str]) -> list[str]:
    attributes = [n for n, a in s.spelled.attributes.items() if isinstance(a, Free)]
    for n in attributes:
        if n not in check.bound:
            raise Dead(f"nothing tells {n}")
    used = " ".join([*check.ranks, *check.binds, *check.conditions])
    out = [f'    {n} = k["{n}"]' for n in present if f"{n}." in used or f"({n})" in used]
    if check.ranks:
        out += [*line(call("every", *check.ranks), "if not ", ":", depth=1), "        return None"]
    needed = [b for b in check.binds if _needed(b, check, attributes)]
    bound = call("bound", listed(dict.fromkeys(check.conditions)), *(f"{n}={n}" for n in attributes))
    return [*out, *needed, *line(bound, "return ", depth=1)]


def _needed(statement: str, check: _Check, attributes: list[str]) -> bool:
    """Is a name read again?"""
    name = statement.strip().split(" = ")[0]
    others = [b.split(" = ")[1] for b in check.binds if b is not statement]
    text = " ".join([*others, *check.conditions])
    return name in attributes or name in "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
