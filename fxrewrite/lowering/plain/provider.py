"""A named provider of the op that a rule emits: an `impl`, or a form, that is one call which writes to nothing."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import core
from fxrewrite.dsl.core import Case, Lit, Program, Ref, Result, RuleDef
from fxrewrite.lowering.plain.choices import Dead
from fxrewrite.lowering.plain.layout import Item, Keyed, call, listed
from fxrewrite.lowering.plain.names import safe, scalar_text, value_text
from fxrewrite.lowering.providers import impls_of


def case_of(program: Program, rule: RuleDef, name: str | None) -> Case | None:
    """The provider called `name`, where the right side of `rule` is one call of an op that has it."""
    calls = {t.call for t in rule.right if isinstance(t, Result)}
    if name is None or len(calls) != 1 or not all(isinstance(t, Result) for t in rule.right):
        return None
    op = program.ops[calls.pop().op]
    case = impls_of(op).get(name)
    return case if case is not None and _is_plain(case) else None


def _is_plain(case: Case) -> bool:
    return case.torch_call is not None and all(isinstance(o, core.Extern) and o.written is None for o in case.outputs)


def call_text(case: Case, emitted: core.Call, program: Program) -> Item:
    """The call of a provider, in names of the rule. Raises Dead where an argument is computed."""
    op = program.ops[emitted.op]
    names: dict[str, Any] = {o.name: a for o, a in zip(op.operands, emitted.args, strict=False)}
    names |= dict(emitted.attrs)
    found = case.torch_call
    assert found is not None
    args = [_argument(a, names) for a in found.args]
    args += [Keyed(f"{n}=", _argument(a, names)) for n, a in found.kwargs]
    return call(f"torch.ops.{found.op}", *args)


def _argument(a: Any, names: dict[str, Any]) -> Item:
    if isinstance(a, core.Operand | Ref):
        given = names.get(a.name)
        return safe(given.name) if isinstance(given, core.Operand | Ref) else _argument(given, {})
    if a is None or isinstance(a, core.Nothing):
        return "None"
    if isinstance(a, core.OneOf):
        return _argument(a.choices[0], names)
    if isinstance(a, tuple):
        return listed(_argument(x, names) for x in a)
    if isinstance(a, core.Number):
        return _argument(a.value, names)
    if isinstance(a, Lit | core.Dtype):
        return scalar_text(a)
    if isinstance(a, int | float | str | bool):
        return value_text(a)
    raise Dead("its provider computes an argument")
