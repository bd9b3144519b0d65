"""Items as pieces: one line where that is the custom and fits, else clauses on lines of their own."""

from __future__ import annotations

from collections.abc import Sequence

from fxrewrite.dsl import syntax
from fxrewrite.dsl.format.clauses import (
    CLAUSES,
    Clause,
    clause_list,
    clauses_of,
    equation,
    outputs,
    when,
    where,
)
from fxrewrite.dsl.format.expressions import EXPRESSIONS, Layout, binding, bracketed, listed, quoted
from fxrewrite.dsl.format.pieces import CLOSE, INDENT, Break, Open, Part, Piece
from fxrewrite.dsl.format.render import WIDTH, flat_width
from fxrewrite.dsl.format.trivia import Source

# An item that has one of these is never one line.
_TALL = frozenset({"form", "impl", "property", "sample", "ref"})
_ITEM = Open("all", INDENT)
_TALL_ITEM = Open("always", INDENT)
_NEXT = Break(keeps=True)


def pieces_of(item: syntax.Item, source: Source) -> list[Piece]:
    """An item as pieces, down to its leaves; its documentation is not among them."""
    return flattened([Part(item)], source)


def flattened(pieces: Sequence[Piece], source: Source) -> list[Piece]:
    """Pieces with those of its nodes in place of each `Part`."""
    out: list[Piece] = []
    todo = [*reversed(pieces)]
    while todo:
        piece = todo.pop()
        if isinstance(piece, Part):
            todo += reversed(_laid_out(piece, source))
        else:
            out.append(piece)
    return out


def _laid_out(part: Part, source: Source) -> list[Piece]:
    pieces = LAYOUTS[type(part.node)](part.node, source)
    return ["(", *pieces, ")"] if binding(part.node) < part.level else pieces


# ---- what items are made of


def _with_clauses(statement: Sequence[Piece], clauses: Sequence[Clause], tall: bool = False) -> list[Piece]:
    tall = tall or any(clause.keyword in _TALL for clause in clauses)
    pieces: list[Piece] = [_TALL_ITEM if tall else _ITEM, *statement]
    for clause in clauses:
        pieces += [Break(before=clause.before, keeps=True), *clause.pieces]
    return [*pieces, CLOSE]


def _stated(head: Sequence[Piece], body: Sequence[Piece], binds: Sequence[syntax.Bind], source: Source) -> list[Piece]:
    """A head and what it says, with its parts: one line, or two or three."""
    return [Open(), Open(), *head, *body, CLOSE, *where(binds, source, _NEXT), CLOSE]


def _head(item: syntax.Fusion | syntax.Rule) -> str:
    words = [f"level {item.level}"] if item.level is not None else []
    words += [f"flag {item.flag}"] if item.flag is not None else []
    words += [f"over {', '.join(item.over)}"] if item.over else []
    return "".join(f" {word}" for word in words)


def _equations(nodes: Sequence[syntax.Equation], source: Source) -> list[list[Piece]]:
    """Equations one below the other, with their `when` in one column where all of them are lines."""
    if len(nodes) < 2 or not all(node.when for node in nodes):
        return [equation(node, source) for node in nodes]
    widths = [flat_width(flattened(outputs(node.outputs, source), source)) for node in nodes]
    blanks = [max(widths) - width for width in widths]
    aligned = [equation(node, source, more) for node, more in zip(nodes, blanks, strict=True)]
    if all(INDENT + flat_width(flattened(pieces, source)) <= WIDTH for pieces in aligned):
        return aligned
    return [equation(node, source) for node in nodes]


# ---- items


def _pack(node: syntax.Pack, source: Source) -> list[Piece]:
    pieces: list[Piece] = [_ITEM, f"pack {node.name}"]
    for word in ("level", "flag", "stage"):
        if getattr(node, word) is not None:
            pieces += [Break(), f"{word} {getattr(node, word)}"]
    if node.after:
        pieces += [Break(), f"after {', '.join(node.after)}"]
    pieces += when(node.when, source, Break())
    for clause in clauses_of(node, source):
        pieces += [Break(before=clause.before), *clause.pieces]
    return [*pieces, CLOSE]


def _use(node: syntax.Use, source: Source) -> list[Piece]:
    names = [syntax.Var(node.span, name) for name in node.names]
    return [_ITEM, f"use {node.path}", *([" ", *bracketed("()", names, Source())] if names else []), CLOSE]


def _native(node: syntax.Native, source: Source) -> list[Piece]:
    result = Break(before=source.before(node.result))
    head: list[Piece] = [f"native {node.name}", Part(node.params), result, "-> ", Part(node.result)]
    return [_ITEM, *head, Break(), f"from {quoted(node.source)}", CLOSE]


def _dtype(node: syntax.DtypeClass, source: Source) -> list[Piece]:
    return [_ITEM, f"dtype {node.name} = ", *bracketed("{}", node.members, source, source.last(node)), CLOSE]


def _def(node: syntax.Def, source: Source) -> list[Piece]:
    head: list[Piece] = [f"def {node.name}", Part(node.params)]
    space = Break(before=source.start(node.equations[0]), keeps=True)
    if len(node.equations) == 1:
        return _with_clauses(_stated(head, [space, *equation(node.equations[0], source)], node.where, source), [])
    return [_TALL_ITEM, *head, *_body(node, source), CLOSE]


def _body(node: syntax.Def | syntax.Op, source: Source) -> list[Piece]:
    pieces: list[Piece] = []
    for one, laid_out in zip(node.equations, _equations(node.equations, source), strict=True):
        pieces += [Break(before=source.start(one), keeps=True), *laid_out]
    return [*pieces, *where(node.where, source, _NEXT)]


def _op(node: syntax.Op, source: Source) -> list[Piece]:
    space = Break(before=source.before(node.results[0]))
    head = [Open(), f"op {node.name}", Part(node.params), space, "-> ", *_results(node, source), CLOSE]
    return _with_clauses([*head, *_body(node, source)], clauses_of(node, source), tall=True)


def _results(node: syntax.Op, source: Source) -> list[Piece]:
    first = node.results[0]
    if len(node.results) == 1 and first.name == "y" and first.span == first.type.span:  # not named in the source
        return [Part(first.type)]
    return bracketed("()", node.results, source)


def _fusion(node: syntax.Fusion, source: Source) -> list[Piece]:
    head: list[Piece] = [f"fusion {node.name}", Part(node.params), _head(node)]
    body = [Break(before=source.before(node.outputs[0]), keeps=True), *outputs(node.outputs, source)]
    return _with_clauses(_stated(head, body, node.where, source), clauses_of(node, source))


def _rule(node: syntax.Rule, source: Source) -> list[Piece]:
    head: list[Piece] = []
    if node.name is not None:
        params = [Part(node.params)] if node.params is not None else []
        head = [f"rule {node.name}", *params, f"{_head(node)}:", Break(before=source.start(node.left[0]))]
    left = [Open("fill"), *listed(node.left, source), CLOSE]
    right = [Break(before=source.before(node.right[0])), *clause_list("=>", node.right, source)]
    return _with_clauses(_stated(head, [*left, *right], node.where, source), clauses_of(node, source))


LAYOUTS: dict[type[syntax.Node], Layout] = {
    **EXPRESSIONS,
    **CLAUSES,
    syntax.Pack: _pack,
    syntax.Use: _use,
    syntax.Native: _native,
    syntax.DtypeClass: _dtype,
    syntax.Def: _def,
    syntax.Op: _op,
    syntax.Fusion: _fusion,
    syntax.Rule: _rule,
}
