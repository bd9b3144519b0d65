"""Counterexamples as scripts: a case on which a claim fails, as a Python file that needs only torch (and pytest, if it
is run as a test). `replay` runs such a file's case again under the rule as it stands now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from fxrewrite.dsl.diagnostics import lines_of
from fxrewrite.dsl.syntax import Span
from fxrewrite.verify.case_json import with_tensors, without_tensors
from fxrewrite.verify.device import CPU
from fxrewrite.verify.equal import Failure
from fxrewrite.verify.shaped import Given
from fxrewrite.verify.spelling import function, helpers, tensor

MARK = "# fxrewrite: "

TEMPLATE = '''"""{title}

{text}

{facts}
Run it with `python FILE` or `pytest FILE`; it needs torch only. `fxrewrite verify --replay FILE` tries the rule as it
stands now on the same inputs.
"""
{mark}{meta}

from __future__ import annotations

import base64

import torch
{imports}
nan, inf = float("nan"), float("inf")

{helpers}
def inputs():
    return [
{inputs}
    ]


{reference}


{candidate}


# The first wrong element of each output: where it is, and the smallest and largest value that may stand there.
ADMITTED = {admitted}


def test_{name}():
    want, got = reference(*inputs()), {candidate_call}
    for name in want:
        a, b = want[name], got[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{{name}} is {{b.dtype}} {{b.shape}}"
        if name in ADMITTED:
            index, low, high = ADMITTED[name]
            x, y = a[index].double().item(), b[index].double().item()
            admitted = f"right is {{low!r}} to {{high!r}}, the definition gives {{x!r}}"
            assert low <= y <= high or (y != y and x != x), f"{{name}}{{list(index)}} is {{y!r}}; {{admitted}}"
{otherwise}


if __name__ == "__main__":
    test_{name}()
    print("both sides agree here")
'''


ON_DEVICE = '''
def on_device(run, given, device={device!r}):
    """What `run` gives on the device, its inputs there in the strides that they have here."""
    def moved(x):
        memory = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).to(device)
        empty = torch.empty(0, dtype=x.dtype, device=device)
        return empty.set_(memory.untyped_storage(), x.storage_offset(), x.shape, x.stride())

    there = [moved(x) for x in given]
    with torch.device(device):
        return {{name: y.cpu() for name, y in run(*there).items()}}

'''


def script(failure: Failure, sources: dict[str, str], modules: Sequence[str] = ()) -> str:
    """The file of a counterexample. `modules` register the ops that it calls."""
    claim, trial = failure.claim, failure.trial
    reference, candidate = trial.reference.program, trial.candidate.program
    on_device = "" if claim.device == CPU else ON_DEVICE.format(device=claim.device)
    shapes = [f"x{i}: {t.dtype} {tuple(t.shape)}" for i, t in enumerate(trial.reference.inputs)]
    meta = {
        "subject": claim.name,
        "kind": claim.kind,
        **without_tensors(trial.given),
        "device": claim.device,
    }
    admitted = {n: (v.index, v.lo, v.hi) for n, v in trial.verdicts.items() if not v.ok and v.index is not None}
    return TEMPLATE.format(
        title=f"{claim.name}: {failure.reason}".replace('"""', "'''"),
        text=(claim_text(claim.span, sources) or claim.name).replace("\\", "\\\\"),
        facts="\n".join([f"case: {trial.given.label}", *shapes, f"torch {torch.__version__}", ""]),
        mark=MARK, meta=json.dumps(meta), helpers=block(helpers((reference, candidate)) + on_device),
        imports="".join(f"import {m}\n" for m in modules),
        candidate_call="on_device(candidate, inputs())" if on_device else "candidate(*inputs())",
        inputs="\n".join(f"        {tensor(t)}," for t in trial.reference.inputs),
        reference=function("reference", reference), candidate=function("candidate", candidate),
        admitted=repr(admitted), name=re.sub(r"\W+", "_", claim.name),
        otherwise="        else:\n            assert torch.equal(a.nan_to_num(), b.nan_to_num()), f\"{name} differs\""
        if not admitted else "",
    )  # fmt: skip


def claim_text(span: Span | None, sources: Mapping[str, str]) -> str:
    """What is claimed, with its place; nothing where that is not known."""
    return "\n".join([f"{span.file}:{span.line}", *lines_of(span, sources)]) if span else ""


def block(text: str) -> str:
    """A part of a file, if there is any, with the lines around it."""
    return f"\n{text}\n\n" if text else ""


# ---- replay


class NoCounterexample(Exception):
    """A file is not a counterexample of `fxrewrite verify`; the text says what is missing."""


@frozen
class Kept:
    """What a file holds: the claim by kind and name, a case of it, and the device that it failed on."""

    kind: str
    subject: str
    given: Given
    device: str = CPU


def meta_of(text: str, path: Path) -> dict[str, Any]:
    """What a counterexample says of itself. Raises NoCounterexample."""
    line = next((x for x in text.splitlines() if x.startswith(MARK)), None)
    if line is None:
        raise NoCounterexample(f"{path} has no line that begins with `{MARK.strip()}`")
    try:
        found = json.loads(line.removeprefix(MARK))
        if isinstance(found["subject"], str):
            return found
    except (ValueError, KeyError, TypeError) as error:
        raise NoCounterexample(f"{path} cannot be read: {error}") from error
    raise NoCounterexample(f"{path} cannot be read: its subject is no name")


def run_file(text: str, path: Path) -> dict[str, Any]:
    """The names of a counterexample. Raises NoCounterexample."""
    module: dict[str, Any] = {"__name__": "counterexample"}
    try:
        exec(compile(text, str(path), "exec"), module)
    except Exception as error:
        raise NoCounterexample(f"{path} cannot be read: {error}") from error
    return module


def read(text: str, path: Path) -> Kept:
    """The case of a counterexample. Runs the file, which is Python. Raises NoCounterexample."""
    meta, module = meta_of(text, path), run_file(text, path)
    try:
        given = with_tensors(meta, module["inputs"]())
        return Kept(meta["kind"], meta["subject"], given, meta.get("device", CPU))
    except Exception as error:
        raise NoCounterexample(f"{path} cannot be read: {error}") from error
