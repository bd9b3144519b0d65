"""Diagnostics as SARIF 2.1.0 (OASIS standard), which code hosts and editors read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fxrewrite.dsl.codes import TITLES
from fxrewrite.dsl.diagnostics import Diagnostic
from fxrewrite.dsl.syntax import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(found: Iterable[Diagnostic], version: str) -> dict[str, Any]:
    """One run of the checker, `version` its version, as a SARIF log."""
    found = tuple(found)
    codes = sorted({d.code for d in found})
    driver = {"name": "fxrewrite", "version": version, "rules": [_rule(c) for c in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, codes.index(d.code)) for d in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    title = TITLES.get(code, code)
    return {"id": code, "shortDescription": {"text": title}, "help": {"text": f"{code}: {title}"}}


def _result(d: Diagnostic, index: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": d.code,
        "ruleIndex": index,
        "level": d.severity,
        "message": {"text": f"{d.message}; {d.hint}" if d.hint else d.message},
        "locations": [{"physicalLocation": _place(d.span)}],
    }
    if d.related:
        made["relatedLocations"] = [
            {"id": i, "physicalLocation": _place(r.span), "message": {"text": r.message}}
            for i, r in enumerate(d.related)
        ]
    return made


def _place(span: Span) -> dict[str, Any]:
    path = Path(span.file)
    uri = "file://" + quote(os.fsencode(path.as_posix())) if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    region = {"startLine": span.line, "startColumn": span.column,
              "endLine": span.end_line, "endColumn": span.end_column}  # fmt: skip
    return {"artifactLocation": {"uri": uri}, "region": region}
