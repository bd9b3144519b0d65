"""JSON values kept between runs, in a folder that only this user can write to.

A cache only saves time: what is missing, damaged, not ours, or cannot be written is as if it had never been stored.
Nothing here runs what it reads (no pickle), and no other user can plant a value: folder and files must belong to this
user and must not be writable by others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from fxrewrite.dsl import atomic


def load(name: str) -> Any:
    """The value stored under `name` (a file name), or None."""
    folder = _folder()
    if folder is None:
        return None
    try:
        if not _is_ours(os.lstat(folder / name), stat.S_ISREG):
            return None
        digest, _, body = (folder / name).read_bytes().partition(b"\n")
        if digest != _digest(body):
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / name)  # `prune` keeps what was used last
        return json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None


def store(name: str, value: Any) -> None:
    """Keep `value`, which is JSON, under `name`. A reader sees the old value or the new one, never a part."""
    folder = _folder()
    if folder is None:
        return
    body = json.dumps(value, separators=(",", ":")).encode()
    with contextlib.suppress(OSError):
        atomic.write(folder / name, _digest(body) + b"\n" + body)


def prune(pattern: str, keep: int) -> None:
    """Remove all but the `keep` last used of the values whose names match a glob pattern."""
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        found = sorted(folder.glob(pattern), key=lambda p: p.lstat().st_mtime_ns, reverse=True)
        for path in found[keep:]:
            path.unlink(missing_ok=True)


def _folder() -> Path | None:
    """The folder, made where it is missing; None where it cannot be trusted or made."""
    try:
        folder = _wanted_folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return folder if _is_ours(os.lstat(folder), stat.S_ISDIR) else None
    except (OSError, RuntimeError, ValueError):
        return None


def _wanted_folder() -> Path:
    """`$FXREWRITE_CACHE_DIR`, else `fxrewrite` in `$XDG_CACHE_HOME` (which must be absolute), else in `~/.cache`."""
    if chosen := os.environ.get("FXREWRITE_CACHE_DIR"):
        return Path(chosen).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "fxrewrite"


def _is_ours(found: os.stat_result, is_kind: Any) -> bool:
    if not is_kind(found.st_mode):  # a link is neither a folder nor a file
        return False
    if not hasattr(os, "geteuid"):
        return True  # Windows: a profile's folders are private by their access list, modes mean nothing
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
