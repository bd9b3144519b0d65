"""Mistakes in the shape of an item: its first word, its head, its clauses and their order."""

from __future__ import annotations

from collections.abc import Sequence

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.reader.tokens import END, Token
from fxrewrite.dsl.reader.trouble import CLAUSES, ITEMS, Trouble, is_reserved

_ITEM_SHAPES = {
    "pack": "`pack name` gives the policy of a file",
    "use": "`use pack (names)` makes names visible",
    "native": '`native f(x: T) -> bool from "pkg:f"` declares a function of a package',
    "dtype": "`dtype name = {bf16, f16}` declares a class",
    "def": "`def name(args) = expression` declares a helper",
    "op": "`op name(args) -> results` declares an op",
    "fusion": "`fusion name(args) = definition` declares the op and its rule",
    "rule": "`rule name: left => right` declares a rewrite",
    "form": "`form op.name ...` adds a form",
    "impl": "`impl op.name ...` adds a provider",
}
_OTHER_WORDS = {
    "fuse": "fusion", "operator": "op", "provider": "impl", "type": "dtype",
    "import": "use", "include": "use", "from": "use",
    "fn": "def", "func": "def", "function": "def", "let": "def", "macro": "def",
    "pattern": "rule", "rewrite": "rule", "for": "rule", "if": "rule",
}  # fmt: skip
_REWRITES = ("", "rule")
_HEAD = ("", "level", "flag", "over")  # the clauses before `=` or `:`


def _at_top(trouble: Trouble) -> bool:
    """Is the stop outside of brackets and before any clause that follows the definition?"""
    return not trouble.opened() and trouble.clause() in _HEAD


def unknown_item(trouble: Trouble) -> Diagnostic | None:
    """`fuse silu_mul_quant`."""
    first, second = trouble.tokens[0], trouble.tokens[min(1, len(trouble.tokens) - 1)]
    refused = trouble.index == (1 if first.kind == "NAME" else 0)
    if not refused or not (first.kind == "NAME" or is_reserved(first)) or second.kind not in ("NAME", "STRING", "INT"):
        return None
    near = _OTHER_WORDS.get(first.text) or _closest(first.text, ITEMS)
    known = ", ".join(f"`{word}`" for word in _ITEM_SHAPES)
    hint = _ITEM_SHAPES[near] if near else f"items are {known} and bare `left => right`"
    return trouble.says("RW120", f"no item starts with `{first.text}`", hint, first)


def thin_arrow(trouble: Trouble) -> Diagnostic | None:
    """`->` where none can stand."""
    if trouble.at.kind != "->":
        return None
    if trouble.head in _REWRITES:
        return trouble.says("RW103", "a rule is `left => right`; `->` gives the results of an op", "write `=>`")
    if trouble.head in ("fusion", "def"):
        return trouble.says("RW129", f"a {trouble.head} infers its results", "remove `-> ...`, or declare an `op`")
    return None


def fusion_mark(trouble: Trouble) -> Diagnostic | None:
    """`fusion f(x) => g(x)`, `fusion f(x): g(x)`, `fusion f(x) = g(x) => h(x)`, `fusion f(x) = y = g(x)`."""
    if trouble.head != "fusion" or not _at_top(trouble) or trouble.at.kind not in ("=>", ":", "="):
        return None
    if trouble.near(-1).kind in ("level", "flag", "over"):
        return None  # it is the head that ends too early
    if "=" in trouble.accepted:
        return trouble.says("RW129", "a fusion is `fusion name(args) = definition`", "write `=`")
    if trouble.at.kind == "=>":
        hint = "write a `rule` to rewrite to an op that exists"
        return trouble.says("RW129", "a fusion has no right side: it makes its own op", hint)
    return trouble.says("RW129", "a fusion has one definition", "name parts of it under `where`")


def rule_mark(trouble: Trouble) -> Diagnostic | None:
    """`silu(x) = f(x)`, `rule r = ...`, and a second `=>`."""
    if trouble.head not in _REWRITES or not _at_top(trouble):
        return None
    if trouble.head == "rule" and ":" in trouble.accepted and trouble.at.kind in ("=", "=>", "NAME"):
        return trouble.says("RW129", "a rule is `rule name: left => right`", "write `:` before the left side")
    if trouble.at.kind == "=" and "=>" in trouble.accepted:
        hint = "write `=>`, or start a definition with `def`, `op` or `fusion`"
        return trouble.says("RW129", "a rule is `left => right`", hint)
    if trouble.at.kind == "=>" and any(token.kind == "=>" for token in trouble.tokens[: trouble.index]):
        return trouble.says("RW129", "a rule has one `=>`", "start the next rule on a line of its own")
    return None


def late_head(trouble: Trouble) -> Diagnostic | None:
    """`level`, `flag`, `over` behind the definition."""
    if trouble.at.kind not in _HEAD or trouble.head not in (*_REWRITES, "fusion") or trouble.opened():
        return None
    if trouble.head == "" and "=>" not in trouble.accepted:
        return trouble.says("RW122", "a bare rule has no head", "write `rule name level O2: left => right`")
    mark = "=" if trouble.head == "fusion" else ":"
    if not any(token.kind == mark for token in trouble.tokens[: trouble.index]):
        return None
    return trouble.says("RW122", "`level`, `flag` and `over` belong to the head", f"write them before `{mark}`")


def family(trouble: Trouble) -> Diagnostic | None:
    """`rule r for G in {64, 128}: ...`."""
    if trouble.at.text != "for":
        return None
    name, end = trouble.near(1).text, trouble.element_end(trouble.index)
    stop = next((i for i in range(trouble.index + 1, end) if trouble.tokens[i].kind in (":", "=")), end)
    condition = f" and write `requires {trouble.text(trouble.index + 1, stop)}`" if name else ""
    return trouble.says("RW123", "there are no families", f"capture the attribute{condition}")


def no_results(trouble: Trouble) -> Diagnostic | None:
    """`op f(x) = ...`."""
    if trouble.head != "op" or "->" not in trouble.accepted or trouble.near(-1).kind != ")":
        return None
    if trouble.at.kind not in ("=", END) and trouble.at.kind not in CLAUSES:
        return None
    hint = "write `-> lowp[*B, D]` after the operands (only `fusion` infers them)"
    return trouble.says("RW124", "an op states its results", hint)


def clause_order(trouble: Trouble) -> Diagnostic | None:
    """`where` behind the clauses that it must precede, or before the definition."""
    if trouble.opened():
        return None
    no_definition = trouble.at.kind == "where" and trouble.head == "fusion" and "=" in trouble.accepted
    late_equation = trouble.at.kind == "=" and trouble.head == "op" and trouble.at.line > trouble.near(-1).line
    if no_definition or (late_equation and trouble.clause() == "where"):
        return trouble.says("RW125", "`where` stands behind the definition that it names the parts of")
    if trouble.at.kind != "where" or not trouble.clause():
        return None
    if trouble.clause() == "where":
        return trouble.says("RW125", "`where` is given twice", "put both into one list, with commas")
    if trouble.clause() == "when":
        return trouble.says("RW125", "under `form` and `impl`: `where` first, then `when`")
    message = f"`where` stands before `{trouble.clause()}`, directly behind what it names the parts of"
    return trouble.says("RW125", message)


def nameless(trouble: Trouble) -> Diagnostic | None:
    """`impl silu lib.silu(x)`."""
    if trouble.head not in ("impl", "form") or trouble.index != 2:
        return None
    hint = f"write `{trouble.head} {trouble.near(-1).text}.name ...`"
    return trouble.says("RW129", f"`{trouble.head}` is of an op and has a name of its own", hint)


def keyword_only(trouble: Trouble) -> Diagnostic | None:
    """`fusion f(x, *, eps)`."""
    star = trouble.near(-1)
    if trouble.head not in ("op", "fusion") or trouble.at.kind != "," or star.text != "*" or trouble.opened() != [2]:
        return None
    return trouble.says("RW129", "what goes by name alone is an attribute", "write `; eps: float` for `, *, eps`", star)


def misplaced_when(trouble: Trouble) -> Diagnostic | None:
    """`when` in a fusion or a rule."""
    if trouble.at.kind != "when" or trouble.opened() or trouble.head not in (*_REWRITES, "fusion"):
        return None
    if "NAME" in trouble.accepted:
        return None
    message = "`when` chooses among equations of an op, forms, providers and packs"
    return trouble.says("RW129", message, "write `requires` (truth) or `prefer` (profit)")


def second_definition(trouble: Trouble) -> Diagnostic | None:
    """`= a` and `= b` under one fusion."""
    if trouble.at.kind != "=" or trouble.head != "fusion" or not _at_top(trouble) or "=" in trouble.accepted:
        return None
    if trouble.at.line == trouble.near(-1).line:
        return None
    return trouble.says("RW126", "a fusion has one definition; an op chooses between several with `when`")


# ---- under `where`


def tuple_without_brackets(trouble: Trouble) -> Diagnostic | None:
    """`where y, h = f(x)`."""
    if trouble.at.kind != "," or trouble.clause() != "where" or "=" not in trouble.accepted:
        return None
    start, end = trouble.element_start(), trouble.index + 1
    while trouble.tokens[end].kind in ("NAME", ","):
        end += 1
    if trouble.tokens[end].kind != "=":
        return None
    if trouble.tokens[start].kind in ("keep", "each"):
        start += 1
    names = trouble.tokens[start:end]
    hint = f"write `({trouble.text(start, end)}) = ...`"
    return trouble.says("RW109", "several results are named in parentheses", hint, names[0], _last_on_line(names))


def _last_on_line(tokens: Sequence[Token]) -> Token:
    return [token for token in tokens if token.line == tokens[0].line][-1]


def condition_under_where(trouble: Trouble) -> Diagnostic | None:
    """`where sm >= 89`."""
    if trouble.clause() != "where" or trouble.opened():
        return None
    start, end = trouble.element_start(), trouble.element_end(trouble.index)
    tokens = trouble.tokens[start:end]
    tested = any(token.kind in ("CMP", "and", "or", "not", "in", "(") for token in tokens)
    if any(token.kind == "=" for token in tokens) or not tested:
        return None
    hint = "a condition goes under `requires` (truth) or `prefer` (profit)"
    return trouble.says("RW105", "`where` names parts (`n = f(x)`)", hint, tokens[0], _last_on_line(tokens))


def missing_comma_between_bindings(trouble: Trouble) -> Diagnostic | None:
    """Two bindings under `where` side by side."""
    if trouble.clause() != "where" or trouble.opened() or "," not in trouble.accepted:
        return None
    if trouble.at.kind not in ("keep", "each") and not (trouble.at.kind == "NAME" and trouble.near(1).kind == "="):
        return None
    return comma_after_binding(trouble, trouble.element_start(), trouble.index)


def comma_after_binding(trouble: Trouble, start: int, index: int) -> Diagnostic:
    """RW108 for the binding `tokens[start:index]`, which `tokens[index]` follows."""
    here: Token = trouble.tokens[index]
    where = " on the line above" if here.line > trouble.tokens[index - 1].line else ""
    return trouble.says("RW108", f"comma missing after `{trouble.short(start, index)}`{where}", "", here)


def unknown_clause(trouble: Trouble) -> Diagnostic | None:
    """`require sm >= 89`."""
    at = trouble.at
    if at.kind != "NAME" or trouble.opened() or not trouble.accepted & CLAUSES or trouble.near(1).kind in ("=", ","):
        return None
    near = _closest(at.text, trouble.accepted & CLAUSES)
    return trouble.says("RW129", f"no clause starts with `{at.text}`", f"did you mean `{near}`?") if near else None


def _closest(word: str, words: frozenset[str]) -> str | None:
    from difflib import get_close_matches  # only an error pays for it

    return next(iter(get_close_matches(word, sorted(words), 1, 0.75)), None)
