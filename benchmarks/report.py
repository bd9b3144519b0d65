"""Figures as data: tables with a unit for each column, goals, and the machine that they come from."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import field, frozen


@frozen
class Column:
    """`unit` is empty for names and for counts that the name explains."""

    name: str
    unit: str = ""

    @property
    def head(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name


@frozen
class Goal:
    """A figure with the bound that it should keep."""

    what: str
    value: float
    at_most: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.at_most

    def line(self) -> str:
        unit, verdict = f" {self.unit}" if self.unit else "", "met" if self.met else "MISSED"
        return f"{verdict}: {self.what}: {shown(self.value)}{unit}, at most {shown(self.at_most)}{unit}"


@frozen
class Table:
    """One table of a benchmark. `notes` say what was measured and how."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    goals: tuple[Goal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; figures are not rounded."""
        return {
            "title": self.title,
            "columns": [{"name": c.name, "unit": c.unit} for c in self.columns],
            "rows": [list(r) for r in self.rows],
            "notes": list(self.notes),
            "goals": [
                {"what": g.what, "value": g.value, "at_most": g.at_most, "unit": g.unit, "met": g.met}
                for g in self.goals
            ],
        }

    def lines(self) -> Iterator[str]:
        """The table as text."""
        cells = [[c.head for c in self.columns], *([shown(x) for x in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        left = [all(isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))]
        yield self.title
        for number, row in enumerate(cells):
            padded = (c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(row, widths, left))
            yield "  " + "  ".join(padded).rstrip()
            if number == 0:
                yield "  " + "  ".join("-" * w for w in widths)
        for note in self.notes:
            yield f"  {note}"
        for goal in self.goals:
            yield f"  {goal.line()}"


def shown(x: Any) -> str:
    """A figure with three digits that count."""
    if not isinstance(x, float):
        return "" if x is None else f"{x:,}" if isinstance(x, int) else str(x)
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}"


@frozen
class Machine:
    """Where the figures come from."""

    cpu: str
    cores: int
    python: str
    torch: str
    threads: int = field(default=1)

    @classmethod
    def here(cls) -> Machine:
        """This machine, and the versions that run."""
        from importlib.metadata import version

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(_cpu(), cores, platform.python_version(), version("torch"))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "cpu": self.cpu,
            "cores": self.cores,
            "python": self.python,
            "torch": self.torch,
            "torch threads": self.threads,
        }

    def line(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return f"{self.cpu}, {cores}; Python {self.python}, torch {self.torch}, {self.threads} torch thread"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
