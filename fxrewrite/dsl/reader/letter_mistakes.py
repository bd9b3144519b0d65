"""Mistakes that one token shows: what other languages write and this one does not."""

from __future__ import annotations

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.formats import DTYPE_HINTS
from fxrewrite.dsl.reader.tokens import DOC, ESCAPE, OPEN_STRING, PRIME, SINGLE_QUOTED, UNKNOWN
from fxrewrite.dsl.reader.trouble import CONDITIONS, LEAVES, Trouble

_PYTHON = {"None": "none", "True": "true", "False": "false"}
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_MARK_FOR = {
    "=<": "<=",
    "<>": "!=",
    ":=": "=",
    "==>": "=>",
    "<=>": "=>",
    "=>>": "=>",
    "=>=": "=>",
    "!==": "!=",
    "===": "==",
}
_INSTEAD_OF = {
    "is": "write `==` or `!=`",
    "if": "choose between equations with `when`",
}
_INSTEAD_OF_STATEMENT = {
    "lambda": "a helper is `def f(x) = e`",
    "let": "name parts under `where`",
    "var": "name parts under `where`",
}
_WORD_FOR = {"&&": "and", "||": "or", "!": "not"}


def python_constant(trouble: Trouble) -> Diagnostic | None:
    """`None`, `True`, `False`."""
    ours = _PYTHON.get(trouble.at.text)
    if ours is None:
        return None
    why = " (as a capture it would match any value)" if ours == "none" else ""
    return trouble.says("RW101", f"`{trouble.at.text}` is not a name here", f"write `{ours}`{why}")


def c_operator(trouble: Trouble) -> Diagnostic | None:
    """`&&`, `||`, `!`."""
    word = _WORD_FOR.get(trouble.at.text)
    return trouble.says("RW106", f"write `{word}`, not `{trouble.at.text}`") if word else None


def double_colon(trouble: Trouble) -> Diagnostic | None:
    """`aten::add`."""
    at, after = trouble.at, trouble.near(1)
    if not (at.kind == after.kind == ":" and at.end_column == after.column and trouble.near(-1).kind == "NAME"):
        return None
    name = f"{trouble.near(-1).text}.{trouble.near(2).text}"
    return trouble.says("RW107", f"write `{name}`, with a dot", "", at, after)


def single_quotes(trouble: Trouble) -> Diagnostic | None:
    """`'tanh'`."""
    if trouble.at.kind != SINGLE_QUOTED:
        return None
    return trouble.says("RW110", f'strings take double quotes: "{trouble.at.text[1:-1]}"')


def open_string(trouble: Trouble) -> Diagnostic | None:
    """A quote without its second one."""
    if trouble.at.kind != OPEN_STRING:
        return None
    return trouble.says("RW129", "this string does not end on its line", 'close it with `"`')


def escape(trouble: Trouble) -> Diagnostic | None:
    """`"a\\nb"`."""
    if trouble.at.kind != ESCAPE:
        return None
    return trouble.says("RW129", "a string has no escapes: what stands between the quotes is its text", "remove `\\`")


def outside_the_folder(trouble: Trouble) -> Diagnostic | None:
    """`use ../x`, `use "x.rw"`, `use a/b`."""
    if trouble.head != "use" or trouble.at.kind not in ("..", "...", "/", ".", "STRING", "//", "-"):
        return None
    words = trouble.text(1, len(trouble.tokens) - 1).partition("(")[0].strip().strip('"').removesuffix(".rw")
    inside = ".." not in words and not words.startswith("/")
    name = words.replace("/", ".") if inside else words.rpartition("/")[2].strip(".")
    hint = f"write `use {name}`" if name.replace(".", "").replace("_", "").isalnum() else "write `use pack`"
    why = "a file uses shipped packs, and files in its own folder and below: `use name`, `use folder.name`"
    return trouble.says("RW129", why, hint)


def binding_word(trouble: Trouble) -> Diagnostic | None:
    """`keep silu(x) => x`."""
    if trouble.at.kind not in ("keep", "each") or trouble.clause() == "where":
        return None
    word = trouble.at.kind
    example = "keep n = silu(x)" if word == "keep" else "each y = t @ b"
    return trouble.says("RW114", f"`{word}` is a reserved word: it binds a part", f"write `... where {example}`")


def other_type(trouble: Trouble) -> Diagnostic | None:
    """`torch.bfloat16`, `tensor<4xf32>`, `f32[?, D]`, `f32[..., D]` where a type stands."""
    at, before = trouble.at, trouble.near(-1)
    colon = trouble.near(-2).kind in (":", "->")
    if at.kind == "DOTNAME" and colon and before.text in ("torch", "np", "numpy", "jnp", "tl"):
        name = DTYPE_HINTS.get(at.text[1:], at.text[1:])
        return trouble.says("RW129", "a dtype has a short name here", f"write `{name}[*B, D]`", before, at)
    if at.text == "<" and colon and before.text in ("tensor", "memref", "vector"):
        return trouble.says("RW129", "a type is a dtype with dims", "write `f32[4, D]`", before, at)
    if at.kind in ("?", "...") and trouble.opened() and trouble.tokens[trouble.opened()[-1]].kind == "[":
        inside = trouble.tokens[trouble.opened()[-1] - 2].kind
        if inside in (":", "->"):
            return trouble.says("RW129", "a dim has a name", "write `T` for any size, `*B` for any leading axes")
    return None


def unnamed_results(trouble: Trouble) -> Diagnostic | None:
    """`-> (T, U)` and `-> z: T`."""
    if trouble.head != "op" or not any(t.kind == "->" for t in trouble.tokens[: trouble.index]):
        return None
    if trouble.at.kind == "[" and ":" in trouble.accepted:
        hint = f"write `(y: {trouble.near(-1).text}[...], ...)`"
        return trouble.says("RW129", "several results have names", hint, trouble.near(-1))
    if trouble.at.kind == ":" and trouble.near(-2).kind == "->":
        return trouble.says(
            "RW129", "a result with a name stands in parentheses", f"write `({trouble.near(-1).text}: ...)`"
        )
    return None


def statement(trouble: Trouble) -> Diagnostic | None:
    """`return x`."""
    if trouble.near(-1).text not in ("return", "yield", "await", "lambda", "assert", "let", "var"):
        return None
    word = trouble.near(-1).text
    hint = _INSTEAD_OF_STATEMENT.get(word, "remove it: what is written is the value")
    return trouble.says("RW129", f"there is no `{word}`", hint, trouble.near(-1))


def prime(trouble: Trouble) -> Diagnostic | None:
    """`x'`."""
    if trouble.at.kind != PRIME:
        return None
    name = trouble.near(-1).text
    hint = f"write `{name}{len(trouble.at.text) + 1}`, not `{name}{trouble.at.text}`"
    return trouble.says("RW117", "a name has letters, digits and `_`", hint)


def power(trouble: Trouble) -> Diagnostic | None:
    """`x ** 2`."""
    if trouble.at.kind != "**":
        return None
    base, exponent = trouble.near(-1), trouble.near(1)
    if base.kind in LEAVES and exponent.text in ("2", "3"):
        return trouble.says("RW115", "there is no `**`", f"write `{' * '.join([base.text] * int(exponent.text))}`")
    return trouble.says("RW115", "there is no `**`", "name the base under `where` and write the product")


def a_range(trouble: Trouble) -> Diagnostic | None:
    """`1..256`, which stops at its start where only a set can stand."""
    start = trouble.index if trouble.near(1).kind == ".." else trouble.index - 1 if trouble.at.kind == ".." else None
    if start is None or start < 0:
        return None
    low, high = trouble.tokens[start], trouble.tokens[min(start + 2, len(trouble.tokens) - 1)]
    name = trouble.tokens[start - 2].text if start >= 2 and trouble.tokens[start - 1].kind == "in" else "n"
    hint = f"write `{low.text} <= {name} <= {high.text}`"
    last = high if high.text and high.line == low.line else trouble.tokens[start + 1]
    return trouble.says("RW118", "there are no ranges", hint, low, last)


def doc_inside(trouble: Trouble) -> Diagnostic | None:
    """`##` behind or below the first line of an item."""
    if trouble.at.kind != DOC:
        return None
    return trouble.says("RW121", "a doc comment stands directly above its item", "use `#` inside one")


def strange_letter(trouble: Trouble) -> Diagnostic | None:
    """A letter that the language does not use."""
    if trouble.at.kind != UNKNOWN:
        return None
    letter = trouble.at.text
    if letter == "\t":
        return trouble.says("RW112", "use spaces, not tabs")
    if not letter.isprintable():
        return trouble.says("RW129", f"found the control character U+{ord(letter):04X}", "remove it")
    hint = "remove it: an indented line continues an item" if letter == "\\" else ""
    return trouble.says("RW129", f"`{letter}` has no meaning in this language", hint)


def two_marks(trouble: Trouble) -> Diagnostic | None:
    """`=<`, `<>`, `:=` and other marks of other languages, which stop at their first or second half."""
    for first, second in ((trouble.near(-1), trouble.at), (trouble.at, trouble.near(1))):
        ours = _MARK_FOR.get(first.text + second.text)
        if ours and first.line == second.line and first.end_column == second.column:
            return trouble.says("RW129", f"write `{ours}`, not `{first.text}{second.text}`", "", first, second)
    if trouble.at.kind == "=>" and trouble.clause() in CONDITIONS:
        return trouble.says("RW129", "write `>=`, not `=>`, in a condition")
    return None


def odd_number(trouble: Trouble) -> Diagnostic | None:
    """`1.`, `.5`, `0x10`, `64KB`."""
    before, at = trouble.near(-1), trouble.at
    if at.kind == "DOTINT" and "FLOAT" in trouble.accepted:
        return trouble.says("RW129", f"`{at.text}` is a result by position", f"write `0{at.text}`")
    touches = before.kind in ("INT", "FLOAT") and (before.line, before.end_column) == (at.line, at.column)
    if touches and at.text == ".":
        return trouble.says("RW129", f"`{before.text}.` is not a number", f"write `{before.text}.0`", before, at)
    if touches and at.text[:1] in _LETTERS:
        hint = "numbers are `12`, `0.5`, `1e-6`, `64KiB`"
        return trouble.says("RW129", f"`{before.text}{at.text}` is not a number", hint, before, at)
    return None


def other_word(trouble: Trouble) -> Diagnostic | None:
    """Operators and choices that Python spells in words."""
    at, before, after = trouble.at, trouble.near(-1), trouble.near(1)
    if "+" in trouble.accepted and at.text in _INSTEAD_OF:
        return trouble.says("RW129", f"there is no `{at.text}`", _INSTEAD_OF[at.text])
    if at.kind == "not" and after.kind == "in":
        return trouble.says("RW129", "there is no `not in`", "write `not x in {...}`", at, after)
    if before.kind == "in" and at.kind in ("[", "("):
        closer = trouble.closer_of(trouble.index)
        return trouble.says("RW129", "a set stands in braces", f"write `{{{trouble.text(trouble.index + 1, closer)}}}`")
    return None


LETTERS = (
    python_constant, c_operator, single_quotes, escape, binding_word, outside_the_folder, other_type, unnamed_results,
    statement, prime, power, a_range, doc_inside, open_string, two_marks, odd_number, strange_letter, double_colon,
    other_word,
)  # fmt: skip
