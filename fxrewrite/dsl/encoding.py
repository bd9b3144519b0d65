"""Checked programs and syntax trees as JSON values, and back.

The JSON is a list of nodes in which a node comes after those that it is made of: a string, number, bool or null stands
for itself, a list is a compound, its first element says of which kind and the rest are numbers of nodes. Compounds of
one kind that are made of the same nodes are one node, and one object when they are read: nothing here changes but a
`dict`, which has a node of its own. Only the classes of `core`, `dims`, `syntax` and `diagnostics` are made, by their
constructors: reading cannot run anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, cast

import attrs

from fxrewrite.dsl import core, diagnostics, dims, syntax

_TUPLE, _DICT, _NO_DEFAULT = "(", "{", "?"  # kinds of compounds that are no attrs class
_SCALARS = frozenset({str, int, float, bool, type(None)})
Maker = Callable[..., Any]


@cache
def _classes() -> dict[str, tuple[Maker, int]]:
    """The classes that may be stored: module and name -> the class and the number of its fields."""
    found: dict[str, tuple[Maker, int]] = {}
    for module in (core, dims, diagnostics, syntax):
        for name, cls in vars(module).items():
            if isinstance(cls, type) and cls.__module__ == module.__name__ and attrs.has(cls):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = (cls, len(attrs.fields(cls)))
    return found


def encode(value: Any) -> list[Any]:
    """`value` as a list of JSON values. Raises TypeError for an object of any other class."""
    return _Encoder().run(value)


class _Encoder:
    """The nodes so far, and where each lies: by the identity of its object, and by what it is made of."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.by_identity: dict[int, int] = {}
        self.by_content: dict[Any, int] = {}
        self.alive: list[Any] = []  # so that no identity is used twice
        self.kinds: dict[Any, tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
            cls: (name, _fields(cls)) for name, (cls, _) in _classes().items()
        }

    def run(self, value: Any) -> list[Any]:
        self.place(value)
        return self.nodes

    def place(self, value: Any) -> int:
        """Where a value lies of which nothing is known by its identity."""
        kind = cast(Any, type(value))
        scalar = kind in _SCALARS
        node = value if scalar else self.compound(kind, value)
        new = len(self.nodes)
        key = (kind, repr(value)) if scalar else id(value) if kind is dict else node
        found = self.by_identity[id(value)] = self.by_content.setdefault(key, new)
        if found == new:
            self.nodes.append(node)
        self.alive.append(value)
        return found

    def places(self, values: Iterable[Any]) -> list[int]:
        known = self.by_identity
        return [self.place(v) if (found := known.get(id(v))) is None else found for v in values]

    def compound(self, kind: Any, value: Any) -> tuple[Any, ...]:
        known = self.kinds.get(kind)
        if known is not None:
            name, fields = known
            return (name, *self.places(fields(value)))
        if kind is tuple:
            return (_TUPLE, *self.places(value))
        if kind is dict:
            return (_DICT, *self.places(x for pair in value.items() for x in pair))
        if value is core.NO_DEFAULT:
            return (_NO_DEFAULT,)
        raise TypeError(f"{kind.__name__} cannot be stored")


def _fields(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of an instance."""
    names = [f.name for f in attrs.fields(cls)]
    if len(names) > 1:
        return attrgetter(*names)  # which gives a tuple only of several
    return lambda value: tuple(getattr(value, name) for name in names)


def decode(nodes: Any) -> Any:
    """The value that `encode` wrote. Raises ValueError where `nodes` is not of its making."""
    classes, made = _classes(), list[Any]()
    try:
        for node in nodes:
            made.append(_made(cast(list[Any], node), made, classes) if type(node) is list else node)
        return made[-1]
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError("not an encoded value") from error


def _made(node: list[Any], made: list[Any], classes: dict[str, tuple[Maker, int]]) -> Any:
    kind = node[0]
    values = [made[i] for i in node[1:]]
    if kind == _TUPLE:
        return tuple(values)
    if kind == _DICT:
        return dict(zip(values[::2], values[1::2], strict=True))
    if kind == _NO_DEFAULT:
        return core.NO_DEFAULT
    cls, count = classes[kind]
    if len(values) != count:
        raise ValueError(f"{kind} has {count} fields")
    return cls(*values)
