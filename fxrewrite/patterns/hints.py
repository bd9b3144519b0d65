"""Every hint that a report can give: what to type so that the rule fires at the site. `tests/test_explain_hints.py`
follows each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fxrewrite.dsl.core import Apply, Call, Lit, Operand, Prim, Ref, Result, RuleDef, Wild, span_of
from fxrewrite.dsl.diagnostics import lines_of
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said

FRESH = ("n", "m", "kept", "kept2")  # names for a value that the rule has no name for
SPECIALIZE = "torch._dynamo.config.specialize_float = True keeps floats of a module as constants"


# ---- in the text of the rule


def place_of_term(rule: RuleDef, term: Any) -> Span | None:
    """Where a term stands in the text of its rule; None for one of a definition that the rule expands."""
    span, own = span_of(term) if term is not None else None, rule.span
    inside = span is not None and own is not None and span.file == own.file and own.line <= span.line <= own.end_line
    return span if inside else None


def keep_hint(rule: RuleDef, term: Any, sources: Mapping[str, str]) -> str:
    """How a rule lets a value stay for its other users; nothing where its text does not hold the value."""
    if place_of_term(rule, term) is None:
        return ""
    name = next((n for n, t in rule.named if t == term), None)
    if name is not None:
        return f"write `keep` before `{_bound(name, rule, sources)} =` under `where`: it stays for the others"
    text = term_text(term, sources, {t: n for n, t in rule.named})
    used = {*(o.name for o in rule.operands), *(a.name for a in rule.attributes), *(n for n, _ in rule.named)}
    fresh = next((n for n in FRESH if n not in used), None)
    if not text or fresh is None:
        return ""
    bound = f"`keep {fresh} = {text}` under `where`" if rule.named else f"`where keep {fresh} = {text}`"
    stands = f"for `{text}`" if text in _lines(rule, sources) else f"for the value of `{text}`"
    return f"write `{fresh}` {stands}, and {bound}: it stays for the others"


def _lines(rule: RuleDef, sources: Mapping[str, str]) -> str:
    """The text of a rule."""
    return "\n".join(lines_of(rule.span, sources))


def _bound(name: str, rule: RuleDef, sources: Mapping[str, str]) -> str:
    """A name, or the tuple of names that it is bound with, as the text has it."""
    found = re.search(rf"\([^()=]*\b{name}\b[^()=]*\)(?=\s*=[^=])", _lines(rule, sources))
    return found[0] if found else name


def term_text(t: Any, sources: Mapping[str, str], names: Mapping[Any, str]) -> str:
    """A term as a rule may have it, by the `names` of its parts; nothing where it cannot be said."""
    if t in names:
        return names[t]
    if isinstance(t, Operand):
        return t.name
    if isinstance(t, Prim):
        return _source(t.span, sources)
    if not isinstance(t, Result):
        return ""
    parts = [term_text(a, sources, names) for a in t.call.args if a is not None]
    return f"{t.call.op}({', '.join([*parts, *_attributes(t.call)])})" if all(parts) else ""


def _attributes(call: Call) -> list[str]:
    """What a call says of its attributes: all but those that it captures under their own names."""
    return [
        f"{name}={'_' if isinstance(value, Wild) else short(said(value))}"
        for name, value in call.attrs
        if value != Ref(name)
    ]


def _source(span: Span | None, sources: Mapping[str, str]) -> str:
    text = sources.get(span.file, "").split("\n") if span is not None else []
    if span is None or span.end_line != span.line or not 0 < span.line <= len(text):
        return ""
    return text[span.line - 1][span.column - 1 : span.end_column - 1]


def attribute_hint(call: Call, name: str, value: Any) -> str:
    """Where a fusion pins an attribute that has another value at the site."""
    return f"leave `{name}={short(said(value))}` out of `{call.op}(...)`: the fusion then takes every {name}"


def short(number: Any) -> str:
    """A number as people write it: `1e-6` for 1e-06."""
    return re.sub(r"e([+-])0+(?=\d)", r"e\1", str(number))


# ---- settings


def switch_hint(name: str, on: bool) -> str:
    """A flag, pack or rule, on or off."""
    does = "turns it on" if on else "leaves the site to this rule"
    return f"`--flag {name}={'on' if on else 'off'}`, in Python flags={{{json.dumps(name)}: {on}}}, {does}"


def level_hint(level: str) -> str:
    """The level that a rule needs."""
    return f'`--level {level}`, in Python level="{level}", turns it on'


def providers_hint(names: Sequence[str]) -> str:
    """Providers of which one serves every site."""
    return f"`--providers {','.join(names)}`, in Python providers={json.dumps(names)}, runs the definition as one op"


def relaxed_hint() -> str:
    """A provider whose contract is weaker."""
    return "`--allow-relaxed`, in Python allow_relaxed=True, lets it in"


def unproved_hint() -> str:
    """A form or provider that calls another package's op, which cannot be proved here."""
    return "`--allow-unproved`, in Python allow_unproved=True, uses it without a proof"


def refuted_hint(op: str, file: str, modules: Iterable[str]) -> str:
    """One whose proof failed: its op, the file that has it, if it is not shipped, and what registers the other ops."""
    words = ["fxrewrite verify", file, *(f"--import {m}" for m in modules), f"-k {op}/"]
    return f"`{' '.join(filter(None, words))}` shows more; {unproved_hint()}"


def import_hint(op: str) -> str:
    """A torch op that is not registered."""
    return f"import the package that registers {op} before the backend is made"


def tokens_hint(conditions: Iterable[Any]) -> str:
    """The token counts for which a rule pays; nothing where its conditions are no window of them."""
    window = [_bounds(c) for c in conditions]
    if not window or any(b is None for b in window):
        return ""
    low = max(b[0] for b in window if b is not None)
    high = min((b[1] for b in window if b is not None and b[1] is not None), default=None)
    shown = f"{low}:{'' if high is None else high}"
    return f"`--tokens {shown}`, in Python tokens=({low}, {high}), says that no other counts occur"


def _bounds(condition: Any) -> tuple[int, int | None] | None:
    if not isinstance(condition, Apply) or len(condition.args) != 2:
        return None
    left, right = condition.args
    op = condition.op
    if isinstance(left, Lit):
        left, right, op = right, left, {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}.get(op, op)
    if left != Apply("tokens") or not isinstance(right, Lit) or not isinstance(right.value, int):
        return None
    n = right.value
    found = {"<=": (1, n), "<": (1, n - 1), ">=": (n, None), ">": (n + 1, None), "==": (n, n)}
    return found.get(op)
