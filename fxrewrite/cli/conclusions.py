"""`fxrewrite check --explain RULE`: what the checker concluded of one rule or fusion, as text or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from attrs import asdict

from fxrewrite.cli.exits import FINDINGS, MISUSE
from fxrewrite.cli.options import Misuse, print_json
from fxrewrite.dsl import packs
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.check.rivals import Rival
from fxrewrite.dsl.conclusions import Carried, Conclusions, Guard, Value, conclude, found, names
from fxrewrite.dsl.diagnostics import Diagnostic, span_json
from fxrewrite.dsl.syntax import Span


def explain(named: Sequence[str], rule: str, as_json: bool) -> None:
    """Write what is known of `rule` in the files `named`, and end with their exit code."""
    program, diagnostics, origins = packs.check_and_tell(named)
    chosen = found(program, rule)
    if not chosen:
        _nothing_known(rule, as_json, diagnostics, program.sources, names(program))
    made = [conclude(program, item, origins) for item in chosen]
    if as_json:
        print_json({"rule": rule, "conclusions": [as_object(c) for c in made]})
    else:
        click.echo("\n\n".join(map(as_text, made)))


def _nothing_known(
    rule: str, as_json: bool, diagnostics: Sequence[Diagnostic], texts: dict[str, str], known: Iterable[str]
) -> None:
    """A rule that was refused is explained by what is wrong with it; one that nobody wrote is misuse."""
    errors = [d for d in diagnostics if d.severity == "error"]
    if not errors:
        raise Misuse(
            f"no rule or fusion is called {rule!r}", closest(rule, known) or "`fxrewrite check --json` lists them"
        )
    if as_json:
        print_json({"rule": rule, "conclusions": [], "findings": [d.to_json() for d in errors]})
    else:
        click.echo("\n\n".join(d.render(texts) for d in errors))
    sys.exit(FINDINGS if any(rule.rpartition(".")[2] in texts.get(d.span.file, "") for d in errors) else MISUSE)


def as_object(c: Conclusions) -> dict[str, Any]:
    """What was concluded, as a JSON object."""

    def plain(inst: type, field: Any, value: Any) -> Any:
        return span_json(value) if isinstance(value, Span) else value

    made = asdict(c, value_serializer=plain)
    made["policy"] = dict(c.policy)
    return made


# ---- text


def as_text(c: Conclusions) -> str:
    """What was concluded, as text."""
    head = f"{c.kind} {c.name}" + (f"  ({c.at})" if c.at else "")
    lines = [head, *(f"  {line}" for line in c.doc.splitlines() if line), f"  {', '.join(map(' '.join, c.policy))}"]
    sections: list[tuple[str, list[list[str]]]] = [
        ("operands", [_value(v) for v in c.operands]),
        ("results", [_value(v) for v in c.results]),
        ("attributes", [_carried(a) for a in c.attributes]),
        ("named parts", [_value(v) for v in c.parts]),
        ("guards", [_guard(g) for g in c.guards]),
        ("profit", [[p] for p in c.prefer]),
        ("ends because", [[c.ends]] if c.ends else []),
        ("rivals", [_rival(r) for r in c.rivals]),
    ]
    for title, rows in sections:
        lines += [f"{title}:", *_columns(rows)] if rows else []
    return "\n".join(lines)


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) if i < len(row) else 0 for row in rows) for i in range(max(map(len, rows)))]
    return [("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths))).rstrip() for row in rows]


def _value(v: Value) -> list[str]:
    return [v.name, v.type, ", ".join(v.notes), _place(v.at)]


def _carried(a: Carried) -> list[str]:
    value = {"pinned": f"= {a.value}", "dropped": "= _"}.get(a.how, f"= {a.value}" if a.value else "no default")
    return [a.name, a.type, value, a.how, f"of {', '.join(a.ops)}" if a.ops else "", _place(a.at)]


def _guard(g: Guard) -> list[str]:
    return [g.condition, f"from {g.origin}", _place(g.at)]


def _rival(r: Rival) -> list[str]:
    return [r.rule, r.how, f"wins: {r.wins}"]


def _place(at: Span | None) -> str:
    return f"{at.line}:{at.column}" if at else ""
