"""Properties are claims: what an op says of its rows, of operands that may be swapped, and of its effects is tried.

    for declared in properties(program):
        check_property(declared, cases(declared.claim, profile, seed))     # a Finding

A property is tried by each equation of the op, and by each form and `impl` that this process can run. What holds and is
not declared is nobody's claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen
from torch import Generator

from fxrewrite.dsl.check.terms import walk
from fxrewrite.dsl.core import Case, OpDef, Program, TorchCall
from fxrewrite.dsl.evaluate import EvaluationError
from fxrewrite.lowering.eager import torch_op
from fxrewrite.verify.claims import Claim, NotThisCase, case_claim
from fxrewrite.verify.collectives import collective_fault
from fxrewrite.verify.device import brought_back, placed_on
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.memory import Watched, strides_for
from fxrewrite.verify.profiles import Profile
from fxrewrite.verify.ranked import ranked_claims
from fxrewrite.verify.rows import Results, Rows, attempt, column_faults, row_faults
from fxrewrite.verify.same import same_values
from fxrewrite.verify.steady import Steady
from fxrewrite.verify.straight import by_element
from fxrewrite.verify.strategies import Given

OF_TORCH = ("aten.", "prims.", "_c10d_functional.", "symm_mem.")
HELD = "what it {0} is held by the engine that runs it: nothing here can see that"


@frozen
class Declared:
    """That an op is `kind(names)`; `memory(op)`: that the torch op writes what is marked.

    `claim`: the equation by which it is tried, or the form or `impl` that runs here.
    """

    kind: str
    names: tuple[str, ...]
    claim: Claim

    @property
    def subject(self) -> str:
        """`op/rowwise(x, r)`."""
        return f"{self.claim.op.name}/{self.kind}({', '.join(self.names)})"

    @property
    def provider(self) -> str | None:
        """The form or `impl`; None of the definition."""
        return None if self.claim.kind == "property" else self.claim.candidate.name


def properties(program: Program) -> Iterator[Declared]:
    """Every property of every op, those of fusions too, by each of its spellings; and of each torch op that runs here
    that it writes what its form marks (`memory`)."""
    for op in program.ops.values():
        running = [
            case_claim(program, op, which, case)
            for which, given in (("form", op.forms), ("impl", op.impls))
            for case in given
            if runs_here(case)
        ]
        for kind, names in _said(op):
            for case in op.equations or (Case("ref", ()),):
                claim = evolve(case_claim(program, op, "property", case), contract=None)
                yield Declared(kind, names, next(ranked_claims(claim, [2])) if kind == "collective" else claim)
            if kind in ("rowwise", "elementwise", "commutative"):
                yield from (Declared(kind, names, claim) for claim in running)
        for claim in running:
            yield Declared("memory", _called(claim.candidate), claim)


def runs_here(case: Case) -> bool:
    """Does it call torch ops, all of which this process has? Not those of torch itself, which mean their decomposition:
    that is a check of forms."""
    called = _called(case)
    return bool(called) and all(not op.startswith(OF_TORCH) and _is_here(op) for op in called)


def _called(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.op for t in walk(case.outputs) if isinstance(t, TorchCall)))


def _is_here(op: str) -> bool:
    try:
        torch_op(op)
    except EvaluationError:
        return False
    return True


def _said(op: OpDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    plain = tuple(n for n in op.rowwise if n not in op.elementwise)
    if op.rowwise and (plain or not op.elementwise):
        yield "rowwise", op.rowwise
    if op.elementwise:
        yield "elementwise", op.elementwise
    if op.swaps:
        yield "commutative", op.swaps
    for kind in dict.fromkeys(k for k, _ in op.effects):
        yield kind, tuple(key for k, key in op.effects if k == kind)


def property_profile(profile: Profile) -> Profile:
    """What a property is tried on: each case is some ten, and a row that follows its operands does so among few."""
    return evolve(profile, cases=max(4, profile.cases // 6), rows=24, wide=False)


def check_property(declared: Declared, cases: Iterable[Given], seed: int = 0) -> Finding:
    """Try a property on cases until one shows that it is wrong."""
    if declared.kind in ("writes", "reads"):
        return _finding(declared, "not run", HELD.format(declared.kind))
    tried, reason = 0, "no inputs"
    for given in cases:
        try:
            fault = _fault(declared, given, seed)
        except (NotThisCase, EvaluationError, RuntimeError, IndexError, TypeError) as error:  # torch's refusals, too
            reason = str(error)
            continue
        tried += 1
        if fault is not None:
            return _finding(declared, "failed", f"{fault} ({given.label})", tried)
    return _finding(declared, "passed" if tried else "not run", "" if tried else reason, tried)


def _finding(declared: Declared, outcome: Any, reason: str, cases: int = 0) -> Finding:
    return Finding(
        "property", declared.subject, outcome, reason, provider=declared.provider, cases=cases,
        span=declared.claim.op.span,
    )  # fmt: skip


def _fault(declared: Declared, given: Given, seed: int) -> str | None:
    """How one case contradicts the property; None where it does not."""
    if declared.kind == "collective":
        return collective_fault(declared.claim, given)
    if declared.kind == "memory":
        watched = Watched(strides=strides_for(declared.claim))
        placed = placed_on(given.operands, declared.claim.device)
        declared.claim.claimed(watched, placed, given.attributes)
        return next(iter(watched.faults), None)
    running = _Running(declared, given)
    op, generator = declared.claim.op, Generator().manual_seed(seed)
    if declared.kind == "commutative":
        return _swapped(op, declared.names, given.operands, running)
    rows = Rows.of(op, declared.names, given.operands)
    if rows is None:
        raise NotThisCase("fewer than two rows")
    running(given.operands)
    found = next(row_faults(rows, running, running.is_exact, generator), None)
    if found is None and declared.kind == "elementwise":
        found = next(column_faults(rows, running, generator), None)
    return found


def _swapped(op: OpDef, names: Sequence[str], operands: Sequence[Any], run: _Running) -> str | None:
    """How a result changes when two operands are swapped."""
    i, j = (next(k for k, o in enumerate(op.operands) if o.name == n) for n in names)
    other = list(operands)
    other[i], other[j] = operands[j], operands[i]
    base, found = run(operands), attempt(run, other)
    if found is None:
        return f"with `{names[0]}` and `{names[1]}` swapped it has no value"
    changed = (name for name, y in base.items() if not same_values(y, found[name]))
    return next((f"`{name}` changes when `{names[0]}` and `{names[1]}` are swapped" for name in changed), None)


class _Running:
    """The op on given attributes. `is_exact`: whether each element of the last results was computed in one way."""

    def __init__(self, declared: Declared, given: Given):
        self.declared, self.given = declared, given
        self.is_exact = True

    def __call__(self, operands: Sequence[Any]) -> Results:
        """The results by name."""
        claim = self.declared.claim
        if self.declared.provider is not None:
            self.is_exact = False
            placed = placed_on(list(operands), claim.device)
            return by_element(brought_back(claim.claimed(claim.tensors(), placed, self.given.attributes)))
        algebra = Steady()
        results = claim.expected(algebra, operands, self.given.attributes)
        self.is_exact = not algebra.opaque
        return by_element(results)
