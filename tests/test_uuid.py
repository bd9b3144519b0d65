"""What moves the uuid by which Inductor's caches know the pass: what may change a graph does, all else does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fxrewrite_kernels as kernels
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import fxrewrite
from fxrewrite.dsl import packs, private_cache, registered
from fxrewrite.dsl.parse import parse
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering import cold_runs, graph_pass, ledger, owners, proofs
from fxrewrite.lowering.backend import make_pass
from fxrewrite.lowering.config import make_config
from fxrewrite.patterns.events import Event

PACK = """pack mine level O1 flag fuse_mine

## Doubles it.
native large(n: int) -> bool from "mylib:large"
def half(x: f32[*B, D]) = x * 0.5
def third(x: f32[*B, D]) = x * 0.25
op gain(x: f32[*B, D]) -> f32[*B, D]
  = half(x) + 1.0
  form late  = 1.0 + x * 0.5 when D % 2 == 0
  contract bitwise
fusion gain_exp(x: f32[*B, D]) = exp(gain(x))
  requires large(D), D % 4 == 0
  impl eng  uuidlib.gain_exp(x)   when D % 8 == 0
rule twice: neg(neg(x)) => x
  prefer tokens <= 256
  contract bitwise
rule thrice level O2: abs(abs(x)) => abs(x)
"""
NATIVE = "def large(n):\n    return n > 1\n"


ENGINE = graph_pass._engine_digest


class Listed:
    """The entry point of a native."""

    def __init__(self, path: Path):
        self.path = path

    def load(self) -> Any:
        scope: dict[str, Any] = {}
        exec(compile(self.path.read_text(), str(self.path), "exec"), scope)
        return scope["large"]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of the native that the pack asks."""
    path = tmp_path_factory.mktemp("native") / "mylib.py"
    path.write_text(NATIVE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registered, "listed", lambda group: {"mylib:large": Listed(path)})
        patched.setattr(registered, "_function", registered._function.__wrapped__)
        patched.setattr(graph_pass, "_engine_digest", lambda: "this engine")  # whoever edits it meanwhile
        yield path


def uuid(text: str = PACK, file: str = "mine.rw", **settings: Any) -> str:
    parsed, diagnostics = parse(text, file)
    assert not diagnostics
    return make_pass(make_config([parsed], **settings)).uuid()


def changed(old: str, new: str) -> str:
    assert PACK.count(old) == 1, old
    return PACK.replace(old, new)


def moved_item(head: str) -> str:
    """The pack with one item at its end."""
    found = re.search(rf"^{re.escape(head)}.*\n(  .*\n)*", PACK, re.M)
    assert found is not None
    return PACK.replace(found[0], "") + found[0]


MEANING = {  # what a graph is rewritten to, or whether it is, depends on each
    "the left side of a rule": changed("neg(neg(x))", "abs(neg(x))").replace("=> x\n", "=> abs(x)\n"),
    "a guard": changed("D % 4", "D % 2"),
    "one guard less": changed(", D % 4 == 0", ""),
    "a preference": changed("tokens <= 256", "tokens <= 257"),
    "the contract of an op": changed("0\n  contract bitwise\nfusion", "0\n  contract relaxed 1 codes\nfusion"),
    "the contract of a rule": changed("256\n  contract bitwise", "256\n  contract faithful"),
    "a helper that is called": changed("= x * 0.5\n", "= x * 0.75\n"),
    "an equation": changed("half(x) + 1.0", "half(x) + 2.0"),
    "a form": changed("form late  = 1.0 + x * 0.5", "form late  = 1.0 + x / 2.0"),
    "the condition of a form": changed("D % 2", "D % 3"),
    "a form less": changed("  form late  = 1.0 + x * 0.5 when D % 2 == 0\n", ""),
    "an impl": changed("uuidlib.gain_exp(x)", "uuidlib.gain_exp2(x)"),
    "the condition of an impl": changed("D % 8", "D % 16"),
    "a property": changed("1.0 + x * 0.5 when D % 2 == 0\n", "1.0 + x * 0.5 when D % 2 == 0\n  property rowwise(x)\n"),
    "a type": changed("fusion gain_exp(x: f32[*B, D])", "fusion gain_exp(x: f32[T, D])"),
    "the native that is asked": changed("large(D)", "large(2 * D)"),
    "the name of a rule, as flags and events have it": changed("rule twice", "rule two"),
    "the order of rules, which decides between two of one size": moved_item("rule twice"),
    "an op more: its calls are answered": PACK + "op eighth(x: f32[*B, D]) -> f32[*B, D] = x * 0.125\n",
    "a rule that comes on": changed("thrice level O2", "thrice level O1"),
}
FORM = {  # nothing of it reaches a graph
    "comments": changed("op gain(", "# a comment\n\nop gain("),
    "documentation": changed("Doubles it.", "Halves it."),
    "layout": changed(" => x\n", "\n  => x\n"),
    "a helper that nobody calls": changed("x * 0.25", "x * 0.125"),
    "the order of conditions": changed("large(D), D % 4 == 0", "D % 4 == 0, large(D)"),
    "the order of helpers": moved_item("def half"),
    "the order of ops": moved_item("op gain"),
    "the level of a pack that is on all the same": changed("level O1", "level O0"),
    "the flag of a pack": changed("flag fuse_mine", "flag fuse_ours"),
}


@pytest.fixture(scope="module")
def before(native: Path) -> str:
    return uuid(level="O1")


@pytest.mark.parametrize("what", MEANING)
def test_what_a_rule_says_moves_it(what: str, before: str) -> None:
    assert uuid(MEANING[what], level="O1") != before


@pytest.mark.parametrize("what", FORM)
def test_how_it_is_written_does_not(what: str, before: str) -> None:
    assert uuid(FORM[what], level="O1") == before


@pytest.mark.parametrize(
    ("settings", "moves"),
    [
        ({"providers": ["op"]}, True),  # other nodes are written
        ({"providers": ["definition", "kernel"]}, True),  # the first that serves is used
        ({"tokens": (1, 256)}, True),  # `twice` may be applied where sizes are free
        ({"allow_relaxed": True}, True),  # more impls serve
        ({"allow_unproved": False}, True),  # fewer serve; the tests allow it
        ({"groups": {"tp": 2}}, True),  # conditions ask `g.size`, and `world`
        ({"replicated": ["*norm*"]}, True),  # conditions ask `replicated`
        ({"strict": True}, True),  # code that was made in spite of an error is none
        ({"level": "O2"}, True),  # `thrice` comes on
        ({"level": "O0"}, True),  # nothing is on
        ({"flags": {"twice": False}}, True),
        ({"flags": {"fuse_mine": True}}, True),  # it turns `thrice` on
        ({"flags": {"fuse_mine": True, "thrice": False}}, False),  # what is on is what was on
        ({"flags": {"thrice": False}}, False),  # it was off
        ({"groups": {}, "replicated": [], "tokens": None}, False),  # the defaults
    ],
    ids=str,
)
def test_settings(settings: dict[str, Any], moves: bool, before: str) -> None:
    assert (uuid(**{"level": "O1", **settings}) != before) == moves


def test_the_name_of_a_folder_does_not_move_it(before: str) -> None:
    assert uuid(file="elsewhere/mine.rw", level="O1") == before


# ---- what is not in the rules


def test_the_source_of_a_native(native: Path) -> None:
    before = uuid()
    assert uuid() == before
    native.write_text(NATIVE.replace("n > 1", "n > 2"))
    other = uuid()
    native.write_text(NATIVE)
    assert other != before == uuid()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Registers a kernel of `gain_exp`, from a file with some text."""
    path = tmp_path / "my_kernels.py"

    def register(text: str) -> None:
        path.write_text(f"kernels.register('gain_exp', 'cpu', None)  # {text}\n")
        if kernels.find("gain_exp", "cpu") is not None:
            kernels.unregister("gain_exp", "cpu")
        exec(compile(path.read_text().replace("None", "object()"), str(path), "exec"), {"kernels": kernels})

    yield register
    kernels.unregister("gain_exp", "cpu")


def test_the_source_of_a_kernel(native: Path, kernel: Callable[[str], None]) -> None:
    def now() -> list[str]:
        return [uuid(), uuid(providers=["op"])]

    none = now()
    kernel("one")
    one = now()
    kernel("two")
    two = now()
    kernel("one")
    assert now() == one
    assert len({none[0], one[0], two[0]}) == 3
    assert none[1] == one[1] == two[1], "no kernel is used there"


def test_other_files_of_a_kernel(tmp_path: Path) -> None:
    def state(text: str) -> Any:
        (tmp_path / "tile.cu").write_text(text)
        kernels.register("gain_exp", "cpu", object(), files=[tmp_path / "tile.cu"])
        found = kernels.states()
        kernels.unregister("gain_exp", "cpu")
        return found

    assert state("a") == state("a") != state("b")


def test_the_source_of_the_engine(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / "fxrewrite"
    shutil.copytree(Path(fxrewrite.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    monkeypatch.setattr(fxrewrite, "__file__", str(copied / "__init__.py"))
    monkeypatch.setattr(graph_pass, "_engine_digest", ENGINE)
    before = uuid()
    assert uuid() == before
    with (copied / "patterns/views.py").open("a") as file:
        file.write("# other code\n")
    assert uuid() != before


@pytest.mark.parametrize("version", [("fxrewrite", "__version__"), ("torch", "__version__")])
def test_versions(native: Path, version: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = uuid()
    monkeypatch.setattr({"fxrewrite": fxrewrite, "torch": torch}[version[0]], version[1], "9.9")
    assert uuid() != before


def test_an_op_that_comes_to_be_registered(native: Path) -> None:
    """What a rule names and this build lacks is off; once it is there it is on, and another pass."""
    op = "op gain(x: f32[*B, D]) -> f32[*B, D]\n  = x * 2.0 + 1.0\n  form eng  uuidlib.gain(x)\n"
    text = op + "rule g: exp(gain(x)) => gain(x)\n"
    before = uuid(text)
    with torch.library._scoped_library("uuidlib", "FRAGMENT") as lib:
        lib.define("gain(Tensor x) -> Tensor")
        assert uuid(text) != before


# ---- proofs of other packages' ops


def test_what_is_proved(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer, another release of the package, another process where there is none; of what may be used only."""
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(owners, "release", lambda op: release)
    release: str | None = "uuidlib==1"
    served = packs.load([parse(PACK, "mine.rw")[0]])
    op = served.ops["gain_exp"]

    def now(provider: str = "eng") -> str:
        return uuid(allow_unproved=False, providers=[provider])

    def answered(result: Any) -> str:
        digest, releases, device = ledger.key_of(served, op, "impl", op.impls[0], "cpu") or ("", (), "")
        ledger.keep(ledger.Entry("impl", "gain_exp/eng", digest, releases, device, result, 16, "2026-12-01"))
        return now()

    absent = now()
    with torch.library._scoped_library("uuidlib", "FRAGMENT") as lib:
        lib.define("gain_exp(Tensor x) -> Tensor")
        unknown, unused = now(), now("op")
        proved, failed = answered("proved"), answered("failed")
        assert failed == now()
        assert unused == now("op")
        release = "uuidlib==2"
        newer = now()
        release = None
        of_nobody = now()
        assert of_nobody == now()
        monkeypatch.setattr(proofs, "IN_PROCESS", "another process")
        elsewhere = now()
        assert len({absent, unknown, proved, failed, newer, of_nobody, elsewhere}) == 7


def test_an_answer_that_this_process_got(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be tried is not remembered, and what was compiled without it is other code."""
    pass_ = make_pass(make_config([parse(PACK, "mine.rw")[0]], allow_unproved=False, providers=["eng"]))
    before = pass_.uuid()
    op = pass_.engine.program.ops["gain_exp"]
    monkeypatch.setattr(proofs, "prover", lambda: lambda question: proofs.Answer("untried", "why"))
    monkeypatch.setattr(owners, "release", lambda op: "uuidlib==3")
    assert pass_.engine.providers.proofs.against(op, "impl", op.impls[0], torch.device("cpu")) is not None
    assert pass_.uuid() != before


# ---- ranks: the sizes of groups are asked by conditions; the number of this rank is asked by nothing that is matched


def in_a_group(rank: int, world: int, pairs: bool = False) -> list[str]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        made_before = make_pass(make_config(["noop"]))
        first = made_before.uuid()
        if pairs:
            dist.new_group(list(range(2)))
        return [first, made_before.uuid()]
    finally:
        dist.destroy_process_group()


def test_ranks_share_a_cache_and_other_sizes_do_not(native: Path) -> None:
    alone = make_pass(make_config(["noop"])).uuid()
    (of_rank_0, _), (of_rank_1, _), (of_eight, _) = in_a_group(0, 4), in_a_group(1, 4), in_a_group(0, 8)
    assert of_rank_0 == of_rank_1
    assert len({alone, of_rank_0, of_eight}) == 3


def test_a_group_that_is_made_later_counts(native: Path) -> None:
    first, later = in_a_group(0, 4, pairs=True)
    assert first != later


# ---- a second process

COMPILES = """
import json, sys, torch, fxrewrite
from torch import Tensor
from fxrewrite.lowering import graph_pass
graph_pass._engine_digest = lambda: "this engine"  # whoever edits it between the processes
packs, recorded = sys.argv[1], sys.argv[2] == "recorded"
backend = fxrewrite.backend([packs], providers=["op"])
def fused(x): return torch.exp(torch.abs(x))
def near(x): return torch.exp(torch.abs(x)), torch.abs(x @ x)
X = torch.ones(4, 4)
def run(model):
    with fxrewrite.record() as log:
        backend_out = torch.compile(model, backend=backend)(X)
    for a, b in zip(*([o] if isinstance(o, Tensor) else o for o in (backend_out, model(X))), strict=True):
        assert torch.equal(a, b)
    return log
with torch.no_grad():
    if not recorded:
        torch.compile(fused, backend=backend)(X)
        sys.exit()
    logs = [run(fused), run(near)]
print(json.dumps([[log.to_json(), log.report()] for log in logs]))
"""
RULES = """op size(x: f32[*B, D]) -> f32[*B, D] = abs(x)
op grow(x: f32[*B, D]) -> f32[*B, D] = exp(x)
fusion f(x) = grow(size(x))
"""


def compiled(folder: Path, text: str, recorded: bool = True) -> Any:
    """What two compilations say in a process of its own, with caches in a folder."""
    (folder / "rules.rw").write_text(text)
    places = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "FXREWRITE_CACHE_DIR": str(folder / "ours")}
    command = [sys.executable, "-c", COMPILES, str(folder / "rules.rw"), "recorded" if recorded else "silent"]
    done = subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if recorded else None


@pytest.mark.slow
def test_a_warm_start_reports_what_the_cold_run_stored(tmp_path: Path) -> None:
    compiled(tmp_path, RULES, recorded=False)
    (quiet, said), (cold, _) = compiled(tmp_path, RULES)
    assert (quiet["cached"], quiet["events"], cold["cached"]) == (1, [], 0)
    assert [e["rule"] for e in quiet["stored"] if e["fired"]] == ["f"], "nobody listened to the cold run"
    assert "cached (from the cold run):\n  rules.f  1 of 1 sites  (provider: op)" in said
    _, (warm, said) = compiled(tmp_path, "# another layout\n" + RULES.replace(" = grow", "\n  = grow"))
    assert (warm["cached"], warm["events"], warm["fired"]) == (1, [], {})
    told = [e for e in cold["events"] if e["reason"] != "level" and e["reason"] != "pack off"]
    assert {e["fired"] for e in told} == {True, False} and warm["stored"] == told
    (changed, _), _ = compiled(tmp_path, RULES + "rule twice: neg(neg(x)) => x\n")
    assert (changed["cached"], changed["stored"]) == (0, [])


EVENT = Event("mine", "f", "exp", False, "dtype", "a", "b", Span("mine.rw", 1, 2, 1, 9), nodes=("abs_1",), graph=1)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path / "ours"))
    cold_runs.store("cold-1.json", [EVENT])
    return tmp_path / "ours/cold-1.json"


def test_events_are_kept(kept: Path) -> None:
    assert cold_runs.load("cold-1.json") == [EVENT] and cold_runs.load("cold-2.json") == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, e: path.write_bytes(path.read_bytes()[:-9]),
        lambda path, e: path.write_bytes(b""),
        lambda path, e: (path.unlink(), path.mkdir()),
        lambda path, e: private_cache.store(path.name, {"events": [e]}),
        lambda path, e: private_cache.store(path.name, [1, "event", None]),
        lambda path, e: private_cache.store(path.name, [{}]),
        lambda path, e: private_cache.store(path.name, [{**e, "span": {"file": 1}}]),
        lambda path, e: private_cache.store(path.name, [{**e, "span": [1]}]),
        lambda path, e: private_cache.store(path.name, [{**e, "reason": "a reason of another version"}]),
        lambda path, e: private_cache.store(path.name, [{**e, "a field of another version": 1}]),
        lambda path, e: private_cache.store(path.name, [{**e, "nodes": 3}]),
        lambda path, e: private_cache.store(path.name, [{**e, "nodes": [{}]}]),
        lambda path, e: private_cache.store(path.name, [{**e, "found": {"a": 1}}]),
        lambda path, e: private_cache.store(path.name, [{**e, "rule": None}]),
    ],
    ids=range(14),
)
def test_what_is_no_event_is_as_nothing(damage: Any, kept: Path) -> None:
    damage(kept, EVENT.to_json())
    assert cold_runs.load("cold-1.json") == []
