"""`--replay` of a graph: the rule as it stands now against the graph of a script.

A graph made from a left side (`fires`, `perturbed`) is made again, from the rule as it is now; the program of `context`
is the one in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.core import Program
from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.verify.claims import Claim, claims
from fxrewrite.verify.context import NotCaptured, replayed_program
from fxrewrite.verify.counterexample import NoCounterexample, run_file
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.fires import fires
from fxrewrite.verify.perturb import perturbed
from fxrewrite.verify.profiles import CI


def replayed_graph(packs: Sequence[str], meta: Mapping[str, Any], text: str, path: Path) -> tuple[str, bool]:
    """What comes of the graph now, in a line, and whether the rule is right on it. Raises NoCounterexample."""
    rules, subject, graph = load_program(make_config(packs=packs)), meta["subject"], meta["graph"]
    if graph.get("check") == "context":
        return _in_context(rules, subject, graph, run_file(text, path), path)
    listed = {c.name: c for c in claims(rules) if c.kind == "rule"}
    claim = listed.get(subject)
    if claim is None:
        hint = closest(subject, listed) or "name the pack that it is in"
        return f"no rule is called `{subject}` in {', '.join(packs)}; {hint}", False
    found = _found(claim, graph, path)
    if found.outcome == "failed":
        return f"{subject} still fails: {found.reason}", False
    if found.outcome == "not run":
        return f"{subject}: not run: {found.reason}", False
    if not found.cases:
        return f"no graph next to {subject} is called `{graph.get('name')}` now", True
    return f"{subject} holds on {path}", True


def _found(claim: Claim, graph: Mapping[str, Any], path: Path) -> Finding:
    if graph.get("check") == "fires":
        return fires(claim, CI)
    if graph.get("check") == "perturbed" and isinstance(graph.get("name"), str):
        return perturbed(claim, CI, only=graph["name"])
    raise NoCounterexample(f"{path} cannot be read: no check is called `{graph.get('check')}`")


def _in_context(
    rules: Program, pack: str, graph: Mapping[str, Any], module: Mapping[str, Any], path: Path
) -> tuple[str, bool]:
    packs = {r.pack for r in rules.rules if r.pack is not None}
    if pack not in packs:
        return f"no pack is called `{pack}`; {closest(pack, packs) or 'name it'}", False
    try:
        said = replayed_program(module["program"], module["inputs"](), graph["how"], pack, rules)
    except NotCaptured as error:
        return f"{pack}: not run: {error}", False
    except KeyError as error:
        raise NoCounterexample(f"{path} cannot be read: it has no {error}") from error
    return (f"{pack} still fails: {said}", False) if said else (f"{pack} holds on {path}", True)
