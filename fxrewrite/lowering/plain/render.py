"""The emitted file: a head that says what is in it, the text of `host.py`, and for each rule its functions."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence

from attrs import frozen

from fxrewrite.lowering.plain import host
from fxrewrite.lowering.plain.emitted import Family, Plain
from fxrewrite.lowering.plain.layout import Item, call, line, listed, mapping
from fxrewrite.lowering.plain.names import safe, string, value_text

WIDTH = 84  # of lines of prose in the head


@frozen
class Emitted:
    """The text of the file, and the rules that it is made of."""

    text: str
    rules: tuple[Plain, ...]


def render(rules: Sequence[Plain], packs: Sequence[str]) -> str:
    """The file."""
    said = [r for r in rules if r.families]
    blocks = [f"{_head(rules, packs)}\n\n{_host()}", *(b for r in said for b in _rule(r))]
    rows = listed(name_of(r) for r in said)
    return "\n\n\n".join([*blocks, "\n".join(line(rows, "RULES += "))]) + "\n"


def name_of(r: Plain) -> str:
    """The rule as a name of Python."""
    return r.rule.full_name.replace(".", "_")


# ---- head


def _head(rules: Sequence[Plain], packs: Sequence[str]) -> str:
    said, silent = [r for r in rules if r.families], [r for r in rules if not r.families]
    count = sum(r.count for r in said)
    size = f"{len(said)} rule{'' if len(said) == 1 else 's'} in {count} patterns"
    lines = [
        f'"""Plain Inductor patterns of the rules of {", ".join(packs)}.',
        "",
        *textwrap.wrap(
            f"Written by `fxrewrite check --emit inductor`: {size}. This file needs "
            "torch only; the ops of its right sides, `torch.ops.fxrewrite.*`, are looked up when a match is replaced.",
            WIDTH,
        ),
        "",
        "    import torch._inductor.config",
        "    torch._inductor.config.post_grad_custom_pre_pass = make_pass()",
        "",
        *textwrap.wrap(
            "Forms that are calls of torch ops are not in it, nor are spellings with other promotions, views between "
            "ops, or shared subexpressions: a plain pattern is one spelling.", WIDTH,
        ),
    ]  # fmt: skip
    cut = [r for r in said if r.cut or r.more]
    if cut:
        lines += ["", "Not all spellings of these rules are here (patterns written, left out):", ""]
        lines += [f"    {r.rule.full_name}: {r.count}, {cut_text(r)}" for r in cut]
    if silent:
        lines += ["", "Rules that plain patterns do not say, and why:", ""]
        for r in silent:
            text = f"{r.rule.full_name}: {r.why}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join([*lines, '"""'])


def cut_text(r: Plain) -> str:
    """How many patterns are left out."""
    return f"{'more than ' if r.more else ''}{r.cut}"


def _host() -> str:
    source = inspect.getsource(host).partition('"""\n\n')[2].strip()
    return source.replace(
        "    Match,\n", "    CallFunction,\n    KeywordArg,\n    Match,\n    MultiOutputPattern,\n", 1
    )


# ---- one rule


def _rule(r: Plain) -> list[str]:
    checks: dict[tuple[str, ...], str] = {}
    name = name_of(r)
    count = f"{r.count} pattern{'' if r.count == 1 else 's'}" + (f", {cut_text(r)} left out" if r.cut or r.more else "")
    blocks = [f"# ---- {r.rule.full_name} ({r.rule.span}): {count}", _put(r, "put", r.put)]
    if any(f.first.spelled.served for f in r.families):
        blocks.append(_put(r, "served", r.served))
    rows: list[Item] = []
    for i, family in enumerate(r.families, 1):
        check = tuple(family.check)
        if check not in checks:
            checks[check] = f"{name}_fits_{len(checks) + 1}"
            blocks.append("\n".join([f"def {checks[check]}(k):", *check]))
        blocks.append(_build(f"{name}_{i}", family))
        put = f"{name}_{'served' if family.first.spelled.served else 'put'}"
        rows.append(_row(f"{name}_{i}", checks[check], put, family))
    made = call(
        "Rule", string(r.rule.full_name), string(f"{r.rule.span}"),
        listed(string(safe(o.name)) for o in r.rule.operands),
        listed(string(safe(a.name)) for a in r.rule.attributes), listed(rows),
    )  # fmt: skip
    return [*blocks, "\n".join(line(made, f"{name} = "))]


def _put(r: Plain, kind: str, body: Sequence[str]) -> str:
    names = [safe(n.name) for n in (*r.rule.operands, *r.rule.attributes)]
    return "\n".join([*line(call(f"{name_of(r)}_{kind}", *names), "def ", ":"), *body])


def _build(name: str, family: Family) -> str:
    s = family.first
    names = [*(n if n in s.sizes else safe(n) for n in s.captures), *family.captured_dtypes()]
    captures = [f'    {n} = KeywordArg("{n}")' for n in names]
    return "\n".join([f"def {name}(order):", *captures, *family.lines()])


def _row(build: str, check: str, put: str, family: Family) -> Item:
    rows = [
        mapping((safe(n) if n in family.first.operand_dtypes else n, t) for n, t in row.items())
        for row in family.table()
    ]
    given = mapping((safe(n), value_text(v)) for n, v in family.given.items())
    return call("Pattern", build, listed(map(string, family.orders)), check, listed(rows), given, put)


__all__ = ["Emitted", "cut_text", "render"]
