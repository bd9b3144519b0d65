"""How much is tried: the profiles of `fxrewrite verify`."""

from __future__ import annotations

from attrs import frozen


@frozen
class Profile:
    """`cases`: inputs for a claim. `rows`: of a case that is about values (rows before width: a row is a scale).

    `wide`: is one case as wide as a model? `examples`: of a Hypothesis test. `aimed`: cases whose static scales are
    searched for among the values that a definition divides.
    """

    name: str
    cases: int
    rows: int
    examples: int
    wide: bool
    aimed: int


QUICK = Profile("quick", cases=24, rows=256, examples=20, wide=False, aimed=3)
CI = Profile("ci", cases=120, rows=320, examples=200, wide=True, aimed=8)
DEEP = Profile("deep", cases=600, rows=512, examples=2000, wide=True, aimed=40)
FUZZ = Profile("fuzz", cases=48, rows=256, examples=0, wide=True, aimed=8)  # one round of `--fuzz`
PROFILES = {p.name: p for p in (QUICK, CI, DEEP, FUZZ)}


def profile_named(name: str) -> Profile:
    """The profile called `name`. Raises ValueError with the names that there are."""
    if name not in PROFILES:
        raise ValueError(f"no profile is called `{name}`; write one of {', '.join(PROFILES)}")
    return PROFILES[name]
