"""Checked programs are kept between runs, and a cache can only save time."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from fxrewrite.dsl import packs, private_cache, remembered, sources, syntax
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.encoding import decode, encode

LINE = "fusion mine(x, s) = silu(x) |> quant_fp8_static(s)\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(folder))
    packs.vocabulary.cache_clear()
    return folder


def stored(cache: Path) -> list[Path]:
    return sorted(cache.glob("checked-*.json"))


def checked(monkeypatch: pytest.MonkeyPatch, *given: str) -> tuple[Program, int]:
    """The program, and how often something was checked for it."""
    made: list[object] = []
    real = packs._check
    with monkeypatch.context() as patched:
        patched.setattr(packs, "_check", lambda packs: made.append(packs) or real(packs))
        program, _ = packs.check_packs(given)
    return program, len(made)


def test_every_shipped_program_survives_json() -> None:
    program, diagnostics = packs.check_packs(packs.shipped())
    assert decode(json.loads(json.dumps(encode((program, tuple(diagnostics)))))) == (program, tuple(diagnostics))


def test_the_second_time_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    first, ran = checked(monkeypatch, "default")
    again, ran_again = checked(monkeypatch, "default")
    assert (ran, ran_again) == (1, 0) and again == first


def test_what_differs_is_checked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "mine.rw"
    path.write_text(LINE)
    assert checked(monkeypatch, str(path))[1] == 1
    assert checked(monkeypatch, str(path))[1] == 0
    path.write_text(LINE.replace("mine", "ours"))
    program, ran = checked(monkeypatch, str(path))
    assert ran == 1 and "ours" in program.ops and "mine" not in program.ops
    assert checked(monkeypatch, "default", str(path))[1] == 1  # another list of packs
    monkeypatch.setattr(remembered, "_code", lambda: b"another state of the code")
    assert checked(monkeypatch, str(path))[1] == 1


def test_findings_are_kept_but_not_those_of_a_missing_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong, absent = tmp_path / "wrong.rw", tmp_path / "absent.rw"
    wrong.write_text("fusion f(x) = silly(x)\n")
    first = packs.check_packs([str(wrong)])[1]
    assert checked(monkeypatch, str(wrong))[1] == 0 and packs.check_packs([str(wrong)])[1] == first
    assert [d.code for d in packs.check_packs([str(absent)])[1]] == ["RW001"]
    absent.write_text(LINE)
    assert packs.check_packs([str(absent)])[1] == []


def test_a_file_that_use_finds_may_change_or_appear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main, beside = tmp_path / "main.rw", tmp_path / "act_quant.rw"
    main.write_text("use act_quant (silu_mul_fp8)\nfusion g(x, u) = silu_mul_fp8(x, u, none)\n")
    assert checked(monkeypatch, str(main))[1] == 1  # the shipped pack
    assert checked(monkeypatch, str(main))[1] == 0
    beside.write_text("fusion silu_mul_fp8(g, u, ub) = silu_mul(g, u) |> quant_fp8(ub)\n")
    assert checked(monkeypatch, str(main))[1] == 1  # a file of that name stands beside it now
    assert checked(monkeypatch, str(main))[1] == 0
    beside.write_text("fusion other(g, u, ub) = silu_mul(g, u) |> quant_fp8(ub)\n")
    assert [d.code for d in packs.check_packs([str(main)])[1]] == ["RW205", "RW205"]


def test_what_cannot_be_read_is_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.rw").write_bytes(b"")
    assert packs.check_packs(["odd.rw"])[1] == []
    Path("odd.rw").write_bytes(b"\xff\xfe\x00")
    assert [d.code for d in packs.check_packs(["odd.rw"])[1]] == ["RW131"]


def test_what_nests_too_deep_to_store_is_checked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep.rw"
    parts = ",\n  ".join(f"a{i} = exp(a{i - 1})" for i in range(1, 400))
    path.write_text(f"fusion deep(x: f32[*B, D]) = a399 where a0 = exp(x),\n  {parts}\n")
    for _ in range(2):
        program, found = packs.check_packs([str(path)])
        assert found == [] and program.ops["deep"].results[0].name == "a399"


def test_a_file_over_the_limit_is_not_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "long.rw"
    path.write_bytes(b"# padding\r\n" * (sources.MAX_BYTES // 11 + 1) + b"fusion f(x) = nonsense(x)\r\n")
    assert [d.code for d in packs.check_packs([str(path)])[1]] == ["RW130"]


def test_a_file_called_as_a_shipped_one_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("patterns/vocab").mkdir(parents=True)
    Path("patterns/norm_quant.rw").write_text(LINE)
    Path("patterns/vocab/mine.rw").write_text(
        "use helper\nfusion ours(x: lowp[*B, D], s) = relu(x) |> quant_fp8_static(s)\n"
    )
    Path("patterns/vocab/helper.rw").write_text("def half(x: f32[*B, D]) = x * 0.5\n")
    program, found = packs.check_packs(["default", "patterns/norm_quant.rw", "patterns/vocab/mine.rw"])
    assert found == []
    assert {"norm_quant.mine", "mine.ours", "norm_quant.rms_norm_fp8"} <= {r.full_name for r in program.rules}


def test_a_file_given_by_another_name_than_use_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.rw").write_text(LINE)
    Path("a.rw").write_text("use b (mine)\nfusion f(x, s) = mine(x, s)\n")
    assert checked(monkeypatch, "a.rw", str(tmp_path / "b.rw"))[1] == 1
    assert checked(monkeypatch, "a.rw", str(tmp_path / "b.rw"))[1] == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
        lambda p: p.write_bytes(b""),
        lambda p: private_cache.store(p.name, ["core.Program"]),
        lambda p: private_cache.store(p.name, [["core.Program", 5, 5, 5, 5, 5]]),
        lambda p: private_cache.store(p.name, [["posix.system", 0]]),
        lambda p: private_cache.store(p.name, [1, 2, ["(", 0, 1]]),
        lambda p: private_cache.store(p.name, {"a": 1}),
        lambda p: p.chmod(0o666),
        lambda p: (p.unlink(), p.symlink_to("/dev/null")),
        lambda p: (p.unlink(), p.mkdir()),
    ],
    ids=range(10),
)
def test_a_damaged_or_foreign_cache_is_as_none(damage: object, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    first, _ = packs.check_packs(["default"])
    for path in stored(cache):
        damage(path)  # type: ignore[operator]
    packs.vocabulary.cache_clear()
    again, ran = checked(monkeypatch, "default")
    assert ran == 1 and again == first


def test_old_results_go(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "KEPT", 4)
    for i in range(8):
        path = tmp_path / "mine.rw"
        path.write_text(LINE.replace("mine", f"mine{i}"))
        packs.check_packs([str(path)])
    assert len(stored(cache)) == 4


def _load(folder: str, many: int) -> int:
    os.environ["FXREWRITE_CACHE_DIR"] = folder
    packs.vocabulary.cache_clear()
    return sum(len(packs.load(["default"]).rules) for _ in range(many))


def test_two_processes_write_at_once(cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        counts = pool.starmap(_load, [(str(cache), 3)] * 2)
    assert counts == [3 * len(packs.load(["default"]).rules)] * 2


def test_names_are_read_off_the_text() -> None:
    """What stands for parsing a pack finds what parsing finds."""
    for source in (*sources.vocabulary_sources(), *map(sources.shipped_source, packs.shipped())):
        file, _ = packs.parsed(source)
        assert source.declares("op", "fusion", "def", "native") == [
            i.name for i in file.items if isinstance(i, syntax.Op | syntax.Fusion | syntax.Def | syntax.Native)
        ]
