"""A `.rw` text as syntax nodes, with a diagnostic for each item that could not be read."""

from __future__ import annotations

from functools import cache

import attrs

from fxrewrite.dsl import syntax
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.reader import lalr, split, table, tokens
from fxrewrite.dsl.reader.expressions import DEEPENING, EXPRESSIONS
from fxrewrite.dsl.reader.items import ITEMS

MAX_DEPTH = 200  # of an expression: what reads the tree may recurse
MAX_BYTES = 128 * 1024
_BUILDS = {**EXPRESSIONS, **ITEMS}


@cache
def _table() -> table.Table:
    return table.load_table(table.make_table(table.grammar_text()))


def parse(text: str, path: str) -> tuple[syntax.File, list[Diagnostic]]:
    """The items of a file that could be read, and what is wrong with the others, in order.

    Never raises for what the text holds. `path` is only the name that spans carry.
    """
    if len(text) > MAX_BYTES:
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
    diagnostics.sort(key=lambda d: (d.span.line, d.span.column))
    return syntax.File(path, tuple(items), text), diagnostics


def _item(text: str, chunk: split.Chunk, path: str) -> syntax.Item | Diagnostic:
    found = tokens.tokenize(text, chunk.start, chunk.end, chunk.line)
    try:
        item = lalr.run(_table(), found, _BUILDS, DEEPENING, MAX_DEPTH, path)
    except RuleError as error:
        return error.diagnostics[0]
    except lalr.TooDeep as stop:
        return Diagnostic("RW130", f"an expression has a depth of at most {MAX_DEPTH}", tokens.span(path, stop.token))
    except lalr.Stop as stop:
        return Diagnostic("RW129", "not understood here", tokens.span(path, found[stop.index]))
    return attrs.evolve(item, doc=chunk.doc) if chunk.doc else item
