"""A syntax error as an answer: the first mistake that fits, else what was expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.reader import expression_mistakes as inside
from fxrewrite.dsl.reader import item_mistakes as shape
from fxrewrite.dsl.reader.expected import expected
from fxrewrite.dsl.reader.lalr import Stop
from fxrewrite.dsl.reader.letter_mistakes import LETTERS
from fxrewrite.dsl.reader.tokens import Token
from fxrewrite.dsl.reader.trouble import Trouble

# From what one token shows for certain to what is guessed from its surroundings.
_MISTAKES: tuple[Callable[[Trouble], Diagnostic | None], ...] = (
    *LETTERS,
    inside.bracket,
    shape.unknown_item,
    shape.thin_arrow,
    shape.family,
    shape.no_results,
    shape.late_head,
    shape.clause_order,
    shape.nameless,
    shape.keyword_only,
    shape.second_definition,
    shape.fusion_mark,
    shape.rule_mark,
    inside.equals_for_test,
    shape.tuple_without_brackets,
    shape.missing_comma_between_bindings,
    shape.condition_under_where,
    inside.pipe_into_operation,
    inside.pipe_into_value,
    inside.bar,
    inside.question_on_name,
    inside.reserved_word,
    shape.misplaced_when,
    shape.unknown_clause,
    inside.missing_comma,
    inside.stray_semicolon,
)


def explain(file: str, tokens: Sequence[Token], stop: Stop) -> Diagnostic:
    """What is wrong with an item whose reading stopped."""
    trouble = Trouble.of(file, tokens, stop.index, stop.accepted)
    for mistake in _MISTAKES:
        if found := mistake(trouble):
            return found
    return expected(trouble)


def explain_refusal(file: str, tokens: Sequence[Token], error: RuleError) -> Diagnostic:
    """What is wrong with an item that the grammar accepts and the language does not."""
    told = error.diagnostics[0]
    end = (told.span.end_line, told.span.end_column)
    index = next((i for i, token in enumerate(tokens) if (token.line, token.column) >= end), len(tokens) - 1)
    trouble = Trouble.of(file, tokens, index, frozenset())
    # `where h = f(x)` and `(a, b) = g(h)` on the next line read as one call.
    if tokens[index].kind == "(" and trouble.clause() == "where" and tokens[index].line > told.span.end_line:
        return shape.comma_after_binding(trouble, trouble.element_start(), index)
    return told
