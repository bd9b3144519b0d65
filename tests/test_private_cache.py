"""What is kept between runs is kept where only the user can write, and damage is as if nothing were kept."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fxrewrite.dsl import private_cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, not yet made."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(folder))
    return folder


VALUE = {"numbers": [*range(100)]}


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "zeros", "other json", "one digit", "a link", "a folder", "writable by all"]
)
def test_a_damaged_value_is_as_none(folder: Path, damage: str) -> None:
    private_cache.store("value", VALUE)
    stored = folder / "value"
    assert private_cache.load("value") == VALUE
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    content = stored.read_bytes()
    if damage == "a link":
        other = folder.parent / "planted"
        other.write_bytes(content)
        stored.unlink()
        stored.symlink_to(other)
    elif damage == "a folder":
        stored.unlink()
        stored.mkdir()
    elif damage == "writable by all":
        stored.chmod(0o666)
    else:
        digit = content.rindex(b"1")
        changed = {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "zeros": b"\0" * 999,
            "other json": b'{"numbers": []}',
            "one digit": content[:digit] + b"2" + content[digit + 1 :],
        }
        stored.write_bytes(changed[damage])
    assert private_cache.load("value") is None
    private_cache.store("value", VALUE)
    if damage != "a folder":
        assert stored.read_bytes() == content
        assert stat.S_IMODE(os.lstat(stored).st_mode) == 0o600


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    private_cache.store("value", 1)
    assert private_cache.load("value") is None
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_cache.store("value", 1)
    assert private_cache.load("value") == 1
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert private_cache.load("value") is None
    private_cache.store("value", 2)
    monkeypatch.undo()
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(folder))
    assert private_cache.load("value") == 1


def test_a_linked_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    private_cache.store("value", 1)
    assert private_cache.load("value") is None
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_as_good_as_none(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    private_cache.store("value", 1)
    assert private_cache.load("value") is None


def test_a_folder_that_cannot_be_made_is_as_good_as_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").write_text("")
    for place in (folder.parent / "file" / "below", "/proc/self/nothing", "\0"):
        monkeypatch.setattr(private_cache, "_wanted_folder", lambda place=place: Path(place))
        private_cache.store("value", 1)
        assert private_cache.load("value") is None


def test_a_failed_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: str, target: str) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    private_cache.store("value", 1)
    assert not list(folder.iterdir())


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FXREWRITE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    private_cache.store("value", 1)
    assert (tmp_path / "shared/fxrewrite/value").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    private_cache.store("value", 1)
    assert (tmp_path / "home/.cache/fxrewrite/value").exists()


def test_many_at_once(folder: Path) -> None:
    def value(number: int) -> bool:
        private_cache.store("value", [number] * 9_000)
        read = private_cache.load("value")
        return read is not None and len({*read}) == 1

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(value, range(64)))
