"""`def`s by themselves: every name in one is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import defs
from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.places import called_in, names_in
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.check.scope import Item, Scope, Value
from fxrewrite.dsl.core import UNKNOWN, DtypeVar, Operand, Ref

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker


def check_def(checker: Checker, d: syntax.Def) -> None:
    """A `def` by itself: every name in it is its own. Raises Problem."""
    params = (*d.params.operands, *d.params.attributes)
    for i, p in enumerate(params):
        if any(q.name == p.name for q in params[:i]):
            place = checker.places.word(d.span, p.name, 1)
            raise Problem("RW208", f"`{p.name}` is declared twice", place, "choose another name")
    item = Item(d.name, checker.places, d.span)
    elab = Elaborator(checker, item)
    outer = Scope(item, d.span.file, matched=True)
    args: list[Any] = []
    for p in params:
        outer.names[p.name] = _own(checker, item, p, d.params)
        args.append(syntax.Var(p.span, p.name))
    defs.expand(
        elab, syntax.Call(d.span, d.name, tuple(args), (), False, checker.places.word(d.span, d.name)), outer, None
    )
    _all_used(checker, d)


def _all_used(checker: Checker, d: syntax.Def) -> None:
    """RW221 where neither the text nor a type uses a parameter."""
    params = (*d.params.operands, *d.params.attributes)
    used = {v.name for v in names_in((d.equations, d.where, tuple(p.type for p in params if p.type)))}
    for p in params:
        if p.name not in used and not p.name.startswith("_") and not _carried(checker, d, p.name, set()):
            place = checker.places.word(p.span, p.name)
            raise Problem("RW221", f"the definition of {d.name} does not use `{p.name}`", place, "remove it, or use it")


def _carried(checker: Checker, d: syntax.Def, name: str, seen: set[str]) -> bool:
    """Does an op that a `def` calls, itself or through others, take `name` as an attribute that is left out?"""
    seen.add(d.name)
    for called in called_in((d.equations, d.where)):
        if checker.knows_op(called) and checker.signature(called).attribute(name) is not None:
            return True
        inner = checker.defs.get(called)
        if inner is not None and called not in seen and _carried(checker, inner, name, seen):
            return True
    return False


def _own(checker: Checker, item: Item, p: syntax.Param, params: syntax.Params) -> Value:
    """A parameter as the text of the `def` sees it before anything is known of a call."""
    declared = checker.param_type(p, params)
    if isinstance(declared, str):
        return DtypeVar(p.name, tuple(DTYPES)) if declared == "dtype" else Ref(p.name)
    type_ = declared or UNKNOWN
    if declared is None:
        item.types[p.name] = UNKNOWN
    made = Operand(p.name, type_, p.type is not None and p.type.optional, span=p.span)
    return item.intern(made)
