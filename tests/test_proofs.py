"""Proof on first use: what another package computes is used where it is shown to be the op."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import define
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import fxrewrite
from fxrewrite.dsl import packs, private_cache, registered
from fxrewrite.dsl.core import Program
from fxrewrite.dsl.parse import parse
from fxrewrite.lowering import ledger, owners, proofs
from fxrewrite.lowering.failures import RuleFailure
from fxrewrite.lowering.proofs import Answer, Question
from fxrewrite.verify import proving
from fxrewrite.verify.equal import attempt
from fxrewrite.verify.strategies import cases

FP8 = torch.float8_e4m3fn
CPU = torch.device("cpu")
PACK = """pack prooflib level O1

op proof_quant(x: lowp[*B, D], s: f32[1]) -> (qx: e4m3fn[*B, D])
  = to(clamp(f32(x) / s, -448.0, 448.0), e4m3fn)
  form theirs  prooflib.{form}
op proof_state(x: lowp[*B, D]) -> lowp[*B, D]
  ref "nowhere:state"
  form theirs  prooflib.state(x)
op proof_half(x: lowp[*B, D]) -> (y: lowp[*B, D])
  = x * 0.5
  impl right  prooflib.halve(mut x as y)
  impl dense  prooflib.halve_densely(mut x as y)
fusion proof_silu_quant(x, s) = silu(x) |> proof_quant(s)
  impl lib  prooflib.{impl}
fusion proof_gelu_quant(x, s) = gelu(x) |> proof_quant(s)
rule proof_states: neg(proof_state(x)) => proof_state(x)
"""
FORM, IMPL = "quant(x, s)", "silu_quant(x, s)"
OTHER_RESULT = "result 0 is not what its fake kernel says: "


# ---- the package


def _quant(x: Tensor, s: Tensor) -> Tensor:
    return (x.float() / s).clamp(-448, 448).to(FP8)


def _by_reciprocal(x: Tensor, s: Tensor) -> Tensor:
    """Equal on random numbers, another code on ties."""
    return (x.float() * (1 / s)).clamp(-448, 448).to(FP8)


def _silu(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide / (torch.exp(-wide) + 1)).to(x.dtype)


def _fill(out: Tensor, x: Tensor, s: Tensor) -> None:
    out.copy_(_quant(_silu(x), s))


def _beside(out: Tensor, x: Tensor, s: Tensor) -> None:
    """It writes one element behind its buffer, if there is one."""
    out.copy_(_quant(x, s))
    room = out.untyped_storage().nbytes() - out.storage_offset() - out.numel()
    if room > 0 and out.is_contiguous():
        out.view(torch.uint8).as_strided((out.numel() + 1,), (1,))[-1] = 0


def _densely(out: Tensor, x: Tensor, s: Tensor) -> None:
    """It reads its argument as if its rows were dense."""
    dense = x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())
    out.copy_(_quant(dense if x.untyped_storage().nbytes() >= dense.nbytes else x, s))


def _halve_densely(x: Tensor) -> None:
    """It writes as many elements as there are, one after the other."""
    room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    x.as_strided((min(x.numel(), room),), (1,)).mul_(0.5)


def _halve(x: Tensor) -> None:
    x.mul_(0.5)


OPS: dict[str, Callable[..., Any]] = {
    "quant(Tensor x, Tensor s) -> Tensor": _quant,
    "quant_by_reciprocal(Tensor x, Tensor s) -> Tensor": _by_reciprocal,
    "silu_quant(Tensor x, Tensor s) -> Tensor": lambda x, s: _quant(_silu(x), s),
    "silu_quant_by_reciprocal(Tensor x, Tensor s) -> Tensor": lambda x, s: _by_reciprocal(_silu(x), s),
    "fill(Tensor(a!) out, Tensor x, Tensor s) -> ()": _fill,
    "beside(Tensor(a!) out, Tensor x, Tensor s) -> ()": lambda out, x, s: _beside(out, _silu(x), s),
    "densely(Tensor(a!) out, Tensor x, Tensor s) -> ()": _densely,
    "halve(Tensor(a!) x) -> ()": _halve,
    "halve_densely(Tensor(a!) x) -> ()": _halve_densely,
    "raises(Tensor x, Tensor s) -> Tensor": lambda x, s: x.view(-1, 7),
    "destroys(Tensor x, Tensor s) -> Tensor": lambda x, s: _destroy(x, s),
    "transposes(Tensor x, Tensor s) -> Tensor": lambda x, s: _quant(x, s).mT.contiguous().mT,
    "misbehaves(Tensor x, Tensor s) -> Tensor": lambda x, s: _misbehave(x, s),
}


def _destroy(x: Tensor, s: Tensor) -> Tensor:
    """Twice is as once: only the first call changes anything."""
    y = _quant(x, s)
    x.zero_()
    return y


@define
class Misbehaving:
    """What `prooflib.misbehaves` does at one of its calls, and later."""

    at: int = 1
    does: Callable[[Tensor], Any] = lambda y: y
    calls: int = 0


MISBEHAVING = Misbehaving()


def _misbehave(x: Tensor, s: Tensor) -> Any:
    MISBEHAVING.calls += 1
    y = _quant(x, s)
    return MISBEHAVING.does(y) if MISBEHAVING.calls >= MISBEHAVING.at else y


def _raise(error: BaseException) -> Callable[[Tensor], Any]:
    def does(y: Tensor) -> Any:
        raise error

    return does


def _recurse(y: Tensor) -> Any:
    return _recurse(y)


def misbehaving(kind: Any, at: int, does: Callable[[Tensor], Any]) -> Answer:
    """The answer for an op that misbehaves."""
    MISBEHAVING.at, MISBEHAVING.does, MISBEHAVING.calls = at, does, 0
    if kind == "form":
        return proving.prove(question("form", form="misbehaves(x, s)"))
    return asked("misbehaves(silu(x), s)")


@pytest.fixture(scope="module", autouse=True)
def ops() -> Iterator[None]:
    lib = torch.library.Library("prooflib", "FRAGMENT")
    for schema, function in OPS.items():
        lib.define(schema)
        name = schema.partition("(")[0]
        lib.impl(name, function, "CPU")
        lib.impl(name, (lambda *a: None) if "!" in schema else _fake, "Meta")
    lib.define("state(Tensor x) -> Tensor")
    lib.impl("state", torch.empty_like, "CompositeExplicitAutograd")
    lib.define("only_fake(Tensor x, Tensor s) -> Tensor")
    lib.impl("only_fake", _fake, "Meta")
    yield
    lib._destroy()


def _fake(x: Tensor, s: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=FP8)


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, and no answer of an earlier test."""
    monkeypatch.delenv(proofs.VARIABLE)
    monkeypatch.setenv("FXREWRITE_CACHE_DIR", str(tmp_path / "cache"))


def file_of(form: str = FORM, impl: str = IMPL) -> Any:
    file, diagnostics = parse(PACK.format(form=form, impl=impl), "prooflib.rw")
    assert not diagnostics
    return file


def graph(quant: Callable[..., Any], before: Any = torch.ops.aten.silu) -> GraphModule:
    x, s = torch.randn(6, 32).bfloat16(), torch.tensor([0.03])
    return make_fx(lambda x, s: quant(before(x), s), tracing_mode="fake")(x, s)


def rewritten(quant: Callable[..., Any] = _quant, form: str = FORM, impl: str = IMPL, **settings: Any) -> Any:
    """The log of the rewriting of a graph of silu and a quant, and the graph."""
    with fxrewrite.record() as log:
        made = fxrewrite.rewrite(graph(quant), [file_of(form, impl)], **{"providers": ["lib"], **settings})
    return log, made


def calls(made: Any) -> set[Any]:
    return {n.target for n in made.graph.nodes}


def question(kind: Any, form: str = FORM, impl: str = IMPL, op: str = "proof_quant") -> Question:
    program = packs.load([file_of(form, impl)])
    found = program.ops[op]
    return Question(program, found, kind, (found.forms if kind == "form" else found.impls)[0], CPU)


def asked(impl: str) -> Answer:
    return proving.prove(question("impl", impl=impl, op="proof_silu_quant"))


# ---- what is used


def test_a_right_provider_is_proved_and_used() -> None:
    log, made = rewritten()
    assert log.fired() == {"proof_silu_quant": 1}
    assert torch.ops.prooflib.silu_quant.default in calls(made)


def test_a_provider_with_another_rounding_on_ties_is_not(caplog: pytest.LogCaptureFixture) -> None:
    wrong = "silu_quant_by_reciprocal(x, s)"
    with caplog.at_level(logging.WARNING, "fxrewrite"):
        log, _ = rewritten(impl=wrong)
    (event,) = log.missed("proof_silu_quant")
    assert (event.fired, event.reason) == (False, "not proved")
    assert "lib: its proof failed: qx[" in event.found
    assert re.search(r"x b?f16\[256, 128\]", event.found)  # the case
    assert sum("is not used: its proof failed" in r.message for r in caplog.records) == 1
    assert "not proved: found lib: its proof failed" in log.report()
    assert any(e["reason"] == "not proved" for e in log.to_json()["events"])
    assert rewritten(impl=wrong, allow_unproved=True)[0].fired() == {"proof_silu_quant": 1}
    log, _ = rewritten(impl=wrong, providers=["lib", "definition"])
    assert [e.reason for e in log.missed("proof_silu_quant")] == ["not proved"]
    log, _ = rewritten(impl=wrong, providers=["lib", "op"])
    assert [e.by for e in log.events if e.fired] == ["op"]


def test_a_form_that_is_not_proved_gives_no_view_and_a_near_miss_names_it() -> None:
    theirs = torch.ops.prooflib.quant_by_reciprocal
    log, made = rewritten(theirs, form="quant_by_reciprocal(x, s)")
    (event,) = log.missed("proof_silu_quant")
    assert event.reason == "not proved"
    assert event.expected == "a proof of the form proof_quant/theirs"
    assert event.found.startswith("its proof failed: qx[")
    assert event.site == event.nodes[0] == "quant_by_reciprocal"
    assert theirs.default in calls(made)
    assert rewritten(torch.ops.prooflib.quant)[0].fired() == {"proof_silu_quant": 1}
    log, _ = rewritten(theirs, form="quant_by_reciprocal(x, s)", allow_unproved=True)
    assert log.fired() == {"proof_silu_quant": 1}


@pytest.mark.parametrize(
    ("impl", "why"),
    [
        ("beside(out qx, x, s)", "bytes beside `out` are written"),
        ("densely(out qx, x, s)", "qx["),
        ("raises(x, s)", "it raises RuntimeError: "),
    ],
)
def test_a_kernel_that_writes_reads_or_raises_wrongly_is_caught(impl: str, why: str) -> None:
    answer = asked(impl)
    assert answer.result == "failed"
    assert why in answer.why


@pytest.mark.parametrize("kind", ["form", "impl"])
def test_a_kernel_that_destroys_its_operand_is_caught(kind: Any) -> None:
    call = "destroys(x, s)" if kind == "form" else "destroys(silu(x), s)"
    answer = proving.prove(question("form", form=call)) if kind == "form" else asked(call)
    assert answer.result == "failed"
    assert "`x` is written, which is marked neither `mut` nor `out`" in answer.why


def test_an_operand_that_is_written_is_a_failure_of_each_case() -> None:
    """Though the results are right: `verify` says it too."""
    claim = proving._claim(question("form", form="destroys(x, s)"))
    given = next(g for g in cases(claim, proving.PROFILE, seed=0) if g.operands[0].any())
    before = given.operands[0].clone()
    said = "`x` is written, which is marked neither `mut` nor `out`"
    assert attempt(claim, given).wrong == {"qx": said}
    assert torch.equal(given.operands[0].view(torch.int16), before.view(torch.int16))


@pytest.mark.parametrize("kind", ["form", "impl"])
def test_a_result_in_other_strides_than_its_fake_kernel_says_is_caught(kind: Any) -> None:
    call = "transposes(x, s)" if kind == "form" else "transposes(silu(x), s)"
    answer = proving.prove(question("form", form=call)) if kind == "form" else asked(call)
    assert answer.result == "failed"
    assert re.search(OTHER_RESULT + r"strides \(\d+, 1\) became \(1, \d+\)", answer.why)


@pytest.mark.parametrize("kind", ["form", "impl"])
@pytest.mark.parametrize("at", [1, 7])
@pytest.mark.parametrize(
    ("does", "why"),
    [
        (_raise(AttributeError("of theirs")), ["it raises AttributeError: of theirs"]),
        (_raise(ZeroDivisionError()), ["it raises ZeroDivisionError ("]),
        (_raise(MemoryError("none\nat all")), ["it raises MemoryError: none ("]),
        (_raise(ValueError("of theirs")), ["it raises ValueError: of theirs"]),
        (_raise(SystemExit(3)), ["it raises SystemExit: 3"]),
        (_recurse, ["it raises RecursionError: maximum recursion depth exceeded"]),
        (lambda y: None, ["no value is given for it", f"prooflib.misbehaves: {OTHER_RESULT}a tensor became None"]),
        (lambda y: (y, y), ["it raises RuntimeError: "]),
    ],
)  # fmt: skip
def test_what_an_op_raises_is_the_fault_of_the_op(does: Any, why: list[str], at: int, kind: Any) -> None:
    answer = misbehaving(kind, at, does)
    assert answer.result == "failed"
    assert answer.why.startswith(tuple(why))
    assert "\n" not in answer.why
    assert len(answer.why) < 400


def test_an_interrupt_is_not_caught() -> None:
    with pytest.raises(KeyboardInterrupt):
        misbehaving("impl", 3, _raise(KeyboardInterrupt()))


def test_an_impl_that_gives_no_value_is_caught() -> None:
    answer = asked("fill(mut x, x, s)")
    assert answer.result == "failed"
    assert answer.why.startswith("no value is given for it")


def test_a_kernel_that_writes_its_argument() -> None:
    program = packs.load([file_of()])
    op = program.ops["proof_half"]
    right, dense = (proving.prove(Question(program, op, "impl", case, CPU)) for case in op.impls)
    assert right.result == "proved"
    assert dense.result == "failed"
    assert "y" in dense.why


def test_a_kernel_that_fills_a_buffer_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "ENOUGH_S", 1000.0)
    answer = asked("fill(out qx, x, s)")
    assert (answer.result, answer.cases) == ("proved", proving.PROFILE.cases)


def test_as_many_cases_as_matter_are_tried_however_slow_a_kernel_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "ENOUGH_S", 0.0)
    assert asked(IMPL) == Answer("proved", "", proving.LEAST)


def test_a_compilation_reaches_no_proof() -> None:
    """Modes, gradients, autocast and the generator of who asks are not those of the proof."""
    state = torch.random.get_rng_state()
    modes = torch._subclasses.FakeTensorMode(), torch.inference_mode(), torch.autocast("cpu", torch.float16)
    with modes[0], modes[1], modes[2]:
        assert asked(IMPL).result == "proved"
    assert torch.equal(torch.random.get_rng_state(), state)


# ---- what cannot be tried


def test_what_cannot_be_tried_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(*args: Any, **given: Any) -> str:
        answer = proving.prove(question(*args, **given))
        assert answer.result == "untried"
        return answer.why

    assert why("form", op="proof_state") == "proof_state has no definition"
    assert why("form", form="nowhere(x, s)") == "prooflib.nowhere is not in this build"
    assert why("form", form="only_fake(x, s)") == "prooflib.only_fake has no kernel for cpu"
    program = packs.load([])
    op = program.ops["all_reduce"]
    form = next(f for f in op.forms if f.name == "vllm")
    assert proving.untriable(Question(program, op, "form", form, CPU)) == "it needs several ranks"
    assert proofs.Proofs(program).against(op, "form", form, torch.device("cuda", 99)) is not None
    monkeypatch.setattr(registered, "listed", lambda group: {})
    proofs._proved_here.cache_clear()
    event = rewritten()[0].missed("proof_silu_quant")[0]
    assert "it cannot be proved: no installed package lists a prover under fxrewrite.prover" in event.found
    assert event.hint == "`--allow-unproved`, in Python allow_unproved=True, uses it without a proof"


def test_an_op_without_a_definition_is_off_and_said_to_be() -> None:
    made = make_fx(lambda x: -torch.ops.prooflib.state(x), tracing_mode="fake")(torch.randn(4, 8).bfloat16())
    with fxrewrite.record() as log:
        fxrewrite.rewrite(made, [file_of()], providers=["op"])
    (event,) = log.missed("proof_states")
    assert (event.reason, event.found) == ("not proved", "it cannot be proved: proof_state has no definition")


def test_a_prover_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(given: Question) -> Answer:
        raise ZeroDivisionError("of the prover\nmore")

    monkeypatch.setattr(proofs, "prover", lambda: prove)
    monkeypatch.setattr(proofs, "_proved_here", proofs._proved_here.__wrapped__)
    (event,) = rewritten()[0].missed("proof_silu_quant")
    assert event.found.endswith("it cannot be proved: the prover raised ZeroDivisionError: of the prover")
    with pytest.raises(RuleFailure, match="the proof of proof_silu_quant/lib raised ZeroDivisionError"):
        rewritten(strict=True)


def test_strict_refuses_what_is_not_proved_as_ever() -> None:
    log, _ = rewritten(impl="silu_quant_by_reciprocal(x, s)", strict=True)
    assert [e.reason for e in log.missed("proof_silu_quant")] == ["not proved"]


# ---- when


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every question that the prover gets, all of them answered by yes; their ops are of a known release."""
    asked: list[str] = []

    def prove(given: Question) -> Answer:
        asked.append(f"{given.kind} {given.subject}")
        return Answer("proved", "", 16)

    monkeypatch.setattr(proofs, "prover", lambda: prove)
    monkeypatch.setattr(owners, "release", lambda op: "prooflib==1.0")
    return asked


def test_nothing_is_proved_that_no_graph_needs(proved: list[str]) -> None:
    fxrewrite.rewrite(make_fx(torch.neg, tracing_mode="fake")(torch.ones(2)), [file_of()], providers=["lib"])
    assert rewritten(providers=["op"])[0].fired() == {"proof_silu_quant": 1}
    assert proved == []
    assert rewritten(providers=["lib"])[0].fired() == {"proof_silu_quant": 1}
    assert proved == ["impl proof_silu_quant/lib"]


def test_a_site_that_a_provider_does_not_serve_needs_no_proof(proved: list[str]) -> None:
    assert not rewritten(impl=IMPL + "  when D % 64 == 0")[0].fired()
    assert proved == []


def test_a_proof_is_remembered(proved: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For a definition, a release and a device; a new engine knows no more than a new process."""

    def asks(*args: Any) -> bool:
        before = len(proved)
        assert rewritten(*args)[0].fired() == {"proof_silu_quant": 1}
        return len(proved) > before

    theirs = torch.ops.prooflib.quant
    assert asks(theirs)
    assert proved == ["form proof_quant/theirs", "impl proof_silu_quant/lib"]
    assert not asks(theirs)
    assert asks(theirs, FORM, IMPL + "  when D % 2 == 0")
    monkeypatch.setattr(sys.modules[__name__], "PACK", PACK.replace("f32(x) / s", "f32(x) / abs(s)"))
    assert asks(theirs)
    assert not asks(theirs)
    monkeypatch.setattr(owners, "release", lambda op: "prooflib==1.1")
    assert asks(theirs)
    monkeypatch.setattr(proofs, "device_name", lambda device: "another GPU")
    assert asks(theirs)
    monkeypatch.setattr(owners, "release", lambda op: None)
    assert asks(theirs)
    count = len(list((Path(private_cache.os.environ["FXREWRITE_CACHE_DIR"])).glob("proof-*")))
    assert count == 9  # nothing is kept of what is of no release


def test_a_failure_is_remembered_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "release", lambda op: "prooflib==1.0")
    wrong = "silu_quant_by_reciprocal(x, s)"
    (first,) = rewritten(impl=wrong)[0].missed("proof_silu_quant")
    monkeypatch.setattr(proofs, "prover", lambda: None)
    (again,) = rewritten(impl=wrong)[0].missed("proof_silu_quant")
    assert again.found == first.found


# ---- the record


def entry(**given: Any) -> ledger.Entry:
    fields = dict(
        kind="impl", subject="a/b", digest="d", releases=("p==1",), device="cpu", result="proved", cases=3,
        date="2026-12-01",
    )  # fmt: skip
    return ledger.Entry(**{**fields, **given})


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: {**e, "schema": 2}, lambda e: {**e, "digest": "other"}, lambda e: {**e, "result": "surely"},
        lambda e: {**e, "more": 1}, lambda e: {**e, "cases": "3"}, lambda e: [e], lambda e: {**e, "releases": None},
        lambda e: {n: v for n, v in e.items() if n != "date"},
    ],
)  # fmt: skip
def test_what_is_no_record_is_ignored_with_one_line(damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = entry()
    ledger.keep(made)
    assert ledger.find(made.key) == made
    name = ledger._file(made.key)
    private_cache.store(name, damage(private_cache.load(name)))
    assert ledger.find(made.key) is None
    assert [r.message.startswith(f"a record of a proof ({name}) is ignored") for r in caplog.records] == [True]


def test_a_record_of_others_is_none(tmp_path: Path) -> None:
    made = entry()
    ledger.keep(made)
    (tmp_path / "cache" / ledger._file(made.key)).chmod(0o666)
    assert ledger.find(made.key) is None


def test_processes_that_prove_at_one_time_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def work(i: int) -> bool:
        mine = entry(digest=f"d{i % 4}")
        ledger.keep(mine)
        return ledger.find(mine.key) == mine

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
    assert not caplog.records


@pytest.mark.parametrize("text", ["", "[1]", '{"schema": 1}', '{"schema": 1, "entries": [{}]}', "[" * 9999])
def test_a_damaged_ledger_is_ignored_with_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ledger.json").write_text(text)
    monkeypatch.setattr(ledger, "shipped_folder", lambda: tmp_path)
    monkeypatch.setattr(ledger, "shipped", ledger.shipped.__wrapped__)
    assert ledger.find(entry().key) is None
    assert [r.message.startswith("the ledger of proofs") for r in caplog.records] == [True]


def test_what_the_ledger_says_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proved: list[str]) -> None:
    rewritten()
    assert len(proved) == 1
    (kept,) = (tmp_path / "cache").glob("proof-*")
    value = json.loads(kept.read_bytes().partition(b"\n")[2])
    value.pop("schema")
    (tmp_path / "ledger.json").write_text(json.dumps({"schema": 1, "entries": [value]}))
    kept.unlink()
    monkeypatch.setattr(ledger, "shipped_folder", lambda: tmp_path)
    monkeypatch.setattr(ledger, "shipped", ledger.shipped.__wrapped__)
    assert rewritten()[0].fired() == {"proof_silu_quant": 1}
    assert len(proved) == 1


def test_the_shipped_ledger_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    ledger.shipped.cache_clear()
    ledger.shipped()
    assert not caplog.records


# ---- owners


def test_what_needs_a_proof() -> None:
    program: Program = packs.load([file_of()])
    op = program.ops["proof_quant"]
    assert owners.foreign(op.forms[0]) == ("prooflib.quant",)
    assert owners.foreign(op.equations[0]) == ()
    of_torch = [c for o in program.ops.values() for c in (*o.forms, *o.impls) if owners.foreign(c) == ()]
    assert any(c.torch_call is not None and c.torch_call.op.startswith("aten.") for c in of_torch)
    everywhere = {n for o in program.ops.values() for c in (*o.forms, *o.impls) for n in owners.foreign(c)}
    assert {n.partition(".")[0] for n in everywhere} == {"prooflib", "_C", "vllm", "vllm_ir"}


def test_the_release_is_that_of_the_package_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import torch\n@torch.library.custom_op('proofowned::{0}', mutates_args=())\n"
        "def f(x: torch.Tensor) -> torch.Tensor:\n    return x.clone()\n"
    )
    for name in ("proof_owner", "proof_edited"):
        (tmp_path / f"{name}.py").write_text(code.format(name))
        info = tmp_path / f"{name}-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        (info / "top_level.txt").write_text(name)
    (tmp_path / "proof_edited-2.5.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    monkeypatch.syspath_prepend(tmp_path)
    for function in (owners._distributions, owners._module, owners._package, owners._released):
        function.cache_clear()
    for name in ("proof_owner", "proof_edited"):
        import_module(name)
    assert owners.release("proofowned.proof_owner") == "proof_owner==2.5"
    assert owners.release("proofowned.proof_edited") is None
    assert owners.release("prooflib.quant") is None  # of this file
    owners._distributions.cache_clear()


# ---- processes

PACKAGE = """import torch
@torch.library.custom_op("proofpackage::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
"""
PROCESS = """
import sys, torch, fxrewrite, proof_package
from torch.fx.experimental.proxy_tensor import make_fx
from fxrewrite.lowering import proofs
if sys.argv[1] == "no prover":
    proofs.prover = lambda: None
graph = make_fx(lambda x: torch.neg(x) * 2, tracing_mode="fake")(torch.ones(2, 4))
with fxrewrite.record() as log:
    fxrewrite.rewrite(graph, ["twice.rw"], providers=["theirs"])
print(dict(log.fired()))
"""


@pytest.mark.slow
def test_a_second_process_does_not_prove_again(tmp_path: Path) -> None:
    def fired(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, *args], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    (tmp_path / "proof_package.py").write_text(PACKAGE)
    (tmp_path / "twice.rw").write_text(
        "fusion proof_twice(x: f32[*B, D]) = -x * 2.0\n  impl theirs  proofpackage.twice(-x)\n"
    )
    release(tmp_path, "1.0")
    assert fired("no prover") == "{}"
    assert fired("prover") == fired("no prover") == "{'proof_twice': 1}"
    release(tmp_path, "1.1")
    assert fired("no prover") == "{}"


def release(folder: Path, version: str) -> None:
    """Install `proof_package` in a folder, by a record of it."""
    info = folder / "proof_package.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: proof_package\nVersion: {version}\n")
    (info / "top_level.txt").write_text("proof_package")
