"""Mistakes inside expressions, calls and signatures: brackets, commas, pipes, alternatives, names."""

from __future__ import annotations

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.reader.tokens import END
from fxrewrite.dsl.reader.trouble import (
    CLAUSES,
    CLOSER,
    CONDITIONS,
    LEAVES,
    OPERATORS,
    Trouble,
    is_reserved,
    open_brackets,
)

_NAMED_BY = frozenset({
    "pack", "flag", "stage", "after", "use", "native", "dtype", "def", "op", "fusion", "rule", "form", "impl",
    "out", "mut", "as", "over", "keep", "each",
})  # fmt: skip
_BINDS = frozenset({"=", "|>", ",", "=>", "->", ")", "]", "}", ":", ";", "CMP", "+", "*", "/", "DOTNAME", "DOTINT"})


def bracket(trouble: Trouble) -> Diagnostic | None:
    """A bracket that is not closed, is closed by another kind, or closes nothing."""
    at, opened = trouble.at, trouble.opened()
    if at.kind in CLOSER.values() and at.kind not in trouble.accepted:
        return _wrong_closer(trouble, opened)
    open_to_the_end = {i for i in open_brackets(trouble.tokens) if i < trouble.index}
    clause = (
        trouble.accepted == frozenset({"="}) and trouble.near(-1).kind in CLAUSES
    )  # taken for the name of an argument
    if not open_to_the_end or (not clause and (at.kind in LEAVES or at.kind == "DOTNAME")):
        return None
    first = trouble.tokens[max(open_to_the_end)]
    hint = f"close it with `{CLOSER[first.kind]}`"
    return trouble.says("RW113", "the bracket opened here is never closed in this item", hint, first)


def _wrong_closer(trouble: Trouble, opened: list[int]) -> Diagnostic | None:
    at = trouble.at
    if not opened:
        return trouble.says("RW129", f"this `{at.text}` closes nothing", "remove it")
    inner = trouble.tokens[opened[-1]]
    if CLOSER[inner.kind] == at.kind:
        return None
    hint = f"close it with `{CLOSER[inner.kind]}`"
    return trouble.says("RW113", f"the `{inner.text}` opened here is closed by `{at.text}`", hint, inner)


def equals_for_test(trouble: Trouble) -> Diagnostic | None:
    """`requires x.dtype = bf16`."""
    if trouble.at.kind != "=" or trouble.clause() not in CONDITIONS:
        return None
    start = trouble.element_start()
    left = trouble.text(start, trouble.index)
    right = trouble.text(trouble.index + 1, trouble.element_end(trouble.index + 1))
    return trouble.says("RW102", "`=` names a part under `where`; a test is `==`", f"write `{left} == {right}`")


def pipe_into_operation(trouble: Trouble) -> Diagnostic | None:
    """`x |> f(a) * w`: nothing stronger than a pipe may follow its right side."""
    kind = trouble.at.kind
    stage = _stage_before(trouble)
    if kind not in OPERATORS or stage is None:
        return None
    begin = _operand_start(trouble, stage - 1)
    left = trouble.text(begin, stage - 1)
    call = trouble.text(stage, trouble.index)
    name, bracket, arguments = call.partition("(")
    inside = f"{left}, {arguments}" if bracket and arguments.strip() != ")" else f"{left})"
    rest = trouble.text(trouble.index, trouble.element_end(trouble.index))
    gap = "" if kind in ("[", "DOTNAME", "DOTINT") else " "
    message = f"the pipe needs a name or a call on its right and found {OPERATORS[kind]}"
    return trouble.says("RW104", message, f"write `{name}({inside}{gap}{rest}`")


def _stage_before(trouble: Trouble) -> int | None:
    """Where the right side of a pipe begins, if one ends just before the stop."""
    i = trouble.index - 1
    if i >= 0 and trouble.tokens[i].kind == ")":
        i = trouble.opener_of(i) - 1
    while i > 0 and trouble.tokens[i].kind == "DOTNAME":
        i -= 1
    return i if i > 0 and trouble.tokens[i].kind == "NAME" and trouble.tokens[i - 1].kind == "|>" else None


def _operand_start(trouble: Trouble, end: int) -> int:
    """Where the expression that ends before `end` begins: behind a mark that separates expressions."""
    i = end
    while i > 0:
        kind = trouble.tokens[i - 1].kind
        if kind in CLOSER.values():
            i = max(trouble.opener_of(i - 1), 0)
        elif kind in CLOSER or kind in CLAUSES or kind in (",", "=", "=>", ":", ";", "|"):
            return i
        else:
            i -= 1
    return i


def pipe_into_value(trouble: Trouble) -> Diagnostic | None:
    """`x |> .to(f32)`, `x |> 3`."""
    if trouble.near(-1).kind != "|>":
        return None
    at, end = trouble.at, trouble.element_end(trouble.index)
    if at.kind == "DOTNAME":
        call = trouble.text(trouble.index, end).removeprefix(".")
        return trouble.says("RW129", "the pipe takes a function", f"write `|> {call}`")
    found = {"(": "a bracket", "[": "a list", "-": "a minus", "STRING": "a string", "_": "`_`"}.get(at.kind)
    found = found or ("a number" if at.kind in ("INT", "FLOAT", "SIZE") else None)
    if found is None:
        return None
    return trouble.says("RW104", f"the pipe needs a name or a call on its right and found {found}")


def bar(trouble: Trouble) -> Diagnostic | None:
    """`a | b` without its own parentheses, in an expression or in a type."""
    if trouble.at.kind != "|":
        return None
    return _union_type(trouble) or _bare_alternatives(trouble)


def _union_type(trouble: Trouble) -> Diagnostic | None:
    i, opened = trouble.index - 1, trouble.opened()
    if i >= 0 and trouble.tokens[i].kind == "?":
        i -= 1
    if i >= 0 and trouble.tokens[i].kind == "]":
        i = trouble.opener_of(i) - 1
    in_signature = bool(opened) and trouble.tokens[opened[-1]].kind == "(" and trouble.tokens[i - 1].kind == ":"
    if i < 1 or not (in_signature or trouble.tokens[i - 1].kind == "->"):
        return None
    end = trouble.element_end(i)
    if any(token.text in ("none", "None") for token in trouble.tokens[trouble.index : end]):
        hint = f"write `{trouble.text(i, trouble.index)}?`"
        return trouble.says("RW119", "the type of what may be absent ends in `?`", hint)
    members = [token.text for token in trouble.tokens[i:end] if token.kind == "NAME" and token.text[0].islower()]
    dims = next((trouble.text(j, trouble.closer_of(j) + 1) for j in range(i, end) if trouble.tokens[j].kind == "["), "")
    name = "lowp" if {*members} <= {"bf16", "f16"} else "either"
    hint = f"declare `dtype {name} = {{{', '.join(members)}}}` and write `{name}{dims}`"
    return trouble.says("RW119", "a type names one class", hint)


def _bare_alternatives(trouble: Trouble) -> Diagnostic:
    left = _operand_start(trouble, trouble.index)
    end = trouble.element_end(trouble.index)
    right = next((i for i in range(trouble.index + 1, end) if trouble.tokens[i].kind in ("|>", "=")), end)
    return trouble.says("RW116", "alternatives stand in parentheses", f"write `({trouble.text(left, right)})`")


def question_on_name(trouble: Trouble) -> Diagnostic | None:
    """`w?: real[D]`."""
    if trouble.at.kind != "?" or trouble.near(-1).kind != "NAME":
        return None
    if ":" not in trouble.accepted:
        return trouble.says("RW128", "`?` belongs to a type")
    name, typed = trouble.near(-1).text, "real[D]"
    if trouble.near(1).kind == ":":
        end = trouble.element_end(trouble.index + 2)
        stop = next((i for i in range(trouble.index + 2, end) if trouble.tokens[i].kind in ("=", "in")), end)
        typed = trouble.text(trouble.index + 2, stop)
    return trouble.says("RW128", "`?` belongs to the type", f"write `{name}: {typed.removesuffix('?')}?`")


def reserved_word(trouble: Trouble) -> Diagnostic | None:
    """A reserved word as a name. A keyword that starts a clause where an expression is missing is not one."""
    at, before = trouble.at, trouble.near(-1)
    if trouble.accepted == frozenset({"="}) and is_reserved(before):  # it has been taken for the name of an argument
        return trouble.says("RW114", f"`{before.text}` is a reserved word", "choose another name", before)
    if not is_reserved(at) or "NAME" not in trouble.accepted:
        return None
    clause_follows = at.kind in CLAUSES and not trouble.opened() and before.kind not in _NAMED_BY
    if clause_follows and trouble.near(1).kind not in _BINDS:
        return None
    return trouble.says("RW114", f"`{at.text}` is a reserved word", "choose another name")


def missing_comma(trouble: Trouble) -> Diagnostic | None:
    """Two arguments, conditions or parameters side by side."""
    at = trouble.at
    if at.kind not in LEAVES or "," not in trouble.accepted:
        return None
    if not trouble.opened() and at.line == trouble.near(-1).line and not trouble.clause():
        return None
    start, end = trouble.element_start(), trouble.element_end(trouble.index)
    left, right = trouble.short(start, trouble.index), trouble.short(trouble.index, end)
    return trouble.says("RW127", f"comma missing between `{left}` and `{right}`")


def stray_semicolon(trouble: Trouble) -> Diagnostic | None:
    """`;` where a statement would end elsewhere."""
    if trouble.at.kind != ";" or trouble.opened():
        return None
    hint = "remove `;`" if trouble.near(1).kind == END else "start the next item on a line of its own"
    return trouble.says("RW129", "an item ends with its last line", hint)
