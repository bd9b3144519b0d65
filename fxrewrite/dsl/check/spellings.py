"""Forms and providers: what they pin, what they bind, and the torch call that they are."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import define, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import arguments, calls, conditions, names, narrow_formats, operand_pins
from fxrewrite.dsl.check.attributes import may_be_none
from fxrewrite.dsl.check.contradiction import never
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.places import Places, outputs_span
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Scope
from fxrewrite.dsl.check.signatures import check_attribute, check_size
from fxrewrite.dsl.check.terms import buffers, children, names_of, operands_of, walk
from fxrewrite.dsl.check.torch_calls import Given, TorchOp, returned
from fxrewrite.dsl.check.zonk import Zonk
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    UNKNOWN,
    Case,
    Dtype,
    Extern,
    Fresh,
    Lit,
    OpDef,
    Operand,
    Scalar,
    Taken,
    TensorType,
    Term,
    TorchCall,
)
from fxrewrite.dsl.wording import said

Spell = syntax.Form | syntax.Impl
WRITES_ONLY = ("_C",)  # namespaces of ops that return nothing where they write: vLLM's csrc/torch_bindings.cpp


def spelling(elab: Elaborator, spell: Spell, scope: Scope, op: OpDef) -> Case:
    """A checked form or provider. `scope` holds the operands and attributes of the op."""
    kind = "form" if isinstance(spell, syntax.Form) else "impl"
    pins, every = _pins(elab, spell, scope, op, kind)
    results = frozenset(r.name for r in op.results)
    inner = scope.child(names={**scope.names}, parts={}, wild=kind == "form", expand=kind == "form")
    for name, value in pins.items():
        inner.names[name] = conditions.literal(value)
    inner.add_parts(spell.where, results)
    given = operand_pins.of(spell, op)
    inner = operand_pins.matching(inner, given)
    conds = () if given else elab.conditions(spell.when, inner)
    inner.present = conditions.present(conds)
    made = None
    if isinstance(spell.spelling, syntax.BoundCall):
        made, outputs = _BoundCall(elab, spell, spell.spelling, inner, op).read()
    else:
        outputs = _spelled(elab, spell, spell.spelling, inner, op)
    if made is not None:
        _not_after_mut(elab, spell, made, outputs)
    binds = operand_pins.values(elab, spell, given, inner, op)
    conds = elab.conditions(spell.when, inner) if given else conds  # they may be about what the spelling binds
    zonk = Zonk(elab.item)
    terms, guards = zonk(tuple(outputs)), zonk((*conds, *elab.item.solver.guards))
    if kind == "form" and all(isinstance(t, Operand) for t in terms):
        message = f"form `{spell.name}` computes nothing: any value would be a {op.name}"
        raise Problem("RW225", message, spelled_at(elab.places, spell), "write what the op looks like in a graph")
    pins.update(_unmentioned(elab, spell, op, kind, {*pins, *every}, names_of((terms, guards))))
    pins.update({n: v for n, v in map_pins(guards) if v is None and n in {o.name for o in op.operands}})
    pins.update(_without(elab, spell, op, kind, {*pins, *given, *(o.name for o in operands_of(terms))}))
    guards = tuple(conditions.conjuncts(conditions.substitute(g, pins) for g in guards))
    clash = never(guards, op.attributes)
    if clash is not None:
        shown = (
            " and ".join(f"`{said(c)}`" for c in clash)
            if clash != (conditions.FALSE,)
            else "its pins and `when` exclude each other"
        )
        place = spelled_at(elab.places, spell)
        raise Problem(
            "RW404", f"{kind} `{spell.name}` never stands for anything: {shown}", place, "mend the pins or `when`"
        )
    contract = spell.contract if isinstance(spell, syntax.Impl) else None
    return Case(
        spell.name, terms, tuple(pins.items()), guards, zonk(tuple(elab.item.named)), contract, spell.span, zonk(binds)
    )


def spelled_at(places: Places, spell: Spell) -> syntax.Span:
    """Where the name of a form or provider stands."""
    return places.word(spell.span, f"{spell.owner}.{spell.name}" if spell.owner else spell.name)


def map_pins(conds: tuple[Scalar, ...]) -> list[tuple[str, Any]]:
    """What the conditions fix."""
    return [p for p in map(conditions.pin, conds) if p is not None]


def _without(elab: Elaborator, spell: Spell, op: OpDef, kind: str, used: set[str]) -> dict[str, None]:
    """A spelling that does not use an optional operand stands for `none` only; RW221 where one is always there."""
    lost = [o for o in op.operands if o.name not in used]
    needed = next((o for o in lost if not o.optional), None)
    if needed is not None:
        message = f"{kind} `{spell.name}` does not use the operand `{needed.name}` of {op.name}"
        raise Problem("RW221", message, spelled_at(elab.places, spell), "pass it on")
    return {o.name: None for o in lost}


# ---- attributes


def _pins(elab: Elaborator, spell: Spell, scope: Scope, op: OpDef, kind: str) -> tuple[dict[str, Any], set[str]]:
    """Attributes with what they are pinned to, and those that may have every value (`G=_`)."""
    pins: dict[str, Any] = {}
    every: set[str] = set()
    for k in spell.pins:
        if k.name in operand_pins.of(spell, op):
            continue
        a = op.attribute(k.name)
        place = elab.places.word(k.span, k.name)
        if a is None:
            known = [x.name for x in op.attributes]
            hint = closest(k.name, known) or (f"its attributes: {', '.join(known)}" if known else "it has none")
            raise Problem("RW211", f"{kind} `{spell.name}` pins `{k.name}`, which {op.name} does not have", place, hint)
        if k.name in pins or k.name in every:
            raise Problem("RW211", f"`{k.name}` is pinned twice", place, "remove one")
        if isinstance(k.value, syntax.Any):
            every.add(k.name)
            continue
        value = conditions.constant(elab.scalar(k.value, scope))
        if not isinstance(value, Lit | Dtype):
            hint = f"write a literal, or a condition: `when {k.name} == ...`"
            raise Problem("RW310", f"`{k.name}` is pinned to a value that is no literal", k.value.span, hint)
        check_attribute(a, conditions.plain(value), k.value.span, op.name)
        check_size(a.name, conditions.plain(value), op, k.value.span)
        pins[k.name] = conditions.plain(value)
    return pins, every


def _unmentioned(
    elab: Elaborator, spell: Spell, op: OpDef, kind: str, said_by_pins: set[str], said_by_text: set[str]
) -> dict[str, Any]:
    """A spelling that does not say an attribute stands for its default only; RW215 where it has none."""
    pins: dict[str, Any] = {}
    for a in op.attributes:
        if a.name in said_by_pins or a.name in said_by_text:
            continue
        if a.default is NO_DEFAULT:
            place = spelled_at(elab.places, spell)
            hint = f"pass it on, pin it, or write `{spell.name}({a.name}=_)` if it serves every value"
            raise Problem(
                "RW215", f"{kind} `{spell.name}` says nothing of `{a.name}`, which has no default", place, hint
            )
        pins[a.name] = a.default
    return pins


# ---- `= e`


def _spelled(elab: Elaborator, spell: Spell, texts: tuple[Any, ...], scope: Scope, op: OpDef) -> list[Term]:
    outputs = [t for _, t, _ in elab.outputs(texts, scope)]
    several = len(outputs) == 1 < len(op.results) and isinstance(texts[0], syntax.Call | syntax.Pipe)
    if several and isinstance(outputs[0], Extern) and outputs[0].written is None:
        call = outputs[0].call  # one torch call that returns them all
        elab.item.returns.check(call, len(op.results) - 1, outputs_span(texts))
        made = (Extern(call, i, None, UNKNOWN, spell.span) for i in range(len(op.results)))
        outputs = list(map(elab.item.intern, made))
    if len(outputs) != len(op.results):
        message = f"`{spell.name}` gives {len(outputs)} of {len(op.results)} results"
        raise Problem("RW224", message, outputs_span(texts), f"results: {', '.join(r.name for r in op.results)}")
    for o, r in zip(outputs, op.results):
        want = narrow_formats.stored(r.type, _layouts(op, scope), outputs_span(texts))
        elab.typed(o, want)
        what = f"result `{r.name}` of {op.name}"
        elab.item.solver.unify(want, elab.item.type_of(o), outputs_span(texts), what)
    return outputs


def _layouts(op: OpDef, scope: Scope) -> dict[str, Any]:
    """What each layout is here: pinned, or the default."""
    found = ((a, scope.names.get(a.name)) for a in op.attributes if a.type == "layout")
    return {a.name: v.value if isinstance(v, Lit) else a.default for a, v in found}


# ---- a bound call of a torch op


@define(eq=False, repr=False)
class _BoundCall:
    elab: Elaborator
    spell: Spell
    call: syntax.BoundCall
    scope: Scope
    op: OpDef
    written: dict[str, tuple[int | str, TensorType]] = field(factory=dict[str, tuple[int | str, TensorType]])

    def read(self) -> tuple[TorchCall, list[Term]]:
        """The call, and a term for each result."""
        elab, call = self.elab, self.call
        if any(map(self.is_unmarked_result, call.args)):  # said by the schema, where it is known
            returned(elab, self.as_called([None] * len(call.args), []))
        args: list[Any] = []
        for position, a in enumerate(call.args):
            if isinstance(a, syntax.Out | syntax.Mut):
                args.append(self.slot(a, position))
            else:
                args += [calls.torch_value(v) for v in arguments.spread(elab, (a,), self.scope)]
        kwargs = [(k.name, calls.torch_value(elab.one(k.value, self.scope))) for k in call.kwargs]
        kwargs += [(s.name, self.slot(s.slot, s.name)) for s in call.slots]
        made = elab.item.intern(TorchCall(call.func, tuple(args), tuple(kwargs), call.rest, call.span))
        count = returned(elab, self.as_called(args, kwargs))
        if count is not None:
            elab.item.returns.counts[made] = count
        for name, (slot, type_) in self.written.items():
            self.scope.names[name] = elab.item.intern(_written(made, slot, type_, call.span))
        return made, self.results(made)

    def is_unmarked_result(self, text: Any) -> bool:
        """Does a result stand as an argument, where nothing gives it a value?"""
        made = isinstance(text, syntax.Var) and self.result(text.name) is not None
        return made and text.name not in self.scope.names and text.name not in self.scope.parts

    def as_called(self, args: list[Any], kwargs: list[tuple[str, Any]]) -> TorchOp:
        """The call with the text of each argument."""
        call, at = self.call, self.elab.places.word(self.call.span, self.call.func)
        texts = arguments.texts(call, len(args))
        absent = partial(may_be_none, self.elab.item, scope=self.scope)
        given = [Given(t, v, mark=_mark(t), absent=absent(v)) for t, v in zip(texts, args)]
        named = {k.name: k for k in call.kwargs} | {s.name: s.slot for s in call.slots}
        given += [Given(named[n], v, n, _mark(named[n]), absent(v)) for n, v in kwargs]
        return TorchOp(call.func, at, tuple(given), call.rest, tuple(r.name for r in self.op.results))

    def results(self, made: TorchCall) -> list[Term]:
        """What the call writes, what `where` binds, and what it returns, in order."""
        outputs: list[Term] = []
        returned = self.call.index or 0
        self.elab.item.returns.check(made, returned, self.call.span)
        count = self.elab.item.returns.counts.get(made)
        silent = count is None and made.op.split(".")[0] in WRITES_ONLY and bool(buffers(made))
        for r in self.op.results:
            if r.name in self.written or r.name in self.scope.parts:
                text = syntax.Var(self.call.span, r.name)
                outputs.append(self.elab.as_term(names.lookup(self.elab, r.name, text, self.scope), text))
                what = f"result `{r.name}` of {self.op.name}"
                want = narrow_formats.stored(r.type, self.layouts(r.name), self.call.span)
                self.elab.item.solver.unify(want, self.elab.item.type_of(outputs[-1]), self.call.span, what)
                continue
            if silent or (count is not None and returned >= count):
                raise self.not_given(r.name, made.op, count)
            outputs.append(self.elab.item.intern(Extern(made, returned, None, r.type, self.call.span)))
            returned += 1
        if count is not None and self.call.index is None and 0 < returned < count:
            message = f"{made.op} returns {count} values, and {returned} of them is a result"
            raise Problem("RW218", message, self.call.span, "pick one by position: `.0` behind the call")
        return outputs

    def layouts(self, result: str) -> dict[str, Any]:
        """The layouts that attributes are; a buffer that the call fills has its logical type."""
        return {} if result in self.written else _layouts(self.op, self.scope)

    def not_given(self, result: str, op: str, count: int | None) -> Problem:
        """RW224 for a result that the call neither writes nor returns."""
        place = spelled_at(self.elab.places, self.spell)
        hint = f"write `out {result}`"
        if count:
            values = "1 value" if count == 1 else f"{count} values"
            hint = (
                f"{op} returns {values}: write `out {result}` where it fills a buffer, or bind `{result}` under `where`"
            )
        return Problem("RW224", f"`{self.spell.name}` does not give the result `{result}`", place, hint)

    def slot(self, slot: syntax.Out | syntax.Mut, at: int | str) -> Any:
        """An argument that the call writes."""
        if isinstance(slot, syntax.Mut):
            return self.mut(slot, at)
        name, type_ = self.buffer(slot)
        if name in self.written or name in self.scope.parts:
            raise Problem("RW208", f"`{name}` is written twice", slot.span, "one argument fills it")
        self.written[name] = (at, type_)
        return Fresh(type_, at)  # type: ignore[arg-type]

    def mut(self, slot: syntax.Mut, at: int | str) -> Taken:
        """An operand that the call overwrites."""
        text = syntax.Var(slot.span, slot.name)
        value = self.elab.as_term(names.lookup(self.elab, slot.name, text, self.scope), text)
        new = slot.becomes
        if new is not None:
            taken = (
                new in self.written or new in self.scope.parts or (new in self.scope.names and self.result(new) is None)
            )
            if taken:
                place = self.elab.places.word(slot.span, new)
                raise Problem("RW208", f"`{new}` is a name already", place, "choose another name")
            self.written[new] = (at, self.elab.item.type_of(value))
        return Taken(value, at)  # type: ignore[arg-type]

    def result(self, name: str) -> TensorType | None:
        """The type of the result of that name."""
        return next((r.type for r in self.op.results if r.name == name), None)

    def buffer(self, slot: syntax.Out) -> tuple[str, TensorType]:
        """Name and type of `out`, `out q`, `out o: T`."""
        results = ", ".join(r.name for r in self.op.results)
        if slot.name is None:
            if len(self.op.results) != 1:
                message = f"`out` alone is the only result; {self.op.name} has {len(self.op.results)}"
                raise Problem("RW224", message, slot.span, f"name the result: `out {self.op.results[0].name}`")
            return self.op.results[0].name, self.op.results[0].type
        if slot.type is not None:
            attributes = {a.name: a.type for a in self.op.attributes}
            return slot.name, self.elab.checker.signatures.tensor(slot.type, attributes)
        found = self.result(slot.name)
        if found is None:
            hint = f"results: {results}; another buffer needs a type: `out {slot.name}: T`"
            place = self.elab.places.word(slot.span, slot.name)
            raise Problem("RW224", f"`{slot.name}` is no result of {self.op.name}", place, hint)
        return slot.name, found


def _mark(text: Any) -> str:
    return "out" if isinstance(text, syntax.Out) else "mut" if isinstance(text, syntax.Mut) else ""


def _written(call: TorchCall, slot: int | str, type_: TensorType, span: syntax.Span) -> Extern:
    return Extern(call, None, slot, type_, span)  # type: ignore[arg-type]


def _not_after_mut(elab: Elaborator, spell: Spell, made: TorchCall, outputs: list[Term]) -> None:
    """RW409 where a result reads an operand that the call overwrote."""
    taken = {o.name for b in buffers(made) if isinstance(b, Taken) for o in walk(b.value) if isinstance(o, Operand)}
    todo: list[Any] = list(outputs)
    while todo:
        one = todo.pop()
        if one is made:
            continue
        if isinstance(one, Operand) and one.name in taken:
            bind = next((b for b in spell.where), None)
            place = elab.places.word(bind.span if bind else spell.span, one.name)
            message = f"`{spell.name}` reads `{one.name}` after {made.op} has overwritten it"
            raise Problem("RW409", message, place, f"its new value has the name behind `mut {one.name} as`")
        todo.extend(children(one))
