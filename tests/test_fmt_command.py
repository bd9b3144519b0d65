"""`fxrewrite fmt`: what it writes, what it only says, and what it leaves alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fxrewrite.cli import cli, fmt
from fxrewrite.dsl.format import Unfaithful

LOOSE, CANONICAL = "silu(x)=>x # why\n", "silu(x) => x  # why\n"
WRONG = "silu(x) =>\n"
WHY_WRONG = (
    "wrong.rw:1:11: error[RW129]: the item ends too early: expected an expression\n"
    "    1 | silu(x) =>\n"
    "      |           ^\n"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *args, text=None: CliRunner().invoke(cli, ["fmt", *args], input=text, prog_name="fxrewrite")


def write(text: str | bytes, *names: str) -> None:
    """Files of the current folder with this text."""
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_files_are_written_in_place(run: Callable[..., Result]) -> None:
    write(LOOSE, "a.rw")
    write(CANONICAL, "b.rw")
    result = run("a.rw", "b.rw", "a.rw")
    assert (result.exit_code, result.output) == (0, "formatted a.rw\n2 files: 1 formatted\n")
    assert Path("a.rw").read_text() == CANONICAL
    assert sorted(os.listdir()) == ["a.rw", "b.rw"]
    assert run("a.rw", "b.rw").output == "2 files: nothing to change\n"


def test_a_folder(run: Callable[..., Result]) -> None:
    write(LOOSE, "rules/a.rw", "rules/inner/b.rw", "rules/notes.txt")
    assert run("rules", "rules/a.rw").output.endswith("2 files: 2 formatted\n")
    assert Path("rules/inner/b.rw").read_text() == CANONICAL
    assert Path("rules/notes.txt").read_text() == LOOSE


def test_what_is_right_is_not_touched(run: Callable[..., Result]) -> None:
    write(CANONICAL, "a.rw")
    os.utime("a.rw", (1, 1))
    run("a.rw")
    assert os.stat("a.rw").st_mtime == 1


def test_line_ends_and_the_mode(run: Callable[..., Result]) -> None:
    write(CANONICAL.replace("\n", "\r\n"), "a.rw")
    os.chmod("a.rw", 0o640)
    assert run("--check", "a.rw").exit_code == 1
    assert run("a.rw").exit_code == 0
    assert Path("a.rw").read_bytes() == CANONICAL.encode()
    assert stat.S_IMODE(os.stat("a.rw").st_mode) == 0o640


def test_a_link_stays_one(run: Callable[..., Result]) -> None:
    write(LOOSE, "real/a.rw")
    Path("a.rw").symlink_to("real/a.rw")
    assert run("a.rw").exit_code == 0
    assert Path("a.rw").is_symlink()
    assert Path("real/a.rw").read_text() == CANONICAL


def test_check_names_what_would_change(run: Callable[..., Result]) -> None:
    write(LOOSE, "a.rw")
    write(CANONICAL, "b.rw")
    result = run("--check", "a.rw", "b.rw")
    assert (result.exit_code, result.output) == (1, "would format a.rw\n2 files: 1 would change\n")
    assert Path("a.rw").read_text() == LOOSE
    assert run("--check", "b.rw").exit_code == 0


def test_diff(run: Callable[..., Result]) -> None:
    write(LOOSE, "a.rw")
    result = run("--diff", "a.rw")
    assert (result.exit_code, result.stderr) == (1, "1 file: 1 would change\n")
    assert result.stdout == (f"--- a.rw\n+++ a.rw (formatted)\n@@ -1 +1 @@\n-{LOOSE}+{CANONICAL}")
    assert Path("a.rw").read_text() == LOOSE
    write(LOOSE.rstrip("\n"), "a.rw")
    assert "\n\\ No newline at end of file\n" in run("--diff", "a.rw").stdout
    write(CANONICAL, "a.rw")
    assert (run("--diff", "a.rw").exit_code, run("--diff", "a.rw").stdout) == (0, "")


def test_standard_input(run: Callable[..., Result]) -> None:
    result = run("-", text=LOOSE)
    assert (result.exit_code, result.stdout) == (0, CANONICAL)
    assert (run("-", text="").stdout, run("--check", "-", text=LOOSE).exit_code) == ("", 1)
    assert run("--check", "-", text=LOOSE).stdout == "would format <stdin>\n1 file: 1 would change\n"
    wrong = run("-", text=WRONG)
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith(WHY_WRONG.replace("wrong.rw", "<stdin>"))
    assert run("-", text=b"\xff").exit_code == 1


def test_no_standard_input(run: Callable[..., Result]) -> None:
    command = 'exec "$0" -m fxrewrite fmt - <&-'
    ended = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "cannot read <stdin>: it is closed" in ended.stderr


def test_json(run: Callable[..., Result]) -> None:
    write(LOOSE, "a.rw")
    write(WRONG, "wrong.rw")
    result = run("--json", "--diff", "a.rw", "wrong.rw", "absent.rw")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found.keys() == {"schema", "files", "changed", "findings", "failures", "diff"}
    assert (found["files"], found["changed"]) == (["a.rw", "wrong.rw", "absent.rw"], ["a.rw"])
    assert [f["code"] for f in found["findings"]] == ["RW129", "RW001"]
    assert found["diff"]["a.rw"].endswith(f"+{CANONICAL}")
    assert json.loads(run("--json", "-", text=LOOSE).stdout)["text"] == {"<stdin>": CANONICAL}
    assert Path("a.rw").read_text() == LOOSE


def test_a_wrong_file_is_said_as_check_says_it(run: Callable[..., Result]) -> None:
    write(WRONG, "wrong.rw")
    write(LOOSE, "a.rw")
    result = run("wrong.rw", "a.rw")
    assert result.exit_code == 1
    assert result.output == f"{WHY_WRONG}\nformatted a.rw\n2 files: 1 formatted, 1 left alone\n"
    assert Path("wrong.rw").read_text() == WRONG
    assert CliRunner().invoke(cli, ["check", "wrong.rw"]).output.startswith(WHY_WRONG)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\xff\xfe\x00", "RW131"),
        (b"fusion f(x) = silu(x)\x00", "RW129"),
        (b"a => b \x00", "RW129"),
        ("a => b # \N{DEGREE SIGN}".encode(), "RW129"),
        (b"a => b\n" * 20_000, "RW130"),
        (b"a => b\r\rc => d", "RW129"),
        (b"a => " + b"f(" * 10_000 + b"x" + b")" * 10_000, "RW130"),
        (b"a => b" + b" or b" * 5_000, "RW130"),
        (b"\ta => b", "RW111"),
    ],
    ids=range(9),
)
def test_odd_bytes(run: Callable[..., Result], content: bytes, code: str) -> None:
    write(content, "odd.rw")
    result = run("odd.rw")
    assert result.exit_code == 1
    assert f"error[{code}]" in result.output
    checked = CliRunner().invoke(cli, ["check", "odd.rw"]).output
    assert result.output.partition("\n\n")[0] == checked.partition("\n\n")[0]
    assert Path("odd.rw").read_bytes() == content


def test_a_control_letter_in_a_comment_stays(run: Callable[..., Result]) -> None:
    write(b"a=>b # \x00\x1b\n", "a.rw")
    assert run("a.rw").exit_code == 0
    assert Path("a.rw").read_bytes() == b"a => b  # \x00\x1b\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("absent.rw",), "cannot read absent.rw: No such file or directory"),
        (("pipe.rw",), "cannot read pipe.rw: it is no file"),
        (("folder",), "cannot read folder/inner.rw: it is a folder"),
        (("a\0.rw",), "cannot read"),
        (("x" * 5000 + ".rw",), "File name too long"),
        (("loop.rw",), "Too many levels of symbolic links"),
        (("empty",), "the folder empty holds no .rw file"),
        ((), "Missing argument"),
        (("--what",), "No such option"),
    ],
)
def test_misuse(run: Callable[..., Result], args: tuple[str, ...], said: str) -> None:
    Path("folder/inner.rw").mkdir(parents=True)
    Path("empty").mkdir()
    os.mkfifo("pipe.rw")
    os.symlink("loop.rw", "loop.rw")
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_what_cannot_be_written(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    write(LOOSE, "a.rw")
    monkeypatch.setattr(os, "replace", refuse)
    result = run("a.rw")
    assert result.exit_code == 2
    assert "cannot write a.rw: No space left on device" in result.output
    assert Path("a.rw").read_text() == LOOSE
    assert os.listdir() == ["a.rw"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_file_that_is_not_to_be_written(run: Callable[..., Result]) -> None:
    write(LOOSE, "a.rw")
    os.chmod("a.rw", 0o444)
    assert run("a.rw").exit_code == 2
    assert Path("a.rw").read_text() == LOOSE


def test_a_fault_of_the_formatter_is_said(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, path: str) -> None:
        raise Unfaithful(f"the formatted text of {path} would read as another syntax tree")

    write(LOOSE, "a.rw")
    monkeypatch.setattr(fmt, "format_text", fail)
    result = run("a.rw")
    assert result.exit_code == 2
    assert "a fault of fxrewrite fmt: the formatted text of a.rw would read as another" in result.output
    assert Path("a.rw").read_text() == LOOSE


def test_a_reader_sees_one_text_or_the_other(run: Callable[..., Result]) -> None:
    long = LOOSE * 2000
    write(long, "a.rw")
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(len(Path("a.rw").read_text()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    run("a.rw")
    done.set()
    watcher.join()
    assert seen <= {len(long), len(CANONICAL) * 2000}


def test_a_quick_start_without_torch() -> None:
    code = (
        "import sys; from fxrewrite.cli import cli\n"
        "try: cli(['fmt', '-'], prog_name='fxrewrite')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'rich', 'lark', 'fxrewrite.dsl.core'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], input=b"x => y\n", check=True, capture_output=True)
