"""What a run of the verifier found, as text, JSON, SARIF or annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from attrs import asdict, field, frozen

from fxrewrite.dsl.annotations import as_annotations
from fxrewrite.dsl.diagnostics import Diagnostic, span_json
from fxrewrite.dsl.sarif import as_sarif
from fxrewrite.dsl.syntax import Span
from fxrewrite.verify.findings import Counts, Finding

SCHEMA = 1  # of the JSON object; it grows only by new members
HINTS = {
    "RW408": "a spelling that rounds differently is no form: pin the attribute that says so, or declare another op",
    "RW601": "the right side is another function: compare its roundings, its literals and the order of its arguments",
    "RW602": "bind it with the attributes that say how it rounds, or leave it out",
    "RW603": "the rule is taken where it must not be, or not where it must: look at the graph of the counterexample",
    "RW226": "take the property away, or mend the definition",
    "RW605": "the graph of the counterexample shows what surrounds the rule; `fxrewrite explain` says what fired",
    "RW607": "with a counterexample the rule is wrong; without one, what serves it here: take another with --providers",
    "RW608": "begin with the sites that fail; where none does, `fxrewrite bisect` names the first that moves it",
    "RW606": "both sides of a rule have the same dtype, shape and strides on all sizes",
}


@frozen
class Report:
    """The findings of a run. `stopped`: by the user, before all was done; `sources`: texts of the files, for carets."""

    findings: tuple[Finding, ...]
    profile: str
    seconds: float
    total: int
    stopped: bool = False
    sources: Mapping[str, str] = field(factory=dict[str, str], repr=False)

    def outcomes(self) -> Counter[str]:
        """How many findings there are of each outcome."""
        return Counter(f.outcome for f in self.findings)


def formatted(report: Report, how: str, everything: bool = False) -> str:
    """The report as `text`, `json`, `sarif` or `github`. `everything`: with what passed, as text."""
    if how == "json":
        return json.dumps(as_object(report), indent=2)
    if how == "sarif":
        return json.dumps(as_sarif(as_diagnostics(report), version("fxrewrite")), indent=2)
    return as_annotations(as_diagnostics(report)) if how == "github" else as_text(report, everything)


def as_diagnostics(report: Report) -> list[Diagnostic]:
    """What failed, as errors at their places, and what was not run, as notes."""
    return [_diagnostic(f) for f in _in_order(report.findings) if f.outcome in ("failed", "not run")]


def _diagnostic(f: Finding) -> Diagnostic:
    span = f.span or Span("", 1, 1, 1, 1)
    if f.outcome == "failed":
        return Diagnostic(f.code or "RW601", f"{f.subject}: {f.reason}", span, HINTS.get(f.code or "", ""))
    return Diagnostic("RW610", f"{f.subject}: not proved: {f.reason}", span, severity="note")


def _in_order(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda f: (f.span.file, f.span.line) if f.span else ("", 0))


# ---- text


def as_text(report: Report, everything: bool = False) -> str:
    """Failures with their carets and scripts, what was not run by reason, and one line that sums up."""
    blocks = [failure_text(f, report.sources) for f in _in_order(report.findings) if f.outcome == "failed"]
    if everything:
        blocks.append(_table(f for f in _in_order(report.findings) if f.outcome in ("passed", "trivial")))
    blocks.append(_not_run(report.findings, everything))
    blocks += [f"{f.subject}: {f.closest}" for f in report.findings if f.check == "model" and f.closest]
    return "\n\n".join([b for b in blocks if b] + [_summary(report)])


def failure_text(f: Finding, sources: Mapping[str, str]) -> str:
    """A finding with the line of its rule, carets, a hint and its counterexample."""
    text = _diagnostic(f).render(sources)
    return f"{text}\n  counterexample: {f.script}" if f.script else text


def _table(found: Iterable[Finding]) -> str:
    rows = [(f.outcome, f.check, f.subject, f"{f.cases} cases", _counted(f.counts)) for f in found]
    widths = [max((len(r[i]) for r in rows), default=0) for i in range(4)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, (*widths, 0))).rstrip() for row in rows)


def _counted(counts: Iterable[tuple[str, Counts]]) -> str:
    """Of each output: the share of elements that may have two values, or more."""
    told: list[str] = []
    for name, c in counts:
        total = max(c.one + c.two + c.more, 1)
        told.append(f"{name}: {c.two / total:.2%} two, {c.more / total:.2%} more")
    return "; ".join(told)


def _not_run(found: Iterable[Finding], everything: bool) -> str:
    """What could not be tried, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for f in found:
        if f.outcome == "not run":
            reasons.setdefault(f.reason, []).append(f"{f.subject} ({f.check})")
    lines = [f"  {reason}: {_listed(names, everything)}" for reason, names in reasons.items()]
    return "\n".join(["not run, so not proved:", *lines]) if lines else ""


def _listed(names: list[str], everything: bool) -> str:
    shown = names if everything else names[:3]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _summary(report: Report) -> str:
    kinds = report.outcomes()
    told = ", ".join(f"{kinds[k]} {k}" for k in ("failed", "passed", "trivial", "not run") if kinds[k] or k == "failed")
    done = f"stopped: {len(report.findings)} of {report.total}" if report.stopped else f"{len(report.findings)}"
    return f"{done} checks ({report.profile}, {report.seconds:.1f} s): {told}"


# ---- JSON


def as_object(report: Report) -> dict[str, Any]:
    """The report as a JSON object."""
    return {
        "schema": SCHEMA,
        "profile": report.profile,
        "seconds": round(report.seconds, 3),
        "stopped": report.stopped,
        "total": report.total,
        "outcomes": dict(report.outcomes()),
        "findings": [_object(f) for f in _in_order(report.findings)],
    }


def _object(f: Finding) -> dict[str, Any]:
    return {
        "check": f.check, "subject": f.subject, "outcome": f.outcome, "reason": f.reason, "code": f.code,
        "provider": f.provider, "cases": f.cases, "seconds": round(f.seconds, 4), "closest": f.closest,
        "site": f.site, "counts": {name: asdict(c) for name, c in f.counts}, "script": f.script,
        **(span_json(f.span) if f.span else {}),
    }  # fmt: skip
