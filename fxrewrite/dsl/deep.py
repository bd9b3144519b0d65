"""Room for walks over deep terms: each part of a definition takes some frames of Python."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

FRAMES = 20_000


@contextmanager
def deep_terms() -> Generator[None]:
    """Let Python recurse further than it does from the start, while the context lasts."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
