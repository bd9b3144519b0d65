"""Names that a claim binds beside the operands and attributes of its signature.

A rule between built-ins (`reshape(x, s) => x requires s == x.shape`) binds numbers, shapes and dtypes, and drops some
(`_`): here they are attributes. A form may bind operands of its own, and say what those of the op are made of: then
these are the operands, and the definition is a call of the op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from fxrewrite.dsl.check.terms import operands_of, walk
from fxrewrite.dsl.core import (
    PRIMITIVES,
    Attribute,
    Call,
    Case,
    Number,
    OpDef,
    Operand,
    OperandInfo,
    Prim,
    Program,
    Ref,
    Result,
    Wild,
)
from fxrewrite.verify.rebuild import replaced

KINDS = {  # of parameters of primitives, as attributes
    "shape": "list", "order": "list", "dims": "list", "dim": "int", "start": "int", "stop": "int", "step": "int",
    "dtype": "dtype", "keepdim": "bool", "group": "group",
}  # fmt: skip


def parameters(op: str) -> tuple[str, ...]:
    """The names of the parameters of a primitive that are no tensors."""
    names = PRIMITIVES.get(op, ())
    return names[names.index(";") + 1 :] if ";" in names else ()


def without_wilds(terms: tuple[Any, ...]) -> tuple[Any, ...]:
    """The terms, with a name in the place of each parameter that may have any value."""
    made: dict[int, Any] = {}
    return tuple(_named(t, made) for t in terms)


def _named(term: Any, made: dict[int, Any]) -> Any:
    if not isinstance(term, Prim):
        return term
    if id(term) not in made:
        args = tuple(_named(a, made) for a in term.args)
        params = list[Any]()
        for p in term.params:
            params.append(Ref(f"_{len(made)}.{len(params)}") if isinstance(p, Wild) else p)
        same = all(a is b for a, b in zip((*args, *params), (*term.args, *term.params)))
        made[id(term)] = term if same else evolve(term, args=args, params=tuple(params))
    return made[id(term)]


def free(terms: tuple[Any, ...], attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    """Names in primitives of terms that are no attributes, as attributes of their kinds."""
    known = {a.name for a in attributes}
    found = {name: kind for name, kind in _free(terms) if name not in known}
    return tuple(Attribute(n, k, optional=False) for n, k in found.items())


def _free(terms: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    for x in walk(terms):
        if not isinstance(x, Prim):
            continue
        yield from ((p.name, KINDS[n]) for n, p in zip(parameters(x.op), x.params) if isinstance(p, Ref))
        numbers = [a.value for a in x.args if isinstance(a, Number)]
        yield from ((n.name, "float") for n in numbers if isinstance(n, Ref))


def opened(program: Program, terms: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Attribute, ...]]:
    """The terms, with an attribute for each that a call drops on purpose (`eps=_`): it may have any value."""
    made: list[Attribute] = []
    for call in [x for x in walk(terms) if isinstance(x, Call) and any(isinstance(v, Wild) for _, v in x.attrs)]:
        attrs = list[tuple[str, Any]]()
        for name, value in call.attrs:
            declared = program.ops[call.op].attribute(name)
            if isinstance(value, Wild) and declared is not None:
                made.append(evolve(declared, name=f"{name} of {call.op}"))
                value = Ref(made[-1].name)
            attrs.append((name, value))
        terms = with_call(terms, call, tuple(attrs))
    return terms, tuple({a.name: a for a in made}.values())


def with_call(terms: tuple[Any, ...], call: Call, attrs: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """The terms, with other attributes for a call."""
    found = next((x for x in walk(terms) if isinstance(x, Call) and (x.op, x.attrs) == (call.op, call.attrs)), None)
    return terms if found is None else replaced(terms, found, evolve(found, attrs=attrs))


# ---- forms that bind operands


def as_bound(op: OpDef, case: Case) -> tuple[OpDef, Case]:
    """The op in the operands that a form binds, and the definition in them: a call of the op."""
    binds: Mapping[str, Any] = dict(case.binds)
    own = {o.name: o for o in operands_of(tuple(binds.values()))}
    kept = [o for o in op.operands if o.name not in binds]
    bound = [OperandInfo(o.name, o.type, o.optional, star=o.star, span=o.span) for o in own.values()]
    args = tuple(binds.get(o.name) or Operand(o.name, o.type, o.optional, o.star) for o in op.operands)
    call = Call(op.name, args, tuple((a.name, Ref(a.name)) for a in op.attributes), case.span)
    reference = Case("definition", tuple(Result(call, i, r.type) for i, r in enumerate(op.results)))
    signature = evolve(op, operands=(*kept, *bound), equations=(reference,), requires=(), ref=None)
    return signature, reference
