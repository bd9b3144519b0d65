"""`fxrewrite packs NAME`: an op, fusion or rule as an author wants it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from textwrap import dedent
from typing import Any

from attrs import evolve

from fxrewrite.cli.conclusions import as_object, as_text
from fxrewrite.cli.options import Misuse
from fxrewrite.cli.providers import device, providers_of
from fxrewrite.dsl import packs
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.conclusions import conclude, found
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Case, OpDef, Program, RuleDef
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import text


def describe(name: str, given: Sequence[Any], config: Any) -> dict[str, Any]:
    """What is known of `name` in the shipped packs and in those given, as JSON. Raises Misuse where nothing is."""
    program, _, origins = packs.check_and_tell([*packs.shipped(), *(p for p in given if p != "default")])
    rules = program.rules_called(name)
    op = program.ops.get(name.rpartition(".")[2] if rules else name)
    if not rules and op is None:
        known = program.ops.keys() | program.rule_names()
        raise Misuse(
            f"no op, fusion or rule is called {name!r}", closest(name, known) or "`fxrewrite packs` lists them"
        )
    concluded = [conclude(program, item, origins) for item in found(program, name)]
    return {
        "name": name,
        "concluded": [as_object(c) for c in concluded],
        "text": [as_text(c) for c in concluded],
        "ops": [_op(program, op, config, not concluded)] if op is not None else [],
        "status": [_status(program, r, config) for r in rules],
    }


def _op(program: Program, op: OpDef, config: Any, signature: bool) -> dict[str, Any]:
    """An op: its text, how it is spelled, what runs it, what uses it; its signature where nothing else tells it."""
    made: dict[str, Any] = {
        "op": op.name, "place": str(op.span or ""), "doc": op.doc, "forms": _forms(program, op, config),
        "definition": _definition(program, op), "device": device(),
        "providers": providers_of(program, op, config), "used_by": _users(program, op.name),
    }  # fmt: skip
    if signature:
        made["operands"] = [{"name": o.name, "type": str(o.type) + ("?" if o.optional else "")} for o in op.operands]
        made["attributes"] = [{"name": a.name, "type": _type(a)} for a in op.attributes]
        made["results"] = [{"name": r.name, "type": str(r.type)} for r in op.results]
    return made


def _definition(program: Program, op: OpDef) -> list[str]:
    """The lines of an op from its first equation to its first form or provider."""
    first = op.equations[0].span if op.equations else None
    if first is None or op.span is None:
        return []
    lines = program.sources.get(first.file, "").split("\n")[first.line - 1 : op.span.end_line]
    lines = takewhile(lambda line: line.split()[:1] not in (["form"], ["impl"]), lines)
    return dedent("\n".join(line.split("  #")[0].rstrip() for line in lines)).split("\n")


def _forms(program: Program, op: OpDef, config: Any) -> list[dict[str, str]]:
    """Each other spelling of an op, and why this build does not match it."""
    from fxrewrite.lowering.backend import make_pass

    everything = evolve(program, rules=())  # where no rule is on, the forms of every op are compiled
    off = {o.name: f"{o.reason}: {o.detail}" for o in make_pass(config, everything).off()}
    return [
        {"name": c.name, "text": _source(program, c.span), "off": off.get(f"{op.name}.{c.name}", "")} for c in op.forms
    ]


def _users(program: Program, name: str) -> list[str]:
    """The ops and rules whose text calls an op."""

    def calls(cases: Iterable[Case]) -> bool:
        return any(c.op == name for case in cases for o in case.outputs for c in calls_of(o))

    ops = [n for n, op in program.ops.items() if n != name and calls((*op.equations, *op.forms, *op.impls))]
    rules = [
        r.full_name
        for r in program.rules
        if r.name not in ops and r.name != name and any(c.op == name for t in (*r.left, *r.right) for c in calls_of(t))
    ]
    return [*ops, *rules]


def _type(a: Attribute) -> str:
    domain = "" if a.domain is None else f" in {{{', '.join(map(text, a.domain))}}}"
    return a.type + ("?" if a.optional else "") + domain + ("" if a.default is NO_DEFAULT else f" = {text(a.default)}")


def _status(program: Program, rule: RuleDef, config: Any) -> dict[str, Any]:
    from fxrewrite.lowering.config import rule_status

    status = rule_status(program, rule, config)
    return {"rule": rule.full_name, "on": status.on, "by": status.by}


def _source(program: Program, span: Span | None) -> str:
    """The text of a place, in one line."""
    if span is None:
        return ""
    lines = program.sources.get(span.file, "").split("\n")[span.line - 1 : span.end_line]
    if lines:
        lines[-1] = lines[-1][: span.end_column - 1] if span.end_line > span.line else lines[-1]
        lines[0] = lines[0][span.column - 1 : span.end_column - 1 if span.end_line == span.line else None]
    return " ".join(line.split("  #")[0].strip() for line in lines)


# ---- as text


def show(out: Any, described: dict[str, Any]) -> None:
    """The same as text."""
    for made in described["text"]:
        out.print(made)
    for status in described["status"]:
        out.print(f"{status['rule']} is {'on' if status['on'] else 'off'}: {status['by']}")
    for op in described["ops"]:
        if "operands" in op:
            _show_signature(out, op)
        _show_list(out, "definition", [d for d in op["definition"] if d])
        _show_list(out, "forms", [_form(f) for f in op["forms"]])
        _show_list(out, f"providers on {op['device']}", [_provider(p) for p in op["providers"]])
        _show_list(out, "used by", op["used_by"])


def _show_signature(out: Any, op: dict[str, Any]) -> None:
    out.print(f"op {op['op']}  ({op['place']})")
    for line in op["doc"].splitlines():
        out.print(f"  {line}")
    for title in ("operands", "attributes", "results"):
        width = max((len(x["name"]) for x in op[title]), default=0)
        _show_list(out, title, [f"{x['name']:{width}}  {x['type']}" for x in op[title]])


def _show_list(out: Any, title: str, lines: list[str]) -> None:
    if lines:
        out.print("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))


def _form(form: dict[str, str]) -> str:
    return form["text"] + (f"   [{form['off']}]" if form["off"] else "")


def _provider(provider: dict[str, Any]) -> str:
    return provider["name"] + ("" if provider["on"] else f": no, {provider['reason']}")
