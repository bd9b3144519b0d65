"""Python text in the layout of formatters: brackets on one line where they fit, else one item a line and a comma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

WIDTH = 88  # what formatters use unless told otherwise; a wider setting leaves such text as it is
INDENT = "    "


@frozen
class Group:
    """Items between brackets: `head` ends with the opening one. An item may have a key before it."""

    head: str
    items: tuple[Item, ...]
    close: str

    def flat(self) -> str:
        """On one line."""
        return self.head + ", ".join(map(_flat, self.items)) + self.close


@frozen
class Keyed:
    """`key` before an item: `users=` or `"x": `."""

    key: str
    item: Item


Item = str | Group | Keyed


def call(name: str, *items: Item) -> Group:
    """`name(items)`."""
    return Group(f"{name}(", items, ")")


def listed(items: Iterable[Item]) -> Group:
    """`[items]`."""
    return Group("[", tuple(items), "]")


def mapping(items: Iterable[tuple[str, Item]]) -> Group:
    """`{"key": item}`."""
    return Group("{", tuple(Keyed(f'"{k}": ', v) for k, v in items), "}")


def line(item: Item, before: str = "", after: str = "", depth: int = 0) -> list[str]:
    """The lines of one statement, or of one item of it."""
    flat = INDENT * depth + before + _flat(item) + after
    if isinstance(item, Keyed):
        return line(item.item, before + item.key, after, depth)
    if len(flat) <= WIDTH or isinstance(item, str) or not item.items:
        return [flat]
    inner = [x for i in item.items for x in line(i, after=",", depth=depth + 1)]
    return [INDENT * depth + before + item.head, *inner, INDENT * depth + item.close + after]


def filled(item: Item, texts: Sequence[str]) -> Item:
    """`item` with `{0}`, `{1}`, ... replaced."""
    if isinstance(item, Keyed):
        return Keyed(item.key, filled(item.item, texts))
    if isinstance(item, Group):
        return Group(item.head, tuple(filled(i, texts) for i in item.items), item.close)
    return texts[int(item[1:-1])] if item.startswith("{") else item


def _flat(item: Item) -> str:
    if isinstance(item, str):
        return item
    return item.key + _flat(item.item) if isinstance(item, Keyed) else item.flat()
