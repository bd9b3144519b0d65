"""A `.rw` text as syntax nodes, with a diagnostic for each item that could not be read."""

from __future__ import annotations

from functools import cache

import attrs

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic, Related, RuleError
from fxrewrite.dsl.reader import lalr, split, table, tokens
from fxrewrite.dsl.reader.explain import explain, explain_refusal
from fxrewrite.dsl.reader.expressions import DEEPENING, EXPRESSIONS
from fxrewrite.dsl.reader.items import ITEMS
from fxrewrite.dsl.reader.trouble import CLOSER
from fxrewrite.dsl.sources import MAX_BYTES

MAX_DEPTH = 200  # of an expression: what reads the tree may recurse
_SPLIT = "name parts of it under `where`"


@cache
def _language() -> lalr.Language:
    return lalr.Language(table.language_table(), {**EXPRESSIONS, **ITEMS}, DEEPENING, MAX_DEPTH)


def parse(text: str, path: str) -> tuple[syntax.File, list[Diagnostic]]:
    """The items of a file that could be read, and what is wrong with the others, in order.

    Never raises for what the text holds. `path` is only the name that spans carry.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        here = syntax.Span(path, 1, 1, 1, 1)
        return syntax.File(path, (), text), [Diagnostic("RW130", "a file has at most 128 KB", here, "split it")]
    chunks, diagnostics = split.split(text, path)
    items: list[syntax.Item] = []
    for chunk in chunks:
        read = chunk.trouble or _item(text, chunk, path)
        if isinstance(read, Diagnostic):
            diagnostics.append(read)
        else:
            items.append(read)
    diagnostics += _late_packs(items)
    diagnostics.sort(key=lambda d: (d.span.line, d.span.column))
    return syntax.File(path, tuple(items), text), diagnostics


def _late_packs(items: list[syntax.Item]) -> list[Diagnostic]:
    """RW125 for a pack behind another item; a second pack is refused where names are."""
    late = next((i for i in items if isinstance(i, syntax.Pack)), None)
    if late is None or late is items[0]:
        return []
    at = syntax.Span(late.span.file, late.span.line, 1, late.span.line, len("pack") + 1)
    related = (Related(items[0].span, "this stands before it"),)
    return [Diagnostic("RW125", "the pack is the first item of its file", at, "move it up", related)]


def _item(text: str, chunk: split.Chunk, path: str) -> syntax.Item | Diagnostic:
    found = tokens.tokenize(text, chunk.start, chunk.end, chunk.line)
    if bracket := _bracket_too_deep(found):
        return Diagnostic("RW130", f"brackets nest at most {MAX_DEPTH} deep", tokens.span(path, bracket), _SPLIT)
    try:
        item = lalr.run(_language(), found, path)
    except RuleError as error:
        return explain_refusal(path, found, error)
    except lalr.TooDeep as stop:
        message = f"brackets, operators, pipes, prefixes and attributes nest at most {MAX_DEPTH} deep"
        return Diagnostic("RW130", message, tokens.span(path, stop.token), _SPLIT)
    except lalr.Stop as stop:
        return explain(path, found, stop)
    return attrs.evolve(item, doc=chunk.doc) if chunk.doc else item


def _bracket_too_deep(found: list[tokens.Token]) -> tokens.Token | None:
    depth = 0
    for token in found:
        if token.kind in CLOSER:
            depth += 1
            if depth > MAX_DEPTH:
                return token
        elif token.kind in CLOSER.values():
            depth = max(0, depth - 1)
    return None
