"""Seconds of CPU and of wall time, of things that are measured in turn."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from attrs import field, frozen


@frozen
class Times:
    """CPU and wall seconds of several runs of one thing."""

    cpu: list[float] = field(factory=list)
    wall: list[float] = field(factory=list)

    @property
    def best_ms(self) -> float:
        """The least CPU time: what is left when nobody else disturbs."""
        return 1e3 * min(self.cpu)

    @property
    def median_ms(self) -> float:
        return 1e3 * median(self.cpu)

    @property
    def wall_ms(self) -> float:
        """The least wall time."""
        return 1e3 * min(self.wall)

    def to(self, base: Times) -> float:
        """The CPU time as a multiple of that of `base`: the median over the rounds in which both ran in turn."""
        return median(mine / its for mine, its in zip(self.cpu, base.cpu))

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Note one run. No collection of garbage starts in it: it would look at everything that the process holds."""
        gc.collect()
        enabled = gc.isenabled()
        gc.disable()
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            self.cpu.append(time.process_time() - cpu)
            self.wall.append(time.perf_counter() - wall)
            if enabled:
                gc.enable()


def in_turn(things: Mapping[str, Callable[[Times], Any]], runs: int, warm: int = 1) -> dict[str, Times]:
    """Run all of `things` one after the other, `runs` times; each notes its time. `warm` rounds before do not count."""
    times = {name: Times() for name in things}
    for i in range(warm + runs):
        for name, thing in things.items():
            thing(times[name] if i >= warm else Times())
    return times


def timed(work: Callable[[], Any]) -> Callable[[Times], Any]:
    """All of `work` is noted."""

    def thing(times: Times) -> Any:
        with times.measure():
            return work()

    return thing


def command(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Callable[[Times], None]:
    """A command in a process of its own. Raises RuntimeError with its output where it fails."""

    def thing(times: Times) -> None:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        env = {**os.environ, **(environment or {})}
        done = subprocess.run(
            arguments, env=env, capture_output=True, text=True, cwd=tempfile.gettempdir(), check=False
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        times.wall.append(wall)
        times.cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    return thing
