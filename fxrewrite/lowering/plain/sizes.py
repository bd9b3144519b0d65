"""Free sizes: arithmetic on the names of dims, in the normal form of `dsl.dims`, and its text in Python."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from fxrewrite.dsl import dims
from fxrewrite.dsl.dims import Compound, Dim


@frozen
class Free:
    """A size made of names."""

    dim: Dim

    def _with(self, op: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, int):
            other = Free(dims.constant(other))
        if not isinstance(other, Free):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        return known(dims.combine(op, left.dim, right.dim))

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("//", other)

    def __mod__(self, other: Any) -> Any:
        return self._with("%", other)

    def __neg__(self) -> Any:
        return self._with("*", -1)

    def __repr__(self) -> str:
        return text(self.dim)


def named(name: str) -> Free:
    """The size called `name`."""
    return Free(dims.name(name))


def known(dim: Dim) -> int | Free:
    """A dim as an int where it is one."""
    return Free(dim) if dim.number is None else dim.number


def names(size: Any) -> set[str]:
    """The names in a size."""
    return dims.names(size.dim) if isinstance(size, Free) else set()


def text(dim: Dim) -> str:
    """A dim in Python, spaced as formatters space it."""
    parts = [_term(atom, c) for atom, c in dim.terms]
    if dim.const or not parts:
        parts.append(str(dim.const))
    return " + ".join(parts).replace("+ -", "- ")


def _term(atom: str | Compound, coefficient: int) -> str:
    if isinstance(atom, str):
        return atom if coefficient == 1 else f"{coefficient} * {atom}"
    left, right = _closed(atom.left), _closed(atom.right)
    inner = f"-(-{left} // {right}) * {right}" if atom.op == "up" else f"{left} {atom.op} {right}"
    return inner if coefficient == 1 else f"{coefficient} * ({inner})"


def _closed(dim: Dim) -> str:
    return text(dim) if dim.number is not None or dim.name is not None else f"({text(dim)})"
