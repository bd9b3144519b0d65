"""Tasks shared by several processes: one that dies takes its own task alone with it, and none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fxrewrite.verify.workers import Last, shared


def squares(killer: int) -> Callable[[int], int]:
    """What squares a number, and dies of one."""

    def do(n: int) -> int:
        if n == killer:
            os.kill(os.getpid(), signal.SIGKILL)
        return n * n

    return do


def refuses() -> Callable[[int], int]:
    raise ValueError("no such pack")


def sleeps() -> Callable[[float], float]:
    def do(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    return do


def test_a_task_that_kills_its_process_is_told_alone() -> None:
    found = list(shared(range(7), partial(squares, 3), 2, lambda n: -n))
    assert sorted(found) == [-3, 0, 1, 4, 16, 25, 36]


def spent_after(last: int) -> Callable[[int], Any]:
    """What says its process by number, and does nothing more after one task."""
    done: list[int] = []

    def do(n: int) -> Any:
        if done:
            return -1
        if n == last:
            done.append(n)
            return Last(n)
        return n

    return do


def test_a_process_that_is_spent_is_replaced() -> None:
    assert sorted(shared(range(7), partial(spent_after, 2), 1, lambda n: -n)) == list(range(7))


def test_what_the_start_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match="no such pack"):
        list(shared(range(3), refuses, 2, lambda n: n))


def test_ending_early_leaves_no_process() -> None:
    began = time.monotonic()
    running = shared([0.0, 600.0, 600.0], sleeps, 2, lambda s: -1.0)
    assert next(running) == 0.0
    running.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
    assert time.monotonic() - began < 300
