"""Sites that Inductor compiles, with the roundings kept: a left side alone, and whole random programs.

A left side alone is a declared function: what compiled code gives must be what the contract admits. A random program is
none, as long chains of torch ops say nowhere which of their roundings are declared, and what Inductor computes
otherwise (exponentials, the order of sums) moves them: it is held by closeness to the same program op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from fxrewrite.lowering.backend import HOOK
from fxrewrite.lowering.graph_pass import RewritePass
from fxrewrite.verify.claims import Claim
from fxrewrite.verify.equal import CannotTry, compare
from fxrewrite.verify.graphs import copied
from fxrewrite.verify.programs import Program
from fxrewrite.verify.sites import Site
from fxrewrite.verify.straight import record_side

CLOSE = 2.0**-6  # of compiled code, in which an exponential is another: relative, to the largest element
FAR = 0.02  # the share that may be further: codes may be a step apart where such a value decided a rounding


def compiled_is_admitted(claim: Claim, site: Site, pass_: RewritePass) -> None:
    """AssertionError where the compiled left side of a rule, with the rules, gives what its contract does not admit."""
    reference = record_side(claim.expected, site.setting.operands, site.setting.assignment.attributes)
    found = compiled(GraphModule(torch.nn.Module(), copied(site.graph)), site.inputs, pass_)
    try:
        wrong, _ = compare(claim.contract, reference, dict(zip(reference.results, found)))
    except CannotTry:
        return
    assert not wrong, next(iter(wrong.values()))


def compiled_is_close(program: Program, pass_: RewritePass) -> None:
    """AssertionError where compiled code, with the rules, is far from the program run op by op."""
    with torch.no_grad():
        expected = program.function()(*program.arguments())
    found = compiled(program.function(), program.arguments(), pass_)
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        said = _far(a, b)
        assert said is None, f"output {i}: {said}"


def compiled(fn: Callable[..., Any], args: Sequence[Tensor], pass_: RewritePass) -> Sequence[Tensor]:
    """What `fn` gives when it is compiled with the rules, roundings kept."""
    options = {HOOK: pass_, "emulate_precision_casts": True, "fx_graph_cache": False}
    try:
        with torch.no_grad():
            return torch.compile(fn, options=options, fullgraph=True)(*args)
    finally:
        torch._dynamo.reset()


def _far(a: Tensor, b: Tensor) -> str | None:
    """How far compiled code is off."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    x, y = a.double().nan_to_num(), b.double().nan_to_num()
    if not x.numel():
        return None
    off = (x - y).abs() > CLOSE * x.abs().clamp(min=float(x.abs().max()) * CLOSE)
    share = off.double().mean().item()
    return f"{share:.1%} of the elements differ by more than {CLOSE:.1%}" if share > FAR else None
