"""Forms and providers: what they pin, what they bind, and the torch call that they are."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions
from fxrewrite.dsl.check.calls import check_attribute, literal, present
from fxrewrite.dsl.check.expressions import Elaborator, syntax_names
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    NO_DEFAULT, UNKNOWN, Attribute, Case, Dtype, Extern, Fresh, Lit, OperandInfo, Ref, ResultInfo, Scalar, Taken, Term,
    TorchCall, Wild,
)  # fmt: skip


def spelling(
    elab: Elaborator, spell: syntax.Form | syntax.Impl, scope: Scope, operands: tuple[OperandInfo, ...],
    attributes: tuple[Attribute, ...], results: tuple[ResultInfo, ...], kind: str,
) -> Case:  # fmt: skip
    """A checked form or provider. `scope` holds the operands and attributes of the op."""
    pins, mentioned = _pins(elab, spell, scope, attributes, kind)
    unsaid = _unmentioned(spell, attributes, mentioned, kind)
    pins.update(unsaid)
    inner = scope.child(names={**scope.names}, parts=dict(scope.parts))
    for name, value in pins.items():
        inner.names[name] = literal(value)
    inner.add_parts(spell.where)
    conds = tuple(conditions.conjuncts(tuple(elab.condition(c, inner) for c in spell.when)))
    inner.present = present(conds)
    if isinstance(spell.spelling, syntax.BoundCall):
        outputs = _bound_call(elab, spell, inner, results, operands)
    else:
        outputs = _spelled(elab, spell, inner, results)
    absent = {c[0]: None for c in map(conditions.pin, conds) if c is not None and c[1] is None}
    guards = tuple(conditions.substitute(c, {**pins, **absent}) for c in conds)
    zonk = Zonk(elab.item)
    named = tuple(zonk(tuple(elab.item.named)))
    return Case(
        spell.name, zonk(tuple(outputs)), tuple({**pins, **absent}.items()),
        zonk(tuple(g for g in (*guards, *elab.item.solver.guards) if g != conditions.TRUE)), named,
        getattr(spell, "contract", None), spell.span,
    )  # fmt: skip


def _pins(
    elab: Elaborator, spell: syntax.Form | syntax.Impl, scope: Scope, attributes: tuple[Attribute, ...], kind: str
) -> tuple[dict[str, Any], set[str]]:
    pins: dict[str, Any] = {}
    mentioned: set[str] = set()
    by_name = {a.name: a for a in attributes}
    for k in spell.pins:
        if k.name not in by_name:
            raise Problem(
                "RW211", f"{kind} `{spell.name}` pins `{k.name}`, which {elab.item.name} does not have", k.span,
                closest(k.name, by_name),
            )  # fmt: skip
        mentioned.add(k.name)
        if isinstance(k.value, syntax.Any):
            continue
        value = elab.scalar(k.value, scope)
        if not isinstance(value, Lit | Dtype):
            raise Problem("RW310", f"`{k.name}` is pinned to a value that is no literal", k.value.span)
        check_attribute(by_name[k.name], value, k.value.span, elab.item.name)
        pins[k.name] = conditions.plain(value)
    return pins, mentioned


def _unmentioned(
    spell: syntax.Form | syntax.Impl, attributes: tuple[Attribute, ...], mentioned: set[str], kind: str
) -> dict[str, Any]:
    """A spelling that does not say an attribute stands for its default only."""
    said = mentioned | {v.name for part in (spell.spelling, spell.where, spell.when) for v in syntax_names(part)}
    pins: dict[str, Any] = {}
    for a in attributes:
        if a.name in said:
            continue
        if a.default is NO_DEFAULT:
            raise Problem(
                "RW215", f"{kind} `{spell.name}` does not mention `{a.name}`, which has no default", spell.span,
                f"pass it on, or pin it: `{spell.name}({a.name}=_)` for every value",
            )  # fmt: skip
        pins[a.name] = a.default
    return pins


def _spelled(
    elab: Elaborator, spell: syntax.Form | syntax.Impl, scope: Scope, results: tuple[ResultInfo, ...]
) -> list[Term]:
    outputs = [t for _, t in elab.outputs(spell.spelling, scope)]  # type: ignore[arg-type]
    if len(outputs) == 1 and len(results) > 1 and isinstance(outputs[0], Extern) and outputs[0].written is None:
        call = outputs[0].call  # one torch call that returns them all
        outputs = [elab.item.intern(Extern(call, i, None, r.type, spell.span)) for i, r in enumerate(results)]
    if len(outputs) != len(results):
        raise Problem("RW224", f"`{spell.name}` gives {len(outputs)} of {len(results)} results", spell.span)
    typed = [elab.typed(o, r.type) for o, r in zip(outputs, results, strict=True)]
    for o, r in zip(typed, results, strict=True):
        elab.item.solver.unify(r.type, elab.item.type_of(o), spell.span, f"result `{r.name}` of {elab.item.name}")
    return typed


def _bound_call(
    elab: Elaborator, spell: syntax.Form | syntax.Impl, scope: Scope, results: tuple[ResultInfo, ...],
    operands: tuple[OperandInfo, ...],
) -> list[Term]:  # fmt: skip
    call = spell.spelling
    assert isinstance(call, syntax.BoundCall)
    by_name = {r.name: r for r in results}
    written: dict[str, tuple[int | str, Any]] = {}  # result or buffer -> slot, type
    args: list[Any] = []
    for position, a in enumerate(call.args):
        if isinstance(a, syntax.Out | syntax.Mut):
            args.append(_slot(elab, spell, a, position, scope, by_name, results, written))
        else:
            args += elab.spread((a,), scope)
    kwargs = [(k.name, elab.torch_argument(k.value, scope)) for k in call.kwargs]
    kwargs += [(s.name, _slot(elab, spell, s.slot, s.name, scope, by_name, results, written)) for s in call.slots]
    made = TorchCall(call.func, tuple(_plain(a) for a in args), tuple(kwargs), call.rest, call.span)
    made = elab.item.intern(made)
    for name, (slot, type_) in written.items():
        scope.names[name] = elab.item.intern(Extern(made, None, _index(slot), type_, call.span))
    outputs: list[Term] = []
    returned = call.index or 0
    for r in results:
        if r.name in written or r.name in scope.parts:
            outputs.append(elab.as_term(elab.name(r.name, call, scope), syntax.Var(call.span, r.name)))
        else:
            outputs.append(elab.item.intern(Extern(made, returned, None, r.type, call.span)))
            returned += 1
    return outputs


def _index(slot: int | str) -> Any:
    return slot


def _plain(value: Any) -> Any:
    from fxrewrite.dsl.check.expressions import _list  # pyright: ignore[reportPrivateUsage]

    return _list(value) if isinstance(value, list) else value


def _slot(
    elab: Elaborator, spell: Any, slot: syntax.Out | syntax.Mut, at: int | str, scope: Scope,
    by_name: dict[str, ResultInfo], results: tuple[ResultInfo, ...], written: dict[str, tuple[int | str, Any]],
) -> Any:  # fmt: skip
    if isinstance(slot, syntax.Mut):
        value = elab.as_term(elab.name(slot.name, slot, scope), syntax.Var(slot.span, slot.name))
        if slot.becomes is not None:
            if slot.becomes not in by_name and slot.becomes in scope.names:
                raise Problem("RW208", f"`{slot.becomes}` is a name already", slot.span)
            written[slot.becomes] = (at, elab.item.type_of(value))
        return Taken(value, at)  # type: ignore[arg-type]
    if slot.name is None:
        if len(results) != 1:
            raise Problem("RW224", f"`out` alone is the only result; {elab.item.name} has {len(results)}", slot.span,
                          "name the result: `out qx`")  # fmt: skip
        name, type_ = results[0].name, results[0].type
    elif slot.type is not None:
        name = slot.name
        names = {a for a in scope.names if isinstance(scope.names[a], Ref | Lit | Dtype)}
        type_ = elab.checker.signatures.tensor(slot.type, names)
    elif slot.name in by_name:
        name, type_ = slot.name, by_name[slot.name].type
    else:
        raise Problem(
            "RW224", f"`{slot.name}` is no result of {elab.item.name}", slot.span,
            f"results: {', '.join(by_name)}; another buffer needs a type: `out {slot.name}: T`",
        )  # fmt: skip
    written[name] = (at, type_)
    return Fresh(type_, at)  # type: ignore[arg-type]


__all__ = ["UNKNOWN", "Item", "Scalar", "Wild", "spelling"]
