"""Room for walks over deep terms: each part of a definition takes some frames of Python."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

from attrs import define, field

FRAMES = 20_000


@define
class _Room:
    """The limit of the interpreter, raised while anybody is inside: it is one for all threads."""

    inside: int = 0
    before: int = 0
    lock: threading.Lock = field(factory=threading.Lock)

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self.before, FRAMES))
            self.inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                sys.setrecursionlimit(self.before)


_room = _Room()


def deep_terms() -> _Room:
    """A context in which Python recurses further than it does from the start."""
    return _room
