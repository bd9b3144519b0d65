"""Tasks shared by several processes, one task in each at a time. A torch op may kill a process: its task is then told
apart from the others, and another process takes its place.

    for result in shared(tasks, partial(make_worker, plan), jobs=4, died=lambda task: ...):
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from attrs import frozen

Task = TypeVar("Task")
Result = TypeVar("Result")
DIED = "the process died: a torch op that it calls crashes on what it is given"


def shared(
    tasks: Iterable[Task],
    start: Callable[[], Callable[[Task], Result]],
    jobs: int,
    died: Callable[[Task], Result],
) -> Iterator[Result]:
    """The result of each task, as they come. `start` runs once in each process and gives what does the tasks; it and
    they are pickled. `died(task)` stands for the result where the process did. What `start` raises is raised here.

    However the caller ends the iteration (Ctrl-C, `close`), no process is left.
    """
    waiting, under_way = iter(tasks), dict[Connection, tuple[Any, Task]]()
    try:
        for task in waiting:
            process, end = _process(start)
            end.send(task)
            under_way[end] = process, task
            if len(under_way) == jobs:
                break
        while under_way:
            for end in wait(list(under_way)):
                assert isinstance(end, Connection)
                process, task = under_way.pop(end)
                found = _received(end)
                again = next(waiting, None)
                if again is not None:
                    if found is None or (isinstance(found, tuple) and isinstance(found[0], Last)):
                        process, end = _process(start)
                    end.send(again)
                    under_way[end] = process, again
                else:
                    end.close()
                if found is None:
                    yield died(task)
                elif isinstance(found, _Raised):
                    raise found.error
                else:
                    yield found[0].result if isinstance(found[0], Last) else found[0]
    finally:
        for process, _ in under_way.values():
            process.terminate()
        for end, (process, _) in under_way.items():
            process.join()
            end.close()


@frozen
class Last:
    """A result after which its process can do no more: another one takes its place."""

    result: Any


class _Raised:
    """What `start` raised."""

    def __init__(self, error: Exception):
        self.error = error


def _received(end: Connection) -> Any:
    """A result, in a tuple; `_Raised`; None where the process died."""
    try:
        return end.recv()
    except (EOFError, ConnectionError):
        return None


def _process(start: Callable[[], Callable[[Any], Any]]) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(start, theirs), daemon=True)
    with _uninterrupted():  # it inherits that: Ctrl-C is for this process, which ends the others
        process.start()
    theirs.close()  # else its end would not show
    return process, ours


@contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(start: Callable[[], Callable[[Any], Any]], end: Connection) -> None:
    """What a process does, until nobody is there to give it tasks."""
    try:
        do = start()
    except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where the tasks come from)
        end.send(_Raised(error))
        return
    while True:
        try:
            task = end.recv()
        except (EOFError, ConnectionError):
            return
        found = do(task)
        end.send((found,))
        if isinstance(found, Last):
            return
