"""Expressions, types and signatures as pieces: one function for each class of `syntax.py` that is a part of these.

Each lays out one node and leaves the nodes below it as `Part`s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.format.pieces import CLOSE, INDENT, Anchor, Break, Open, Part, Piece, Position
from fxrewrite.dsl.format.trivia import Source

# How tightly an expression binds, as in `grammar.lark`.
PIPE, OR, AND, NOT, TEST, SUM, TERM, MINUS, POSTFIX, ATOM = range(10)
_BINARY = {
    "or": OR, "and": AND, "+": SUM, "-": SUM, "*": TERM, "/": TERM, "//": TERM, "%": TERM, "@": TERM,
}  # fmt: skip

Layout = Callable[[Any, Source], list[Piece]]


# ---- lists


def listed(nodes: Sequence[syntax.Node], source: Source, level: int = PIPE) -> list[Piece]:
    """Nodes with commas between."""
    pieces: list[Piece] = []
    for index, node in enumerate(nodes):
        if index:
            pieces += [",", Break(before=source.start(node))]
        pieces.append(Part(node, level))
    return pieces


def bracketed(
    brackets: str,
    nodes: Sequence[syntax.Node],
    source: Source,
    end: Position | None = None,
    last: Sequence[Piece] = (),
    level: int = PIPE,
) -> list[Piece]:
    """Nodes in brackets with commas between, and `last` behind them; `end` is where the closing bracket stands."""
    opening, closing = brackets
    if not nodes:
        return [opening, *last, closing]
    first = Break("", source.start(nodes[0]))
    return [opening, Open("fill", INDENT), first, *listed(nodes, source, level), *last, Anchor(end), CLOSE, closing]


def choices(value: Sequence[syntax.Node] | str, source: Source, end: Position | None = None) -> list[Piece]:
    """What stands behind `in`: a set, or the name of a class."""
    return [value] if isinstance(value, str) else bracketed("{}", value, source, end)


# ---- leaves


def _number(node: syntax.Number, source: Source) -> list[Piece]:
    spelled = source.numbers(node)
    return [spelled[0] if len(spelled) == 1 else number(node.value)]


def number(value: float) -> str:
    """A number as it is written where no source says how."""
    return repr(value).replace("e-0", "e-")


# ---- operators


def binding(node: syntax.Node) -> int:
    """How tightly an expression binds."""
    match node:
        case syntax.Pipe():
            return PIPE
        case syntax.Binary(op=op):
            return _BINARY[op]
        case syntax.Unary(op=op):
            return NOT if op == "not" else MINUS
        case syntax.Compare() | syntax.Member():
            return TEST
        case syntax.Attr() | syntax.Proj() | syntax.Index() | syntax.Call():
            return POSTFIX
        case _:
            return ATOM


def _binary(node: syntax.Binary, source: Source) -> list[Piece]:
    level = _BINARY[node.op]
    if node.op in ("*", "//") and _is_size(node):
        return [Part(node.left, level), node.op, Part(node.right, level + 1)]
    steps: list[syntax.Binary] = [node]
    while isinstance(left := steps[-1].left, syntax.Binary) and _BINARY[left.op] == level:
        steps.append(left)
    pieces: list[Piece] = [Open("all", INDENT), Part(steps[-1].left, level)]
    for step in reversed(steps):
        before = source.before(step.right)
        pieces += [Break(before=before), f"{step.op} ", Part(step.right, level + 1)]
    return [*pieces, CLOSE]


def _is_size(node: syntax.Node) -> bool:
    """Is it a product of whole numbers and names in capitals, which stand for dims?"""
    todo: list[syntax.Node] = [node]
    while todo:
        match todo.pop():
            case syntax.Binary(left=left, right=right):
                todo += [left, right]
            case syntax.Var(name=name) if name[0].isupper():
                pass
            case syntax.Number(value=int()):
                pass
            case _:
                return False
    return True


def _unary(node: syntax.Unary, source: Source) -> list[Piece]:
    return ["not " if node.op == "not" else "-", Part(node.operand, binding(node))]


def _compare(node: syntax.Compare, source: Source) -> list[Piece]:
    pieces: list[Piece] = [Open("all", INDENT), Part(node.first, SUM)]
    for operator, operand in node.rest:
        pieces += [Break(before=source.before(operand)), f"{operator} ", Part(operand, SUM)]
    return [*pieces, CLOSE]


def _member(node: syntax.Member, source: Source) -> list[Piece]:
    return [Part(node.item, SUM), " in ", *choices(node.choices, source, source.last(node))]


def _pipe(node: syntax.Pipe, source: Source) -> list[Piece]:
    steps = [node]
    while isinstance(left := steps[-1].left, syntax.Pipe):
        steps.append(left)
    pieces: list[Piece] = [Open("all", INDENT), Part(steps[-1].left)]
    for step in reversed(steps):
        stage: list[Piece] = [step.stage.func] if step.bare else _call(step.stage, source)
        pieces += [Break(before=source.before(step.stage)), "|> ", *stage]
    return [*pieces, CLOSE]


# ---- calls, attributes, indexing


def _call(node: syntax.Call, source: Source) -> list[Piece]:
    return [node.func, *arguments([*node.args, *node.kwargs], node.rest, source, source.last(node))]


def arguments(nodes: Sequence[syntax.Node], rest: bool, source: Source, end: Position | None) -> list[Piece]:
    """Arguments in brackets, in the order of the source. `rest`: `...` ends them."""
    last: list[Piece] = [] if not rest else [",", Break(), "..."] if nodes else ["..."]
    return bracketed("()", source.in_order(nodes), source, end, last)


def _based(node: Any) -> Part:
    """What an attribute or a result is of. A number takes brackets: `1.0` would be another number."""
    is_number = isinstance(node.value, syntax.Number)
    return Part(node.value, ATOM + 1 if is_number else POSTFIX)


def _slice(node: syntax.Slice, source: Source) -> list[Piece]:
    pieces: list[Piece] = [Part(node.start)] if node.start else []
    pieces.append(":")
    pieces += [Part(node.stop)] if node.stop else []
    return [*pieces, ":", Part(node.step)] if node.step else pieces


def _alternatives(node: syntax.Alternatives, source: Source) -> list[Piece]:
    pieces: list[Piece] = ["(", Open("all", INDENT), Break("", source.start(node.choices[0]))]
    for index, choice in enumerate(node.choices):
        if index:
            pieces += [Break(before=source.before(choice)), "| "]
        pieces.append(Part(choice))
    return [*pieces, Anchor(source.last(node)), CLOSE, ")"]


def _tuple(node: syntax.Tuple, source: Source) -> list[Piece]:
    return bracketed("()", node.items, source, source.last(node), [","] if len(node.items) == 1 else [])


# ---- types and signatures


def _type(node: syntax.Type, source: Source) -> list[Piece]:
    layout: list[Piece] = ["; ", Part(node.layout)] if node.layout else []
    dims = [] if node.dims is None else bracketed("[]", node.dims, source, None, layout, SUM)
    return [node.name, *dims, *(["?"] if node.optional else [])]


def _param(node: syntax.Param, source: Source) -> list[Piece]:
    pieces: list[Piece] = [f"*{node.name}" if node.star else node.name]
    if node.type is not None:
        pieces += [": ", Part(node.type)]
    if node.domain is not None:
        pieces += [" in ", *choices(node.domain, source)]
    return [*pieces, " = ", Part(node.default)] if node.default else pieces


def _params(node: syntax.Params, source: Source) -> list[Piece]:
    """Operands, then attributes on a line of their own where all together are too long."""
    pieces: list[Piece] = ["(", Open("all", INDENT)]
    if node.operands:
        pieces += [Open("fill"), Break("", source.start(node.operands[0])), *listed(node.operands, source), CLOSE]
    if node.attributes:
        pieces += [";", Break(before=source.start(node.attributes[0]))]
        pieces += [Open("fill"), *listed(node.attributes, source), CLOSE]
    return [*pieces, Anchor(source.last(node)), CLOSE, ")"]


EXPRESSIONS: Mapping[type[syntax.Node], Layout] = {
    syntax.Var: lambda node, source: [node.name],
    syntax.Number: _number,
    syntax.String: lambda node, source: [quoted(node.value)],
    syntax.Bool: lambda node, source: ["true" if node.value else "false"],
    syntax.NoneLit: lambda node, source: ["none"],
    syntax.Any: lambda node, source: ["_"],
    syntax.Call: _call,
    syntax.Kwarg: lambda node, source: [f"{node.name}=", Part(node.value)],
    syntax.Pipe: _pipe,
    syntax.Binary: _binary,
    syntax.Unary: _unary,
    syntax.Compare: _compare,
    syntax.Member: _member,
    syntax.Attr: lambda node, source: [_based(node), f".{node.name}"],
    syntax.Proj: lambda node, source: [_based(node), f".{node.index}"],
    syntax.Index: lambda node, source: [
        Part(node.value, POSTFIX),
        *bracketed("[]", node.items, source, source.last(node)),
    ],
    syntax.Slice: _slice,
    syntax.Rest: lambda node, source: ["..."],
    syntax.Alternatives: _alternatives,
    syntax.Tuple: _tuple,
    syntax.List: lambda node, source: bracketed("[]", node.items, source, source.last(node)),
    syntax.Splat: lambda node, source: [f"*{node.name}"],
    syntax.Type: _type,
    syntax.Param: _param,
    syntax.Params: _params,
}


def quoted(text: str) -> str:
    """A string of the language. It has no escapes: what holds a quote or a line end cannot be written."""
    return f'"{text}"'
