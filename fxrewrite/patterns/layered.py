"""A small graph in layers, from inputs to users: where each box stands and how each edge runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import define, frozen

LINE = 16  # px, of text
PAD = 8  # px, within a box
GAP = 18  # px, between boxes of a layer
RISE = 34  # px, between layers
CHARACTER = 7.3  # px, a character of the monospaced face at 12 px
SWEEPS = 6  # of ordering; more change nothing at this size
Point = tuple[float, float]


@define
class Box:
    """A node, or a point where a long edge crosses a layer (no lines). `x`, `y`: its upper left corner, in px."""

    name: str
    lines: tuple[str, ...]
    layer: int = 0
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        """In px."""
        return 2 * PAD + CHARACTER * max(map(len, self.lines), default=0) if self.lines else 4

    @property
    def height(self) -> float:
        """In px."""
        return PAD + LINE * len(self.lines) if self.lines else 0

    @property
    def middle(self) -> float:
        """The x of the middle, in px."""
        return self.x + self.width / 2


@frozen
class Layout:
    """Boxes, edges as the points that they pass, and the size of it all in px."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def layout(labels: Mapping[str, tuple[str, ...]], inputs: Mapping[str, Sequence[str]]) -> Layout:
    """Lay out nodes with these lines of text. `inputs`: of each node, in an order in which inputs come first."""
    layers_of = _layers(list(labels), inputs)
    boxes = {n: Box(n, lines, layers_of[n]) for n, lines in labels.items()}
    chains = [_chain(boxes, a, n) for n in labels for a in dict.fromkeys(inputs[n]) if a in labels]
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes.values()), default=0))]
    for box in boxes.values():
        layers[box.layer].append(box)
    _order(layers, chains)
    width, height = _place(layers, chains)
    return Layout(tuple(b for b in boxes.values() if b.lines), tuple(map(_points, chains)), width, height)


def _layers(names: Sequence[str], inputs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The length of the longest path to each node; what reads nothing stands close above its first user."""
    found: dict[str, int] = {}
    for n in names:
        found[n] = max((found[a] + 1 for a in inputs[n] if a in found), default=0)
    for n in names:
        if not any(a in found for a in inputs[n]):
            users = [found[u] for u in names if n in inputs[u]]
            found[n] = min(users) - 1 if users else 0
    return found


def _chain(boxes: dict[str, Box], a: str, n: str) -> list[Box]:
    """The boxes of an edge: its ends, and one for each layer between."""
    first, last = boxes[a], boxes[n]
    between = [Box(f"{a} {n} {i}", (), i) for i in range(first.layer + 1, last.layer)]
    boxes.update({b.name: b for b in between})
    return [first, *between, last]


def _order(layers: list[list[Box]], chains: list[list[Box]]) -> None:
    """Boxes near the middle of what they are joined to, down and up in turn."""
    above: dict[str, list[Box]] = {}
    below: dict[str, list[Box]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            above.setdefault(b.name, []).append(a)
            below.setdefault(a.name, []).append(b)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        at = {b.name: i / max(len(layer), 1) for layer in layers for i, b in enumerate(layer)}
        for layer in layers if down else reversed(layers):
            near = above if down else below
            layer.sort(key=lambda b: _mean([at[x.name] for x in near.get(b.name, ())], at[b.name]))
            at.update({b.name: i / len(layer) for i, b in enumerate(layer)})


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place(layers: list[list[Box]], chains: list[list[Box]]) -> tuple[float, float]:
    """Layers below one another, each in the middle of the page; then boxes move under what they read where they can."""
    widths = [sum(b.width for b in layer) + GAP * (len(layer) - 1) for layer in layers if layer]
    width, y = max(widths, default=0), 0.0
    readers: dict[str, list[Box]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            readers.setdefault(b.name, []).append(a)
    for layer in layers:
        _row(layer, readers, width)
        for box in layer:
            box.y = y
        y += max((b.height for b in layer), default=0) + RISE
    return width, max(y - RISE, 0)


def _row(layer: list[Box], readers: Mapping[str, list[Box]], width: float) -> None:
    """Each box as far left as its neighbour and its own wish allow, and no further right than leaves room for the
    rest.
    """
    room = width - sum(b.width for b in layer) - GAP * (len(layer) - 1)
    x = 0.0
    for box in layer:
        wish = _mean([a.middle for a in readers.get(box.name, ())], width / 2) - box.width / 2
        step = min(max(wish - x, 0), room)
        box.x = x + step
        room -= step
        x = box.x + box.width + GAP


def _points(chain: list[Box]) -> tuple[Point, ...]:
    first, *between, last = chain
    return (
        (first.middle, first.y + first.height),
        *((b.middle, b.y) for b in between),
        (last.middle, last.y),
    )
