"""A file's text replaced at once: who reads it sees the old text or the new one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fxrewrite.dsl import atomic


def replace(path: Path, text: str) -> None:
    """Write `text`, with the line ends that it has, in place of a file, which keeps its mode; a link stays one.

    Raises OSError where that cannot be done; the file is then as it was.
    """
    target = path.resolve(strict=True)
    if not os.access(target, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    atomic.write(target, text.encode(), stat.S_IMODE(target.stat().st_mode))
