"""Prove what the shipped packs say of other packages' ops, on this machine, and write what came out into the ledger.

python tools/ledger.py --import vllm._C [--device cuda] [FILE]

FILE is patterns/ledger.json. Entries of other machines and releases stay; what cannot be tried here is told and not
written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import attrs
import torch

from fxrewrite.dsl.core import Case, OpDef
from fxrewrite.dsl.packs import shipped
from fxrewrite.lowering import ledger, owners
from fxrewrite.lowering.config import load_program, machine_facts, make_config
from fxrewrite.lowering.proofs import Kind, Question, device_name
from fxrewrite.verify.proving import prove

LEDGER = Path(__file__).parents[1] / "patterns" / "ledger.json"


def main() -> None:
    """Prove, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=LEDGER)
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    for module in given.modules:
        import_module(module)
    found = list(measured(torch.device(given.device)))
    kept = json.loads(given.file.read_text(encoding="utf-8"))["entries"] if given.file.exists() else []
    new = {(e.digest, e.releases, e.device) for e in found}
    old = [e for e in kept if (e["digest"], tuple(e["releases"]), e["device"]) not in new]
    entries = sorted(
        [*old, *map(attrs.asdict, found)], key=lambda e: (e["subject"], e["kind"], e["device"], e["digest"])
    )
    given.file.write_text(json.dumps({"schema": ledger.SCHEMA, "entries": entries}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} measured here, {len(entries)} in {given.file}")


def measured(device: torch.device) -> Iterator[ledger.Entry]:
    """What each claim came to that can be tried here."""
    config = make_config(tuple(shipped()), allow_unproved=True)
    program, facts, name = load_program(config), machine_facts(config), device_name(device)
    if name is None:
        raise SystemExit(f"there is no device {device} here")
    for op in program.ops.values():
        for kind, case in claims(op):
            answer = prove(Question(program, op, kind, case, device, facts))
            print(f"{op.name}/{case.name} ({kind}): {answer.result} {answer.why}".rstrip())
            if answer.result == "untried":
                continue
            key = ledger.key_of(program, op, kind, case, name)
            if key is None:
                print("  not written: the release of its package is not known")
            else:
                yield ledger.made(key, kind, f"{op.name}/{case.name}", answer.result, answer.cases, answer.why)


def claims(op: OpDef) -> Iterator[tuple[Kind, Case]]:
    """The forms and impls of an op that call another package's op."""
    for form in filter(owners.foreign, op.forms):
        yield "form", form
    for impl in filter(owners.foreign, op.impls):
        yield "impl", impl


if __name__ == "__main__":
    main()
