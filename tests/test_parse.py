"""Text becomes the right nodes, each with the exact place that it came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from fxrewrite.dsl import syntax
from fxrewrite.dsl.parse import parse

ROOT = Path(__file__).parent.parent
OK = sorted((ROOT / "tests/corpus/ok").glob("*.rw"))
SHIPPED = sorted((ROOT / "patterns").rglob("*.rw"))
HERE = syntax.Span("x.rw", 1, 1, 1, 1)


def items(text: str) -> tuple[syntax.Item, ...]:
    file, diagnostics = parse(text, "x.rw")
    assert not diagnostics, diagnostics[0].render({"x.rw": text})
    return file.items


def expression(text: str) -> Any:
    """The node of an expression, read on the right of a rule."""
    (rule,) = items(f"x => {text}\n")
    assert isinstance(rule, syntax.Rule)
    return rule.right[0]


def nodes(value: Any) -> Iterator[syntax.Node]:
    """A node and all below it, from above."""
    if isinstance(value, syntax.Node):
        yield value
    if attrs.has(type(value)):
        value = [getattr(value, field.name) for field in attrs.fields(type(value))]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from nodes(part)


def source_of(span: syntax.Span, text: str) -> str:
    """What stands at a span."""
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def var(name: str) -> syntax.Var:
    return syntax.Var(HERE, name)


def num(value: float) -> syntax.Number:
    return syntax.Number(HERE, value)


def call(func: str, *args: Any, **kwargs: Any) -> syntax.Call:
    return syntax.Call(HERE, func, args, tuple(syntax.Kwarg(HERE, k, v) for k, v in kwargs.items()))


def binary(operator: str, left: Any, right: Any) -> syntax.Binary:
    return syntax.Binary(HERE, operator, left, right)


A, B, C = var("a"), var("b"), var("c")
EXPRESSIONS = {
    "a": A,
    "(((a)))": A,
    "12": num(12),
    "1e-6": num(1e-6),
    "64KiB": num(65536),
    '"tanh"': syntax.String(HERE, "tanh"),
    "true": syntax.Bool(HERE, True),
    "none": syntax.NoneLit(HERE),
    "_": syntax.Any(HERE),
    "a + b * c": binary("+", A, binary("*", B, C)),
    "a - b - c": binary("-", binary("-", A, B), C),
    "a // b % c @ a": binary("@", binary("%", binary("//", A, B), C), A),
    "-a * b": binary("*", syntax.Unary(HERE, "-", A), B),
    "not a and b or c": binary("or", binary("and", syntax.Unary(HERE, "not", A), B), C),
    "not a == b": syntax.Unary(HERE, "not", syntax.Compare(HERE, A, (("==", B),))),
    "1 <= a < 4": syntax.Compare(HERE, num(1), (("<=", A), ("<", num(4)))),
    "a + 1 in {1, 2,}": syntax.Member(HERE, binary("+", A, num(1)), (num(1), num(2))),
    "a in fp8": syntax.Member(HERE, A, "fp8"),
    "a or b |> f": syntax.Pipe(HERE, binary("or", A, B), call("f"), True),
    "a |> f |> g(b)": syntax.Pipe(HERE, syntax.Pipe(HERE, A, call("f"), True), call("g", B)),
    "a |> f()": syntax.Pipe(HERE, A, call("f")),
    "aten.add.out(a, *b, k=c)": call("aten.add.out", A, syntax.Splat(HERE, "b"), k=C),
    "a.to(f32)": call("a.to", var("f32")),
    "f(a, ...)": syntax.Call(HERE, "f", (A,), (), True),
    "f(a).0": syntax.Proj(HERE, call("f", A), 0),
    "a.shape[0].in": syntax.Attr(HERE, syntax.Index(HERE, syntax.Attr(HERE, A, "shape"), (num(0),)), "in"),
    "a[..., 1:, :b:2]": syntax.Index(
        HERE,
        A,
        (syntax.Rest(HERE), syntax.Slice(HERE, num(1), None, None), syntax.Slice(HERE, None, B, num(2))),
    ),
    "(a | b | none)": syntax.Alternatives(HERE, (A, B, syntax.NoneLit(HERE))),
    "(a,)": syntax.Tuple(HERE, (A,)),
    "[*a, (b, c)]": syntax.List(HERE, (syntax.Splat(HERE, "a"), syntax.Tuple(HERE, (B, C)))),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text: str) -> None:
    assert expression(text) == EXPRESSIONS[text]


def test_signature() -> None:
    text = (
        'op f(x: lowp[*B, 2*D], *ws: real[D]? = none; L: layout in {"row"} = "row", t: dtype in fp8) -> (q: t[*B; L])\n'
    )
    (op,) = items(text)
    dims = (syntax.Splat(HERE, "B"), binary("*", num(2), var("D")))
    assert isinstance(op, syntax.Op)
    x, ws = op.params.operands
    layout, t = op.params.attributes
    assert (x.name, x.type) == ("x", syntax.Type(HERE, "lowp", dims))
    assert (ws.star, ws.type) == (True, syntax.Type(HERE, "real", (var("D"),), None, True))
    assert ws.default == syntax.NoneLit(HERE)
    assert layout.domain == (syntax.String(HERE, "row"),)
    assert (t.type, t.domain) == (syntax.Type(HERE, "dtype"), "fp8")
    assert op.results == (syntax.Result(HERE, "q", syntax.Type(HERE, "t", (syntax.Splat(HERE, "B"),), var("L"))),)


def test_an_unnamed_result_is_y() -> None:
    (op,) = items("op f(x: bf16) -> bf16[D]\n")
    assert isinstance(op, syntax.Op)
    assert op.results[0].name == "y"


def test_bound_call() -> None:
    (form,) = items(
        'form f.custom(k=_)  _C.f.out(out q, out, out o: f32[1; "tma"], x, mut r as h, mut s, to=out p, ...).1\n'
    )
    assert isinstance(form, syntax.Form)
    scratch = syntax.Type(HERE, "f32", (num(1),), syntax.String(HERE, "tma"))
    assert form == syntax.Form(
        HERE,
        "custom",
        syntax.BoundCall(
            HERE,
            "_C.f.out",
            (
                syntax.Out(HERE, "q"),
                syntax.Out(HERE),
                syntax.Out(HERE, "o", scratch),
                var("x"),
                syntax.Mut(HERE, "r", "h"),
                syntax.Mut(HERE, "s"),
            ),
            (),
            (syntax.SlotKw(HERE, "to", syntax.Out(HERE, "p")),),
            True,
            1,
        ),
        pins=(syntax.Kwarg(HERE, "k", syntax.Any(HERE)),),
        owner="f",
    )


def test_every_item_has_its_class_and_every_field_is_filled() -> None:
    found = items((ROOT / "tests/corpus/ok/every_item.rw").read_text())
    kinds = [type(item).__name__ for item in found]
    assert kinds == [
        *("Pack", "Use", "Use", "Native", "DtypeClass", "Def", "Def", "Op", "Fusion", "Rule", "Rule", "Rule"),
        *("Form", "Impl"),
    ]
    op, fusion, rule = found[7], found[8], found[9]
    for item in (found[0], op, fusion, rule):
        empty = [f.name for f in attrs.fields(type(item)) if getattr(item, f.name) in (None, ()) and f.name != "doc"]
        assert not empty, f"{type(item).__name__}: {empty}"
    assert isinstance(op, syntax.Op)
    assert [impl.contract for impl in op.impls] == [
        syntax.Contract(HERE, "relaxed", 1),
        syntax.Contract(HERE, "bitwise"),
    ]
    assert op.contract == syntax.Contract(HERE, "relaxed", None, 1e-3, 0.0)
    assert [bind.kind for bind in op.where] == ["bind", "keep", "each"]
    assert op.where[0].tuple_target and op.where[0].targets == ("y", "sx")


def test_documentation() -> None:
    found = items("## One.\n##\n##   x\n# a comment\ndef f(x) = x\n\n## Two.\nimpl f.k g(x)\ndef g(x) = x\n")
    assert [item.doc for item in found if not isinstance(item, syntax.Native)] == ["One.\n\n  x", "Two.", ""]


@pytest.mark.parametrize("path", [*OK, *SHIPPED], ids=lambda path: str(path.relative_to(ROOT)))
def test_right_files_have_no_diagnostics_and_exact_spans(path: Path) -> None:
    text = path.read_text()
    file, diagnostics = parse(text, str(path))
    assert not diagnostics, diagnostics[0].render({str(path): text})
    assert file.items
    for item in file.items:
        for node in nodes(item):
            _check_span(node, text)
            for inner in list(nodes(node))[1:]:
                assert _inside(inner.span, node.span)


def _check_span(node: syntax.Node, text: str) -> None:
    source = source_of(node.span, text)
    assert source == source.strip()
    match node:
        case syntax.Var(name=name):
            assert source == name
        case syntax.String(value=value):
            assert source == f'"{value}"'
        case syntax.Splat(name=name):
            assert source.replace(" ", "") == f"*{name}"
        case syntax.Call(func=func, func_span=span):
            assert span is not None
            assert source_of(span, text) == func
        case syntax.Attr(name=name):
            assert source.endswith(f".{name}")
        case syntax.List() | syntax.Tuple() | syntax.Params():
            assert source[0] + source[-1] in ("()", "[]")
        case syntax.Param(name=name):
            assert source.removeprefix("*").startswith(name)
        case syntax.Bind(value=value):
            assert source.endswith(source_of(value.span, text)) or source[-1] == ")"
        case _:
            pass


def _inside(inner: syntax.Span, outer: syntax.Span) -> bool:
    starts = (outer.line, outer.column) <= (inner.line, inner.column)
    return starts and (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)


def test_windows_line_ends_change_nothing() -> None:
    for path in OK:
        text = path.read_text()
        windows = text.replace("\n", "\r\n")
        assert items(windows) == items(text)
        spans = [[node.span for item in items(t) for node in nodes(item)] for t in (text, windows)]
        assert spans[0] == spans[1]


def test_a_last_line_needs_no_end() -> None:
    assert items("a => b") == items("a => b\n") == items("a => b\n\n# end")


def test_an_empty_file_has_no_items() -> None:
    assert items("") == items("\n\n") == items("# nothing\n") == ()
