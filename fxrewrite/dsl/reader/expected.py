"""What could have stood somewhere, in the words of a person: RW129, for what no other message explains."""

from __future__ import annotations

from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.reader.tokens import END, KEYWORDS
from fxrewrite.dsl.reader.trouble import CLAUSES, CLOSER, LEAVES, OPERATORS, Trouble

_STARTS = LEAVES | {"(", "[", "-", "not"}
_OPERATORS = frozenset(OPERATORS) | {"|>", "("}
_WORDS = {
    "NAME": "a name",
    "STRING": "a text in double quotes",
    "INT": "a whole number",
    "FLOAT": "a number",
    "SIZE": "a size",
    "LEVEL": "`O0` to `O3`",
    "DOTNAME": "`.name`",
    "DOTINT": "`.0`",
    "CMP": "a comparison",
}
ARGUMENT_NAMES = frozenset({"pack", "atol"})  # accepted together where any reserved word may name an argument
_MARKS = ("=>", "->", "=", ":", ",", "~", *CLOSER.values())


def expected(trouble: Trouble) -> Diagnostic:
    """Says what was expected and what was found."""
    wanted = _one_of(in_words(trouble.accepted))
    if trouble.at.kind == END:
        return trouble.says("RW129", f"the item ends too early: expected {wanted}")
    return trouble.says("RW129", f"expected {wanted}, found `{trouble.short(trouble.index, trouble.index + 1)}`")


def in_words(accepted: frozenset[str]) -> list[str]:
    """Kinds of token as phrases, what is most telling first; what always may follow (operators) in one word."""
    rest = set(accepted - KEYWORDS if accepted >= ARGUMENT_NAMES else accepted)
    words: list[str] = [f"`{mark}`" for mark in _MARKS if mark in rest]
    rest -= {*_MARKS}
    if {"NAME", "INT", "-"} <= rest:
        words.append("an expression")
        rest -= _STARTS | {"*", "..."}
    elif {"+", "CMP", "|>"} & rest:
        words.append("an operator")
        rest -= _OPERATORS
    clauses = sorted(rest & CLAUSES)
    rest -= CLAUSES | {END}
    words += [_WORDS.get(kind, f"`{kind}`") for kind in sorted(rest)]
    if clauses:
        words.append(f"a clause (`{'`, `'.join(clauses)}`)" if len(clauses) > 1 else f"`{clauses[0]}`")
    return [*words, "the end of the item"] if END in accepted else words


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
