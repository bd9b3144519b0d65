"""The check `equal`: a claim on hostile inputs. What one side writes must be what the other side admits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from fxrewrite.dsl.core import Contract
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.eager import Torch
from fxrewrite.verify.case_json import to_json
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.device import CPU, Beside, DeviceLost, brought_back, copied, deterministic, is_changed
from fxrewrite.verify.elsewhere import Elsewhere, overflows
from fxrewrite.verify.findings import Counts, Finding
from fxrewrite.verify.judge import NoMeaning, Verdict, judge
from fxrewrite.verify.same import bits, same_values
from fxrewrite.verify.straight import Recording, record_side
from fxrewrite.verify.strategies import Given

PLAIN = 8  # cases, of several dtypes and attributes: sides that are the same steps on all of them are one definition
MOVES = {"aten.index.Tensor", "aten.index_select.default", "aten.gather.default"}  # torch ops that round nothing
TORCH_ERRORS = (RuntimeError, IndexError, TypeError, ValueError)
REFUSALS = (*TORCH_ERRORS, AssertionError)  # how kernels say that operands are not for them
LINE = 200  # characters of what an error says
CHECKS = {"rule": "equal", "form": "form", "impl": "provider", "kernel": "provider"}  # by the kind of a claim


class CannotTry(Exception):
    """A side cannot be run, or a difference cannot be judged here; the text says why."""


class Refused(NotThisCase):
    """The op of a form refuses the operands: no graph that runs holds it with them."""


class Raises(Exception):
    """The candidate raises on operands for which the reference has a value; the text says what, in one line."""

    @classmethod
    def of(cls, error: BaseException) -> Raises:
        """What was raised; of what it says, the beginning of the first line."""
        said = next(iter(str(error).splitlines()), "")
        said = said if len(said) <= LINE else f"{said[:LINE]}..."
        return cls(f"{type(error).__name__}: {said}".removesuffix(": "))


@frozen
class Trial:
    """One case of a claim. `trivial`: both sides are the same steps. `wrong`: what is not admitted, by output."""

    given: Given
    reference: Recording
    candidate: Recording
    trivial: bool
    wrong: Mapping[str, str] = field(factory=dict[str, str])
    verdicts: Mapping[str, Verdict] = field(factory=dict[str, Verdict])


@frozen
class Failure:
    """A case that a claim does not hold on."""

    claim: Claim
    trial: Trial

    @property
    def reason(self) -> str:
        """What is wrong with the first output that is."""
        name, said = next(iter(self.trial.wrong.items()))
        return said if said.startswith(name) else f"{name}: {said}"


def attempt(claim: Claim, given: Given) -> Trial:
    """Run both sides and judge. Raises NotThisCase where the claim is not for these operands, CannotTry, and Raises.

    The candidate runs on the device of the claim, on copies, which it may not write. On another device than that of the
    reference nothing is trivial: one definition, run op by op on two devices, is two computations.
    """
    here = claim.device == CPU
    there = evolve(given, operands=copied(given.operands, claim.device))
    try:
        reference = _recorded(claim.expected, given, None if here else Beside(claim.device))
    except TORCH_ERRORS as error:  # the largest of no elements, say
        raise NotThisCase(str(error)) from error
    candidate, written = _ran(claim, there, claim.tensors())
    changed = [o.name for o, a, b in zip(claim.op.operands, given.operands, there.operands) if is_changed(a, b)]
    if changed:
        said = f"`{changed[0]}` is written, which is marked neither `mut` nor `out`"
        return Trial(given, reference, candidate, False, {next(iter(reference.results)): said})
    lacking = [name for name in reference.results if name not in written]
    if lacking:
        return Trial(given, reference, candidate, False, {lacking[0]: "no value is given for it"})
    r, c = reference.program, candidate.program
    if here and (r.steps, r.outputs) == (c.steps, c.outputs) and not any(s.opaque for s in r.steps):
        return Trial(given, reference, candidate, True)
    alike = None if here else partial(_alike, claim, there)
    wrong, verdicts = compare(claim.contract, reference, written, alike)
    if not wrong and here and overflows(candidate):
        reference = _recorded(claim.expected, given, Elsewhere())
        candidate, written = _ran(claim, given, Elsewhere())
        wrong, verdicts = compare(claim.contract, reference, written)
    alone = [s.op for s in r.steps if s.opaque and s.op not in {t.op for t in c.steps} | MOVES]
    if wrong and alone:
        raise CannotTry(f"the sides differ, and `{alone[0]}` is a function whose rounding is not declared")
    return Trial(given, reference, candidate, False, wrong, verdicts)


def _ran(claim: Claim, there: Given, tensors: Torch) -> tuple[Recording, Mapping[str, Tensor]]:
    """The candidate, and its results on the CPU. Raises as `attempt` does."""
    try:
        with deterministic(claim.device):
            candidate = _recorded(claim.claimed, there, tensors)
            return candidate, brought_back(candidate.results)
    except (NotThisCase, CannotTry, DeviceLost):
        raise
    except (Exception, SystemExit) as error:  # an op of another package may raise anything
        if claim.kind == "form" and isinstance(error, REFUSALS) and not isinstance(error, RecursionError):
            raise Refused(str(Raises.of(error))) from error
        raise Raises.of(error) from error


def _alike(claim: Claim, there: Given) -> Mapping[str, Tensor]:
    """What the reference gives on the device of the candidate."""
    with deterministic(claim.device):
        return brought_back(_recorded(claim.expected, there).results)


def _recorded(side: Callable[..., Any], given: Given, tensors: Torch | None = None) -> Recording:
    """A side as steps."""
    try:
        return record_side(side, given.operands, given.attributes, tensors)
    except EvaluationError as error:
        raise CannotTry(str(error)) from error


def compare(
    contract: Contract | None,
    reference: Recording,
    written: Mapping[str, Tensor],
    alike: Callable[[], Mapping[str, Tensor]] | None = None,
) -> tuple[dict[str, str], dict[str, Verdict]]:
    """What is wrong with what was written, by output, and the verdicts where sets were asked. Without sets it is held
    against the results of the reference; `alike`: as the device gives them on which it was written."""
    alike = alike or (lambda: reference.results)
    if contract is not None and contract.kind in ("bitwise", "relaxed"):
        differ = _other_bytes if contract.kind == "bitwise" else partial(_beyond, contract)
        return {n: said for n, t in alike().items() if (said := differ(t, written[n]))}, {}
    try:
        verdicts = judge(reference.program, reference.inputs, written)
    except NoMeaning as error:
        if all(same_values(t, written[n]) for n, t in alike().items()):
            return {}, {}
        raise CannotTry(f"the sides differ, and what may differ cannot be told: {error}") from error
    return {n: str(v) for n, v in verdicts.items() if not v.ok}, verdicts


def check_equal(claim: Claim, cases: Iterable[Given]) -> tuple[Finding, Failure | None]:
    """Try a claim on cases until one fails, or until it is plain that both sides are one definition."""
    tried = trivial = refused = 0
    last = ""
    counts: dict[str, Counts] = {}
    for given in cases:
        if trivial == tried == PLAIN:
            break
        try:
            trial = attempt(claim, given)
        except NotThisCase as error:
            refused, last = refused + 1, str(error).partition("\n")[0]
            continue
        except CannotTry as error:
            return _finding(claim, "not run", str(error), tried), None
        except Raises as error:
            found = _finding(claim, "failed", f"it raises {error} ({given.label})", tried + 1)
            return evolve(found, case=to_json(given)), None
        tried += 1
        trivial += trial.trivial
        for name, verdict in trial.verdicts.items():
            key = f"{_dtypes(trial)} {name}"
            counts[key] = counts.get(key, Counts()) + verdict.counts
        if trial.wrong:
            failure = Failure(claim, trial)
            return _finding(claim, "failed", f"{failure.reason} ({given.label})", tried, counts), failure
    if not tried:
        reason = f"none of {refused} generated inputs is one that it is for: {last}" if refused else "no inputs"
        return _finding(claim, "not run", reason, 0), None
    return _finding(claim, "trivial" if trivial == tried else "passed", "", tried, counts), None


def _finding(
    claim: Claim, outcome: Any, reason: str, cases: int, counts: Mapping[str, Counts] | None = None
) -> Finding:
    told = tuple((counts or {}).items())
    return Finding(CHECKS[claim.kind], claim.name, outcome, reason, cases=cases, counts=told, span=claim.span)


# ---- what is compared without sets


def _other_bytes(want: Tensor, got: Tensor) -> str:
    """How `got` is not the same bytes; empty where it is. Of strides the engine judges, at each site: it refuses one
    where somebody would see them change."""
    for what, a, b in (("dtype", want.dtype, got.dtype), ("shape", tuple(want.shape), tuple(got.shape))):
        if a != b:
            return f"the {what} is {b}, not {a}"
    return "" if torch.equal(bits(want), bits(got)) else "other bytes, and the contract is bitwise"


def _beyond(contract: Contract, want: Tensor, got: Tensor) -> str:
    """How `got` is beyond a relaxed contract; empty where it is not."""
    if (want.dtype, want.shape) != (got.dtype, got.shape):
        return f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
    if contract.codes is not None and want.element_size() == 1:
        apart = int((_order(want) - _order(got)).abs().max()) if want.numel() else 0
        return "" if apart <= contract.codes else f"{apart} codes apart; the contract allows {contract.codes}"
    rtol, atol = contract.rtol or 0.0, contract.atol or 0.0
    far = ~torch.isclose(got.double(), want.double(), rtol, atol, equal_nan=True)
    if not far.any():
        return ""
    at = tuple(int(i) for i in far.nonzero()[0])
    beyond = f"beyond rtol {rtol:g}, atol {atol:g}"
    return f"{list(at)} is {got[at].item():g}, the definition gives {want[at].item():g}: {beyond}"


def _order(codes: Tensor) -> Tensor:
    """8-bit codes as integers in the order of their values."""
    bits = codes.contiguous().view(torch.uint8).int()
    return torch.where(bits >= 128, 128 - bits, bits) if codes.dtype.is_floating_point else codes.int()


def _dtypes(trial: Trial) -> str:
    """The dtypes of the inputs, each once."""
    return "/".join(dict.fromkeys(dtype for dtype, _ in trial.reference.program.inputs))
