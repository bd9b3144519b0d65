"""The check `static`: dtypes, shapes and strides of both sides of a rule agree, for all sizes at once.

Both sides are evaluated on fake tensors whose sizes are symbols; where a side wants a width that divides, it is that
number times a symbol. Strides are those of the ops that the right side calls, in a row-major layout; where they differ,
the finding says so, and the engine leaves each site alone whose readers would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import lcm
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext, statically_known_true
from torch.utils._python_dispatch import _disable_current_modes

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Call, OpDef, OperandInfo, Result
from fxrewrite.dsl.evaluate import EvaluationError, bind, evaluate_terms
from fxrewrite.dsl.scalars import sizes
from fxrewrite.lowering.eager import Torch
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.assign import Assignment, Space, Starved
from fxrewrite.verify.claims import Claim, NotThisCase
from fxrewrite.verify.domains import divisors
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.graphs import quiet
from fxrewrite.verify.settings import plain
from fxrewrite.verify.shaped import shaped
from fxrewrite.verify.written import Calls, as_calls

Unit = Mapping[str, int]  # the size of a name is this number times a symbol; 0: it is a number


def static(claim: Claim) -> Finding:
    """Do both sides of a rule give tensors of the same types?"""

    def finding(outcome: Any, reason: str = "", cases: int = 0, closest: str = "") -> Finding:
        return Finding("static", claim.name, outcome, reason, cases=cases, span=claim.span, closest=closest)

    try:
        chosen = plain(Space.of(claim), {})
    except Starved as error:
        return finding("not run", str(error))
    said = ""
    for units in _units(claim, chosen):
        try:
            left, right = _sides(claim, chosen, units)
        except (NotThisCase, EvaluationError, RuntimeError, TypeError, ValueError, IndexError) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        fault = _fault(claim, chosen, left, right, _differ)
        if fault:
            return finding("failed", fault, 1)
        return finding("passed", cases=1, closest=_fault(claim, chosen, left, right, _strides) or "")
    return finding("not run", said)


def _units(claim: Claim, chosen: Assignment) -> Iterator[Unit]:
    """What of the sizes is free: everything, then what divides, then the rows alone, then nothing."""
    names = [*chosen.dims, *chosen.stars]
    numbers = sorted({n for n in (*chosen.attributes.values(), *_divisors(claim)) if type(n) is int and n > 1})
    for unit in (lcm(*numbers), *numbers, 2):
        yield dict.fromkeys(names, unit)
        yield {n: unit if n in chosen.dims else 1 for n in names}
    yield {n: 1 if n in chosen.stars or n.startswith("T") else 0 for n in names}
    yield dict.fromkeys(names, 0)


def _divisors(claim: Claim) -> set[int]:
    conditions = [*claim.op.requires]
    todo = [c.op for c in calls_of((claim.reference.outputs if claim.reference else (), claim.candidate.outputs))]
    for name in dict.fromkeys(todo):
        conditions += claim.program.ops[name].requires
    return divisors(conditions)


def _sides(claim: Claim, chosen: Assignment, units: Unit) -> tuple[dict[str, Any], list[Any]]:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with quiet(), mode, torch.no_grad():
        operands = _operands(claim, chosen, units, mode)
        left = claim.expected(Torch(), operands, chosen.attributes)
        program = as_calls(claim.program, claim.candidate.outputs)
        bindings = bind(program, claim.op, operands, chosen.attributes, Calls(claim.program))
        return left, list(evaluate_terms(claim.candidate.outputs, bindings))


def _operands(claim: Claim, chosen: Assignment, units: Unit, mode: FakeTensorMode) -> list[Any]:
    """The operands of a choice with symbols for its sizes."""
    specs = shaped(claim, chosen).operands
    env = chosen.env(claim.op)
    symbols = _symbols([n for n, unit in units.items() if unit], chosen, units, mode)
    env.dims.update({n: s[0] for n, s in symbols.items() if n in chosen.dims})
    env.stars.update({n: s for n, s in symbols.items() if n in chosen.stars})
    made: list[Any] = []
    for o, spec in zip(claim.op.operands, specs):
        if spec is None or isinstance(spec, str):
            made.append(spec)
        elif isinstance(spec, list):
            made.append([_empty(o, s, env) for s in spec])
        else:
            made.append(_empty(o, spec, env))
    return made


def _empty(o: OperandInfo, spec: Any, env: Any) -> Tensor:
    shape = spec.shape if o.type.shape is None or o.star else sizes(o.type.shape, env)
    return torch.empty(tuple(shape), dtype=DTYPES[spec.dtype])


def _symbols(names: Sequence[str], chosen: Assignment, units: Unit, mode: FakeTensorMode) -> dict[str, tuple[Any, ...]]:
    """A symbol for each size, times its unit. Hints are unlike, so that equal sizes are no accident."""
    counts = {n: len(chosen.stars[n]) if n in chosen.stars else 1 for n in names}
    hints = [5 + 2 * i for i in range(sum(counts.values()))]
    if not hints:
        return {}
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(hints))
    with _disable_current_modes():
        real = torch.empty(hints, device="meta")
    fake = mode.from_tensor(real, symbolic_context=context, source=ConstantSource("sizes"))
    given = iter(fake.shape)
    return {n: tuple(next(given) * units[n] for _ in range(counts[n])) for n in names}


# ---- comparison


def _fault(
    claim: Claim, chosen: Assignment, left: Mapping[str, Any], right: Sequence[Any],
    differ: Callable[[Tensor, Tensor], str | None],
) -> str | None:  # fmt: skip
    """The first output of which `differ` has something to say."""
    for (name, a), b, term in zip(left.items(), right, claim.candidate.outputs):
        is_row = _layout(claim, term, chosen) == "row"
        for x, y in zip(*(v if isinstance(v, list | tuple) else [v] for v in (a, b))):
            found = differ(x, y) if is_row or differ is not _strides else None
            if found is not None:
                return f"{name}: {found}"
    return None


def _layout(claim: Claim, term: Any, chosen: Assignment) -> Any:
    """The layout in which the right side stores an output."""
    call: Call | None = term.call if isinstance(term, Result) else None
    if call is None:
        return None
    op: OpDef = claim.program.ops[call.op]
    declared = op.results[term.index].type.layout
    return declared if isinstance(declared, str) else chosen.attributes.get(declared.name)


def _differ(left: Tensor, right: Tensor) -> str | None:
    if left.dtype != right.dtype:
        return f"the left side gives {left.dtype}, the right side {right.dtype}"
    if left.ndim != right.ndim or not all(_equal(m, n) for m, n in zip(left.shape, right.shape)):
        return f"the left side has the shape {_shown(left.shape)}, the right side {_shown(right.shape)}"
    return None


def _strides(left: Tensor, right: Tensor) -> str | None:
    pairs = [(s, t) for n, s, t in zip(left.shape, left.stride(), right.stride()) if not _equal(n, 1)]
    if left.ndim == right.ndim and all(_equal(s, t) for s, t in pairs):
        return None
    return f"the left side has the strides {_shown(left.stride())}, the right side {_shown(right.stride())}"


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


def _shown(sizes_: Sequence[Any]) -> str:
    return "(" + ", ".join(map(str, sizes_)) + ")"
