"""Walks over terms and scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fxrewrite.dsl.core import (
    Apply,
    Call,
    Choose,
    Each,
    Either,
    Extern,
    Fresh,
    Number,
    OneOf,
    Operand,
    Prim,
    Ref,
    Result,
    Size,
    Taken,
    Term,
    TorchCall,
)
from fxrewrite.dsl.dims import Dim, names

TERMS = (Operand, Prim, Extern, Result, Choose, Either, Each)


def children(x: Any, conditions: bool = True) -> Sequence[Any]:
    """What stands directly inside a term, a call or a scalar; types are not looked into."""
    inside = (_CHILDREN if conditions else _WITHOUT_CONDITIONS).get(x.__class__)
    return () if inside is None else inside(x)


_Inside = Callable[[Any], Sequence[Any]]
_CHILDREN: dict[type, _Inside] = {
    tuple: lambda x: x,
    Prim: lambda x: (*x.args, *x.params),
    Result: lambda x: (x.call,),
    Extern: lambda x: (x.call,),
    Call: lambda x: (*x.args, *(v for _, v in x.attrs)),
    TorchCall: lambda x: (*x.args, *(v for _, v in x.kwargs)),
    Each: lambda x: (x.body,),
    Choose: lambda x: x.cases,
    Either: lambda x: x.choices,
    OneOf: lambda x: x.choices,
    Apply: lambda x: x.args,
    Taken: lambda x: (x.value,),
    Number: lambda x: (x.value,),
    Size: lambda x: (x.dim,),
}
_WITHOUT_CONDITIONS: dict[type, _Inside] = {**_CHILDREN, Choose: lambda x: tuple(v for _, v in x.cases)}


def walk(x: Any, conditions: bool = True) -> Iterator[Any]:
    """`x` and everything inside it, each object once. `conditions`: those of a choice too."""
    table = _CHILDREN if conditions else _WITHOUT_CONDITIONS
    seen: set[int] = set()
    todo = [x]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inside = table.get(one.__class__)
        if inside is not None:
            todo.extend(reversed(inside(one)))


def operands_of(x: Any) -> list[Operand]:
    """The operands that a term reads, in order."""
    return [t for t in walk(x) if isinstance(t, Operand)]


def names_of(x: Any) -> set[str]:
    """The attributes and dims that a term or a scalar names, types aside."""
    found: set[str] = set()
    for one in walk(x):
        if isinstance(one, Ref):
            found.add(one.name)
        elif isinstance(one, Dim):
            found |= names(one)
    return found


def calls_of(x: Any) -> list[Call]:
    """The calls of declared ops in a term."""
    return [t for t in walk(x, conditions=False) if isinstance(t, Call)]


def is_list(term: Term) -> bool:
    """Is it a list of tensors?"""
    if isinstance(term, Extern):
        return term.returned is None and term.written is None
    return isinstance(term, Each) or (isinstance(term, Operand) and term.star)


def buffers(call: TorchCall) -> list[Fresh | Taken]:
    """The arguments that a torch call writes."""
    return [a for a in (*call.args, *(v for _, v in call.kwargs)) if isinstance(a, Fresh | Taken)]
