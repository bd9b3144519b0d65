"""Which rewrite moves the result of a model: rules, then single sites, are switched on by binary search.

    verdict = bisect(captured(program, args, {}), pass_, bitwise)

Two sets of sites are known at each step: with the smaller one on the result compares equal, with the larger one it does
not; the step runs the model with a set between them. In the end they differ in one site.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.patterns.events import Event
from fxrewrite.verify.captured import Captured, Results, Rewritten, Site
from fxrewrite.verify.comparison import Compare
from fxrewrite.verify.layers import Layer, layers

ALL = "all rules"


class Unsteady(Exception):
    """The model as it is gives another result in each run; the text says how they differ."""


@frozen
class Culprit:
    """The first site that moves the result: with the `before` sites on it does not.

    `event`: its firing. `difference`: how the result moved. `rest`: how the result still moves with every other site on
    and this one off; None: it does not. `layers`: the error of each value with `before` and this site on.
    """

    event: Event
    difference: str
    before: tuple[Site, ...]
    rest: str | None
    layers: tuple[Layer, ...]


@frozen
class Verdict:
    """`rules`, `sites`: how many fired. `runs`: how often the model ran, `steps` of them to search.

    `difference`: how all rules together move the result, None where they do not. `unfired`: how it moves though no rule
    fires: by what calls of declared ops became. `culprit`: None in both cases.
    """

    rules: int
    sites: int
    runs: int
    steps: int
    difference: str | None = None
    unfired: str | None = None
    culprit: Culprit | None = None


def bisect(
    program: Captured, pass_: RewritePass, compare: Compare, say: Callable[[str], None] = lambda line: None
) -> Verdict:
    """Search. `say` is told of each run. Raises Unsteady; where the model cannot be run, what torch raises."""
    return _Search(program, pass_, compare, say).search()


@define
class _Search:
    program: Captured
    pass_: RewritePass
    compare: Compare
    say: Callable[[str], None]
    runs: int = 0
    steps: int = 0
    reference: Results = field(init=False)

    def search(self) -> Verdict:
        self.reference = self.run("as it is")
        moved = self.compare(self.reference, self.run("as it is, again"))
        if moved is not None:
            raise Unsteady(moved)
        everything, moved = self.trial(ALL, lambda site: True)
        rules = list(dict.fromkeys(site.rule for site in everything.sites))
        unfired = culprit = None
        if moved is not None:
            _, unfired = self.trial("no rule", lambda site: False)
            culprit = self.culprit(rules, everything, moved) if rules and unfired is None else None
        return Verdict(len(rules), len(everything.sites), self.runs, self.steps, moved, unfired, culprit)

    def culprit(self, rules: list[str], everything: Rewritten, moved: str) -> Culprit:
        """The first rule, then its first site, that moves the result."""

        def rules_on(count: int) -> tuple[Rewritten, str | None]:
            on = set(rules[:count])
            return self.step(f"{count} of {len(rules)} rules", lambda site: site.rule in on)

        count, last, moved = search(len(rules), rules_on, (everything, moved))
        rule, before = rules[count - 1], set(rules[: count - 1])
        sites = list(dict.fromkeys(site for site in last.sites if site.rule == rule))

        def sites_on(count: int) -> tuple[Rewritten, str | None]:
            on = set(sites[:count])
            said = f"{count} of {len(sites)} sites of {rule}"
            return self.step(said, lambda site: site.rule in before or site in on)

        count, last, moved = search(len(sites), sites_on, (last, moved))
        site = sites[count - 1]
        event = next(e for e in last.log.events if e.fired and Site(e.full_name, e.graph, e.site) == site)
        _, rest = self.trial("all but that site", lambda s: s != site)
        on = tuple(s for s in last.sites if s != site)
        return Culprit(event, moved, on, rest, self.layers(last))

    def layers(self, last: Rewritten) -> tuple[Layer, ...]:
        """The error value by value; nothing where the rewritten graph does not run."""
        self.runs += 2
        self.say(f"runs {self.runs - 1} and {self.runs}: value by value")
        try:
            return tuple(layers(self.program, last))
        except Exception:  # noqa: BLE001 (it has raised before: that is the finding)
            return ()

    def step(self, what: str, allows: Callable[[Site], bool]) -> tuple[Rewritten, str | None]:
        self.steps += 1
        return self.trial(what, allows)

    def trial(self, what: str, allows: Callable[[Site], bool]) -> tuple[Rewritten, str | None]:
        """The graph with some sites on, and how its result differs. A graph that stays as it was need not run."""
        rewritten = self.program.rewritten(self.pass_, allows)
        if str(rewritten.gm.code) == str(self.program.gm.code) and not rewritten.sites:
            return rewritten, None
        try:
            results = self.run(what, rewritten.gm)
        except Exception as error:  # noqa: BLE001 (a graph that was written and does not run is what is looked for)
            found = f"it raised {type(error).__name__}: {error}".split("\n")[0]
        else:
            found = self.compare(self.reference, results)
        self.say(f"  {found or 'no difference'}")
        return rewritten, found

    def run(self, what: str, gm: Any = None) -> Results:
        self.runs += 1
        self.say(f"run {self.runs}: {what}")
        return self.program.run(gm)


def search(
    size: int, trial: Callable[[int], tuple[Rewritten, str | None]], last: tuple[Rewritten, str]
) -> tuple[int, Rewritten, str]:
    """The smallest step from what does not move the result to what does: (count, its graph, how it moves).

    `trial(count)` is asked for counts between 0, which is known not to move it, and `size`, which is known to: `last`.
    """
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        rewritten, moved = trial(middle)
        if moved is None:
            low = middle
        else:
            high, last = middle, (rewritten, moved)
    return high, *last
