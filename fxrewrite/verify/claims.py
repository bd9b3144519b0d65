"""What is to be proved: claims that one spelling stands for another, on all operands that a signature admits.

A rule claims that its right side is its left side; a form or provider of an op that it is the definition. Each claim is
an `OpDef` (operands, attributes, results, `requires`: what inputs are generated from) with a reference and a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from fxrewrite.dsl.core import UNKNOWN, Case, Contract, OpDef, Program, ResultInfo, RuleDef
from fxrewrite.dsl.evaluate import Algebra, Bindings, EvaluationError, bind, case_holds, evaluate_bound, evaluate_terms
from fxrewrite.dsl.syntax import Span
from fxrewrite.lowering.eager import Torch
from fxrewrite.verify.free_names import as_bound, free, opened, without_wilds


class NotThisCase(Exception):
    """The operands and attributes are outside the claim: a pin or a guard does not hold."""


@frozen
class Claim:
    """`candidate` stands for `reference`.

    `kind`: rule, form, impl or kernel. `name`: `pack.rule`, `op/form`. `op`: the signature from which inputs are made.
    `reference` None: the definition of `op`. `facts`: `sm`, `rocm`, `world`, where they are known. `device`: where the
    candidate runs.
    """

    kind: str
    name: str
    program: Program
    op: OpDef
    candidate: Case
    reference: Case | None = None
    contract: Contract | None = None
    span: Span | None = None
    facts: Mapping[str, Any] = field(factory=dict[str, Any])
    device: str = "cpu"

    def tensors(self) -> Torch:
        """The algebra of tensors that the candidate is run in."""
        return Torch()

    def expected(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The results by the reference. Raises NotThisCase, or EvaluationError where it has no value here."""
        bindings = self._bound(algebra, operands, attributes)
        if self.reference is not None:
            return self._named(evaluate_terms(self.reference.outputs, bindings))
        return self._named(evaluate_bound(bindings))

    def claimed(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The results by the candidate. Raises as `expected` does."""
        return self._named(evaluate_terms(self.candidate.outputs, self._bound(algebra, operands, attributes)))

    def _bound(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Bindings:
        try:
            bindings = bind(self.program, self.op, operands, attributes, algebra, self.facts)
        except EvaluationError as error:
            raise NotThisCase(str(error)) from error
        if case_holds(self.candidate, bindings) is False:  # what only a graph can tell is for the engine to see
            raise NotThisCase(f"`{self.candidate.name}` is not for these operands")
        return bindings

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        return {r.name: v for r, v in zip(self.op.results, values)}


def claims(program: Program) -> Iterator[Claim]:
    """Every claim of a program: its rules, then forms and `impl`s op by op."""
    yield from (rule_claim(program, r) for r in program.rules)
    for op in program.ops.values():
        yield from (case_claim(program, op, "form", c) for c in op.forms)
        yield from (case_claim(program, op, "impl", c) for c in op.impls)


def case_claim(program: Program, op: OpDef, kind: str, case: Case) -> Claim:
    """That a form or provider of an op is its definition."""
    signature, reference = as_bound(op, case) if case.binds else (op, None)
    contract = case.contract or op.contract
    return Claim(kind, f"{op.name}/{case.name}", program, signature, case, reference, contract, case.span)


def rule_claim(program: Program, rule: RuleDef) -> Claim:
    """That the right side of a rule is its left side."""
    names = ["out"] if len(rule.left) == 1 else [f"out{i}" for i in range(len(rule.left))]
    results = tuple(ResultInfo(n, getattr(t, "type", UNKNOWN)) for n, t in zip(names, rule.left))
    terms, dropped = opened(program, without_wilds(rule.left))
    left, right = Case("left", terms), Case("right", rule.right)
    attributes = (*rule.attributes, *dropped, *free(left.outputs, rule.attributes))
    op = OpDef(
        rule.full_name, rule.operands, attributes, results, (left,), requires=rule.guards, span=rule.span,
        samples=rule.samples,
    )  # fmt: skip
    return Claim("rule", rule.full_name, program, op, right, left, rule.contract, rule.span)


def pinned(claim: Claim) -> dict[str, Any]:
    """The attributes that the claim fixes, by name."""
    attributes = {a.name for a in claim.op.attributes}
    return {name: value for name, value in claim.candidate.pins if name in attributes}
