"""May a form or an `impl` that calls another package's op be used, and if not, why not.

It is a claim about somebody's kernel: it is used where the ledger has a proof, or one succeeds when it is met.
Who proves is found among the installed packages, as natives are (`dsl/registered.py`):

    [project.entry-points."fxrewrite.prover"]
    prove = "mylib.proving:prove"           # prove(question: Question) -> Answer
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import torch
from attrs import define, field, frozen

from fxrewrite.dsl import registered
from fxrewrite.dsl.core import Case, OpDef, Program
from fxrewrite.lowering import ledger, owners
from fxrewrite.lowering.failures import RuleFailure
from fxrewrite.patterns.hints import refuted_hint, unproved_hint

logger = logging.getLogger("fxrewrite")
PROVER = "fxrewrite.prover"
CPU = "cpu"
VARIABLE = "FXREWRITE_ALLOW_UNPROVED"
Kind = Literal["form", "impl"]
IN_PROCESS = os.urandom(16).hex()  # of an op that may change at any time nothing is known to another process


@frozen
class Question:
    """Is a `form` or `impl` of `op` its definition, on this device? `facts`: `sm`, `rocm`, `world`."""

    program: Program
    op: OpDef
    kind: Kind
    case: Case
    device: torch.device
    facts: Mapping[str, Any] = field(factory=dict[str, Any])

    @property
    def subject(self) -> str:
        """`op/case`."""
        return f"{self.op.name}/{self.case.name}"


@frozen
class Answer:
    """`proved` and `failed` hold for this release of the op and this device, and are remembered. `untried`: it could
    not be tried here. `why`: for people. `cases`: how many inputs were tried.
    """

    result: Literal["proved", "failed", "untried"]
    why: str = ""
    cases: int = 0


@frozen
class Unproved:
    """Why a case is not used, and what to type."""

    why: str
    hint: str


@define(eq=False)
class Proofs:
    """The answers that a program needs. `allow`: everything may be used. `strict`: a prover that raises raises."""

    program: Program
    facts: Mapping[str, Any] = field(factory=dict[str, Any])
    allow: bool = False
    strict: bool = False
    answers: dict[tuple[str, int, str], tuple[Case, Answer]] = field(init=False, factory=dict)  # by the id of the case
    forms: list[tuple[OpDef, Case]] = field(init=False, factory=list)  # that need a proof

    def against(
        self, op: OpDef, kind: Kind, case: Case, device: torch.device | None, program: Program | None = None
    ) -> Unproved | None:
        """What speaks against a case; None where it may be used. `program`: of the op, where it is another."""
        if self.allow or not owners.foreign(case):
            return None
        known = (kind, id(case), str(device))
        if known not in self.answers:
            answer = self._answer(program or self.program, op, kind, case, device)
            self.answers[known] = case, answer
            if answer.result != "proved":
                logger.warning("%s/%s (%s) is not used: %s", op.name, case.name, case.span, text(answer))
        _, answer = self.answers[known]
        if answer.result == "proved":
            return None
        if answer.result == "untried":
            return Unproved(text(answer), unproved_hint())
        registering = sorted({m for name in owners.foreign(case) for m in owners.modules(name)} - {"__main__"})
        return Unproved(text(answer), refuted_hint(op.name, _file(case), registering))

    def remembered_against(self, op: OpDef, kind: Kind, case: Case, device: torch.device) -> str:
        """How the proof of a case failed earlier; nothing where it did not, or has not been tried."""
        name = device_name(device)
        called = owners.foreign(case)
        if self.allow or not called or name is None or not owners.is_here(called):
            return ""
        key = ledger.key_of(self.program, op, kind, case, name)
        entry = ledger.find(key) if key is not None else None
        return text(Answer("failed", entry.why)) if entry is not None and entry.result == "failed" else ""

    def of_form(self, op: OpDef, form: Case) -> Callable[[torch.device | None], Unproved | None] | None:
        """What speaks against a form on a device; None of one that needs no proof."""
        if self.allow or not owners.foreign(form):
            return None
        self.forms.append((op, form))
        return lambda device: self.against(op, "form", form, device)

    def state(self, impls: Iterable[tuple[OpDef, Case]]) -> list[Any]:
        """What answers depend on, and those that are known: of the forms, and of these `impl`s."""
        if self.allow:
            return []
        given = sorted((kind, case.name, str(answer)) for (kind, _, _), (case, answer) in self.answers.items())
        known = [self._known(op, "form", form) for op, form in self.forms]
        known += [self._known(op, "impl", case) for op, case in impls if owners.foreign(case)]
        return [sorted(registered.listed(PROVER)), given, known]

    def _known(self, op: OpDef, kind: Kind, case: Case) -> Any:
        """Whose the ops of a case are, and what is remembered of it on the devices of this process."""
        called = owners.foreign(case)
        if not owners.is_here(called):
            return None
        keys = [ledger.key_of(self.program, op, kind, case, device) for device in device_names()]
        if None in keys:
            return IN_PROCESS, [repr(owners.registration(name)) for name in called]
        return [(key, ledger.find(key)) for key in keys if key is not None]

    def _answer(self, program: Program, op: OpDef, kind: Kind, case: Case, device: torch.device | None) -> Answer:
        if device is None:
            return Answer("untried", "nothing says on what device")
        name = device_name(device)
        if name is None:
            return Answer("untried", f"this process has no device {device}")
        question = Question(program, op, kind, case, device, self.facts)
        key = ledger.key_of(program, op, kind, case, name)
        entry = ledger.find(key) if key is not None else None
        if entry is not None:
            return Answer(entry.result, entry.why, entry.cases)
        try:
            return self._tried(question, key)
        except Exception as error:
            if self.strict:
                raise RuleFailure(f"the proof of {question.subject} raised {type(error).__name__}: {error}") from error
            said = str(error).split("\n")[0]
            return Answer("untried", f"the prover raised {type(error).__name__}: {said}")

    def _tried(self, question: Question, key: ledger.Key | None) -> Answer:
        """What the prover says; remembered where that holds for other processes."""
        if key is None:
            registrations = tuple(map(owners.registration, owners.foreign(question.case)))
            meaning = ledger.meaning(question.program, question.op, question.kind, question.case)
            return _proved_here(_Once((registrations, meaning, str(question.device)), question))
        answer = _asked(question)
        if answer.result != "untried":
            ledger.keep(ledger.made(key, question.kind, question.subject, answer.result, answer.cases, answer.why))
        return answer


@frozen
class _Once:
    key: tuple[Any, ...]
    question: Question = field(eq=False)


@lru_cache(maxsize=256)
def _proved_here(once: _Once) -> Answer:
    """Of an op that may change at any time: proved once in this process for each registration."""
    return _asked(once.question)


def _asked(question: Question) -> Answer:
    prove = prover()
    if prove is None:
        return Answer("untried", f"no installed package lists a prover under {PROVER}")
    return prove(question)


def prover() -> Callable[[Question], Answer] | None:
    """Who proves on this machine: the first that an installed package lists and that can be loaded."""
    found = (registered.function(PROVER, source) for source in sorted(registered.listed(PROVER)))
    return next((f for f in found if f is not None), None)


def _file(case: Case) -> str:
    """The file of a case, if it is no shipped one."""
    file = case.span.file if case.span is not None else ""
    return "" if file.startswith("patterns/") else file


def text(answer: Answer) -> str:
    """Why something is not proved."""
    return f"its proof failed: {answer.why}" if answer.result == "failed" else f"it cannot be proved: {answer.why}"


def allowed(given: bool | None) -> bool:
    """The setting `allow_unproved`; what is not given is what the environment says."""
    return os.environ.get(VARIABLE, "0") not in ("", "0") if given is None else given


def device_name(device: torch.device) -> str | None:
    """`cpu`, or the name of a GPU, as the ledger has it; None of a device that this process has not."""
    if device.type == CPU:
        return CPU
    module = getattr(torch, device.type, None)
    if module is None or not hasattr(module, "get_device_name") or not module.is_available():
        return None
    return module.get_device_name(device)


def device_names() -> list[str]:
    """Every device of this process as the ledger has it."""
    found = {device_name(torch.device("cuda", i)) for i in range(torch.cuda.device_count())}
    return [CPU, *sorted(filter(None, found))]
