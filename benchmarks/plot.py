"""A table of the scaling benchmark as a drawing: time over nodes, both logarithmic, a line for each count of rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from benchmarks.report import Machine, Table, shown

WIDTH, HEIGHT, LEFT, TOP = 640, 400, 70, 40
COLORS = ("#1b6ca8", "#c1440e", "#3b7a3b", "#7a4f9a")


def svg(table: Table, machine: Machine) -> str:
    """The drawing as the text of one SVG file. `table` has the columns nodes, rules and `CPU, best`."""
    at = {c.name: i for i, c in enumerate(table.columns)}
    lines: dict[int, list[tuple[float, float]]] = {}
    for row in table.rows:
        lines.setdefault(row[at["rules"]], []).append((row[at["nodes"]], row[at["CPU, best"]]))
    points = [p for line in lines.values() for p in line]
    x = _scale([p[0] for p in points], LEFT, WIDTH - 20)
    y = _scale([p[1] for p in points], HEIGHT - 50, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12"'
        ' font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">Reading, views and matching: CPU time over nodes of the graph</text>',
    ]
    for n in sorted({p[0] for p in points}):
        parts.append(f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{TOP}" y2="{HEIGHT - 50}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(n):.1f}" y="{HEIGHT - 34}" text-anchor="middle">{shown(n)}</text>')
    for power in range(math.floor(math.log10(min(p[1] for p in points))), 6):
        ms = 10.0**power
        if min(p[1] for p in points) <= ms <= max(p[1] for p in points):
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(ms):.1f}" y2="{y(ms):.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms:,g} ms</text>')
    for i, (rules, line) in enumerate(sorted(lines.items())):
        color, path = COLORS[i % len(COLORS)], " ".join(f"{x(n):.1f},{y(ms):.1f}" for n, ms in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(n):.1f}" cy="{y(ms):.1f}" r="3" fill="{color}"/>' for n, ms in line]
        label = f"{rules:,} rule{'s' if rules > 1 else ''}"
        parts.append(f'<text x="{LEFT + 10}" y="{TOP + 18 + 16 * i}" fill="{color}">{label}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}" fill="#555">{escape(machine.line())}</text></svg>')
    return "\n".join(parts) + "\n"


def _scale(values: list[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return lambda v: start + (end - start) * (math.log10(v) - low) / ((high - low) or 1)
