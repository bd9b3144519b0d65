"""Claims about hand-written kernels (`fxrewrite_kernels`): that the one of an op on a device is its definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from fxrewrite.dsl.core import Case, Dtype, OpDef, Program
from fxrewrite.dsl.evaluate import Algebra
from fxrewrite.lowering.eager import Torch
from fxrewrite.lowering.providers import kernel_for
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.verify.claims import Claim


@frozen
class KernelClaim(Claim):
    """That the kernel of `op` on `device` is the definition."""

    def tensors(self) -> Torch:
        """Tensors, and a call of the op as a call of its kernel."""
        return Kernels(self.device.partition(":")[0])

    def claimed(self, algebra: Algebra, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The results by the kernel. Raises as `expected` does."""
        bindings = self._bound(algebra, operands, attributes)
        values = [bindings.operands[o.name] for o in self.op.operands]
        return self._named(algebra.reference(self.op, values, bindings.attributes))


@frozen
class Kernels(Torch):
    """Torch tensors; what an op gives is what its kernel for `device` gives."""

    device: str

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of the kernel: operands, then attributes, by position."""
        values = [DTYPES[v.name] if isinstance(v, Dtype) else v for v in attributes.values()]
        made = kernel_for(op.name, self.device).default(*operands, *values)
        return made if isinstance(made, tuple | list) else (made,)


def kernel_claims(program: Program, device: str) -> Iterator[Claim]:
    """One claim for each op that has a kernel on a device."""
    kind = device.partition(":")[0]
    for op in program.ops.values():
        if kernel_for(op.name, kind) is not None:
            yield KernelClaim(
                "kernel", f"{op.name}/kernel", program, op, Case("kernel", ()), None, op.contract, op.span,
                device=device,
            )  # fmt: skip
