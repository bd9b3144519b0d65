"""`fxrewrite verify --model PROGRAM`: every site of a model on its real inputs, and the model against float32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from fxrewrite.cli.bisect import capture
from fxrewrite.cli.counterexamples import kept
from fxrewrite.cli.options import Misuse, config_of, first_line, load_rules
from fxrewrite.cli.progress import Progress

if TYPE_CHECKING:
    from fxrewrite.verify.report import Report

PROVIDERS = ("kernel", "op")  # what can be judged here: kernels of this machine, else the registered op


@frozen
class Asked:
    """What of a model is asked: the program and its inputs as for `bisect`, and which rules are on."""

    program: str
    inputs: str | None
    providers: tuple[str, ...]
    level: str
    flags: tuple[tuple[str, bool], ...]


def verify_model(asked: Asked, packs: tuple[str, ...], folder: Path) -> Report:
    """The report of a model. Ctrl-C leaves one of what was done. Raises Misuse where it cannot be run or read."""
    from fxrewrite.lowering.backend import make_pass
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.model import check_model, checked_model
    from fxrewrite.verify.report import Report

    config = config_of(
        dict(
            packs=packs,
            level=asked.level,
            flags=asked.flags,
            providers=asked.providers or PROVIDERS,
            groups=(),
            allow_unproved=True,
        )  # what has no proof yet is judged here
    )
    rules = load_rules(config)
    found = list[Finding]()
    total = 0

    def tell(one: Finding) -> None:
        found.append(kept(one, folder))
        progress.step()

    with Progress(
        lambda: f"{len(found)} sites of {total}, {sum(f.outcome == 'failed' for f in found)} failed"
    ) as progress:
        program = capture(asked.program, asked.inputs, rules)
        model = _rewritten(checked_model, asked, program, make_pass(config, rules))
        total = model.sites + 1
        check_model(model, asked.program, tell)
    return Report(tuple(found), "model", progress.seconds, total, progress.stopped, rules.sources)


def _rewritten(checked_model: Any, asked: Asked, program: Any, pass_: Any) -> Any:
    try:
        return checked_model(program, pass_)
    except ValueError as error:
        raise Misuse(f"{asked.program} cannot be read: {first_line(error)}") from error
