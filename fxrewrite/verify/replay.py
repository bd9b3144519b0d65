"""`fxrewrite verify --replay FILE`: the case of a counterexample, tried on a claim as it stands now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from fxrewrite.dsl.check.problem import closest
from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.claims import Claim, NotThisCase, claims
from fxrewrite.verify.counterexample import NoCounterexample, meta_of, read
from fxrewrite.verify.device import NoDevice, existing_device
from fxrewrite.verify.equal import CannotTry, Failure, Raises, attempt
from fxrewrite.verify.graph_replay import replayed_graph
from fxrewrite.verify.kernel_claims import kernel_claims
from fxrewrite.verify.ranked import is_ranked, ranked_claims
from fxrewrite.verify.strategies import Given


def replayed(packs: Sequence[str], path: Path) -> tuple[str, bool]:
    """What the case comes to now, in a line, and whether the claim holds on it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        meta = meta_of(text, path)
        if "graph" in meta:
            return replayed_graph(packs, meta, text, path)
        kept = read(text, path)
        device = existing_device(kept.device)
    except (NoCounterexample, NoDevice, OSError) as error:
        return f"{path}: {error}", False
    program = load_program(make_config(packs=packs))
    known = (*claims(program), *kernel_claims(program, device))
    listed = {c.name: evolve(c, device=device) for c in known if c.kind == kept.kind}
    claim = listed.get(kept.subject)
    if claim is None:
        hint = closest(kept.subject, listed) or "name the pack that it is in"
        return f"no {kept.kind} is called `{kept.subject}` in {', '.join(packs)}; {hint}", False
    for one in _over_ranks(claim, kept.given):
        try:
            trial = attempt(one, kept.given)
        except NotThisCase as error:
            return f"{claim.name} is no longer for these inputs: {error}", True
        except CannotTry as error:
            return f"{claim.name}: not run: {error}", False
        except Raises as error:
            return f"{claim.name} raises {error}", False
        if trial.wrong:
            return f"{claim.name} still fails: {Failure(one, trial).reason}", False
    return f"{claim.name} holds on {path}", True


def _over_ranks(claim: Claim, given: Given) -> list[Claim]:
    """The claim; one about ranks in every way in which operands lie on the ranks of its group."""
    sizes = [v.size for v in given.attributes.values() if isinstance(v, Group) and v.size]
    return list(ranked_claims(claim, sizes[:1])) if is_ranked(claim) and sizes else [claim]
