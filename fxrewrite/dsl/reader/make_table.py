"""The parse table of a grammar, computed by Lark. States and rules are numbered by the grammar alone."""

from __future__ import annotations

from typing import Any

from lark import Lark
from lark.grammar import Rule
from lark.lexer import Lexer, TerminalDef

from fxrewrite.dsl.reader.table import digest
from fxrewrite.dsl.reader.tokens import END

# Terminals that stand for many texts keep their name; every other one is called by its text (see `tokens.Token.kind`).
NAMED = frozenset({"NAME", "DOTNAME", "DOTINT", "LEVEL", "FLOAT", "SIZE", "INT", "STRING", "CMP", END})
START = "start"


class _NoLexer(Lexer):
    """Lark's own lexers are not wanted: making one takes longer than the table."""

    def __init__(self, conf: Any): ...

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        raise NotImplementedError


def make_table(grammar: str) -> dict[str, Any]:
    """Compute the table of a grammar (some 0.2 s), as JSON data for `load_table`. Raises what Lark raises."""
    lark: Any = Lark(grammar, parser="lalr", lexer=_NoLexer, maybe_placeholders=True, start=START)
    data, memo = lark.memo_serialize([TerminalDef, Rule])
    lalr = data["parser"]["parser"]
    shown = _shown_names(memo)
    rules = {number: _reduction(entry) for number, entry in memo.items() if entry["__type__"] == "Rule"}
    reductions = sorted(rules.values(), key=repr)
    rows = _rows(lalr, {number: reductions.index(rule) for number, rule in rules.items()})
    states = _in_order(rows, lalr["start_states"][START])
    actions: list[dict[str, int]] = [{} for _ in rows]
    gotos: list[dict[str, int]] = [{} for _ in rows]
    for state, row in rows.items():
        for name, move in row.items():
            table = actions if name in shown else gotos
            table[states[state]][shown.get(name, name)] = states[move] if move >= 0 else move
    return {
        "grammar": digest(grammar),
        "actions": actions,
        "gotos": gotos,
        "reductions": reductions,
        "first": states[lalr["start_states"][START]],
        "last": states[lalr["end_states"][START]],
    }


def _rows(lalr: dict[str, Any], order: dict[int, int]) -> dict[int, dict[str, int]]:
    """For each state what each symbol does: a state to go to, or `~i` to reduce by rule i of `order`."""
    return {
        state: {
            lalr["tokens"][token]: ~order[what["@"]] if is_reduce else what
            for token, (is_reduce, what) in sorted(row.items(), key=lambda entry: lalr["tokens"][entry[0]])
        }
        for state, row in lalr["states"].items()
    }


def _in_order(rows: dict[int, dict[str, int]], first: int) -> dict[int, int]:
    """New numbers for the states, in the order in which they are met from the first: Lark's differ from run to run."""
    numbers = {first: 0}
    waiting = [first]
    for state in waiting:
        for move in rows[state].values():
            if move >= 0 and move not in numbers:
                numbers[move] = len(numbers)
                waiting.append(move)
    return numbers


def _shown_names(memo: dict[int, dict[str, Any]]) -> dict[str, str]:
    """Lark's name of each terminal -> the token kind."""
    terminals = [entry for entry in memo.values() if entry["__type__"] == "TerminalDef"]
    shown = {t["name"]: t["name"] if t["name"] in NAMED else t["pattern"]["value"] for t in terminals}
    return {**shown, END: END}


def _reduction(rule: dict[str, Any]) -> list[Any]:
    """One rule of Lark as the fields of `Reduction`, by Lark's own ways of shaping trees."""
    expansion, options, origin = rule["expansion"], rule["options"], rule["origin"]["name"]
    takes: list[int | None] = []
    absent = "".join("n" if empty else "s" for empty in options["empty_indices"]) or "s" * len(expansion)
    index = 0
    for part in absent:
        if part == "n":
            takes.append(None)
            continue
        symbol = expansion[index]
        if symbol["__type__"] == "NonTerminal":
            takes.append(~index if symbol["name"].startswith("_") else index)
        elif not symbol["filter_out"]:
            takes.append(index)
        index += 1
    passes = options["expand1"] and not rule["alias"] and len(takes) == 1
    build = None if passes else "" if origin.startswith("_") else rule["alias"] or origin
    return [origin, len(expansion), takes, build]
