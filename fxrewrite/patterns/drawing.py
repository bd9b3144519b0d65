"""The graph around a site as SVG text: the nodes of the site, what they read, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from fxrewrite.patterns.layered import LINE, PAD, Box, Point, layout
from fxrewrite.patterns.snapshot import Drawn, Snapshot

MOST = 26  # nodes of one drawing; the nearest are drawn
LONGEST = 30  # characters of a line; longer names and types are cut
MARGIN = 12  # px, around a drawing; room for the marks of what is not drawn


def around(graph: Snapshot, nodes: Iterable[str], whole: bool) -> Snapshot:
    """The part of a graph to draw: `nodes`, their inputs and users; where these are not the `whole` of a match, also
    what it is computed from, the nearest first.
    """
    users: dict[str, list[str]] = {}
    for n in graph.values():
        for a in n.inputs:
            users.setdefault(a, []).append(n.name)
    found = dict.fromkeys(n for n in nodes if n in graph)
    ring = list(found)
    beside = [x for n in ring for x in (*graph[n].inputs, *users.get(n, ()))]
    while ring and (len(found) < MOST or whole):
        ring = [n for n in dict.fromkeys(beside) if n in graph and n not in found]
        found.update(dict.fromkeys(ring if whole else ring[: MOST - len(found)]))
        beside = [] if whole else [a for n in ring for a in graph[n].inputs]
    return {name: node for name, node in graph.items() if name in found}


def svg(part: Snapshot, classes: Mapping[str, str], label: str) -> str:
    """A drawing of nodes. `classes`: the classes of a node, beside `node`. `label`: for those who do not see it."""
    placed = layout({n: _lines(d) for n, d in part.items()}, {n: d.inputs for n, d in part.items()})
    width, height = placed.width + 2 * MARGIN, placed.height + 2 * MARGIN
    parts = [f'<path class="edge" d="{_path(points)}"/>' for points in placed.edges]
    parts += [_box(b, part, classes.get(b.name, "")) for b in placed.boxes]
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN} {-MARGIN} {width:.0f} {height:.0f}">{"".join(parts)}</svg>'
    )


def _lines(node: Drawn) -> tuple[str, ...]:
    below = f"{node.name}: {node.type}" if node.type else node.name
    return _cut(node.op), *([] if node.op == node.name and not node.type else [_cut(below)])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _path(points: tuple[Point, ...]) -> str:
    """A curve that leaves and enters boxes straight down."""
    (x, y), *rest = points
    out = [f"M{x:.1f} {y:.1f}"]
    for a, b in rest:
        half = (b - y) / 2
        out.append(f"C{x:.1f} {y + half:.1f} {a:.1f} {b - half:.1f} {a:.1f} {b:.1f}")
        x, y = a, b
    return "".join(out)


def _box(box: Box, part: Snapshot, extra: str) -> str:
    node = part[box.name]
    title = f"{node.name}: {node.op} {node.type}".rstrip()
    lines = [
        f'<text class="line{i}" x="{box.middle:.1f}" y="{box.y + PAD / 2 + LINE * (i + 0.75):.1f}">'
        f"{escape(line)}</text>"
        for i, line in enumerate(box.lines)
    ]
    hidden = any(a not in part for a in node.inputs)
    more = f'<text x="{box.middle:.1f}" y="{box.y - 3:.1f}" class="more">⋮</text>' if hidden else ""
    return (
        f'<g class="{f"node {extra}".rstrip()}"><title>{escape(title)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="5"/>{"".join(lines)}{more}</g>'
    )
