"""What a name stands for, and the parts that `where` names."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from attrs import evolve

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check.builtins import BUILTINS, DTYPES, FACTS, PREDICATES
from fxrewrite.dsl.check.places import Places, across
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Many, Part, Scope, Value
from fxrewrite.dsl.check.signatures import unknown_dtype
from fxrewrite.dsl.check.terms import TERMS, names_of, operands_of
from fxrewrite.dsl.core import UNKNOWN, Apply, Dtype, DtypeVar, Each, Extern, Operand, Ref, Size
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.formats import DTYPE_HINTS

if TYPE_CHECKING:
    from fxrewrite.dsl.check.expressions import Elaborator


def lookup(elab: Elaborator, name: str, e: Any, scope: Scope) -> Value:
    """What a name stands for here: a name of the scope, a dtype or class, a fact, what a left side binds, a dim."""
    if name in scope.names:
        return _declared(elab, scope.names[name], e, scope)
    if name in scope.parts:
        return part(elab, scope.parts[name], e, scope)
    if name in scope.dims:
        found = scope.dims[name]
        return found if isinstance(found, Star) else Size(elab.item.solver.dim(found))
    constant = _constant(elab, name, e, scope)
    if constant is not None:
        return constant
    if scope.caller is None:  # the text of a `def` sees its own names only
        found = _of_item(elab, name, e, scope)
        if found is not None:
            return found
        if scope.binds:
            return _bind(elab, name, e, scope)
    raise _unknown(elab, name, e, scope)


def _declared(elab: Elaborator, value: Value, e: Any, scope: Scope) -> Value:
    if not isinstance(value, Operand):
        return value
    if value.star and not (scope.element or scope.spread):
        hint = f"spread it: `*{value.name}`, or use it under `each`"
        raise Problem("RW220", f"`{value.name}` is a list", e.span, hint)
    if value.name in scope.present and value.optional:
        return elab.item.intern(evolve(value, optional=False))
    return value


def _constant(elab: Elaborator, name: str, e: Any, scope: Scope) -> Value:
    """A dtype, a class or a fact of the machine."""
    if name in DTYPES:
        return Dtype(name)
    classes = elab.checker.classes(scope.file)
    if name in classes:
        return scope.classes.get(name) or DtypeVar(name, classes[name])
    if name not in FACTS:
        return None
    if name == "tokens" and not scope.profit:
        hint = "move it to `prefer`; a size that truth needs is `rows(x)`"
        raise Problem("RW202", "`tokens` stands only under `prefer`: it is an assumption", e.span, hint)
    return Apply(name)


def _of_item(elab: Elaborator, name: str, e: Any, scope: Scope) -> Value:
    """A name that the left side binds, a captured attribute, a dim of an op that is called."""
    item = elab.item
    if name in item.bound:
        value = item.bound[name]
        if name in item.lists and not (scope.element or scope.spread):
            hint = f"spread it: `*{name}`, `[*{name}]`"
            raise Problem("RW220", f"`{name}` is a list (bound by `each`)", e.span, hint)
        return _declared(elab, value, e, scope) if isinstance(value, Operand) else value
    if name in item.captured:
        return Ref(name)
    if name in item.solver.used and name[0].isupper():
        item.mentioned.setdefault(name, e.span)
        return Size(item.solver.dim(dims.name(name)))
    return None


def _bind(elab: Elaborator, name: str, e: Any, scope: Scope) -> Value:
    """A name that its first use on the left binds: an operand until it is used as a number."""
    operand = Operand(name, UNKNOWN, star=scope.element and name in elab.item.lists, span=e.span)
    elab.item.bound[name] = operand
    elab.item.types[name] = UNKNOWN
    return operand


def _unknown(elab: Elaborator, name: str, e: Any, scope: Scope) -> Problem:
    if name in DTYPE_HINTS:
        return unknown_dtype(name, e.span, DTYPES)
    known = [*scope.names, *scope.parts, *scope.dims, *elab.item.captured, *elab.item.bound]
    hint = closest(name, [*known, *FACTS]) or elab.checker.operand_hint(name, elab.item)
    if name in BUILTINS or name in PREDICATES:
        hint = f"`{name}` is called with brackets: `{name}(x)`"
    if not hint and (elab.checker.owner_of(name) is not None):
        hint = f"`{name}` is called with brackets: `{name}(...)`"
    return Problem(
        "RW202", f"`{name}` is not bound here", e.span, hint or "declare it as a parameter, or name it under `where`"
    )


# ---- parts


def part(elab: Elaborator, part: Part, e: Any, scope: Scope) -> Value:
    """The value of a name under `where`, computed once."""
    bind, cell = part.bind, part.cell
    name = bind.targets[part.index]
    if cell.busy:
        place = elab.places.word(bind.span, name)
        raise Problem("RW209", f"`{name}` is made of itself", place, "name its parts in an order")
    if cell.values is None:
        cell.busy = True
        cell.values = _evaluated(elab, bind, scope)
        cell.busy = False
    value = cell.values[part.index]
    if bind.kind != "each" or scope.spread:
        return value
    if not scope.element:
        raise Problem("RW220", f"`{name}` is a list (bound by `each`)", e.span, f"spread it: `*{name}`")
    return value.body


def _evaluated(elab: Elaborator, bind: syntax.Bind, scope: Scope) -> tuple[Value, ...]:
    inner = scope.child(spread=False)
    value = _each(elab, bind, inner) if bind.kind == "each" else elab.value(bind.value, inner.child(element=False))
    unknown = isinstance(value, Extern) and value.call not in elab.item.returns.counts
    if unknown and len(bind.targets) > 1:  # a torch op that returns several
        made = (Extern(value.call, i, None, UNKNOWN, value.span) for i in range(len(bind.targets)))
        value = Many(tuple(map(elab.item.intern, made)))
    values = value.values if isinstance(value, Many) else (value,)
    if len(values) != len(bind.targets):
        raise _count(elab, bind, value, len(values))
    for target, v in zip(bind.targets, values):
        if scope.matched and isinstance(v, TERMS):
            elab.item.named.append((scope.prefix + target, v))
        if bind.kind == "keep" and not scope.prefix:
            elab.item.kept.append(target)
    return values


def _count(elab: Elaborator, bind: syntax.Bind, value: Value, count: int) -> Problem:
    name = bind.targets[0]
    first = elab.places.word(bind.span, name)
    last = elab.places.word(bind.span, bind.targets[-1])
    results: tuple[Value, ...] = value.values if isinstance(value, Many) else (value,)
    said = [n for n in map(elab.result_name, results) if n]
    shown = f" ({', '.join(said)})" if len(said) == count else ""
    bound = f"{len(bind.targets)} names are bound" if len(bind.targets) > 1 else "1 name is bound"
    values = f"{count} values" if count > 1 else "1 value"
    targets = ", ".join(said or [f"y{i}" for i in range(count)])
    hint = f"write `({targets}) = ...`" if count > 1 else f"write `{name} = ...`"
    return Problem("RW218", f"{bound} to {values}{shown}", across(first, last), hint)


def _each(elab: Elaborator, bind: syntax.Bind, scope: Scope) -> Value:
    """`each y = body`: the body with elements of lists; every result of the body becomes a list."""
    value = elab.value(bind.value, scope.child(element=True))
    made: list[Value] = []
    for v in value.values if isinstance(value, Many) else (value,):
        body = elab.as_term(v, bind.value)
        stars = {o.name for o in operands_of(body) if o.star} | (names_of(body) & elab.item.lists)
        stars |= {o.name for o in operands_of(body) if o.name in elab.item.lists}
        if not stars:
            message = "nothing in this `each` differs from one value to the next"
            raise Problem("RW220", message, bind.value.span, "use a list parameter (`*s`), or bind it without `each`")
        made.append(elab.item.intern(Each(body, tuple(sorted(stars)), elab.item.type_of(body))))
    return Many(tuple(made))


def refuse_unused_parts(places: Places, where: tuple[syntax.Bind, ...], uses: Container[str]) -> None:
    """RW201 for a part under `where` that nothing uses. One of several results may be left."""
    for bind in where:
        for t in bind.targets:
            if t not in uses and not t.startswith("_") and (len(bind.targets) == 1 or bind.kind != "bind"):
                hint = "remove it" if len(bind.targets) == 1 else f"write `_{t}`"
                raise Problem("RW201", f"`{t}` is named and not used", places.word(bind.span, t), hint)
