"""All ways through a procedure that makes choices, those nearest to the first of everything first.

found = Ways(lambda choose: (choose("ab"), choose("xy")))    # ('a', 'x'), ('b', 'x'), ('a', 'y'), ('b', 'y')
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Dead(Exception):
    """This way leads nowhere; the text says why."""


class _Choices:
    """One run: the decisions of a script, the first option wherever the script has ended."""

    def __init__(self, script: tuple[int, ...]):
        self.script, self.taken, self.counts = script, list[int](), list[int]()

    def __call__(self, options: Sequence[Any]) -> Any:
        at = len(self.taken)
        i = self.script[at] if at < len(self.script) else 0
        self.taken.append(i)
        self.counts.append(len(options))
        return options[i]


Choose = Callable[[Sequence[Any]], Any]


class Ways:
    """Iterates over the results of `run(choose)` for every way to choose, fewest departures from the first option
    first. Ways that end in `Dead` are left out; `dead` is the reason of the first. `left`: ways that were not tried.
    """

    def __init__(self, run: Callable[[Choose], Any], most: int):
        self.run, self.most, self.dead, self.left = run, most, "", 0

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        todo: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        runs = 0
        while todo and runs < self.most:
            departures, script = heapq.heappop(todo)
            runs += 1
            choices = _Choices(script)
            try:
                found = self.run(choices)
            except Dead as error:
                self.dead = self.dead or str(error)
                found = None
            for at in range(len(script), len(choices.taken)):
                for other in range(1, choices.counts[at]):
                    heapq.heappush(todo, (departures + 1, (*choices.taken[:at], other)))
            self.left = len(todo)
            if found is not None:
                yield departures, found
