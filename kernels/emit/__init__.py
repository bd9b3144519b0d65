"""A definition and a schedule, written as the source of one Triton kernel.

    source = emit(definition, choose(definition, tokens), DEVICE)
    print(source.text)

The width and the sizes of blocks are numbers in the text; tokens and strides are arguments.
"""

from __future__ import annotations

import keyword
import re

from attrs import frozen
from fxrewrite_kernels import prelude
from fxrewrite_kernels.analyse import Analysis, analyse
from fxrewrite_kernels.emit.loop import write_loop
from fxrewrite_kernels.emit.target import DEVICE, EXACT, INTERPRETER, Target
from fxrewrite_kernels.emit.values import Values
from fxrewrite_kernels.emit.whole import write_whole
from fxrewrite_kernels.ir import GROUPS, Definition
from fxrewrite_kernels.schedule import Schedule


@frozen
class Source:
    """The text of a module, and the name of the kernel in it."""

    text: str
    name: str


def emit(definition: Definition, schedule: Schedule, target: Target, facts: Analysis | None = None) -> Source:
    """The module of a kernel. `facts`: its analysis, where that is known already."""
    values = Values(definition, schedule, target, facts=facts or analyse(definition))
    (write_loop if schedule.kind == "loop" else write_whole)(values)
    name = kernel_name(definition)
    head = f'@triton.jit(do_not_specialize=["T"])\ndef {name}({", ".join(parameters(definition))}):\n'
    body = "\n".join(values.lines) + "\n"
    return Source(f"{prelude.text(values.helpers, target.interpreted).rstrip()}\n\n\n{head}{body}", name)


def parameters(definition: Definition) -> list[str]:
    """The parameters of the kernel: inputs, strides of their rows, outputs, strides between groups, tokens."""
    return [
        *(f"i_{i.name}" for i in definition.inputs),
        *(f"s_{i.name}" for i in definition.inputs if i.kind == "rows"),
        *(f"o_{o.name}" for o in definition.outputs),
        *(f"u_{o.name}" for o in definition.outputs if o.node.axis == GROUPS and o.layout != "row"),
        "T",
    ]


def kernel_name(definition: Definition) -> str:
    """The name of the kernel in its module."""
    name = re.sub(r"\W", "_", definition.name)
    return f"fxr_{name}" if not keyword.iskeyword(name) else f"fxr_{name}_"


__all__ = ["DEVICE", "EXACT", "INTERPRETER", "Source", "Target", "emit", "kernel_name", "parameters"]
