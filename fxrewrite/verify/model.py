"""A whole model: every site on its real inputs, and the model by its distance to float32.

check_model(captured(program, args, {}), pass_, found.append)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field
from torch import Tensor
from torch.fx import Node

from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.values import LOW
from fxrewrite.verify.captured import Captured, Results, Rewritten, Site
from fxrewrite.verify.claims import Claim, rule_claim
from fxrewrite.verify.findings import Finding
from fxrewrite.verify.float32 import Distance, distances, run_wide, shown
from fxrewrite.verify.model_sites import Graphs, ModelSite, model_site, unjudged

FARTHER = 1.1  # times the distance with packs off: contracts do not compose over a model
ALL_OPS = ("call_function", "placeholder", "get_attr")


@define(eq=False)
class Checked:
    """A model with all rules of a pass on. `sites`: how many fired."""

    program: Captured
    done: Rewritten
    claims: Mapping[str, Claim]

    @property
    def sites(self) -> int:
        """How many sites there are to judge."""
        return len(self.done.sites)


def checked_model(program: Captured, pass_: RewritePass) -> Checked:
    """Rewrite a copy of a model at every site. Raises ValueError where its graph cannot be read."""
    rules = pass_.engine.program
    return Checked(
        program, program.rewritten(pass_, lambda site: True), {r.full_name: rule_claim(rules, r) for r in rules.rules}
    )


def check_model(model: Checked, name: str, tell: Callable[[Finding], None]) -> None:
    """Judge every site, then the whole model; `tell` gets each finding as it comes."""
    if not model.sites:
        hint = f"`fxrewrite explain all {name}`, with the same packs, says why"
        tell(Finding("model", name, "not run", f"nothing fires: {hint}"))
        return
    graphs = Graphs.of((n.name for n in model.program.gm.graph.nodes), model.done)
    waiting = list[ModelSite]()
    for event in (e for e in model.done.log.events if e.fired):
        at = Site(event.full_name, event.graph, event.site)
        found = model_site(event, model.claims.get(event.full_name), model.done.fired.get(at), graphs)
        if isinstance(found, Finding):
            tell(found)
        elif found is not None:
            waiting.append(found)
    off = _Sites(waiting, tell).run(model.program)
    tell(whole(model, name, off))


@define(eq=False)
class _Sites:
    """Sites that wait for the values that they are judged on. `values`: those that one of them still needs."""

    waiting: list[ModelSite]
    tell: Callable[[Finding], None]
    values: dict[str, Any] = field(factory=dict[str, Any])
    live: dict[str, tuple[Any, int]] = field(factory=dict[str, tuple[Any, int]])
    users: Counter[str] = field(init=False)

    def run(self, program: Captured) -> Results:
        """Run the model as it is, and judge each site once its values are there."""
        self.users = Counter(n for site in self.waiting for n in site.needs)
        return program.run(watch=self.keep, ops=ALL_OPS)

    def keep(self, node: Node, value: Any) -> None:
        """Note the value of a node that a site needs."""
        if not self.users[node.name]:
            return
        tensor = isinstance(value, Tensor)
        self.values[node.name] = value.clone() if tensor else value
        self.live[node.name] = (value, value._version if tensor else 0)
        ready = [s for s in self.waiting if node.name in s.needs and s.needs <= self.values.keys()]
        for site in ready:
            self.waiting.remove(site)
            self.tell(self.judged(site))
            self.users -= Counter(site.needs)
        for name in [n for n in self.values if not self.users[n]]:
            del self.values[name], self.live[name]

    def judged(self, site: ModelSite) -> Finding:
        """The finding of a site; none of its values may have been written to since."""
        for name in site.needs:
            value, version = self.live[name]
            if isinstance(value, Tensor) and value._version != version:
                return unjudged(site.event, f"{name} is written to before the site is reached")
        return site.judged(self.values)


# ---- the model


def whole(model: Checked, name: str, off: Results) -> Finding:
    """Is the model with packs on at most 1.1 times as far from its float32 run as with packs off?"""
    found = Finding("model", name, "passed", cases=1)
    if not any(isinstance(v, Tensor) and v.dtype in LOW for v in _values(model.program)):
        return evolve(found, outcome="not run", reason="it computes in float32 already: it is its own float32 run")
    try:
        exact = run_wide(model.program)
    except Exception as error:  # noqa: BLE001 (what a model calls is not known)
        said = f"{type(error).__name__}: {error}".split("\n")[0]
        return evolve(found, outcome="not run", reason=f"it does not run in float32: {said}")
    far = distances(exact, model.program.run(model.done.gm), off)
    if not far:
        return evolve(found, outcome="not run", reason="it returns no floats: there is no distance to measure")
    kept = f"; in their own dtype: {', '.join(exact.kept)}" if exact.kept else ""
    told = evolve(found, closest=f"rms distance to float32: {shown(far)}, at most {FARTHER} x{kept}")
    worst = next((d for d in far if not _near(d)), None)
    if worst is None:
        return told
    reason = f"output {worst.output} is {worst.on:.4g} from float32 with packs on, {worst.off:.4g} with packs off"
    return evolve(told, outcome="failed", reason=f"{reason}: {worst.ratio:.2f} x, and at most {FARTHER} x is allowed")


def _near(d: Distance) -> bool:
    return d.ratio <= FARTHER


def _values(program: Captured) -> list[Any]:
    """The declared values of a graph."""
    return [n.meta.get("val") for n in program.gm.graph.nodes]
