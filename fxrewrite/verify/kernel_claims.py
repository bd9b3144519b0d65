"""Claims about the kernels of a declared op on a device: that the hand-written one (`fxrewrite_kernels`), and the one
that is generated there, are its definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import field, frozen

from fxrewrite.dsl.core import Case, Dtype, OpDef, Program
from fxrewrite.dsl.evaluate import Algebra
from fxrewrite.lowering import generated
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.providers import kernel_for
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.claims import Claim, NotThisCase

Kind = Literal["kernel", "generated"]


@frozen
class KernelClaim(Claim):
    """That the kernel of `op` on `device` is the definition."""

    def tensors(self) -> Torch:
        """Tensors, and a call of the op as a call of its kernel."""
        kind: Kind = "generated" if self.candidate.name == "generated" else "kernel"
        return Kernels(self.program, kind, self.device.partition(":")[0])

    def claimed(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The results by the kernel. Raises as `expected` does."""
        bindings = self._bound(algebra, operands, attributes)
        values = [bindings.operands[o.name] for o in self.op.operands]
        return self._named(algebra.reference(self.op, values, bindings.attributes))


@frozen
class Kernels(Torch):
    """Torch tensors; what an op gives is what its kernel for `device` gives."""

    program: Program
    kind: Kind
    device: str = field(default="cpu")

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of the kernel: operands, then attributes, by position. Raises NotThisCase where none can be
        generated for these."""
        values = [DTYPES[v.name] if isinstance(v, Dtype) else v for v in attributes.values()]
        made = self._kernel(op, operands, dict(zip(attributes, values)))(*operands, *values)
        return made if len(op.results) > 1 else (made,)  # one result may be a list

    def _kernel(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        if self.kind == "kernel":
            return kernel_for(op.name, self.device).default
        why = generated.why_not(self.program, op, self.device, operands, attributes)
        if why is not None:
            raise NotThisCase(why)
        return generated.op_for(self.program, op.name)


def kernel_claims(program: Program, device: str) -> Iterator[Claim]:
    """One claim for each op that has a kernel on a device, and one for each that may get a generated one there."""
    here = device.partition(":")[0]
    generates = generated.unavailable(here) is None
    for op in program.ops.values():
        kinds = ["kernel"] if kernel_for(op.name, here) is not None else []
        kinds += ["generated"] if generates and op.equations and not op.effects else []
        for kind in kinds:
            case = Case(kind, ())
            name = f"{op.name}/{kind}"
            yield KernelClaim("kernel", name, program, op, case, None, op.contract, op.span, device=device)
