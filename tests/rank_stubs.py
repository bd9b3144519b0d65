"""A group of ranks in one process: a graph runs once a rank, in threads that meet at each collective.

    with rank_stubs.declared() as ranks:              # torch.ops.vllm.all_reduce exists in here
        outputs = ranks.run(gm, lambda rank: args)    # a list of outputs for each rank

Collectives of `_c10d_functional` and `symm_mem` need a machine: in a run these are played. Sums add the ranks in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers what the collectives give for fake tensors
import torch.distributed._symmetric_memory  # registers `symm_mem`
from torch import Tensor
from torch._C import _distributed_c10d as distributed
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves

import narrow_stubs
import vllm_stubs
from fxrewrite.dsl.schemas.snapshot import read
from fxrewrite.lowering import eager

SIZE = 2  # ranks of the group "tp"
WAIT = 20  # seconds until a rank that never comes is an error
c10d, symm_mem = torch.ops._c10d_functional, torch.ops.symm_mem
Kernel = Callable[..., Any]


class Ranks:
    """The ranks, and what they bring to a meeting."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(SIZE, timeout=WAIT)
        self.brought: list[Any] = [None] * SIZE
        self.here = threading.local()

    def run(self, gm: GraphModule, args: Callable[[int], Sequence[Any]]) -> list[list[Any]]:
        """The outputs of each rank; `args(rank)` are its inputs."""
        outputs: list[Any] = [None] * SIZE

        def work(rank: int) -> None:
            self.here.rank = rank
            try:
                with torch.no_grad():
                    outputs[rank] = Played(gm, self).run(*args(rank), enable_io_processing=False)
            except Exception as error:  # noqa: BLE001  raised below, in the thread of the test
                outputs[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(SIZE)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.barrier.reset()
        errors = [o for o in outputs if isinstance(o, Exception)]
        if errors:
            raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
        return [list(tree_leaves(o)) for o in outputs]

    # ---- the built-ins over ranks

    def meet(self, x: Tensor) -> list[Tensor]:
        """What each rank brings."""
        self.brought[self.here.rank] = x
        self.barrier.wait()
        found = list(self.brought)
        self.barrier.wait()
        return found

    def psum(self, x: Tensor, group: Any = None) -> Tensor:
        first, *rest = self.meet(x)
        for part in rest:
            first = first + part
        return first

    def pconcat(self, x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
        return torch.cat(self.meet(x), dim)

    def pshard(self, x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
        return x.chunk(SIZE, dim)[self.here.rank].contiguous()

    # ---- ops of engines

    def norm(
        self, x: Tensor, r: Tensor, w: Tensor, eps: float, size: int, pdl: bool, acc: bool, most: int, code: int,
        norm_out: Tensor | None = None, quant_out: Tensor | None = None, scale_out: Tensor | None = None,
        scale: Tensor | None = None, bias: float = 0.0,
    ) -> None:  # fmt: skip
        """`code`: 1 a norm, 2 FP8, 3 NVFP4. Where the norm has no buffer it is put in the place of `x`."""
        assert size == SIZE and len(x) <= most and code in (1, 2, 3)
        total = self.psum(x.clone())
        weight = w if bias == 0 else w.float() + bias
        if norm_out is not None:
            assert not r.any()
            norm_out.copy_(vllm_stubs.rms_norm(total, weight, eps))
            x.copy_(total)
            return
        y, h = vllm_stubs.add_rms_norm(total, r.clone(), weight, eps)
        r.copy_(h)
        if quant_out is None:
            x.copy_(y)
        elif scale_out is not None and scale is not None:
            codes, scales = narrow_stubs.nvfp4(y, scale)
            quant_out.copy_(codes)
            scale_out.view(torch.uint8).copy_(narrow_stubs.tiles(scales))
        else:
            assert scale is not None
            quant_out.copy_(vllm_stubs.codes(y.float() * scale.reciprocal(), quant_out.dtype))

    def aiter_norm(self, x: Tensor, r: Tensor, w: Tensor, eps: float, gemma: bool = False) -> tuple[Tensor, Tensor]:
        assert not gemma
        return vllm_stubs.add_rms_norm_wide(self.psum(x), r, w, eps)

    def aiter_norm_group(self, x: Tensor, r: Tensor, w: Tensor, eps: float, size: int) -> tuple[Tensor, Tensor, Tensor]:
        y, h = self.aiter_norm(x, r, w, eps)
        codes, scales = vllm_stubs.per_group(y, size, 1e-10, vllm_stubs.FP8)
        return codes, h, scales


def product(a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, dt: Any, fast: bool) -> Tensor:
    return torch.ops.aten._scaled_mm.default(a, b, sa, sb, None, None, dt, fast)


class Played(Interpreter):
    """Runs a graph on one rank; what needs a machine is played by `ranks`."""

    def __init__(self, gm: GraphModule, ranks: Ranks):
        super().__init__(gm)
        self.ranks = ranks
        self.played: dict[Any, Kernel] = {
            c10d.all_reduce.default: lambda x, op, g: ranks.psum(x) / (SIZE if op == "avg" else 1),
            c10d.all_gather_into_tensor.default: lambda x, n, g: ranks.pconcat(x),
            c10d.reduce_scatter_tensor.default: lambda x, op, n, g: ranks.pshard(ranks.psum(x)),
            c10d.wait_tensor.default: lambda x: x,
            symm_mem.fused_matmul_reduce_scatter.default: lambda a, b, op, d, g: ranks.pshard(ranks.psum(a @ b), d),
            symm_mem.fused_all_gather_matmul.default: lambda a, bs, d, g: (
                (t := ranks.pconcat(a, d)), [t @ b for b in bs],
            ),
            symm_mem.fused_scaled_matmul_reduce_scatter.default: (
                lambda a, b, sa, sb, op, d, _, g, shape, bias, rs, dt, fast: ranks.pshard(
                    ranks.psum(product(a, b, sa, sb, dt, fast)), d
                )
            ),
            symm_mem.fused_all_gather_scaled_matmul.default: self.gather_and_multiply,
        }  # fmt: skip

    def gather_and_multiply(
        self, a: Tensor, bs: list[Tensor], sa: Tensor, sbs: list[Tensor], d: int, g: str, biases: Any, scales: Any,
        dts: list[Any], fasts: list[bool],
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        """Scales of rows are gathered too."""
        assert biases == scales == [None] * len(bs)
        whole = self.ranks.pconcat(a, d)
        sa = sa if sa.numel() == 1 else self.ranks.pconcat(sa, d)
        return whole, [product(whole, b, sa, sb, dt, f) for b, sb, dt, f in zip(bs, sbs, dts, fasts)]

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Play it, or run it."""
        kernel = self.played.get(target)
        return super().call_function(target, args, kwargs) if kernel is None else kernel(*args, **kwargs)


def ops(ranks: Ranks) -> dict[str, tuple[Kernel, Kernel]]:
    """Ops of vLLM: the kernel, and what it gives on fake tensors."""
    return {
        "all_reduce": (lambda x, g: ranks.psum(x).clone(), lambda x, g: torch.empty_like(x)),
        "all_gather": (lambda x, d, n, g: ranks.pconcat(x, d), lambda x, d, n, g: torch.cat([x] * n, d)),
        "reduce_scatter": (
            lambda x, d, n, g: ranks.pshard(ranks.psum(x), d).clone(),
            lambda x, d, n, g: x.chunk(n, d)[0].contiguous(),
        ),
        "flashinfer_trtllm_fused_allreduce_norm": (ranks.norm, lambda *args, **named: None),
        "rocm_aiter_fused_allreduce_rmsnorm": (
            ranks.aiter_norm, lambda x, r, w, eps, gemma=False: (torch.empty_like(x), torch.empty_like(x)),
        ),
        "rocm_aiter_fused_allreduce_rmsnorm_quant_per_group": (
            ranks.aiter_norm_group,
            lambda x, r, w, eps, size: (
                torch.empty_like(x, dtype=vllm_stubs.FP8), torch.empty_like(x),
                x.new_empty(len(x), x.shape[1] // size, dtype=torch.float32),
            ),
        ),
    }  # fmt: skip


def unless_fake(played: Kernel, real: Kernel) -> Kernel:
    """On fake tensors nobody meets."""
    return lambda x, *rest: (real if isinstance(x, FakeTensor) else played)(x, *rest)


@contextmanager
def group_of_torch() -> Iterator[None]:
    """A process group called "tp" that torch can tell the size of, and nothing more."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=SIZE)
    name: Any = "tp"
    whole: Any = dist.group.WORLD
    try:
        distributed._register_process_group(name, whole)
        yield
    finally:
        distributed._unregister_process_group(name)
        dist.destroy_process_group()


@contextmanager
def declared() -> Iterator[Ranks]:
    """The ops of `vllm_stubs`, and in this block collectives, in which the ranks of one process meet."""
    vllm_stubs.declare()
    ranks = Ranks()
    library = torch.library.Library("vllm", "FRAGMENT")
    try:
        for name, (kernel, fake) in ops(ranks).items():
            text = read("vllm").find(name)[0].text.partition("::")[2]
            library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
            library.impl(name, kernel, "CompositeExplicitAutograd")
            torch.library.register_fake(f"vllm::{name}", fake, lib=library)
        with pytest.MonkeyPatch.context() as patch, group_of_torch():
            for name in ("psum", "pshard", "pconcat"):
                patch.setitem(eager.PRIMITIVES, name, unless_fake(getattr(ranks, name), eager.PRIMITIVES[name]))
            yield ranks
    finally:
        library._destroy()
