"""Graphs that failed, as scripts that need only torch: the graph before and after the rule, its inputs, and a test that
what can be seen did not move. `fxrewrite verify --replay FILE` holds the rule as it stands now against the graph."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.fx import Graph

from fxrewrite.dsl.core import Program
from fxrewrite.dsl.syntax import Span
from fxrewrite.verify.counterexample import MARK, block, claim_text
from fxrewrite.verify.graph_text import Text
from fxrewrite.verify.spelling import helpers, tensor

TEMPLATE = '''"""{title}

{text}

torch {torch}
{note}
Run it with `python FILE` or `pytest FILE`. `fxrewrite verify --replay FILE` holds the rule as it stands now against the
same graph.
"""
{mark}{meta}

from __future__ import annotations

import base64
import operator

import torch
{imports}
nan, inf = float("nan"), float("inf")
{helpers}

def inputs():
    made = [
{inputs}
    ]
    return [made[i] for i in {order}]  # an input may stand twice


CONSTANTS = {{
{constants}
}}

{source}
{definitions}{before}


{after}


def same(a, b):
    """Of one type, and equal bit for bit; one NaN is as good as another."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a == b
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    x, y = a.double(), b.double()
    return bool((((x == y) & (x.signbit() == y.signbit())) | ((x != x) & (y != y))).all())


def test_{name}():
    """Outputs, and inputs that may have been written."""
    given, again = inputs(), inputs()
    with torch.no_grad():
        want, got = [*before(*given), *given], [*after(*again), *again]
    assert len(want) == len(got), f"{{len(want)}} values became {{len(got)}}"
    for i, (a, b) in enumerate(zip(want, got)):
        assert same(a, b), f"value {{i}}: {{a}} became {{b}}"


if __name__ == "__main__":
    test_{name}()
    print({said!r})
'''
HELD = "both graphs give the same here; what is wrong is which graph the rule takes"


@frozen
class Failed:
    """A graph that failed. `meta`: how it is found again, as JSON. `after` None: the rule did nothing, or raised.

    `source`: Python that the file holds beside (`program`, of a check in context).
    """

    subject: str
    reason: str
    meta: Mapping[str, Any]
    before: Graph
    after: Graph | None
    inputs: Sequence[Tensor]
    constants: Mapping[str, Tensor]
    span: Span | None = None
    source: str = ""

    def script(self, program: Program) -> str:
        """The file."""
        text, apart = Text(program), {id(t): t for t in self.inputs}
        order = [[*apart].index(id(t)) for t in self.inputs]
        before = text.function("before", self.before, self.inputs, self.constants)
        graph = self.before if self.after is None else self.after
        after = text.function("after", graph, self.inputs, self.constants)
        missing = ", ".join(dict.fromkeys(text.missing))
        functions = [r.program for r in text.recorded]
        return TEMPLATE.format(
            title=f"{self.subject}: {self.reason}".replace('"""', "'''").replace("\\", "\\\\"),
            text=claim_text(self.span, program.sources).replace("\\", "\\\\"), torch=torch.__version__,
            note=f"It needs the package that registers {missing}.\n" if missing else "It needs torch only.\n",
            mark=MARK, meta=json.dumps({"subject": self.subject, "graph": dict(self.meta)}),
            imports="from torch.nn import functional as F\n" if self.source else "", helpers=block(helpers(functions)),
            inputs="\n".join(f"        {tensor(t)}," for t in apart.values()), order=order,
            constants="\n".join(f"    {n!r}: {tensor(t)}," for n, t in self.constants.items()),
            source=block(self.source), definitions="".join(f"{d}\n\n\n" for d in text.definitions),
            before=before, after=after, name=re.sub(r"\W+", "_", self.subject), said=HELD,
        )  # fmt: skip
