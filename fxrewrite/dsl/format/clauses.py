"""The parts of items as pieces: bindings, equations, forms, providers, conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from attrs import evolve, frozen

from fxrewrite.dsl import syntax
from fxrewrite.dsl.format.expressions import Layout, arguments, bracketed, choices, listed, number, quoted
from fxrewrite.dsl.format.pieces import CLOSE, INDENT, Break, Open, Part, Piece, Position
from fxrewrite.dsl.format.trivia import Source

_APART = "   "  # sets `when` off from what it chooses
# Clauses that a list of nodes is the value of, in their order where no source has another, and what each is called.
_CLAUSES = {
    "requires": "requires", "prefer": "prefer", "forms": "form", "impls": "impl", "decreasing": "decreasing",
    "properties": "property", "samples": "sample", "contract": "contract",
}  # fmt: skip
_ALONE = frozenset({"form", "impl"})  # have a node each, with its own keyword


@frozen
class Clause:
    """A clause of an item, and the source position where it begins."""

    keyword: str
    pieces: list[Piece]
    before: Position | None


# ---- lists behind a keyword


def clause_list(keyword: str, nodes: Sequence[syntax.Node], source: Source, mode: str = "fill") -> list[Piece]:
    """A keyword and nodes with commas between, which stand below each other where they do not fit in one line."""
    return [f"{keyword} ", Open(mode, align=True), *listed(nodes, source), CLOSE]


def where(binds: Sequence[syntax.Bind], source: Source, space: Break) -> list[Piece]:
    """A break, and the parts that `where` names: all on one line, or each on its own."""
    if not binds:
        return []
    return [evolve(space, before=source.before(binds[0])), *clause_list("where", binds, source, "all")]


def when(conditions: Sequence[syntax.Node], source: Source, space: Break) -> list[Piece]:
    """A break, and the conditions that choose an equation, form or provider."""
    if not conditions:
        return []
    return [evolve(space, before=source.before(conditions[0])), *clause_list("when", conditions, source)]


def outputs(nodes: Sequence[syntax.Node], source: Source) -> list[Piece]:
    """`= a, b`."""
    return clause_list("=", nodes, source)


def clauses_of(item: Any, source: Source) -> list[Clause]:
    """The clauses of an item that may stand in any order, in the order of the source; neighbours of a kind in one."""
    found = [(word, n) for field, word in _CLAUSES.items() for n in _nodes(getattr(item, field, None))]
    if source.text:
        found.sort(key=lambda one: source.start(one[1]) or (0, 0))
    clauses: list[Clause] = []
    for word, group in groupby(found, key=lambda one: one[0]):
        nodes = [node for _, node in group]
        if word in _ALONE:
            clauses += [Clause(word, [Part(node)], source.start(node)) for node in nodes]
        else:
            clauses.append(Clause(word, clause_list(word, nodes, source), source.before(nodes[0])))
    return _with_ref(item, clauses, source)


def _nodes(value: syntax.Node | tuple[syntax.Node, ...] | None) -> tuple[syntax.Node, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _with_ref(item: Any, clauses: list[Clause], source: Source) -> list[Clause]:
    ref = getattr(item, "ref", None)
    if ref is None:
        return clauses
    here = source.word("ref", item)
    index = sum(1 for c in clauses if c.before is not None and here is not None and c.before < here)
    return [*clauses[:index], Clause("ref", [f"ref {quoted(ref)}"], here), *clauses[index:]]


# ---- bindings, equations


def _bind(node: syntax.Bind, source: Source) -> list[Piece]:
    kind = "" if node.kind == "bind" else f"{node.kind} "
    names = ", ".join(node.targets)
    return [f"{kind}({names}) = " if node.tuple_target else f"{kind}{names} = ", Part(node.value)]


def equation(node: syntax.Equation, source: Source, blanks: int = 0) -> list[Piece]:
    """`= e when c`, with so many blanks more before `when` where it is one line."""
    body = [*outputs(node.outputs, source), *when(node.when, source, Break(_APART + " " * blanks))]
    return [Open("all", INDENT), *body, CLOSE]


# ---- forms and providers


def _provider(keyword: str) -> Layout:
    def layout(node: syntax.Form | syntax.Impl, source: Source) -> list[Piece]:
        name = node.name if node.owner is None else f"{node.owner}.{node.name}"
        head: list[Piece] = [f"{keyword} {name}"]
        if node.pins:
            head += bracketed("()", node.pins, source)
        if isinstance(node, syntax.Impl) and node.contract is not None:
            head += [" contract ", Part(node.contract)]
        body = [*where(node.where, source, Break(keeps=True)), *when(node.when, source, Break(_APART, keeps=True))]
        return [Open("all", INDENT), Open("all"), *head, *_spelling(node, source), CLOSE, *body, CLOSE]

    return layout


def _spelling(node: syntax.Form | syntax.Impl, source: Source) -> list[Piece]:
    spelling = node.spelling
    if isinstance(spelling, syntax.BoundCall):
        return [Break("  ", source.start(spelling)), Part(spelling)]
    return [Break(before=source.before(cast(syntax.Node, spelling[0]))), *outputs(spelling, source)]


def _bound_call(node: syntax.BoundCall, source: Source) -> list[Piece]:
    nodes = [*node.args, *node.kwargs, *node.slots]
    index = "" if node.index is None else f".{node.index}"
    return [node.func, *arguments(nodes, node.rest, source, source.last(node)), index]


def _out(node: syntax.Out, source: Source) -> list[Piece]:
    name: list[Piece] = [f"out {node.name}" if node.name is not None else "out"]
    return [*name, ": ", Part(node.type)] if node.type else name


# ---- small clauses


def _sample(node: syntax.Sample, source: Source) -> list[Piece]:
    if isinstance(node.source, tuple):
        return [f"{node.name} in ", *choices(node.source, source, source.last(node))]
    return [f"{node.name} ~ ", Part(node.source)]


def _contract(node: syntax.Contract, source: Source) -> list[Piece]:
    if node.codes is not None:
        return [f"relaxed {node.codes} codes"]
    if node.rtol is None or node.atol is None:
        return [node.kind]
    spelled = source.numbers(node)
    rtol, atol = spelled if len(spelled) == 2 else (number(node.rtol), number(node.atol))
    return [f"relaxed rtol {rtol} atol {atol}"]


def _property(node: syntax.Property, source: Source) -> list[Piece]:
    return [f"{node.name}({', '.join(node.names)})" if node.names else node.name]


CLAUSES: Mapping[type[syntax.Node], Layout] = {
    syntax.Bind: _bind,
    syntax.Equation: equation,
    syntax.Form: _provider("form"),
    syntax.Impl: _provider("impl"),
    syntax.BoundCall: _bound_call,
    syntax.Out: _out,
    syntax.Mut: lambda node, source: [f"mut {node.name}" + (f" as {node.becomes}" if node.becomes is not None else "")],
    syntax.SlotKw: lambda node, source: [f"{node.name}=", Part(node.slot)],
    syntax.Property: _property,
    syntax.Sample: _sample,
    syntax.Contract: _contract,
    syntax.Result: lambda node, source: [f"{node.name}: ", Part(node.type)],
}
