"""Expressions, types and signatures: one function for each rule or alias of `grammar.lark` that makes a node of them.

Each takes the values of the rule's parts and the place of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import Any

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.reader.lalr import Build
from fxrewrite.dsl.reader.tokens import BYTES, Token
from fxrewrite.dsl.syntax import Span

_MAX_DIGITS = 19


def refuse(message: str, place: Span, hint: str = "") -> RuleError:
    """What the grammar accepts and the language does not."""
    return RuleError([Diagnostic("RW129", message, place, hint)])


# ---- leaves


def _leaf(make: Callable[..., Any], read: Callable[[str], Any]) -> Build:
    return lambda parts, place: make(place, read(parts[0].text))


def _constant(make: Callable[..., Any], *values: Any) -> Build:
    return lambda parts, place: make(place, *values)


def _number(parts: list[Any], place: Span) -> syntax.Number:
    text: str = parts[0].text
    if parts[0].kind == "SIZE":
        return syntax.Number(place, whole_number(text[:-3], place) * BYTES[text[-3:]])
    if parts[0].kind == "INT":
        return syntax.Number(place, whole_number(text, place))
    value = float(text)
    if isinf(value):
        raise refuse("this number is larger than any float", place)
    return syntax.Number(place, value)


def whole_number(digits: str, place: Span) -> int:
    """The value of decimal digits. Refuses what no int64 could hold, long before Python refuses to read it."""
    if len(digits) > _MAX_DIGITS:
        raise refuse(f"a whole number has at most {_MAX_DIGITS} digits", place)
    return int(digits)


def unquoted(text: str) -> str:
    """The text between the quotes of a string."""
    return text[1:-1]


# ---- operators


def _binary(operator: str) -> Build:
    return lambda parts, place: syntax.Binary(place, operator, parts[0], parts[1])


def _unary(operator: str) -> Build:
    return lambda parts, place: syntax.Unary(place, operator, parts[0])


def _compare(parts: list[Any], place: Span) -> syntax.Compare:
    operators: list[Token] = parts[1::2]
    return syntax.Compare(place, parts[0], tuple((op.text, e) for op, e in zip(operators, parts[2::2], strict=True)))


def choices(part: Any) -> Any:
    """The members of a set, or the name of a dtype class."""
    return part.text if isinstance(part, Token) else part


def _member(parts: list[Any], place: Span) -> syntax.Member:
    return syntax.Member(place, parts[0], choices(parts[1]))


def _pipe(parts: list[Any], place: Span) -> syntax.Pipe:
    stage, bare = parts[1]
    return syntax.Pipe(place, parts[0], stage, bare)


def _stage_call(parts: list[Any], place: Span) -> tuple[syntax.Call, bool]:
    (func, func_span), arguments = parts[0], parts[1:]
    bare = place == func_span
    return _make_call(place, func, func_span, arguments), bare


# ---- calls, attributes, indexing


def _path(parts: list[Any], place: Span) -> tuple[str, Span]:
    return "".join(part.text for part in parts), place


def _call(parts: list[Any], place: Span) -> syntax.Call:
    func = _dotted(parts[0])
    if func is None:
        hint = "name the value under `where`, or pipe it into a function"
        raise refuse("only a name can be called", parts[0].span, hint)
    return _make_call(place, func, parts[0].span, parts[1:])


def _dotted(callee: syntax.Expr) -> str | None:
    names: list[str] = []
    while isinstance(callee, syntax.Attr):
        names.append(callee.name)
        callee = callee.value
    return ".".join([callee.name, *reversed(names)]) if isinstance(callee, syntax.Var) else None


def _make_call(place: Span, func: str, func_span: Span, arguments: list[Any]) -> syntax.Call:
    args, kwargs, rest = sort_arguments(arguments)
    return syntax.Call(place, func, tuple(args), tuple(kwargs), rest, func_span)


def sort_arguments(arguments: list[Any]) -> tuple[list[Any], list[syntax.Kwarg], bool]:
    """Arguments by position, keywords, and whether `...` ends them.

    Refuses a keyword given twice and `...` before the end.
    """
    args: list[Any] = []
    kwargs: list[syntax.Kwarg] = []
    rest = False
    for argument in arguments:
        if rest:
            raise refuse("`...` stands last in a call", argument.span)
        if isinstance(argument, syntax.Kwarg):
            if any(argument.name == other.name for other in kwargs):
                raise refuse(f"`{argument.name}` is given twice in this call", argument.span)
            kwargs.append(argument)
        elif isinstance(argument, syntax.Rest):
            rest = True
        else:
            args.append(argument)
    return args, kwargs, rest


def _attr(parts: list[Any], place: Span) -> syntax.Attr:
    return syntax.Attr(place, parts[0], parts[1].text[1:])


def _proj(parts: list[Any], place: Span) -> syntax.Proj:
    return syntax.Proj(place, parts[0], whole_number(parts[1].text[1:], place))


def _index(parts: list[Any], place: Span) -> syntax.Index:
    return syntax.Index(place, parts[0], tuple(parts[1:]))


def _kwarg(parts: list[Any], place: Span) -> syntax.Kwarg:
    return syntax.Kwarg(place, parts[0].text, parts[1])


# ---- types and signatures


def _type(parts: list[Any], place: Span) -> syntax.Type:
    name, dims, optional = parts
    inside, layout = dims or (None, None)
    return syntax.Type(place, name.text, inside, layout, optional is not None)


def _dims(parts: list[Any], place: Span) -> tuple[tuple[Any, ...], Any]:
    return tuple(parts[:-1]), parts[-1]


def _layout(parts: list[Any], place: Span) -> syntax.Var | syntax.String:
    token: Token = parts[0]
    here = Span(place.file, token.line, token.column, token.line, token.end_column)
    return syntax.Var(here, token.text) if token.kind == "NAME" else syntax.String(here, unquoted(token.text))


def _param(parts: list[Any], place: Span) -> syntax.Param:
    star, name, typed, domain, default = parts
    return syntax.Param(place, name.text, typed, domain, default, star is not None)


EXPRESSIONS: dict[str, Build] = {
    "var": _leaf(syntax.Var, str),
    "str": _leaf(syntax.String, unquoted),
    "number": _number,
    "true": _constant(syntax.Bool, True),
    "false": _constant(syntax.Bool, False),
    "none": _constant(syntax.NoneLit),
    "any": _constant(syntax.Any),
    "rest": _constant(syntax.Rest),
    "splat": _leaf(syntax.Splat, str),
    "or_": _binary("or"),
    "and_": _binary("and"),
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _binary("/"),
    "floordiv": _binary("//"),
    "mod": _binary("%"),
    "matmul": _binary("@"),
    "not_": _unary("not"),
    "minus": _unary("-"),
    "compare": _compare,
    "member": _member,
    "set": lambda parts, place: tuple(parts),
    "pipe": _pipe,
    "stage_call": _stage_call,
    "path": _path,
    "call": _call,
    "kwarg": _kwarg,
    "attr": _attr,
    "proj": _proj,
    "index": _index,
    "slice": lambda parts, place: syntax.Slice(place, *parts),
    "alternatives": lambda parts, place: syntax.Alternatives(place, tuple(parts)),
    "tuple": lambda parts, place: syntax.Tuple(place, tuple(parts)),
    "list": lambda parts, place: syntax.List(place, tuple(parts)),
    "exprs": lambda parts, place: tuple(parts),
    "type": _type,
    "dtype_type": lambda parts, place: syntax.Type(place, "dtype", optional=parts[0] is not None),
    "dims": _dims,
    "layout": _layout,
    "domain": lambda parts, place: choices(parts[0]),
    "param": _param,
    "operands": lambda parts, place: tuple(parts),
    "attributes": lambda parts, place: tuple(parts),
    "params": lambda parts, place: syntax.Params(place, parts[0] or (), parts[1] or ()),
}

# What adds one to the depth of an expression: every node that holds others. Brackets around an expression do too.
DEEPENING = frozenset({
    "or_", "and_", "add", "sub", "mul", "div", "floordiv", "mod", "matmul", "not_", "minus", "compare", "member",
    "pipe", "stage_call", "call", "kwarg", "attr", "proj", "index", "slice", "alternatives", "tuple", "list",
})  # fmt: skip
