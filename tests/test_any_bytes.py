"""Any bytes get a clear error, soon: random ones, damaged files, deep and long texts, what is no file at all."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fxrewrite.cli import cli
from fxrewrite.dsl import packs
from fxrewrite.dsl.sources import MAX_BYTES

ROOT = Path(__file__).parents[1]
RIGHT = [path.read_bytes() for path in sorted((ROOT / "patterns").rglob("*.rw"))]
SECOND = 64 * 1024  # bytes: a file up to this size is answered within a second of processor time
AT_THE_LIMIT = 2.0  # seconds of processor time
SLACK = 3.0  # the machine that runs this may be slower than the one that the limits are for
FEW = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(deadline=None, max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], list[str]]:
    """The codes for a file of these bytes; fails where it takes too long or a place is not in the file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path / "cache"))
    packs.vocabulary()

    def check(data: bytes) -> list[str]:
        Path("any.rw").write_bytes(data)
        start = time.process_time()
        program, found = packs.check_packs(["any.rw"])
        spent = time.process_time() - start
        assert spent < SLACK * (1.0 if len(data) <= SECOND else AT_THE_LIMIT), f"{spent:.1f} s for {len(data)} bytes"
        mine = [d for d in found if d.span.file == "any.rw"]
        for d in mine:
            assert re.fullmatch(r"RW\d{3}", d.code)
            assert "\n" not in d.message + d.hint
            assert d.render(program.sources)
        return [d.code for d in mine if d.severity == "error"]

    return check


# ---- random and damaged


def damaged(data: bytes, damages: list[tuple[float, int, bytes]]) -> bytes:
    for where, length, put in damages:
        at = int(where * len(data))
        data = data[:at] + put + data[at + length :]
    return data


DAMAGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=6)), min_size=1, max_size=4)


@FEW
@given(data=st.binary(max_size=400))
def test_random_bytes(answer: Callable[[bytes], list[str]], data: bytes) -> None:
    answer(data)


@FEW
@given(data=st.sampled_from(RIGHT), damages=DAMAGES)
def test_damaged_bytes(
    answer: Callable[[bytes], list[str]], data: bytes, damages: list[tuple[float, int, bytes]]
) -> None:
    answer(damaged(data, damages))


@pytest.mark.slow
@MANY
@given(data=st.one_of(st.binary(max_size=4_000), st.text(max_size=2_000).map(lambda t: t.encode("utf-8", "replace"))))
def test_many_random_bytes(answer: Callable[[bytes], list[str]], data: bytes) -> None:
    answer(data)


@pytest.mark.slow
@MANY
@given(data=st.sampled_from(RIGHT), damages=DAMAGES)
def test_many_damaged_bytes(
    answer: Callable[[bytes], list[str]], data: bytes, damages: list[tuple[float, int, bytes]]
) -> None:
    answer(damaged(data, damages))


# ---- deep and long

DEEP = 10_000
LONG = 5_000
TEXTS: dict[str, tuple[str, str]] = {  # the text, and the code that it gets
    "calls": ("fusion f(x) = " + "silu(" * DEEP + "x" + ")" * DEEP, "RW130"),
    "brackets": ("fusion f(x) = " + "(" * DEEP + "x" + ")" * DEEP, "RW130"),
    "lists": ("fusion f(x) = " + "[" * DEEP + "x" + "]" * DEEP, "RW130"),
    "minuses": ("fusion f(x) = " + "-" * DEEP + "x", "RW130"),
    "nots": ("rule r: silu(x) => x requires " + "not " * DEEP + "c", "RW130"),
    "sums": ("fusion f(x) = x" + " + x" * LONG, "RW130"),
    "pipes": ("fusion f(x) = x" + " |> silu" * LONG, "RW130"),
    "attributes": ("fusion f(x) = x" + ".a" * LONG, "RW130"),
    "conditions": ("fusion f(x) = silu(x) |> gelu requires D == 1" + " and D == 1" * LONG, "RW130"),
    "outputs": ("fusion f(x) = " + ", ".join(["silu(x)"] * LONG), "RW206"),
    "parts": ("fusion f(x) = y0 where " + "".join(
        f"y{i} = silu(y{i + 1}), " for i in range(LONG)) + f"y{LONG} = silu(x)", "RW130"),
    "fusions in fusions": ("fusion ff0(x) = silu(x) |> silu\n" + "\n".join(
        f"fusion ff{i}(x) = ff{i - 1}(x) |> silu" for i in range(1, 1_200)), "RW130"),
    "helpers in helpers": ("def dd0(x: lowp[*B, D]) = x + x\n" + "\n".join(
        f"def dd{i}(x: lowp[*B, D]) = dd{i - 1}(x)" for i in range(1, 900)), "RW130"),
    "helpers that double": ("def dd0(x: f32[*B, D]) = x * 2.0\n" + "".join(
        f"def dd{i}(x: f32[*B, D]) = dd{i - 1}(dd{i - 1}(x) + 1.0)\n" for i in range(1, 20)), "RW130"),
    "equations": ("op f(x: lowp[*B, D]; n: int) -> lowp[*B, D]\n" + "\n".join(
        f"  = silu(x) when n == {i}" for i in range(2_000)), "RW130"),
    "one left side": ("\n".join(f"fusion ff{i}(x) = silu(x) |> gelu" for i in range(900)), "RW401"),
    "packs": ("\n".join(["pack a"] * LONG), "RW208"),
    "commas": ("a => b" + "," * LONG, "RW129"),
    "unknown ops": ("\n".join(f"fusion ff{i}(x) = sillu(x) |> gelu" for i in range(1_400)), "RW205"),
    "a large file": ("# comment\n" * (MAX_BYTES // 10 + 1), "RW130"),
    "a very large file": ("# comment\n" * MAX_BYTES, "RW130"),
    "letters of two bytes": ("#" + "é" * (MAX_BYTES // 2 + 1), "RW130"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_deep_and_long(answer: Callable[[bytes], list[str]], name: str) -> None:
    text, code = TEXTS[name]
    found = answer(text.encode())
    assert code in found
    assert len(found) == 1 or code in ("RW205", "RW208", "RW401"), found[:9]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("\n".join(f"rule r{i}: silu(silu(x)) => silu(x)" for i in range(800)), True),
        ("op f(x: lowp[*B, D]) -> lowp[*B, D]\n  = silu(x)\n"
         + "\n".join(f"  form a{i} aten.silu(x)" for i in range(1_500)), True),
        ("op oo0(x: lowp[*B, D]) -> lowp[*B, D]\n  = silu(x)\n" + "\n".join(
            f"op oo{i}(x: lowp[*B, D]) -> lowp[*B, D]\n  = oo{i - 1}(x)" for i in range(1, 900)), True),
        ("use norm_quant (rms_norm_fp8)\n" * 2_000, True),
        ("rule r: (" + " | ".join(["silu(x)"] * 1_000) + ") => x", True),
        ("fusion f(x) = silu(x) |> gelu requires " + ", ".join(f"D % {i} == 0" for i in range(2, 2_000)), True),
        ("fusion f(x) = silu(x) |> gelu requires " + ", ".join(f"D > {i}" for i in range(2_000)), True),
        ("op f(x: lowp[*B, D]; n: int in {" + ", ".join(map(str, range(1_000))) + "}) -> lowp[*B, D]\n  = x * n\n"
         + "  form a(n=_) aten.silu(x) when " + ", ".join(f"n != {i}" for i in range(900)), True),
        ("fusion f(x) = silu(x) |> gelu\r\n  requires D % 2 == 0\r\n", True),
        ("fusion f(x) = silu(x) |> gelu", True),
    ],
    ids=["rules", "forms", "ops", "uses", "alternatives", "remainders", "bounds", "values left out",
         "line ends of Windows", "no last line end"],
)  # fmt: skip
def test_what_is_long_and_right(answer: Callable[[bytes], list[str]], text: str, right: bool) -> None:
    assert (answer(text.encode()) == []) is right


# ---- no text, no file


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\xfef\x00u\x00", "RW131"),
        ("fusion f(x) = silu(x)".encode("utf-16"), "RW131"),
        ("# naïf".encode("latin-1"), "RW131"),
        (b"\x00" * 5_000, "RW129"),
        (b"fusion f(x) = silu(x) |> ge\x00lu\n", "RW129"),
        (b"\xef\xbb\xbffusion f(x) = silu(x) |> gelu\n", "RW129"),
        (b"fusion f(x) = silu(x) |> gelu\rfusion g(x) = silu(x) |> silu\r", "RW129"),
    ],
)
def test_no_text(answer: Callable[[bytes], list[str]], data: bytes, code: str) -> None:
    assert answer(data) == [code]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(cli, ["check", "--json", *args], prog_name="fxrewrite")


def test_no_file(run: Callable[..., Result], tmp_path: Path) -> None:
    os.mkfifo("pipe.rw")  # a reader of it would wait for ever
    (tmp_path / "folder.rw").mkdir()
    os.symlink("nowhere.rw", "dangling.rw")
    os.symlink("loop.rw", "loop.rw")
    for name in ("pipe.rw", "absent.rw", "dangling.rw", "loop.rw", "a\0b.rw", "x" * 5_000 + ".rw"):
        result = run(name)
        assert result.exit_code == 2, (name, result.output)
        assert [d["code"] for d in json.loads(result.output)["findings"]] == ["RW001"], name
    assert run("folder.rw").exit_code == 2
    assert run("").exit_code == 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="who may read everything is refused nothing")
def test_a_file_that_may_not_be_read(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "secret.rw").write_text("fusion f(x) = silu(x) |> gelu\n")
    (tmp_path / "secret.rw").chmod(0)
    assert run("secret.rw").exit_code == 2
