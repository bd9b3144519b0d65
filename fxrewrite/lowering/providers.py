"""Which implementation an emitted op gets: the first of the user's list that serves it on this device.

`kernel`: a hand-written kernel registered for the device. `generated`: a kernel made from the definition. `definition`:
the site stays as it is. `op`: the registered op that interprets the definition. Any other name is an `impl` of the op,
or a form of it that is one bound call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from attrs import Factory, define, field, frozen

from fxrewrite.dsl import registered
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Case, OpDef, Program
from fxrewrite.lowering import generated, library
from fxrewrite.lowering.failures import Failures
from fxrewrite.lowering.impls import NotServed, can_provide, missing_op
from fxrewrite.lowering.plan import Refusal
from fxrewrite.lowering.proofs import Proofs
from fxrewrite.patterns.hints import providers_hint, relaxed_hint

logger = logging.getLogger("fxrewrite")
DEFAULT = ("kernel", "generated", "definition")
BUILT_IN = (*DEFAULT, "op")
KEPT = "kept: no faster provider here"
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Kept(Refusal):
    """The site stays as it is."""


@frozen
class Provider:
    """What serves an op at a site: `target(dyn)` is the op to call; or the `results` of an `impl`, written already."""

    name: str
    target: Callable[[bool], Any] = field(default=lambda dyn: None)
    results: list[Any] | None = None


def kernel_for(name: str, device: str) -> Any:
    """The hand-written kernel of an op for a device type, or None."""
    kernels = _kernels()
    return None if kernels is None else kernels.find(name, device)


def registered_kernels() -> list[tuple[str, str, str]]:
    """Every (op, device type, digest of the source) of a hand-written kernel here."""
    kernels = _kernels()
    return [] if kernels is None else kernels.states()


@cache
def _kernels() -> Any:
    """The package of kernels; None where it is not installed, or cannot be imported here, which is said once."""
    try:
        import fxrewrite_kernels
    except ModuleNotFoundError as error:
        if error.name != "fxrewrite_kernels":
            logger.warning("the provider `kernel` is off: %s", error)
        return None
    except Exception as error:  # noqa: BLE001  what an installed package does at import is not known
        logger.warning("the provider `kernel` is off: %s: %s", type(error).__name__, error)
        return None
    return fxrewrite_kernels


def impls_of(op: OpDef) -> dict[str, Case]:
    """What can be named as a provider of `op`: its impls, and its forms that are one bound call."""
    return {**{f.name: f for f in op.forms if can_provide(f)}, **{i.name: i for i in op.impls}}


def relaxed(case: Case) -> bool:
    """Does it keep less than the contract of its op?"""
    return case.contract is not None and case.contract.kind == "relaxed"


def without_meaning(program: Program, op: OpDef) -> str | None:
    """The first op in a definition that nothing here can evaluate: an engine's own, known by its forms alone."""
    found = {op.name: op}
    todo = [op]
    for one in todo:
        if not one.equations and (one.ref is None or registered.function(registered.REFS, one.ref) is None):
            return one.name
        called = {c.op for case in one.equations for c in calls_of(case.outputs)} - found.keys()
        new = {n: program.ops[n] for n in sorted(called) if n in program.ops}  # a call may be another pack's
        found.update(new)
        todo += new.values()
    return None


@define
class Providers:
    """The user's list, resolved against a program. `facts`: `sm`, `rocm`, `world`. `failures`: an `impl` that raised is
    off for the graph that they are of. `proofs`: of what calls other packages' ops.
    """

    program: Program
    names: Sequence[str] = DEFAULT
    allow_relaxed: bool = False
    facts: Mapping[str, Any] = field(factory=dict)
    failures: Failures = field(factory=Failures)
    proofs: Proofs = field(default=Factory(lambda self: Proofs(self.program), takes_self=True))
    _lacking: dict[str, str | None] = field(init=False, factory=dict)

    def choose(
        self, op: OpDef, device: str, write: Callable[[Case], list[Any]], site: Callable[[], Arguments] | None = None
    ) -> Provider:
        """The provider of a call. `write` puts an impl into the graph, or raises NotServed, the graph as it was.
        `site`: the operands, as fake tensors, and the attributes; without it no kernel is generated.

        Raises Refusal: the site stays, or nothing serves it.
        """
        reasons: list[str] = []
        hints: list[str] = []
        unproved = False
        lacking = self._without_meaning(op)
        for name in self.names:
            if name == "kernel":
                kernel = kernel_for(op.name, device)
                if kernel is not None:
                    return Provider("kernel", lambda dyn, k=kernel: k.dyn if dyn else k.default)
            elif name == "generated":
                reason = "no site" if site is None else generated.why_not(self.program, op, device, *site())
                if reason is None:
                    return Provider("generated", lambda dyn: generated.op_for(self.program, op.name))
                reasons.append(f"generated: {reason}")
            elif name == "definition":
                found = "; ".join([*reasons, f"providers: {', '.join(self.names)}"])
                hint = next(filter(None, hints), "" if lacking else providers_hint(["op"]))
                raise Kept("not proved" if unproved else KEPT, found, hint=hint)
            elif name == "op":
                if lacking is not None:
                    reasons.append(f"op: {lacking} has no equation, and no installed package registers its `ref`")
                    continue
                return Provider("op", lambda dyn: library.op_for(self.program, op.name, dyn))
            else:
                try:
                    return Provider(name, results=self._impl(name, op, write))
                except NotServed as error:
                    reasons.append(f"{name}: {error}")
                    hints.append(error.hint)
                    unproved = unproved or error.unproved
        found = "; ".join(reasons) or f"none of {', '.join(self.names)} serves {op.name} on {device}"
        hint = next(filter(None, hints), "" if lacking else providers_hint([*self.names, "op"]))
        raise Refusal("not proved" if unproved else "provider missing", found, hint=hint)

    def proof_state(self) -> list[Any]:
        """What the proofs of forms, and of the impls that are named, depend on, and what is known of them."""
        named = [(op, case) for op in self.program.ops.values() for n, case in impls_of(op).items() if n in self.names]
        return self.proofs.state(named)

    def _without_meaning(self, op: OpDef) -> str | None:
        if op.name not in self._lacking:
            self._lacking[op.name] = without_meaning(self.program, op)
        return self._lacking[op.name]

    def _impl(self, name: str, op: OpDef, write: Callable[[Case], list[Any]]) -> list[Any]:
        case = impls_of(op).get(name)
        if case is None:
            raise NotServed(f"{op.name} has no impl of this name")
        if relaxed(case) and not self.allow_relaxed:
            raise NotServed("its contract is relaxed", relaxed_hint())
        provider = f"{op.name}.{name}"
        if provider in self.failures.off:
            raise NotServed(self.failures.off[provider])
        try:
            return write(case)
        except NotServed:
            raise
        except Exception as error:
            raise NotServed(self.failures.note(provider, case.span, error)) from error


# ---- what can be said without a site


@frozen
class Candidate:
    """A provider of an op on this machine: `on` if it may be used where its `when` holds; else `reason`."""

    name: str
    on: bool
    reason: str = ""


def candidates(op: OpDef, device: str, allow_relaxed: bool = False, proofs: Proofs | None = None) -> list[Candidate]:
    """Every provider that `op` has or could have on a device type, and what is against it; a proof is not begun."""
    kernel = kernel_for(op.name, device) is not None
    out = [
        Candidate("kernel", kernel, "" if kernel else f"none is registered for {device}"),
        *([] if proofs is None else [_generated(proofs.program, op, device)]),
        Candidate("op", True),
    ]
    for name, case in impls_of(op).items():
        absent = missing_op(case)
        if absent is not None:
            out.append(Candidate(name, False, f"{absent} is not in this build"))
        elif relaxed(case) and not allow_relaxed:
            out.append(Candidate(name, False, "its contract is relaxed (`allow_relaxed` lets it in)"))
        else:
            said = "" if proofs is None else proofs.remembered_against(op, "impl", case, torch.device(device))
            out.append(Candidate(name, not said, said))
    return out


def _generated(program: Program, op: OpDef, device: str) -> Candidate:
    reason = generated.in_general(program, op, device)
    return Candidate("generated", reason is None, reason or "")


def unknown_names(program: Program, names: Iterable[str]) -> list[str]:
    """One line for each provider name that no op has."""
    known = {*BUILT_IN, *(name for op in program.ops.values() for name in impls_of(op))}
    return [
        f"no op has a provider called {name!r}; {closest(name, known) or 'known: ' + ', '.join(sorted(known))}"
        for name in names
        if name not in known
    ]


__all__ = [
    "BUILT_IN",
    "DEFAULT",
    "KEPT",
    "Candidate",
    "Provider",
    "Providers",
    "candidates",
    "impls_of",
    "unknown_names",
]
