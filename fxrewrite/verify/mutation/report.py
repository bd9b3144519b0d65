"""What became of mutants, as text and JSON: the score by kind and by rule, and every survivor with what was changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import asdict, frozen

from fxrewrite.verify.mutation.equivalence import OPEN, arguments, refuted
from fxrewrite.verify.mutation.mutant import KINDS
from fxrewrite.verify.mutation.subjects import Tried
from fxrewrite.verify.mutation.trying import STATES

SCHEMA = 1  # of the JSON object; it grows only by new members


@frozen
class Score:
    """Every mutant of a run. `stopped`: by the user, before all was done."""

    tried: tuple[Tried, ...]
    seconds: float = 0.0
    stopped: bool = False

    @property
    def value(self) -> float | None:
        """Killed, of those that are faults: not proved equivalent, and tried. None where there are none."""
        return score_of(self.tried)

    def survivors(self) -> list[Tried]:
        """What nothing killed and nobody argued to be equivalent."""
        return sorted((t for t in self.tried if t.state in OPEN), key=lambda t: (t.kind, t.subject, t.id))


def score_of(tried: Iterable[Tried]) -> float | None:
    """Killed, of those that are faults and were tried."""
    states = Counter(t.state for t in tried)
    faults = states["killed"] + sum(states[s] for s in OPEN)
    return states["killed"] / faults if faults else None


def as_object(score: Score) -> dict[str, Any]:
    """The score as plain values."""
    return {
        "schema": SCHEMA,
        "score": score.value,
        "states": {s: sum(t.state == s for t in score.tried) for s in STATES},
        "kinds": {k: score_of(t for t in score.tried if t.kind == k) for k in KINDS},
        "subjects": {f"{k} {n}": score_of(ts) for (k, n), ts in _by_subject(score.tried)},
        "refuted": [t.id for t in refuted(score.tried, arguments())],
        "stopped": score.stopped,
        "seconds": score.seconds,
        "mutants": [asdict(t) for t in score.tried],
    }


def as_json(score: Score) -> str:
    """The score as JSON."""
    return json.dumps(as_object(score), indent=2)


def as_text(score: Score) -> str:
    """The score for people."""
    lines = ["", *_table(score.tried), ""]
    lines += _survivors(score.survivors())
    lines += [f"equivalent by an argument, and killed: {t.id}" for t in refuted(score.tried, arguments())]
    lines += _grouped("not run", score.tried)
    if score.stopped:
        lines.append("stopped before all mutants were tried")
    killed = sum(t.state == "killed" for t in score.tried)
    faults = killed + len(score.survivors())
    lines.append(f"mutation score {percent(score.value)}: {killed} of {faults} mutants killed, {score.seconds:.0f} s")
    return "\n".join(lines).strip("\n")


def percent(score: float | None) -> str:
    """`96.4 %`, rounded down: a survivor never reads as 100."""
    return "-" if score is None else f"{int(score * 1000) / 10:.1f} %"


def _table(tried: Sequence[Tried]) -> Iterator[str]:
    yield f"{'':12}{'mutants':>9}" + "".join(f"{s:>15}" for s in STATES) + f"{'score':>10}"
    for kind in (*KINDS, "all"):
        of_kind = [t for t in tried if kind in (t.kind, "all")]
        if of_kind:
            states = Counter(t.state for t in of_kind)
            counted = "".join(f"{states[s]:>15}" for s in STATES)
            yield f"{kind:12}{len(of_kind):>9}{counted}{percent(score_of(of_kind)):>10}"


def _survivors(left: list[Tried]) -> Iterator[str]:
    for (kind, name), of_subject in _by_subject(left):
        yield f"{kind} {name}"
        for t in of_subject:
            yield f"  {t.where}: {t.what}  [{t.state}{': ' + t.why if t.why else ''}]"
        yield ""


def _grouped(state: str, tried: Iterable[Tried]) -> Iterator[str]:
    """How many mutants are in a state, by reason."""
    reasons = Counter(t.why for t in tried if t.state == state)
    for why, count in reasons.most_common():
        yield f"{state}: {count} mutants: {why}"
    if reasons:
        yield ""


def _by_subject(tried: Iterable[Tried]) -> Iterator[tuple[tuple[str, str], list[Tried]]]:
    found: dict[tuple[str, str], list[Tried]] = {}
    for t in tried:
        found.setdefault((t.kind, t.subject), []).append(t)
    yield from found.items()
