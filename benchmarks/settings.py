"""How large the benchmarks are."""

from __future__ import annotations

from attrs import frozen


@frozen
class Settings:
    """`SMALL` is what the tests run."""

    layers: int = 32  # of the Llama whose graph is matched
    runs: int = 7
    compile: bool = False  # measure the cold compile, too
    sites: int = 64
    variants: tuple[int, ...] = (1, 10, 30)
    slow_runs: int = 1  # of what takes seconds
    starts: int = 5
    scale_layers: tuple[int, ...] = (8, 32, 128, 1408)  # the last has 100,000 nodes
    scale_rules: tuple[int, ...] = (1, 30, 300)
    product_widths: tuple[int, ...] = (64, 256, 1024, 4096)


SMALL = Settings(
    layers=2, runs=3, sites=4, variants=(1, 3), starts=1, scale_layers=(2, 4), scale_rules=(1, 4),
    product_widths=(256,),
)  # fmt: skip
