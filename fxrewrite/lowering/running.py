"""The schemas of the torch that is installed, for checks: what it lacks, and what the snapshot has otherwise."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

import torch
from attrs import field, frozen

from fxrewrite.dsl.schemas.schema import Argument, Schema, parse
from fxrewrite.dsl.schemas.snapshot import Remark, Snapshot, read

REGISTER = (
    "torch._prims", "torch._inductor.inductor_prims", "torch.distributed._functional_collectives",
    "torch.distributed._symmetric_memory",
)  # fmt: skip
_SYMBOLIC = re.compile(r"\bSym(?=Int\b|Float\b|Bool\b)")


@cache
def _registered() -> None:
    """Import what registers the ops of torch that torch itself does not import."""
    for module in REGISTER:
        try:
            import_module(module)
        except ImportError:  # built without distributed: its ops are then missing, which is said of each
            continue


@frozen
class Running:
    """The schemas of this process; of an op that it does not have, those of the snapshot.

    `lenient`: those of the snapshot count beside them, so that a call is refused only where both refuse it.
    """

    lenient: bool = False
    snapshot: Snapshot = field(factory=Snapshot)

    def find(self, op: str) -> tuple[Schema, ...]:
        """The overloads of `namespace.name`."""
        here = self.here(op)
        return (*here, *self.snapshot.find(op)) if self.lenient or not here else here

    def here(self, op: str) -> tuple[Schema, ...]:
        """The overloads that this process has."""
        _registered()
        namespace, _, name = op.partition(".")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            return ()
        return tuple(parse(str(getattr(packet, o)._schema)) for o in packet.overloads())

    def is_complete(self, namespace: str) -> bool:
        """Is every op of the namespace either here or in the snapshot?"""
        return self.snapshot.is_complete(namespace)

    def names(self, namespace: str) -> list[str]:
        """The names of ops of a namespace, for suggestions."""
        return self.snapshot.names(namespace)

    def remark(self, op: str) -> Remark | None:
        """RW229 for an op that is not here, RW230 for one that the snapshot has otherwise."""
        here, known = self.here(op), self.snapshot.find(op)
        namespace = op.partition(".")[0]
        if not here:
            if not known and self.is_complete(namespace):
                return None  # it is no op at all, which is an error
            message = f"{op} is not in this build of torch" + ("" if known else ", and its schema is not known")
            ours = self.is_complete(namespace)
            hint = (
                "another version of torch has it" if ours else "`--import MODULE` imports a package that registers it"
            )
            return Remark("RW229", message, hint)
        changed = _changed(here, known)
        if changed is None:
            return None
        message = f"{op} has another schema here than in the snapshot ({read(namespace).source})"
        return Remark("RW230", message, f"here: `{changed.text.replace('::', '.', 1)}`")


def _changed(here: tuple[Schema, ...], known: tuple[Schema, ...]) -> Schema | None:
    """The first overload that is here and has other arguments or results in the snapshot, which has it too."""
    for schema in here:
        others = [s for s in known if s.overload == schema.overload]
        if others and not any(_same(schema, s) for s in others):
            return schema
    return None


def _same(a: Schema, b: Schema) -> bool:
    return len(a.returns) == len(b.returns) and tuple(map(_plain, a.arguments)) == tuple(map(_plain, b.arguments))


def _plain(a: Argument) -> tuple[str, str, bool, bool, bool]:
    """What a call can tell: sizes may be symbolic or not, and how a default is written does not matter."""
    return a.name, _SYMBOLIC.sub("", a.type).lower(), a.default is not None, a.by_name, a.written
