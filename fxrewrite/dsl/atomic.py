"""Files written at once: who reads one sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put `content` at `path`, in place of a file that may be there. Raises OSError; nothing has changed then."""
    import tempfile  # only a cold start pays for it

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
