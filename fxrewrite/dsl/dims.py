"""Integer expressions over dim names, in one normal form, and the equations between them.

A `Dim` is linear in its atoms. An atom is a name or a compound that stays closed until its names are known: `a // b`,
`a % b`, `a * b`, `up(a, b)`. Two dims are the same number for every size exactly when their normal forms are equal, up
to what is inside compounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen


@frozen
class Star:
    """`*B`: any number of leading axes."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


@frozen(cache_hash=True)
class Compound:
    """`left op right`, with op one of `// % * up`."""

    op: str
    left: Dim
    right: Dim

    def __str__(self) -> str:
        left, right = self.left.text(), self.right.text()
        return f"up({left}, {right})" if self.op == "up" else f"({left}{self.op}{right})"


Atom = str | Compound


@frozen(cache_hash=True)
class Dim:
    """`const + sum(coefficient * atom)`, atoms sorted by their text."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __str__(self) -> str:
        """As people write it: what is subtracted comes last."""
        ordered = sorted(self.terms, key=lambda term: term[1] < 0)
        parts = [_bare(a) if c == 1 else f"-{_bare(a)}" if c == -1 else f"{c}*{a}" for a, c in ordered]
        return self._sum(parts)

    def text(self) -> str:
        """In the order of the terms, with all parentheses: as a part of an atom, which atoms are sorted by."""
        return self._sum([str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms])

    def _sum(self, parts: list[str]) -> str:
        constant = [str(self.const)] if self.const or not parts else []
        return " + ".join([*parts, *constant]).replace("+ -", "- ")

    @property
    def number(self) -> int | None:
        """The value where it does not depend on a name."""
        return None if self.terms else self.const

    @property
    def name(self) -> str | None:
        """The name where the dim is just that."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 and isinstance(self.terms[0][0], str):
            return self.terms[0][0]
        return None


def _bare(atom: Atom) -> str:
    """An atom without the parentheses that only a factor needs."""
    return (
        str(atom).removeprefix("(").removesuffix(")") if isinstance(atom, Compound) and atom.op != "up" else str(atom)
    )


Shape = tuple[Dim | Star, ...]


def constant(value: int) -> Dim:
    """The dim `value`."""
    return Dim((), value)


def name(text: str) -> Dim:
    """The dim called `text`."""
    return Dim(((text, 1),))


def _build(terms: dict[Atom, int], const: int) -> Dim:
    return Dim(tuple(sorted(((a, c) for a, c in terms.items() if c), key=lambda item: str(item[0]))), const)


def add(left: Dim, right: Dim, factor: int = 1) -> Dim:
    """`left + factor * right`."""
    terms = dict(left.terms)
    for atom, coefficient in right.terms:
        terms[atom] = terms.get(atom, 0) + factor * coefficient
    return _build(terms, left.const + factor * right.const)


def scale(dim: Dim, factor: int) -> Dim:
    """`factor * dim`."""
    return _build({a: c * factor for a, c in dim.terms}, dim.const * factor)


def combine(op: str, left: Dim, right: Dim) -> Dim:
    """`left op right` for op in `+ - * // % up`, folded where the numbers allow."""
    if op == "+":
        return add(left, right)
    if op == "-":
        return add(left, right, -1)
    if op == "*" and (left.number is not None or right.number is not None):
        return scale(right, left.const) if left.number is not None else scale(left, right.const)
    if op == "*":
        for a, b in ((left, right), (right, left)):  # (a // b) * b is a where b divides it, which the caller guards
            if len(a.terms) == 1 and a.const == 0 and a.terms[0][1] == 1:
                atom = a.terms[0][0]
                if isinstance(atom, Compound) and atom.op == "//" and atom.right == b:
                    return atom.left
    elif left.number is not None and right.number:
        return constant(
            {"//": left.const // right.const, "%": left.const % right.const}.get(
                op, -(-left.const // right.const) * right.const
            )
        )
    elif op == "//" and right.number and exact_quotient(left, right.const) is not None:
        return exact_quotient(left, right.const) or constant(0)
    elif op == "//" and right.name and len(left.terms) == 1 and left.const == 0:
        atom, coefficient = left.terms[0]
        if coefficient == 1 and isinstance(atom, Compound) and atom.op == "*" and right in (atom.left, atom.right):
            return atom.right if right == atom.left else atom.left
    elif op == "%" and right.number and exact_quotient(left, right.const) is not None:
        return constant(0)
    return Dim(((Compound(op, left, right), 1),))


def exact_quotient(dim: Dim, divisor: int) -> Dim | None:
    """`dim / divisor` where every coefficient is divisible, else None."""
    if divisor and all(c % divisor == 0 for _, c in dim.terms) and dim.const % divisor == 0:
        return _build({a: c // divisor for a, c in dim.terms}, dim.const // divisor)
    return None


def names(dim: Dim) -> set[str]:
    """Every name in `dim`, those inside compounds included."""
    found: set[str] = set()
    for atom, _ in dim.terms:
        found |= {atom} if isinstance(atom, str) else names(atom.left) | names(atom.right)
    return found


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """`dim` with names replaced."""
    if not values or not dim.terms:
        return dim
    if dim.name is not None:
        return values.get(dim.name, dim)
    if not (names(dim) & values.keys()):
        return dim
    result = constant(dim.const)
    for atom, coefficient in dim.terms:
        if isinstance(atom, str):
            part = values.get(atom) or name(atom)
        else:
            part = combine(atom.op, substitute(atom.left, values), substitute(atom.right, values))
        result = add(result, part, coefficient)
    return result


def evaluate(dim: Dim, value_of: Callable[[str], Any]) -> Any:
    """`dim` as a number (int, sympy expression, SymInt: whatever `value_of` gives for a name)."""
    total: Any = dim.const
    for atom, coefficient in dim.terms:
        if isinstance(atom, str):
            part = value_of(atom)
        else:
            left, right = evaluate(atom.left, value_of), evaluate(atom.right, value_of)
            if atom.op == "//":
                part = left // right
            elif atom.op == "%":
                part = left % right
            elif atom.op == "*":
                part = left * right
            else:
                part = -(-left // right) * right
        total = total + coefficient * part if coefficient != 1 or total != 0 else part
    return total


def solve(dim: Dim, known: Callable[[str], Any], target: Any) -> tuple[str, Any, Any] | None:
    """The one unknown name of `dim == target` and its value, as (name, numerator, divisor): name = numerator / divisor.

    `known(name)` is None for an unknown one. None where no name, or more than one, is open. `U // g == n` is solved as
    `U = n * g`, which the caller must confirm with the shape that U stands for.
    """
    rest = target - dim.const if dim.const else target
    unknown: tuple[Atom, int] | None = None
    for atom, coefficient in dim.terms:
        if isinstance(atom, str):
            value = known(atom)
        else:
            open_names = any(known(n) is None for n in names(Dim(((atom, 1),))))
            value = None if open_names else evaluate(Dim(((atom, 1),)), known)
        if value is not None:
            rest = rest - coefficient * value
        elif unknown is not None:
            return None
        else:
            unknown = (atom, coefficient)
    if unknown is None:
        return None
    atom, coefficient = unknown
    if isinstance(atom, str):
        return atom, rest, coefficient
    right = None if any(known(n) is None for n in names(atom.right)) else evaluate(atom.right, known)
    if atom.op == "//" and coefficient == 1 and right is not None and atom.left.name:
        return atom.left.name, rest * right, 1
    return None
